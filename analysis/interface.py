"""Studies from Python: what `landscape analyze` does, as functions that return Datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr
from rich.console import Console

from analysis import command, store
from analysis.answers import to_dataset
from analysis.catalog import CATALOG
from analysis.costs import Cost, estimate_costs
from analysis.subjects import Subject
from landscape.errors import choose
from training.console.tables import to_records
from training.executors.ray_pool import Cluster
from training.interface import choose_console
from training.runs import Places, list_paths
from training.storage.verified_files import Json

if TYPE_CHECKING:
    import pandas as pd

Target = Places | Subject | Sequence[Subject]


def analyze(
    runs: Target,
    study: str,
    *,
    name: str = "",
    out: str | os.PathLike[str] | None = None,
    data_root: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    memory: str | None = None,
    device: str = "auto",
    backend: str = "auto",
    cluster: Cluster | None = None,
    progress: bool | None = None,
    **settings: object,
) -> xr.Dataset:
    """Measure runs with a study, or open its stored answer; several runs are joined along a dimension `run`.

    runs: run directories, folders of runs, patterns or subjects (`open_model`); one or several.
    study: its name, or 'module:name' of your own; `list_entries` lists all studies and their settings.
    name: what to call the question; by default its changed settings.
    out: folder for the answer, instead of analysis/ in the run.
    data_root: folder of the data. memory: limit for stored graphs, such as "8G".
    workers: threads, or pieces at a time; by default one for each core.
    device: where to compute: auto, cpu, cuda, cuda:1 or mps; an opened subject has one already.
    backend: serial measures piece by piece; processes and ray several at a time; auto: what should be faster.
    cluster: of the backend ray.
    progress: whether to print; by default on a terminal and in notebooks.
    settings: of the study, such as rounds="all".

    Returns a Dataset, which is also stored with the run.
    """
    subjects = _open(runs, data_root, workers, memory, device)
    paths = command.analyze(
        subjects,
        [study],
        {CATALOG.find(study).name: settings},
        console=choose_console(progress),
        out=None if out is None else Path(out),
        name=name,
        backend=backend,
        workers=workers,
        cluster=cluster,
    )
    found = [to_dataset(store.read(path)) for path in paths]
    if len(found) == 1:
        return found[0]
    names = xr.Variable("run", [subject.name for subject in subjects], {"long_name": "run", "units": "1"})
    return xr.concat(
        found, names, data_vars="all", coords="different", compat="equals", join="outer", combine_attrs="drop_conflicts"
    )


def estimate(
    runs: Target,
    study: str | Sequence[str] = (),
    *,
    data_root: str | os.PathLike[str] | None = None,
    device: str = "auto",
    **settings: object,
) -> pd.DataFrame:
    """Estimate what studies of runs will take, and measure nothing: `landscape analyze --dry-run`.

    runs, data_root, device: as `analyze` takes them.
    study: one or several; all of them by default. settings: of the study, where one is given.

    Returns a row for each study and run: pieces, those done, seconds, bytes, and settings that would shorten it.
    """
    import pandas as pd

    names = [study] if isinstance(study, str) else list(study)
    if settings and len(names) != 1:
        raise ValueError(f"settings belong to one study, and {len(names) or 'all'} are asked for: estimate them singly")
    chosen = {CATALOG.find(name).name: settings for name in names}
    subjects = _open(runs, data_root, None, None, device)
    plans = command.make_plans(subjects, names, chosen, console=Console(quiet=True))
    rows = [vars(one) for one in estimate_costs(plans)]
    found = pd.DataFrame(rows, columns=[one.name for one in fields(Cost)])
    found["advice"] = [", ".join(way.setting for way in some) for some in found["advice"]]
    return found


def _open(
    runs: Target, data_root: str | os.PathLike[str] | None, workers: int | None, memory: str | None, device: str
) -> list[Subject]:
    if isinstance(runs, Subject):
        return [runs]
    if not isinstance(runs, (str, os.PathLike)):
        given = list(runs)
        subjects = [one for one in given if isinstance(one, Subject)]
        if subjects and len(subjects) == len(given):
            return subjects
        runs = [os.fspath(one) for one in given if not isinstance(one, Subject)]
    root = None if data_root is None else Path(data_root)
    return command.open_subjects(list_paths(runs), data_root=root, workers=workers, memory=memory, device=device)


def list_entries(kind: str = "studies", name: str | None = None) -> list[Json]:
    """List the studies, or the settings of one.

    kind: "studies". name: of a study, to list its settings.
    """
    choose("list", kind, ("studies",))
    return to_records(command.list_studies() if name is None else command.list_settings(name))

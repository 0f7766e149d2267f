"""Studies from Python: what `landscape analyze` does, as functions that return Datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import xarray as xr
from rich.console import Console

from analysis import command, store
from analysis.answers import to_dataset
from analysis.catalog import CATALOG
from analysis.subjects import Subject
from landscape.errors import choose
from training.console.tables import to_records
from training.runs import Places, list_paths
from training.storage.verified_files import Json

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
    progress: bool | None = None,
    **settings: object,
) -> xr.Dataset:
    """Measure runs with a study, or open its stored answer; several runs are joined along a dimension `run`.

    runs: run directories, folders of runs, patterns or subjects (`open_model`); one or several.
    study: its name, or 'module:name' of your own; `list_entries` lists all studies and their settings.
    name: what to call the question; by default its changed settings.
    out: folder for the answer, instead of analysis/ in the run.
    data_root: folder of the data. workers: threads. memory: limit for stored graphs, such as "8G".
    device: where to compute: auto, cpu, cuda, cuda:1 or mps; an opened subject has one already.
    progress: whether to print; by default on a terminal and in notebooks.
    settings: of the study, such as rounds="all".

    Returns a Dataset, which is also stored with the run.
    """
    console = Console()
    shown = console.is_terminal or console.is_jupyter if progress is None else progress
    subjects = _open(runs, data_root, workers, memory, device)
    paths = command.analyze(
        subjects,
        [study],
        {CATALOG.find(study).name: settings},
        console=console if shown else Console(quiet=True),
        out=None if out is None else Path(out),
        name=name,
    )
    found = [to_dataset(store.read(path)) for path in paths]
    if len(found) == 1:
        return found[0]
    names = xr.Variable("run", [subject.name for subject in subjects], {"long_name": "run", "units": "1"})
    return xr.concat(
        found,
        names,
        data_vars="all",
        coords="different",
        compat="equals",
        join="outer",
        combine_attrs="drop_conflicts",
    )


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

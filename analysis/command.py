"""`landscape analyze`: plan studies of runs, estimate their cost, and carry them out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console, RenderableType
from rich.markup import escape

from analysis import runner
from analysis.catalog import CATALOG
from analysis.costs import estimate_costs, name_subjects, show_costs
from analysis.runner import Plan
from analysis.side_by_side import can_be_sent, carry_out_all, measure_speedup
from analysis.store import FOLDER
from analysis.study import Study
from analysis.subjects import Limits, Opening, Run, Subject
from landscape.errors import choose
from landscape.runtime.memory import parse_bytes
from training.console.progress import bars
from training.console.tables import make_table, print_line
from training.executors.choice import SPAWNING
from training.executors.pools import Placement
from training.executors.ray_pool import Cluster
from training.run_names import make_slug
from training.settings import build, describe, fields, values
from training.storage import lock, toml
from training.storage.atomic_files import remove_temporary_files
from training.storage.run_directory import find_runs
from training.storage.verified_files import Json

PAPERS = {"000": "FedFSA", "001": "FedVSSAM", "002": "FedGloSS", "003": "FedSAM", "004": "FedSoL"}  # by their numbers
PLACES = {r"-[TF](?=\d)": "-", r"\bT(?=\d)": "Table ", r"\bF(?=\d)": "Figure ", ", ": "; "}  # their codes, in words
BACKENDS = ("auto", "serial", "processes", "ray")


def analyze(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Sequence[str] | Mapping[str, Mapping[str, object]],
    *,
    console: Console,
    out: Path | None = None,
    name: str = "",
    dry_run: bool = False,
    backend: str = "auto",
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> list[Path]:
    """Plan every study, print what it costs, and measure; a study that cannot be done is named and skipped.

    subjects: runs, or users' own models.
    studies: names of studies; an empty list means all of them.
    settings: changed settings, as texts STUDY.KEY=VALUE, or as values by study and key.
    console: where to print.
    out: folder for the answers, instead of analysis/ beside each subject's checkpoints.
    name: what to call the questions; by default their changed settings.
    dry_run: whether to plan only. Nothing is written then, and nothing is locked.
    backend: serial measures one piece after another; processes and ray measure several at a time, with the same bits;
        auto chooses serial or processes, whichever should be faster.
    workers: pieces at a time; by default one per core, or as many as the cluster has room for.
    cluster: settings of the backend ray; all nodes must share the folders of the runs.

    Returns the files of the answers.
    """
    choose("backend", backend, BACKENDS)
    names = [study.name for study in select_studies(studies)]
    chosen = settings if isinstance(settings, Mapping) else parse(settings, names)
    with nullcontext() if dry_run else hold_folders(subjects, studies, out):
        plans = make_plans(subjects, studies, chosen, console=console, out=out, name=name)
        costs = estimate_costs(plans)
        show_costs(costs, plans, console)
        if not plans or dry_run:
            return []
        if backend == "auto":
            backend = choose_backend(plans, sum(one.seconds for one in costs), workers)
        placement = None if backend == "serial" else Placement(backend, workers, cluster or Cluster())
        return carry_out(plans, console, placement)


def choose_backend(plans: Sequence[Plan], seconds: float, workers: int | None) -> str:
    """Choose serial or processes, whichever should be faster.

    plans: what is to be measured. seconds: estimated time, one piece after another.
    workers: pieces at a time; None: one per core.
    """
    parallel = min(workers or torch.get_num_threads(), measure_speedup(plans))
    # twice: without processes chunks of a large data set are computed on several threads, which is nearly as fast
    worthwhile = seconds * (1 - 1 / parallel) > 2 * SPAWNING
    return "processes" if worthwhile and all(map(can_be_sent, plans)) else "serial"


@contextmanager
def hold_folders(subjects: Sequence[Subject], studies: Sequence[str], out: Path | None) -> Iterator[None]:
    """Lock the folders of the answers, and remove half-written files of killed processes."""
    places: dict[Path, Path] = {}  # folder of results -> what is locked: a whole run, so that nobody trains it
    for study in select_studies(studies):
        for group in group_subjects(study, subjects):
            folder = find_folder(group, out)
            whole = isinstance(group[0], Run) and folder == group[0].path / FOLDER
            places[folder] = group[0].path if whole else folder
    with ExitStack() as leases:
        for directory in sorted(set(places.values())):
            leases.enter_context(lock.hold(directory, "analyze"))
        for folder in places:
            for one in (folder, *(folder / study.name for study in select_studies(studies))):
                remove_temporary_files(one)
        yield


def carry_out(plans: Sequence[Plan], console: Console, placement: Placement | None = None) -> list[Path]:
    """Carry out plans, with a progress bar for each; returns the files of the answers.

    plans: what to measure. console: where to print.
    placement: where pieces are measured in parallel; None: one after another, in this process.
    """
    say = partial(print_line, console)
    with bars(console) as bar, _use_one_thread(plans):

        def make_bar(planned: Plan) -> runner.Step:
            return bar(f"{planned.study.name}, {name_subjects(planned)}")

        here = list(plans)
        if placement is not None:
            here = [plan for plan in plans if not can_be_sent(plan)]
            _share_memory(plans, placement)
            carry_out_all([plan for plan in plans if can_be_sent(plan)], placement, make_bar, say)
        for planned in here:
            runner.carry_out(planned, step=make_bar(planned), say=say)
    paths = [planned.path for planned in plans]
    for path in paths:
        print_line(console, str(path))
    return paths


@contextmanager
def _use_one_thread(plans: Sequence[Plan]) -> Iterator[None]:
    """Let torch use one thread outside of chunks, as workers do: the number of threads then changes no bit."""
    threads = torch.get_num_threads()
    for subject in {id(one): one for plan in plans for one in plan.subjects}.values():
        subject.limits = replace(subject.limits, workers=subject.limits.workers or threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _share_memory(plans: Sequence[Plan], placement: Placement) -> None:
    """Divide the limit of --memory among the processes of this machine."""
    count = placement.workers or os.cpu_count() or 1
    for subject in {id(one): one for plan in plans for one in plan.subjects}.values():
        opening = subject.opening
        if opening is not None and opening.limits.memory is not None and placement.backend == "processes":
            share = parse_bytes(opening.limits.memory) // count
            subject.opening = replace(opening, limits=replace(opening.limits, memory=share))


def parse(given: Sequence[str], studies: Sequence[str]) -> dict[str, Json]:
    """Parse "study.key=value", or "key=value" if there is only one study; returns settings by study.

    given: the texts. studies: names of the studies to run.
    """
    found: dict[str, Json] = {}
    for one in given:
        key, equals, text = (part.strip() for part in one.partition("="))
        study, dot, name = key.rpartition(".")
        if not equals or not name:
            raise ValueError(f"--set expects study.key=value, for example curvature.top=10; got '{one}'")
        if not dot:
            if len(studies) != 1:
                raise ValueError(f"--set {one}: several studies are asked for; write STUDY.{one}")
            study = studies[0]
        study = study if study in studies else CATALOG.find(study).name
        found.setdefault(study, {})[name] = toml.parse_value(text)
    return found


def make_plans(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Mapping[str, Mapping[str, object]],
    *,
    console: Console,
    out: Path | None = None,
    name: str = "",
) -> list[Plan]:
    """Make one plan per study and run, or one per study if the study compares runs.

    settings: study -> changed settings. Other arguments: see `analyze`.
    """
    if name != make_slug(name):
        raise ValueError(f"--name must be letters, digits and . + - _ only, at most 32; got '{name}'")
    plans = []
    for study in select_studies(studies):
        own = build(study.settings, settings.get(study.name, {}), study.name)
        groups = group_subjects(study, subjects)
        if out is not None and len(groups) > 1:
            raise ValueError(
                f"--out {out} is for the answers of one run, but {study.name} was asked of {len(groups)}: "
                "give one run, or omit --out"
            )
        refused: list[ValueError] = []
        for group in groups:
            try:
                plans.append(runner.plan(study, own, group, find_folder(group, out), name))
            except ValueError as error:
                refused.append(error)
        if studies and len(refused) == len(groups):  # asked for by name, but no run has what it needs
            raise refused[0]
        for reason in refused:
            print_line(console, f"{study.name} skipped: {reason}")
    return plans


def select_studies(studies: Sequence[str]) -> list[Study]:
    """Find studies by name; an empty list means all of them."""
    return [CATALOG.find(name) for name in studies or CATALOG.entries()]


def group_subjects(study: Study, subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Group the subjects that are measured together: all of them if the study compares runs, else each by itself."""
    return [list(subjects)] if study.together else [[subject] for subject in subjects]


def find_folder(group: Sequence[Subject], out: Path | None) -> Path:
    """Find the folder for the answers about a group of subjects."""
    return out or (group[0].path.parent if len(group) > 1 else group[0].path) / FOLDER


def open_subjects(
    runs: Sequence[Path],
    *,
    model: str | None = None,
    weights: Path | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    workers: int | None = None,
    memory: str | None = None,
    device: str = "auto",
    out: Path | None = None,
) -> list[Subject]:
    """Open runs, or a user's own model.

    runs: run directories, folders of them, or patterns such as runs/*sam*; other files there are ignored.
    model, weights, data: the user's model instead, as `open_model` takes them.
    data_root: folder of the data. out: folder for the answers about the user's model.
    workers: threads. memory: limit for stored graphs, such as "8G". device: auto, cpu, cuda, cuda:1 or mps.
    """
    limits = Limits(workers=workers, memory=memory, device=device)
    given = {"--model": model, "--weights": weights, "--data": data}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        if not runs:
            raise ValueError(
                "no runs given: write landscape analyze RUN..., or --model, --weights and --data for your own model"
            )
        return [Run(path, data_root, limits) for path in find_runs(runs)]
    if runs:
        raise ValueError("give either run directories or --model, --weights and --data, not both")
    if model is None or weights is None or data is None:
        raise ValueError(f"a model of your own needs --model, --weights and --data; {', '.join(missing)} is missing")
    from analysis.own_models import open_model

    opening = Opening(partial(open_model, model, weights, data, out=out or Path(), data_root=data_root), limits)
    own = opening.function(limits=limits)
    own.opening = opening
    return [own]


def list_with_rounds(studies: Sequence[str]) -> list[str]:
    """List those of the given studies (or of all) that have a setting `rounds`."""
    return [one.name for one in select_studies(studies) if "rounds" in fields(one.settings)]


def list_studies() -> RenderableType:
    """Make a table of all studies: what they measure, and their settings."""
    table = make_table("name", "what it measures", "settings", "in the papers")
    for study in CATALOG.entries().values():
        table.add_row(study.name, study.about, escape(write_settings(study.settings())), spell_papers(study.papers))
    return table


def spell_papers(codes: str) -> str:
    """Spell out where papers show what a study measures.

    codes: the numbers of papers, each with its tables and figures.

    >>> spell_papers("003 T1 F5-F6, 002 T8")
    'FedSAM Table 1 Figure 5-6; FedGloSS Table 8'
    """
    text = re.sub(r"\b\d{3}\b", lambda found: PAPERS.get(found[0], found[0]), codes)
    for pattern, words in PLACES.items():
        text = re.sub(pattern, words, text)
    return text


def write_settings(settings: object) -> str:
    """Write settings as --set takes them."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values(settings).items())


def list_settings(name: str) -> RenderableType:
    """Make a table of the settings of a study: defaults, descriptions and allowed values."""
    study = CATALOG.find(name)
    table = make_table(f"{study.name}.", "default", "what it means", "allowed")
    for about in describe(study.settings):
        default = "none" if about.default is None else toml.show(about.default)
        table.add_row(about.name, escape(default), escape(about.description), escape(about.allowed))
    return table

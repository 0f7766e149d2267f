"""`landscape analyze`: which studies of which runs, what that takes, and doing it."""

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
from analysis.costs import estimate_costs, of_whom, show_costs
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
BACKENDS = ("auto", "serial", "processes", "ray")


def analyze(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Sequence[str],
    *,
    console: Console,
    out: Path | None = None,
    name: str = "",
    dry_run: bool = False,
    backend: str = "auto",
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> list[Path]:
    """Plan every study, say what it takes, and carry it out; a study that cannot be done is named and left out.

    subjects: runs, or models of one's own.
    studies: their names; all of them if there are none.
    settings: changed settings, as STUDY.KEY=VALUE.
    out: folder for the answers, instead of analysis/ beside each subject's checkpoints.
    name: what to call the questions; by default their changed settings.
    dry_run: only plan. Nothing is written then, and nothing is locked.
    backend: serial measures piece by piece; processes and ray several at a time, to the same bits; auto chooses serial
        or processes, whatever should be faster.
    workers: pieces at a time; by default one for each core, or as many as the cluster has room for.
    cluster: of the backend ray; all its nodes must share the folders of the runs.
    """
    chosen = parse(settings, [one.name for one in selected(studies)])
    return measure(
        subjects,
        studies,
        chosen,
        console=console,
        out=out,
        name=name,
        dry_run=dry_run,
        backend=backend,
        workers=workers,
        cluster=cluster,
    )


def measure(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    chosen: Mapping[str, Mapping[str, object]],
    *,
    console: Console,
    out: Path | None = None,
    name: str = "",
    dry_run: bool = False,
    backend: str = "auto",
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> list[Path]:
    """Do what `analyze` does, with settings as values instead of text: study -> changed settings."""
    choose("backend", backend, BACKENDS)
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
    """Choose serial or processes, whatever should be faster.

    plans: what is to be done. seconds: that it takes piece by piece. workers: pieces at a time; None: one a core.
    """
    parallel = min(workers or torch.get_num_threads(), measure_speedup(plans))
    # twice: without processes chunks of a large data set are computed on several threads, which is nearly as fast
    worthwhile = seconds * (1 - 1 / parallel) > 2 * SPAWNING
    return "processes" if worthwhile and all(map(can_be_sent, plans)) else "serial"


@contextmanager
def hold_folders(subjects: Sequence[Subject], studies: Sequence[str], out: Path | None) -> Iterator[None]:
    """Lock the folders of the answers, and clear away what killed processes left half-written."""
    places: dict[Path, Path] = {}  # folder of results -> what is locked: a whole run, so that nobody trains it
    for study in selected(studies):
        for group in groups_of(study, subjects):
            folder = folder_of(group, out)
            whole = isinstance(group[0], Run) and folder == group[0].path / FOLDER
            places[folder] = group[0].path if whole else folder
    with ExitStack() as leases:
        for directory in sorted(set(places.values())):
            leases.enter_context(lock.hold(directory, "analyze"))
        for folder in places:
            for one in (folder, *(folder / study.name for study in selected(studies))):
                remove_temporary_files(one)
        yield


def carry_out(plans: Sequence[Plan], console: Console, placement: Placement | None = None) -> list[Path]:
    """Do what is planned, a bar for each study; returns the files.

    placement: where pieces are measured side by side; None: piece by piece, in this process.
    """
    say = partial(print_line, console)
    with bars(console) as bar, _glue_on_one_thread(plans):

        def make_bar(planned: Plan) -> runner.Step:
            return bar(f"{planned.study.name}, {of_whom(planned)}")

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
def _glue_on_one_thread(plans: Sequence[Plan]) -> Iterator[None]:
    """Let torch use one thread between chunks, as workers do: the same bits for any number of threads."""
    threads = torch.get_num_threads()
    for subject in {id(one): one for plan in plans for one in plan.subjects}.values():
        subject.limits = replace(subject.limits, workers=subject.limits.workers or threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _share_memory(plans: Sequence[Plan], placement: Placement) -> None:
    """Divide the memory that --memory allows for kept graphs among the processes of this machine."""
    count = placement.workers or os.cpu_count() or 1
    for subject in {id(one): one for plan in plans for one in plan.subjects}.values():
        opening = subject.opening
        if opening is not None and opening.limits.memory is not None and placement.backend == "processes":
            share = parse_bytes(opening.limits.memory) // count
            subject.opening = replace(opening, limits=replace(opening.limits, memory=share))


def parse(given: Sequence[str], studies: Sequence[str]) -> dict[str, Json]:
    """Settings by study from "study.key=value", or "key=value" where only one study is asked for."""
    found: dict[str, Json] = {}
    for one in given:
        key, equals, text = (part.strip() for part in one.partition("="))
        study, dot, name = key.rpartition(".")
        if not equals or not name:
            raise ValueError(f"--set wants study.key=value, for example curvature.top=10; got '{one}'")
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
    """One plan per study and run, one per study for those that compare runs.

    settings: study -> changed settings. The other arguments are those of `analyze`.
    """
    if name != make_slug(name):
        raise ValueError(f"--name must be letters, digits and . + - _ only, at most 32; got '{name}'")
    plans = []
    for study in selected(studies):
        own = build(study.settings, settings.get(study.name, {}), study.name)
        groups = groups_of(study, subjects)
        if out is not None and len(groups) > 1:
            raise ValueError(
                f"--out {out} takes the results of one run, and {study.name} is asked of {len(groups)}: "
                "give one run, or leave --out away"
            )
        refused: list[ValueError] = []
        for group in groups:
            try:
                plans.append(runner.plan(study, own, group, folder_of(group, out), name))
            except ValueError as error:
                refused.append(error)
        if studies and len(refused) == len(groups):  # asked for by name, but no run has what it needs
            raise refused[0]
        for reason in refused:
            print_line(console, f"{study.name} left out: {reason}")
    return plans


def selected(studies: Sequence[str]) -> list[Study]:
    """The studies of these names, or all."""
    return [CATALOG.find(name) for name in studies or CATALOG.entries()]


def groups_of(study: Study, subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Who is looked at together: everyone in a study that compares runs, else each alone."""
    return [list(subjects)] if study.together else [[subject] for subject in subjects]


def folder_of(group: Sequence[Subject], out: Path | None) -> Path:
    """Where the results about these subjects go."""
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
    """The runs of these directories, or a model of the user's own.

    runs: run directories, folders of them, or patterns such as runs/*sam*; results beside the runs are passed over.
    model, weights, data: a model of one's own instead, as `own.open_model` takes them; its results go to `out`.
    device: auto, cpu, cuda, cuda:1 or mps.
    """
    limits = Limits(workers=workers, memory=memory, device=device)
    given = {"--model": model, "--weights": weights, "--data": data}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        if not runs:
            raise ValueError(
                "which runs? landscape analyze RUN..., or --model, --weights and --data for a model of your own"
            )
        return [Run(path, data_root, limits) for path in find_runs(runs)]
    if runs:
        raise ValueError("give either run directories or --model, --weights and --data, not both")
    if model is None or weights is None or data is None:
        raise ValueError(f"a model of your own needs --model, --weights and --data; {', '.join(missing)} is missing")
    from analysis.own_models import open_model

    options: Json = {"out": out or Path(), "data_root": data_root}
    own = open_model(model, weights, data, **options, limits=limits)
    own.opening = Opening(open_model, (model, weights, data), tuple(options.items()), limits)
    return [own]


def with_rounds(studies: Sequence[str]) -> list[str]:
    """Of these studies (or of all) those that have a setting for the rounds to measure."""
    return [one.name for one in selected(studies) if "rounds" in fields(one.settings)]


def list_studies() -> RenderableType:
    """Every study, what it measures, and its settings."""
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
    text = re.sub(r"\b(\d{3})\b", lambda found: PAPERS.get(found[1], found[1]), codes)
    text = re.sub(r"\b([TF])(\d+)(?:-[TF](\d+))?", _spell_place, text)
    return text.replace(", ", "; ")


def _spell_place(found: re.Match[str]) -> str:
    kind = "Table" if found[1] == "T" else "Figure"
    return f"{kind} {found[2]}-{found[3]}" if found[3] else f"{kind} {found[2]}"


def write_settings(settings: object) -> str:
    """Settings as they are written after --set."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values(settings).items())


def list_settings(name: str) -> RenderableType:
    """Every setting of one study: its default, what it means, and what it may be."""
    study = CATALOG.find(name)
    table = make_table(f"{study.name}.", "default", "what it means", "allowed")
    for about in describe(study.settings):
        default = "none" if about.default is None else toml.show(about.default)
        table.add_row(about.name, escape(default), escape(about.description), escape(about.allowed))
    return table

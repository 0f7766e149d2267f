"""`landscape analyze`: which studies of which runs, what that takes, and doing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape

from analysis import runner
from analysis.advice import advise
from analysis.catalog import STUDIES
from analysis.runner import Plan
from analysis.study import Study
from analysis.subjects import Limits, Run, Subject
from analysis.summary import FOLDER
from landscape.errors import choose
from landscape.runtime.memory import allowance, parse_bytes
from training.console.progress import bars
from training.console.tables import make_table, print_line
from training.run_names import make_slug
from training.settings import build, describe, fields, values
from training.storage import lock, toml
from training.storage.atomic_files import remove_temporary_files
from training.storage.run_directory import find_runs


def analyze(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Sequence[str],
    *,
    console: Console,
    out: Path | None = None,
    name: str = "",
    dry_run: bool = False,
) -> list[Path]:
    """Plan every study, say what it takes, and carry it out; a study that cannot be done is named and left out.

    subjects: runs, or models of one's own.
    studies: their names; all of them if there are none.
    settings: changed settings, as STUDY.KEY=VALUE.
    out: folder for the answers, instead of analysis/ beside each subject's checkpoints.
    name: what to call the questions; by default their changed settings.
    dry_run: only plan. Nothing is written then, and nothing is locked.
    """
    chosen = parse(settings, studies or list(STUDIES))
    with nullcontext() if dry_run else hold_folders(subjects, studies, out):
        plans = make_plans(subjects, studies, chosen, console=console, out=out, name=name)
        show_plans(plans, console)
        return carry_out(plans, console) if plans and not dry_run else []


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


def carry_out(plans: Sequence[Plan], console: Console) -> list[Path]:
    """Do what is planned, a bar for each study; returns the files."""
    paths = []
    with bars(console) as bar:
        for planned in plans:
            move = bar(f"{planned.study.name}, {of_whom(planned)}")
            paths.append(runner.carry_out(planned, step=move, say=partial(print_line, console)))
    for path in paths:
        print_line(console, str(path))
    return paths


def parse(given: Sequence[str], studies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Settings by study from "study.key=value", or "key=value" where only one study is asked for."""
    found: dict[str, dict[str, Any]] = {}
    for one in given:
        key, equals, text = (part.strip() for part in one.partition("="))
        study, dot, name = key.rpartition(".")
        if not equals or not name:
            raise ValueError(f"--set wants study.key=value, for example curvature.top=10; got '{one}'")
        if not dot:
            if len(studies) != 1:
                raise ValueError(f"--set {one}: several studies are asked for; write STUDY.{one}")
            study = studies[0]
        found.setdefault(choose("study", study, STUDIES), {})[name] = toml.parse_value(text)
    return found


def make_plans(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
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
    return [STUDIES[choose("study", name, STUDIES)] for name in studies or STUDIES]


def groups_of(study: Study, subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Who is looked at together: everyone in a study that compares runs, else each alone."""
    return [list(subjects)] if study.together else [[subject] for subject in subjects]


def folder_of(group: Sequence[Subject], out: Path | None) -> Path:
    """Where the results about these subjects go."""
    return out or (group[0].path.parent if len(group) > 1 else group[0].path) / FOLDER


def of_whom(planned: Plan) -> str:
    """Name what a plan is about: the run, or how many runs."""
    return planned.subjects[0].name if len(planned.subjects) == 1 else f"{len(planned.subjects)} runs"


def show_plans(plans: Sequence[Plan], console: Console) -> None:
    """What will be done, roughly what it takes, and what would shorten it if that is long."""
    rates: dict[int, float] = {}
    table = make_table("study", "of", "pieces", "there already", "about", "memory")
    advice: list[str] = []
    for planned in plans:
        left = [] if planned.kept else planned.pieces[planned.done :]
        subject = planned.subjects[0]
        seconds = 0.0
        if left:
            rates.setdefault(id(subject), runner.measure_rate(subject))
            seconds = sum(piece.passes for piece in left) / rates[id(subject)]
            advice += [
                f"{planned.study.name}, {of_whom(planned)}: --set {one.setting} takes {spoken(one.seconds)}: {one.cost}"
                for one in advise(planned, rates[id(subject)])
            ]
        vectors = max((piece.vectors for piece in left), default=0)
        size = sum(parameter.numel() for parameter in subject.model.parameters()) * vectors * 4
        there = "all" if planned.kept else str(planned.done)
        whom = escape(of_whom(planned))
        table.add_row(
            planned.study.name, whom, str(len(planned.pieces)), there, spoken(seconds), f"{size / 2**20:.0f} MB"
        )
    console.print(table)
    print_line(console, f"memory: what is held beside the data and the kept graphs, {_most_for_graphs(plans)}")
    for line in advice:
        print_line(console, line)


def _most_for_graphs(plans: Sequence[Plan]) -> str:
    """Describe how much memory kept graphs may take."""
    given = next((subject.limits.memory for plan in plans for subject in plan.subjects), None)
    if given is not None:
        return f"which take up to {parse_bytes(given) / 2**30:.1f} GB (--memory)"
    return f"which take up to a quarter of what is free, {allowance() / 2**30:.1f} GB now (--memory changes that)"


def spoken(seconds: float) -> str:
    """Write a duration as exactly as an estimate deserves: 7 s, 1.5 min, 2.0 h."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "-" if seconds == 0 else "< 1 s"


def open_subjects(
    runs: Sequence[Path],
    *,
    model: str | None = None,
    weights: Path | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    workers: int | None = None,
    memory: str | None = None,
    out: Path | None = None,
) -> list[Subject]:
    """The runs of these directories, or a model of the user's own.

    runs: run directories, folders of them, or patterns such as runs/*sam*; results beside the runs are passed over.
    model, weights, data: a model of one's own instead, as `own.open_own` takes them; its results go to `out`.
    """
    limits = Limits(workers=workers, memory=memory)
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
    from analysis.own_models import open_own

    return [open_own(model, weights, data, out=out or Path(), data_root=data_root, limits=limits)]


def with_rounds(studies: Sequence[str]) -> list[str]:
    """Of these studies (or of all) those that have a setting for the rounds to measure."""
    return [one.name for one in selected(studies) if "rounds" in fields(one.settings)]


def list_studies() -> RenderableType:
    """Every study, what it measures, and its settings."""
    table = make_table("name", "what it measures", "settings", "in the papers")
    for study in STUDIES.values():
        table.add_row(study.name, study.about, escape(write_settings(study.settings())), study.papers)
    return table


def write_settings(settings: object) -> str:
    """Settings as they are written after --set."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values(settings).items())


def list_settings(name: str) -> RenderableType:
    """Every setting of one study: its default, what it means, and what it may be."""
    study = STUDIES[choose("study", name, STUDIES)]
    table = make_table(f"{study.name}.", "default", "what it means", "allowed")
    for about in describe(study.settings):
        default = "none" if about.default is None else toml.show(about.default)
        table.add_row(about.name, escape(default), escape(about.description), escape(about.allowed))
    return table

"""`landscape analyze`: which studies of which runs, what that takes, and doing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from analysis import work
from analysis.catalog import STUDIES
from analysis.study import choose_settings
from analysis.subjects import Limits, Run, Subject
from analysis.work import Plan
from landscape.bars import bars
from landscape.errors import choose
from landscape.memory import allowance, parse_bytes
from training import toml
from training.tables import framed

FOLDER = "analysis"  # beside a run's checkpoints


def analyze(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Sequence[str],
    *,
    console: Console,
    out: Path | None = None,
    dry_run: bool = False,
) -> list[Path]:
    """Plan every study, say what it takes, and carry it out; a study that cannot be done is named and left out."""
    plans = make_plans(subjects, studies, parse(settings, studies or list(STUDIES)), console=console, out=out)
    show_plans(plans, console)
    if dry_run or not plans:
        return []
    with bars(console) as bar:
        paths = []
        for planned in plans:
            name = f"{planned.study.name}, {planned.path.parents[1].name}"
            move = bar(name)
            paths.append(
                work.carry_out(
                    planned,
                    step=lambda done, total, _, move=move: move(done, total),  # type: ignore[misc]
                    say=lambda line: console.print(line, highlight=False),
                )
            )
    for path in paths:
        console.print(str(path), highlight=False, soft_wrap=True)
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
        found.setdefault(choose("study", study, STUDIES), {})[name] = toml.parse(text)
    return found


def make_plans(
    subjects: Sequence[Subject],
    studies: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    *,
    console: Console,
    out: Path | None = None,
) -> list[Plan]:
    """One plan per study and run, one per study for those that compare runs."""
    chosen = [STUDIES[choose("study", name, STUDIES)] for name in studies or STUDIES]
    plans = []
    for study in chosen:
        own = choose_settings(study, settings.get(study.name, {}))
        groups = [list(subjects)] if study.together else [[subject] for subject in subjects]
        for group in groups:
            together = study.together and len(group) > 1
            folder = out or (group[0].path.parent / FOLDER if together else group[0].path / FOLDER)
            try:
                plans.append(
                    work.plan(study, own, group, folder, say=lambda line: console.print(line, highlight=False))
                )
            except ValueError as error:
                if studies:  # asked for by name: the user wants to know
                    raise
                console.print(f"{study.name} left out: {error}", highlight=False)
    return plans


def show_plans(plans: Sequence[Plan], console: Console) -> None:
    """What will be done, and roughly what it takes."""
    rates: dict[int, float] = {}
    table = framed("study", "of", "pieces", "there already", "about", "memory")
    for planned in plans:
        left = [] if planned.kept else planned.pieces[planned.done :]
        subject = planned.subjects[0]
        seconds = 0.0
        if left:
            rates.setdefault(id(subject), work.rate(subject))
            seconds = sum(piece.passes for piece in left) / rates[id(subject)]
        vectors = max((piece.vectors for piece in left), default=0)
        size = sum(parameter.numel() for parameter in subject.model.parameters()) * vectors * 4
        there = "all" if planned.kept else str(planned.done)
        of = subject.name if len(planned.subjects) == 1 else f"{len(planned.subjects)} runs"
        table.add_row(
            planned.study.name, of, str(len(planned.pieces)), there, spoken(seconds), f"{size / 2**20:.0f} MB"
        )
    console.print(table)
    console.print(
        f"memory: what is held beside the data and the kept graphs, {_most_for_graphs(plans)}",
        highlight=False,
    )


def _most_for_graphs(plans: Sequence[Plan]) -> str:
    """What kept graphs may take, in words."""
    given = next((subject.limits.memory for plan in plans for subject in plan.subjects), None)
    if given is not None:
        return f"which take up to {parse_bytes(given) / 2**30:.1f} GB (--memory)"
    return f"which take up to a quarter of what is free, {allowance() / 2**30:.1f} GB now (--memory changes that)"


def spoken(seconds: float) -> str:
    """A duration in words, as exact as a guess deserves."""
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
    """The runs of these directories, or a model of the user's own."""
    limits = Limits(workers=workers, memory=memory)
    given = {"--model": model, "--weights": weights, "--data": data}
    if any(value is not None for value in given.values()):
        if runs:
            raise ValueError("give either run directories or --model, --weights and --data, not both")
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ValueError(
                f"a model of your own needs --model, --weights and --data; {', '.join(missing)} is missing"
            )
        from analysis.own import open_own

        assert model is not None
        assert weights is not None
        assert data is not None
        return [open_own(model, weights, data, out=out or Path(), data_root=data_root, limits=limits)]
    if not runs:
        raise ValueError(
            "which runs? landscape analyze RUN..., or --model, --weights and --data for a model of your own"
        )
    return [Run(path, data_root, limits) for path in runs]


def with_rounds(studies: Sequence[str]) -> list[str]:
    """Of these studies (or of all) those that can be told which rounds to look at."""
    chosen = [STUDIES[choose("study", name, STUDIES)] for name in studies or STUDIES]
    return [one.name for one in chosen if "rounds" in {field.name for field in dataclasses.fields(one.settings)}]


def studies_listed() -> RenderableType:
    """Every study, what it measures, and its settings."""
    table = framed("name", "what it measures", "settings", "in the papers")
    for study in STUDIES.values():
        table.add_row(study.name, study.about, work.described(study.settings()), study.papers)
    return table

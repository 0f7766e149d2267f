"""Train and measure what artefacts need, several runs at a time; what is there already is kept.

Only functions here open torch, and each run in a process of its own with one thread: the same bits on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from reports.artefact import Question
from reports.artefacts.plan import Comparison, Wanted
from reports.artefacts.scales import Scale
from reports.artefacts.stand_ins import Content
from training.console.jobs import Job, run_jobs
from training.console.tables import print_line
from training.executors.pools import Placement
from training.storage.run_directory import read_status

RUNS = "runs"  # folder of the runs of a scale
PLACEMENT = Placement()


@dataclass(frozen=True)
class Trained:
    """A run after training and measuring.

    path: where it is. state: finished or diverged. messages: what was said on the way.
    refused: why questions could not be answered.
    """

    path: Path
    state: str
    messages: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def make_runs(
    wanted: Mapping[str, Wanted],
    out: Path,
    scale: Scale,
    *,
    console: Console,
    data_root: Path | None = None,
    placement: Placement = PLACEMENT,
    device: str = "auto",
) -> tuple[dict[str, Path], list[str]]:
    """Train every run that is not finished and measure it at once, so that an interruption leaves whole runs.

    wanted: the runs by key. out: the folder of a scale. scale: of the questions. data_root: folder of the data.
    placement: where, and how many runs at a time; by default here, one a core.
    device: auto, cpu, cuda, cuda:1 or mps.
    Returns the directories of all runs by their keys, and a line for each question that could not be answered.
    """
    from landscape.runtime.device import find_device
    from landscape.runtime.memory import allowance

    paths = find_runs(wanted, out, data_root)
    there = {key for key, one in wanted.items() if is_trained(one.content, paths[key])}
    if there:
        print_line(console, f"{len(there)} of {len(wanted)} runs are there already")
    here = placement.backend == "processes"  # all processes together may keep so much; other nodes have memory too
    memory = int(allowance(find_device(device)) / (placement.workers or os.cpu_count() or 1)) if here else None
    runs = (out / RUNS).absolute()  # workers of a cluster have working directories of their own
    root = None if data_root is None else data_root.absolute()
    make = partial(make_run, data_root=root, memory=memory, device=device)
    jobs = []
    for key, one in wanted.items():
        questions = [(question, question.at(scale.name)) for question in one.questions.values()]
        if key not in there or questions:  # answers that are there are kept
            path = paths[key].absolute() if key in there else None
            jobs.append(Job(paths[key].name, partial(make, one.content, runs, path, questions)))
    problems: list[str] = []
    for number, (job, made) in enumerate(run_jobs(jobs, placement, console, runs), start=1):
        said = f" ({made.messages[-1]})" if made.state != "finished" and made.messages else ""
        print_line(console, f"run {number} of {len(jobs)}, {job.name}: {made.state}{said}")
        problems += [f"{job.name}: {line}" for line in made.refused]
    return paths, problems


def make_run(
    content: Content,
    runs: Path,
    path: Path | None,
    questions: Sequence[tuple[Question, Mapping[str, object]]],
    data_root: Path | None,
    memory: int | None,
    device: str = "auto",
) -> Trained:
    """Train one run, unless it is there already, and answer its questions if it finished, in this process.

    content: nested settings of the run. runs: folder of all runs. path: of the trained run; None: it is to be trained.
    The other arguments are those of `answer_questions`.
    """
    made = train_run(content, runs, data_root, device) if path is None else Trained(path, read_status(path)["state"])
    if made.state != "finished" or not questions:
        return made
    return replace(made, refused=tuple(answer_questions(made.path, questions, data_root, memory, device)))


def find_runs(wanted: Mapping[str, Wanted], out: Path, data_root: Path | None = None) -> dict[str, Path]:
    """Find the directories of runs, those that are there and those that will be made, by key.

    wanted: the runs by key. out: the folder of a scale. data_root: folder of the data.
    """
    from training.engine.opening import find_run

    found = {}
    there = {path.name[-8:]: path for path in (out / RUNS).glob("*_????????")}
    for key, one in wanted.items():
        recipe = _make_recipe(one.content, data_root)
        kept = there.get(recipe.digest[:8])
        found[key] = kept if kept is not None else find_run(out / RUNS, recipe)
    return found


def is_trained(content: Content, path: Path) -> bool:
    """Whether a run needs no more training: it finished, or it diverged."""
    from training.console.sweep import find_end

    return path.exists() and bool(find_end(path, _make_recipe(content, None)))


def train_run(content: Content, runs: Path, data_root: Path | None, device: str = "auto") -> Trained:
    """Train one run in this process, with one thread."""
    from training.engine.run import train

    said: list[str] = []
    with _one_thread():
        path = train(_make_recipe(content, data_root), runs, workers=1, device=device, on_message=said.append)
    return Trained(path, read_status(path)["state"], tuple(said))


def _make_recipe(content: Content, data_root: Path | None) -> Any:
    """Make a training.config.Recipe of nested settings."""
    from training import config

    where = {} if data_root is None else {"root": str(data_root.absolute())}
    return config.validate({**content, "data": {**content.get("data", {}), **where}})


def answer_questions(
    run: Path,
    questions: Sequence[tuple[Question, Mapping[str, object]]],
    data_root: Path | None,
    memory: int | None = None,
    device: str = "auto",
) -> list[str]:
    """Answer questions about one run in this process, with one thread; returns why some could not be answered.

    questions: each with its settings at the scale of the run. memory: bytes that kept graphs may take.
    device: where to measure.
    """
    from analysis import command

    refused = []
    console = Console(quiet=True)
    with _one_thread():
        limit = None if memory is None else str(memory)
        subjects = command.open_subjects([run], data_root=data_root, workers=1, memory=limit, device=device)
        for question, settings in questions:
            try:
                _answer(subjects, question, settings, question.name, console)
            except ValueError as error:
                refused.append(f"{question.study}: {error}")
    return refused


def compare_runs(
    comparisons: Iterable[Comparison],
    paths: Mapping[str, Path],
    scale: Scale,
    *,
    console: Console,
    data_root: Path | None = None,
    device: str = "auto",
) -> list[str]:
    """Answer questions that compare runs, and return a line for each that could not be answered.

    paths: run directories by key. The other arguments are those of `make_runs`.
    """
    from analysis import command

    problems = []
    for one in comparisons:
        runs = [paths[key] for key in one.runs]
        if any(read_status(run)["state"] != "finished" for run in runs):
            problems.append(f"{one.name}: not every run has finished")
            continue
        try:
            with _one_thread():
                subjects = command.open_subjects(runs, data_root=data_root, device=device)
                _answer(subjects, one.question, one.question.at(scale.name), one.name, Console(quiet=True))
            print_line(console, f"compared {one.name}")
        except ValueError as error:
            problems.append(f"{one.name}: {error}")
    return problems


def _answer(
    subjects: Sequence[Any], question: Question, settings: Mapping[str, object], name: str, console: Console
) -> None:
    from analysis import command, runner

    make = partial(
        command.make_plans, subjects, [question.study], {question.study: settings}, console=console, name=name
    )
    with command.hold_folders(subjects, [question.study], None):
        try:
            plans = make()
        except runner.NameTakenError as taken:  # an earlier version asked something else under this name
            _put_aside(taken.path)
            plans = make()
        for plan in plans:
            runner.carry_out(plan, say=lambda line: None)


def _put_aside(path: Path) -> None:
    """Give an answer that is no longer asked for a name of its own."""
    from analysis import store

    path.rename(path.with_name(f"{path.stem}-{store.read(path).digest[:8]}.h5"))


class _one_thread:  # noqa: N801 (a context manager)
    """Let torch use one thread, as runs in processes of their own do."""

    def __enter__(self) -> None:
        import torch

        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        import torch

        torch.set_num_threads(self.before)

"""Train and measure what artefacts need, several runs at a time; what is there already is kept.

Only functions here open torch, and each run in a process of its own with one thread: the same bits on every machine.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from reports.artefact import Question
from reports.artefacts.plan import Comparison, Wanted
from reports.artefacts.scales import Content, Scale
from training.console.tables import print_line
from training.executors.parent import end_with_parent, without_main
from training.storage.run_directory import read_status

RUNS = "runs"  # folder of the runs of a scale
SILENCE = 60.0  # seconds between two lines about a run that takes long


@dataclass(frozen=True)
class Job:
    """A call in a process of its own: a function of this file, its arguments, and what to call it."""

    name: str
    call: Callable[[], Any]


@dataclass(frozen=True)
class Trained:
    """A run after training: where it is, its state (finished or diverged), and what was said on the way."""

    path: Path
    state: str
    messages: tuple[str, ...] = ()


def train_runs(
    wanted: Mapping[str, Wanted],
    out: Path,
    *,
    console: Console,
    data_root: Path | None = None,
    workers: int | None = None,
) -> dict[str, Path]:
    """Train every run that is not finished, and return the directories of all by their keys.

    wanted: the runs by key. out: the folder of a scale. data_root: folder of the data.
    workers: runs at a time; by default one a core.
    """
    runs = out / RUNS
    paths = find_runs(wanted, out, data_root)
    left = {key: one for key, one in wanted.items() if not is_trained(one.content, paths[key])}
    if len(left) < len(wanted):
        print_line(console, f"{len(wanted) - len(left)} of {len(wanted)} runs are there already")
    jobs = [Job(paths[key].name, partial(train_run, one.content, runs, data_root)) for key, one in left.items()]
    for number, (job, trained) in enumerate(run_jobs(jobs, workers, console, runs), start=1):
        said = f" ({trained.messages[-1]})" if trained.state != "finished" and trained.messages else ""
        print_line(console, f"run {number} of {len(jobs)}, {job.name}: {trained.state}{said}")
    return paths


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


def train_run(content: Content, runs: Path, data_root: Path | None) -> Trained:
    """Train one run in this process, with one thread."""
    from training.engine.run import train

    said: list[str] = []
    with _one_thread():
        path = train(_make_recipe(content, data_root), runs, workers=1, on_message=said.append)
    return Trained(path, read_status(path)["state"], tuple(said))


def _make_recipe(content: Content, data_root: Path | None) -> Any:
    """Make a training.config.Recipe of nested settings."""
    from training import config

    where = {} if data_root is None else {"root": str(data_root.absolute())}
    return config.validate({**content, "data": {**content.get("data", {}), **where}})


def measure_runs(
    wanted: Mapping[str, Wanted],
    paths: Mapping[str, Path],
    scale: Scale,
    *,
    console: Console,
    data_root: Path | None = None,
    workers: int | None = None,
) -> list[str]:
    """Answer the questions of every finished run, and return a line for each that could not be answered.

    wanted: the runs by key. paths: their directories. The other arguments are those of `train_runs`.
    """
    from landscape.runtime.memory import allowance

    memory = int(allowance() / (workers or os.cpu_count() or 1))  # what all processes together may keep
    jobs = []
    for key, one in wanted.items():
        questions = [(question, question.at(scale.name)) for question in one.questions.values()]
        if questions and read_status(paths[key])["state"] == "finished":  # answers that are there are kept
            jobs.append(Job(paths[key].name, partial(answer_questions, paths[key], questions, data_root, memory)))
    problems: list[str] = []
    for number, (job, refused) in enumerate(run_jobs(jobs, workers, console), start=1):
        print_line(console, f"measured {number} of {len(jobs)}, {job.name}")
        problems += [f"{job.name}: {line}" for line in refused]
    return problems


def answer_questions(
    run: Path,
    questions: Sequence[tuple[Question, Mapping[str, object]]],
    data_root: Path | None,
    memory: int | None = None,
) -> list[str]:
    """Answer questions about one run in this process, with one thread; returns why some could not be answered.

    questions: each with its settings at the scale of the run. memory: bytes that kept graphs may take.
    """
    from analysis import command

    refused = []
    console = Console(quiet=True)
    with _one_thread():
        limit = None if memory is None else str(memory)
        subjects = command.open_subjects([run], data_root=data_root, workers=1, memory=limit)
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
) -> list[str]:
    """Answer questions that compare runs, and return a line for each that could not be answered.

    paths: run directories by key. The other arguments are those of `train_runs`.
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
                subjects = command.open_subjects(runs, data_root=data_root)
                _answer(subjects, one.question, one.question.at(scale.name), one.name, Console(quiet=True))
            print_line(console, f"compared {one.name}")
        except ValueError as error:
            problems.append(f"{one.name}: {error}")
    return problems


def _answer(
    subjects: Sequence[Any], question: Question, settings: Mapping[str, object], name: str, console: Console
) -> None:
    from analysis import command, runner

    with command.hold_folders(subjects, [question.study], None):
        for plan in command.make_plans(
            subjects, [question.study], {question.study: settings}, console=console, name=name
        ):
            runner.carry_out(plan, say=lambda line: None)


def run_jobs(
    jobs: Sequence[Job], workers: int | None, console: Console, runs: Path | None = None
) -> Iterator[tuple[Job, Any]]:
    """Run jobs in processes of their own and yield each with its result as it ends.

    workers: processes; by default one a core. runs: a folder of runs, whose progress is told while they take long.
    """
    count = min(workers or os.cpu_count() or 1, len(jobs))
    if count <= 1:
        for job in jobs:
            yield job, job.call()
        return
    try:
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_worker) as pool:
            with without_main():  # a pool that spawns starts all its processes at the first call
                futures: dict[Future[Any], Job] = {pool.submit(job.call): job for job in jobs}
            yield from _collect(futures, console, runs)
    except BrokenProcessPool:
        raise OSError(
            "a worker process was killed, mostly for want of memory; the same command goes on where it stopped, "
            "with --workers 1 one run at a time"
        ) from None


def _collect(futures: dict[Future[Any], Job], console: Console, runs: Path | None) -> Iterator[tuple[Job, Any]]:
    left, last = set(futures), time.monotonic()
    try:
        while left:
            done, left = wait(left, timeout=SILENCE, return_when=FIRST_COMPLETED)
            for one in done:
                yield futures[one], one.result()
            if not done and runs is not None and time.monotonic() - last >= SILENCE:
                last = time.monotonic()
                for one in left:
                    if one.running():
                        print_line(console, f"running: {_tell_progress(runs / futures[one].name)}")
    finally:
        for one in left:
            one.cancel()


def _tell_progress(run: Path) -> str:
    from training.storage import metrics

    try:
        return f"{run.name}, round {len(metrics.read(run))}"
    except (OSError, ValueError):  # not begun yet
        return run.name


def _start_worker() -> None:
    end_with_parent()


class _one_thread:  # noqa: N801 (a context manager)
    """Let torch use one thread, as runs in processes of their own do."""

    def __enter__(self) -> None:
        import torch

        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        import torch

        torch.set_num_threads(self.before)

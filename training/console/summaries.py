"""What is in a run directory: its settings, where it stands, what it reached, and who holds which class."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from training import config
from training.config import Recipe
from training.console.listings import framed, noted, settings
from training.console.messages import printable
from training.console.partition_picture import described, draw_partition
from training.data import partition
from training.data.augment import Augment
from training.data.partition import Partition
from training.methods import catalog
from training.storage import checkpoint, metrics
from training.storage.runs import require_run as require_run  # part of what this file offers

MODELS = {"": "server's model", "mean_": "mean of participants", "swa_": "SWA average"}
MOST_ROWS = 20  # clients, and classes, up to which the partition is shown in full


@dataclass(frozen=True)
class Score:
    """How good one of the global models is on the test data."""

    model: str
    round: int  # the last that was evaluated
    loss: float | None  # None: not recorded
    accuracy: float
    mean: float  # accuracy, mean of the last `count` evaluated rounds
    count: int


def scores(run: Path, last: int) -> list[Score]:
    """The last accuracy of every model that was evaluated, and its mean over the last rounds.

    The mean of participants is left out where it is the server's model, as in FedAvg.
    """
    records = metrics.read(run)
    found = []
    for prefix, name in MODELS.items():
        evaluated = [record for record in records if record.get(f"{prefix}accuracy") is not None]
        if evaluated and not (prefix == "mean_" and all(_same(record) for record in evaluated)):
            tail = [record[f"{prefix}accuracy"] for record in evaluated[-last:]]
            newest = evaluated[-1]
            loss, accuracy = newest.get(f"{prefix}test_loss"), newest[f"{prefix}accuracy"]
            found.append(Score(name, newest["round"], loss, accuracy, float(np.mean(tail)), len(tail)))
    return found


def _same(record: Mapping[str, Any]) -> bool:
    one, other = record.get("mean_test_loss"), record.get("test_loss")
    if one is None or other is None:
        return False
    return math.isclose(one, other, rel_tol=1e-5)  # float32 sums in another order


def status(run: Path) -> dict[str, Any]:
    """Where a run stands: state, round and message."""
    try:
        found = checkpoint.read_status(run)
    except ValueError as error:
        if not (run / "status.json").exists():
            return {"state": "begun", "round": 0, "message": ""}
        raise ValueError(f"{error}; landscape check {run} lists what is damaged") from None
    return {key: found[key] for key in ("state", "round", "message")}


def show_all(runs: Sequence[Path], console: Console) -> list[str]:
    """Print a run in full, or a line for each of several; returns a line for each that cannot be read."""
    if len(runs) == 1:
        show(runs[0], console)
        return []
    table = framed("run", "state", "rounds", "model", "accuracy", "mean accuracy")
    for column in table.columns[2:]:
        column.justify = "right"
    problems = []
    for run in runs:
        try:
            for row in _lines(run):
                table.add_row(*map(escape, row))
        except (OSError, ValueError) as error:
            problems.append(str(error))
            table.add_row(escape(printable(run)), "not readable")
    console.print(table, "")
    return problems


def _lines(run: Path) -> Iterator[tuple[str, ...]]:
    """A run in a line, with one more for every further model that was evaluated."""
    recipe = config.load(run / "config.toml")[0]
    state, done = status(run)["state"], len(metrics.read(run))
    head = (printable(run), "stopped" if state == "running" else state, f"{done} of {recipe.rounds.count}")
    for score in scores(run, recipe.evaluation.last):
        yield *head, score.model, f"{100 * score.accuracy:.2f} %", f"{100 * score.mean:.2f} % (last {score.count})"
        head = ("", "", "")
    if head[0]:
        yield *head, "-", "-", "-"


def show(run: Path, console: Console) -> None:
    """Print everything about a run, and draw its partition."""
    require_run(run)
    recipe = config.load(run / "config.toml")[0]
    split = partition.load(run / "partition.npz")
    say(console, str(run), style="bold")
    console.print(_facts(run, recipe, split))
    console.print()
    found = scores(run, recipe.evaluation.last)
    if found:
        console.print(_results(found), "")
    console.print(_partition(split), "")
    try:
        say(console, f"picture: {draw_partition(split, run / 'partition.png')}")
    except OSError as error:  # somebody else's run can be looked at without being written to
        say(console, f"no picture, {run / 'partition.png'} cannot be written: {error.strerror}")


def say(console: Console, text: str, style: str = "") -> None:
    """One line as it is: not wrapped, not coloured by its content, brackets taken literally."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _facts(run: Path, recipe: Recipe, split: Partition) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in facts(run, recipe, split).items():
        table.add_row(name, escape(printable(text)))
    return table


def facts(run: Path, recipe: Recipe, split: Partition) -> dict[str, str]:
    """The settings that matter, in words."""
    data, local, rounds, swa = recipe.data, recipe.local, recipe.rounds, recipe.swa
    method = catalog.find_method(recipe.algorithm.name, recipe.algorithm.settings)
    used = f"{local.steps} steps" if local.steps else f"{local.epochs} epoch{'s' if local.epochs > 1 else ''}"
    extra = {"momentum": local.momentum, "weight_decay": local.weight_decay, "clip": local.clip}
    told = {key: value for key, value in extra.items() if value}
    decay = f" x {local.lr_decay:g} per round" if local.lr_decay != 1 else ""
    chosen = "exactly" if rounds.sampling == "fixed" else "about"
    lines = {
        "status": _status(run, recipe),
        "data": _named(data.name, data.settings) + (", train and test pooled" if data.pooled else ""),
        "partition": f"{described(split)} among {len(split.indices)} clients",
        "model": _named(recipe.model.name, recipe.model.settings),
        "algorithm": f"{_named(method.name, catalog.read_settings(method))}, {method.paper}",
        "rounds": f"{rounds.count}, {chosen} {rounds.participants} clients each, mean "
        + ("weighted by size" if rounds.aggregation == "size" else "unweighted"),
        "local": f"{used} of batches of {local.batch_size}, lr {local.lr:g}{decay}"
        + (f", {settings(told)}" if told else ""),
        "augment": "" if recipe.augment == Augment() else settings(_changed(recipe.augment)),
        "swa": "" if swa is None else f"from {100 * swa.start:g} % of the rounds on, cycle {swa.cycle}",
        "seed": f"{recipe.seed}, {recipe.dtype}",
        "back-end": _backend(run),
        "checkpoints": _checkpoints(run),
    }
    return {name: text for name, text in lines.items() if text}


def _named(name: str, values: dict[str, Any]) -> str:
    return f"{name} ({settings(values)})" if values else name


def _changed(augment: Augment) -> dict[str, Any]:
    return {key: value for key, value in vars(augment).items() if value != getattr(Augment(), key)}


def _status(run: Path, recipe: Recipe) -> str:
    found = status(run)
    where = f"{found['round']} of {recipe.rounds.count} rounds"
    if found["state"] == "diverged":
        return f"diverged after {where}: {found['message']}"
    if found["state"] == "finished":
        return f"finished, {where}"
    done = len(metrics.read(run))
    return (
        f"running, or stopped: {done} of {recipe.rounds.count} rounds. "
        f"To go on: landscape train {run / 'config.toml'} --out {run.parent}"
    )


def _backend(run: Path) -> str:
    return str(checkpoint.read_provenance(run).get("backend", ""))


def _checkpoints(run: Path) -> str:
    saved = checkpoint.rounds(run)
    if not saved:
        return "none yet"
    with_locals, damaged = [], []
    for round in saved:
        try:
            files = checkpoint.read_meta(checkpoint.at(run, round))["files"]
            with_locals += [round] if "locals.safetensors" in files else []
        except checkpoint.DamagedError:
            damaged.append(round)
    text = f"after rounds {spelled(saved)}; local models after {spelled(with_locals) if with_locals else 'none'}"
    return text + (f"; damaged: {spelled(damaged)}" if damaged else "")


def spelled(rounds: Sequence[int]) -> str:
    """A list of rounds, shortened in the middle: 0, 500, 1000, ..., 10000 (21 of them)."""
    if len(rounds) <= 12:
        return ", ".join(map(str, rounds))
    return f"{', '.join(map(str, rounds[:3]))}, ..., {rounds[-1]} ({len(rounds)} of them)"


def _results(found: Sequence[Score]) -> Table:
    table = framed("on the test data", "round", "loss", "accuracy", "mean accuracy")
    for column in table.columns[1:]:
        column.justify = "right"
    for score in found:
        table.add_row(
            score.model,
            str(score.round),
            "-" if score.loss is None else f"{score.loss:.4f}",
            f"{100 * score.accuracy:.2f} %",
            f"{100 * score.mean:.2f} % (last {score.count})",
        )
    return table


def _partition(split: Partition) -> RenderableType:
    clients, classes = split.histogram.shape
    if max(clients, classes) <= MOST_ROWS:
        table = framed("client", "examples", *(f"class {c}" if c == 0 else str(c) for c in range(classes)))
        for column in table.columns[1:]:
            column.justify = "right"
        for client, row in enumerate(split.histogram):
            table.add_row(str(client), str(split.sizes[client]), *(str(count) if count else "·" for count in row))
        return table
    table = framed("per client", "least", "median", "mean", "most")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in (("examples", split.sizes), ("classes", split.classes_per_client)):
        numbers = (values.min(), np.median(values), values.mean(), values.max())
        table.add_row(name, *(f"{number:.4g}" for number in numbers))
    common = sorted(Counter(split.classes_per_client.tolist()).items())
    if len(common) > 10:
        return table
    return noted(table, f"clients by classes: {', '.join(f'{count} with {number}' for number, count in common)}")

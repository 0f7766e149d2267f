"""Summaries of runs: settings, status, results, and the partition. Imports no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from training import recipe_tables
from training.console.messages import printable
from training.console.partition_picture import PLURALS, describe_partition, draw_partition
from training.console.tables import add_notes, make_table, print_line, show_settings
from training.data import partition
from training.data.partition import Partition
from training.recipe_tables import RecipeTables
from training.settings import Settings, fields
from training.storage import metrics
from training.storage.atomic_files import DamagedError
from training.storage.run_directory import (
    CONFIG,
    PARTITION,
    STATUS,
    checkpoint_path,
    checkpoint_rounds,
    list_rounds,
    read_meta,
    read_provenance,
    read_status,
    require_run,
)

MODELS = {
    "": "server's model",
    "mean_": "mean of participants",
    "swa_": "SWA average",
    "personal_": "clients' own models",  # each on its own test data, where evaluation.personal asks for it
}
MOST_ROWS = 20  # clients, and classes, up to which the partition is shown in full


@dataclass(frozen=True)
class Score:
    """The score of a global model, or of the clients' own models, on the test data: a metric of `metrics.SCORES`."""

    model: str
    round: int  # the last evaluated round
    loss: float | None  # None: not recorded
    value: float
    mean: float  # of the last `count` evaluated rounds
    count: int
    metric: str  # as it is printed


class Standing(TypedDict):
    """The state of a run, and its finished rounds."""

    state: str  # begun, running, finished or diverged
    round: int
    message: str


def find_scores(run: Path, last: int) -> list[Score]:
    """Find the last accuracy, or mean IoU, of every model that was evaluated, and its mean over the last rounds.

    run: its directory. last: number of evaluated rounds in the mean.

    The mean of the participants is left out where it equals the server's model, as in FedAvg.
    """
    records = metrics.read(run)
    score = metrics.find_score(records)
    found = []
    for prefix, name in MODELS.items():
        metric = "accuracy" if prefix == "personal_" else score
        key = f"{prefix}{metric}"
        evaluated = [record for record in records if record.get(key) is not None]
        if evaluated and not (prefix == "mean_" and all(_is_server_model(record) for record in evaluated)):
            tail = [record[key] for record in evaluated[-last:]]
            newest = evaluated[-1]
            loss, mean = newest.get(f"{prefix}test_loss"), float(np.mean(tail))
            found.append(Score(name, newest["round"], loss, newest[key], mean, len(tail), metrics.SCORES[metric]))
    return found


def write_score(score: Score) -> tuple[str, str]:
    """Write the last value and the mean of a score in per cent.

    score: to write.
    """
    return f"{100 * score.value:.2f} %", f"{100 * score.mean:.2f} % (last {score.count})"


def name_metric(scores: Sequence[Score]) -> str:
    """Name the metric of scores for a heading: "accuracy or mIoU" where they differ.

    scores: of one run or several.
    """
    return " or ".join(dict.fromkeys(score.metric for score in scores)) or "accuracy"


def _is_server_model(record: Mapping[str, object]) -> bool:
    one, other = record.get("mean_test_loss"), record.get("test_loss")
    if not isinstance(one, float) or not isinstance(other, float):
        return False
    return math.isclose(one, other, rel_tol=1e-5)  # float32 sums in another order


def find_standing(run: Path) -> Standing:
    """Read the state of a run; without a status file it has just started."""
    try:
        found = read_status(run)
    except ValueError as error:
        if not (run / STATUS).exists():
            return {"state": "begun", "round": 0, "message": ""}
        raise ValueError(f"{error}; landscape check {run} lists what is damaged") from None
    return {"state": found["state"], "round": found["round"], "message": found["message"]}


def show_all(runs: Sequence[Path], console: Console) -> list[str]:
    """Print one run in full, or one line for each of several runs.

    runs: run directories. console: where to print. Returns one message for each run that cannot be read.
    """
    if len(runs) == 1:
        show(runs[0], console)
        return []
    rows, shown, problems = [], [], []
    for run in runs:
        try:
            recipe = recipe_tables.read(run)
            scores = find_scores(run, recipe.evaluation.last)
            rows += list(_lines(run, recipe, scores))
            shown += scores
        except (OSError, ValueError) as error:
            problems.append(str(error))
            rows.append((printable(run), "not readable"))
    metric = name_metric(shown)
    table = make_table("run", "state", "rounds", "model", metric, f"mean {metric}")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table, "")
    return problems


def _lines(run: Path, recipe: RecipeTables, scores: Sequence[Score]) -> Iterator[tuple[str, ...]]:
    """Yield the row of a run, and one more for every further model that was evaluated."""
    state, done = find_standing(run)["state"], len(metrics.read(run))
    head = (printable(run), "stopped" if state == "running" else state, f"{done} of {recipe.rounds.count}")
    for score in scores:
        yield *head, score.model, *write_score(score)
        head = ("", "", "")
    if head[0]:
        yield *head, "-", "-", "-"


def show(run: Path, console: Console) -> None:
    """Print everything about a run, and draw its partition as a picture in its directory."""
    require_run(run)
    recipe = recipe_tables.read(run)
    split = partition.load(run / PARTITION)
    print_line(console, str(run), style="bold")
    console.print(_facts(run, recipe, split))
    console.print()
    found = find_scores(run, recipe.evaluation.last)
    if found:
        console.print(_results(found), "")
    kind = "user" if found and name_metric(found) == "mIoU" else "class"  # what examples were dealt by
    console.print(_partition(split, kind), "")
    try:
        print_line(console, f"picture: {draw_partition(split, run / 'partition.png', kind)}")
    except OSError as error:  # a run in a read-only directory can still be shown
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        print_line(console, f"no picture, {run / 'partition.png'} cannot be written: {reason.strerror}")


def _facts(run: Path, recipe: RecipeTables, split: Partition) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in describe_run(run, recipe, split).items():
        table.add_row(name, escape(printable(text)))
    return table


def describe_run(run: Path, recipe: RecipeTables, split: Partition) -> dict[str, str]:
    """Describe a run by lines of text, each with a name: its status, the tables of its recipe, its checkpoints."""
    data, local, rounds, swa = recipe.data, recipe.local, recipe.rounds, recipe.swa
    used = f"{local.steps} steps" if local.steps else f"{local.epochs} epoch{'s' if local.epochs > 1 else ''}"
    extra = {"momentum": local.momentum, "weight_decay": local.weight_decay, "clip": local.clip}
    given = {key: value for key, value in extra.items() if value}
    decay = f" x {local.lr_decay:g} per round" if local.lr_decay != 1 else ""
    facts = read_provenance(run)
    chosen = "exactly" if rounds.sampling == "fixed" else "about"
    adopted = _describe_adopted(recipe, facts.get("adopted"))
    lines = {
        "status": _describe_status(run, recipe),
        **adopted,
        "data": _named(data.name, data.settings) + (", train and test pooled" if data.pooled else ""),
        "partition": f"{describe_partition(split)} among {len(split.indices)} clients",
        "model": _named(recipe.model.name, recipe.model.settings),
        "algorithm": _named(recipe.algorithm.name, recipe.algorithm.settings),
        "rounds": f"{rounds.count}, {chosen} {rounds.participants} clients each, mean "
        + ("weighted by size" if rounds.aggregation == "size" else "unweighted"),
        "local": f"{used} of batches of {local.batch_size}, lr {local.lr:g}{decay}"
        + (f", {show_settings(given)}" if given else ""),
        "augment": show_settings(changed) if (changed := _changed(recipe.augment)) else "",
        "swa": "" if swa is None else f"from {100 * swa.start:g} % of the rounds on, cycle {swa.cycle}",
        "seed": f"{recipe.seed}, {recipe.dtype}",
        "cost": describe_flops(facts.get("flops")),
        "back-end": str(facts.get("backend", "")),
        "checkpoints": _describe_checkpoints(run),
    }
    unknown = ({"algorithm", "local", "seed"} - recipe.model_fields_set) | {"rounds"} if adopted else set()
    return {name: text for name, text in lines.items() if text and name not in unknown}


def _describe_adopted(recipe: RecipeTables, about: object) -> dict[str, str]:
    """Describe the origin of an adopted run, and what is not known about it; nothing for a trained run."""
    if recipe.adopted is None:
        return {}
    told = about if isinstance(about, dict) else {}
    missing = told.get("missing")
    return {
        "adopted": f"from {recipe.adopted.framework or 'another framework'}",
        "method": recipe.adopted.method,
        "accuracies": str(told.get("accuracies", "")),
        "missing": "; ".join(map(str, missing)) if isinstance(missing, list) else "",
    }


def describe_flops(flops: object) -> str:
    """Describe the cost of a local step; nothing if the run has not counted it.

    flops: the entry of provenance.json.

    >>> describe_flops({"forward": 29386496, "backward": 51246592, "per_step": 8063308800, "ratio": 2.0})
    '8.06 GFLOP per local step, 2.00 x FedAvg; forward 29.4 MFLOP, backward 51.2 MFLOP per example'
    """
    names = ("forward", "backward", "per_step", "ratio")
    given = flops if isinstance(flops, dict) else {}
    numbers = [float(given[name]) for name in names if isinstance(given.get(name), (int, float))]
    if len(numbers) < len(names):
        return ""
    forward, backward, step, ratio = numbers
    each = f"forward {_show_flops(forward)}, backward {_show_flops(backward)} per example"
    return f"{_show_flops(step)} per local step, {ratio:.2f} x FedAvg; {each}"


def _show_flops(count: float) -> str:
    unit = max((one for one in (0, 3, 6, 9, 12, 15) if count >= 10**one), default=0)
    return f"{count / 10**unit:.3g} {' kMGTP'[unit // 3].strip()}FLOP"


def _named(name: str, values: Mapping[str, object]) -> str:
    return f"{name} ({show_settings(values)})" if values else name


def _changed(table: Settings) -> dict[str, object]:
    """Return the settings of a table that differ from their defaults."""
    found = {key: (getattr(table, key), field.get_default()) for key, field in fields(type(table)).items()}
    return {key: value for key, (value, default) in found.items() if value != default}


def _describe_status(run: Path, recipe: RecipeTables) -> str:
    found = find_standing(run)
    where = f"{found['round']} of {recipe.rounds.count} rounds"
    if found["state"] == "diverged":
        return f"diverged after {where}: {found['message']}"
    if found["state"] == "finished":
        return f"finished, {where}"
    done = len(metrics.read(run))
    return (
        f"running, or stopped: {done} of {recipe.rounds.count} rounds. "
        f"To resume: landscape train {run / CONFIG} --out {run.parent}"
    )


def _describe_checkpoints(run: Path) -> str:
    saved = checkpoint_rounds(run)
    if not saved:
        return "none yet"
    with_locals, damaged = [], []
    for round in saved:
        try:
            files = read_meta(checkpoint_path(run, round))["files"]
            with_locals += [round] if "locals.safetensors" in files else []
        except DamagedError:
            damaged.append(round)
    text = (
        f"after rounds {list_rounds(saved)}; local models after {list_rounds(with_locals) if with_locals else 'none'}"
    )
    return text + (f"; damaged: {list_rounds(damaged)}" if damaged else "")


def _results(found: Sequence[Score]) -> Table:
    metric = name_metric(found)
    table = make_table("on the test data", "round", "loss", metric, f"mean {metric}")
    for column in table.columns[1:]:
        column.justify = "right"
    for score in found:
        table.add_row(
            score.model,
            str(score.round),
            "-" if score.loss is None else f"{score.loss:.4f}",
            *write_score(score),
        )
    return table


def _partition(split: Partition, kind: str) -> RenderableType:
    """What clients hold, by class, or by user where only pixels have classes."""
    clients, classes = split.histogram.shape
    if max(clients, classes) <= MOST_ROWS:
        table = make_table("client", "examples", *(f"{kind} {c}" if c == 0 else str(c) for c in range(classes)))
        for column in table.columns[1:]:
            column.justify = "right"
        for client, row in enumerate(split.histogram):
            table.add_row(str(client), str(split.sizes[client]), *(str(count) if count else "·" for count in row))
        return table
    table = make_table("per client", "least", "median", "mean", "most")
    for column in table.columns[1:]:
        column.justify = "right"
    plural = PLURALS[kind]
    for name, values in (("examples", split.sizes), (plural, split.classes_per_client)):
        numbers = (values.min(), np.median(values), values.mean(), values.max())
        table.add_row(name, *(f"{number:.4g}" for number in numbers))
    common = sorted(Counter(split.classes_per_client.tolist()).items())
    if len(common) > 10:
        return table
    return add_notes(table, f"clients by {plural}: {', '.join(f'{count} with {number}' for number, count in common)}")

"""Make a cell from the seeds of a method: which of them count, their mean, its error, and its marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from analysis.summary import group
from reports.inputs.progress import CROSS, DAGGER, select_counted
from reports.inputs.runs import Collection, Run
from reports.measures import Measure, find_final_accuracy
from reports.tables.table import GUESSING, Cell, Column
from reports.variants import Variant, make_full_titles

Found = tuple[Column, Callable[[Variant], Cell]]  # a column, and where its cells come from


def average_values(values: Sequence[float], missing: str = "—") -> Cell:
    """Make a cell of the mean and the spread over seeds.

    values: one per seed; NaN where it is not known.
    missing: what the cell says where none is known.
    """
    (row,) = group([{"seed": place, "value": float(value)} for place, value in enumerate(values)], [])
    return Cell(row["value"], row["value_spread"], row["value_n"], missing=missing)


def make_cell(runs: Sequence[Run], measure: Measure) -> Cell:
    """Make a cell of a measure: its mean over the seeds that count.

    runs: all seeds of a method.
    """
    shown = select_counted(runs)
    subsets = [one for run in shown if (one := measure.examples(run)).examples is not None]
    errors = [error for run in shown if (error := measure.error(run)) > 0]  # none, 0 or NaN: not from a subset
    cell = average_values([measure.find(run) for run in shown]) if shown else Cell()
    return mark_progress(
        Cell(
            cell.mean,
            cell.spread,
            cell.seeds,
            # the seeds' subsets may be the same examples: their mean is then no surer than each of them
            error=float(np.sqrt(np.mean(np.square(errors)))) if errors else math.nan,
            examples=max((one.examples or 0 for one in subsets), default=None),
            population=max((one.population or 0 for one in subsets), default=None) or None,
            ranked=measure.name == "accuracy" or not are_guessing(shown),
        ),
        runs,
    )


def mark_progress(cell: Cell, runs: Sequence[Run]) -> Cell:
    """Mark a cell where some of its seeds are not final: by a cross, a dagger, or how many of them count."""
    if runs and all(run.progress.state == "diverged" for run in runs):
        return Cell(missing=CROSS, ranked=False)
    left = {state: sum(run.progress.state == state for run in runs) for state in ("diverged", "unfinished")}
    if not any(run.progress.final for run in runs):  # the unfinished ones are what is shown
        cell = replace(cell, mark=DAGGER if math.isfinite(cell.mean) else "", ranked=False)
        left["unfinished"] = 0
    out = [f"{number} {state}" for state, number in left.items() if number]
    if not out:
        return cell
    said = f"{len(runs) - sum(left.values())} of {len(runs)} seeds, {', '.join(out)}"
    return replace(cell, note="; ".join(one for one in (cell.note, said) if one))


def are_guessing(runs: Sequence[Run]) -> bool:
    """Whether a method is no better than guessing, so that its flatness means nothing.

    runs: its seeds.
    """
    known = [(accuracy, run.chance) for run in runs if math.isfinite(accuracy := find_final_accuracy(run))]
    return bool(known) and all(accuracy <= (1 + GUESSING) * chance for accuracy, chance in known)


def make_column(measure: Measure, title: str, section: str, runs: Sequence[Run] = ()) -> Found:
    """Make the column of a measure, with the function that makes its cells.

    title: of the column.
    section: the heading above it.
    runs: those of the section, whose number of classes tells the accuracy of guessing.
    """
    accuracy = measure.name == "accuracy"
    chance = max((run.chance for run in runs if math.isfinite(run.chance)), default=math.nan) if accuracy else math.nan
    column = Column(title, section, measure.better, measure.decimals, chance=chance, kept=accuracy)
    return column, lambda variant: make_cell(variant.runs, measure)


def write_footnotes(everything: Collection, names: Sequence[str], measures: Sequence[Measure] = ()) -> tuple[str, ...]:
    """Explain the marks of a table: which runs diverged or are unfinished, and how many examples were measured.

    names: of the runs in the table.
    measures: those that the table shows.
    """
    runs = [run for run in everything.runs if run.name in set(names)]
    named, lines = make_full_titles(everything.runs, everything), []
    for state, mark in (("diverged", CROSS), ("unfinished", DAGGER)):
        those = [run for run in runs if run.progress.state == state]
        if those:
            told = "; ".join(f"{named[run.name]}: {_describe_progress(run)}" for run in those)
            lines.append(f"{mark} {state}, and left out of means over other seeds: {told}.")
    subsets = {
        f"{measure.label}: {one.description}"
        for measure in measures
        for run in runs
        if (one := measure.examples(run)).examples is not None and math.isfinite(measure.find(run))
    }
    if subsets:
        lines.append(f"n: from a part of the data ({'; '.join(sorted(subsets))}); SE: its standard error.")
    return tuple(lines)


def _describe_progress(run: Run) -> str:
    progress = run.progress
    if progress.state == "diverged":
        return f"in round {progress.rounds + 1}"
    return f"round {progress.rounds}" + (f" of {progress.planned}" if progress.planned is not None else "")

"""Make a cell from the seeds of a method: which of them count, their mean, its error, and its marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from reports.inputs.progress import CROSS, DAGGER, select_counted
from reports.inputs.runs import Collection, Run
from reports.inputs.summary import group
from reports.quantities.measures import Measure, find_final_accuracy
from reports.quantities.quantity import Quantity
from reports.tables.table import GUESSING, Cell, Column, is_at_chance
from reports.variants import Variant, make_full_titles

NEVER, NOT_YET = "\N{EN DASH}", "not yet"  # what a cell says where a target was not reached, and where it may still be
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
    cell = average_values([measure.find(run) for run in shown]) if shown else Cell()
    cell = replace(cell, ranked=measure.name == "accuracy" or not are_guessing(shown))
    return mark_progress(add_subset(cell, shown, measure), runs)


def add_subset(cell: Cell, runs: Sequence[Run], measure: Measure | Quantity) -> Cell:
    """Add to a cell how many examples its number was measured on, and the standard error that comes from it.

    runs: the seeds that it is the mean of.
    """
    subsets = [one for run in runs if (one := measure.examples(run)).examples is not None]
    errors = [error for run in runs if (error := measure.error(run)) > 0]  # none, 0 or NaN: not from a subset
    return replace(
        cell,
        # the seeds' subsets may be the same examples: their mean is then no surer than each of them
        error=float(np.sqrt(np.mean(np.square(errors)))) if errors else math.nan,
        examples=max((one.examples or 0 for one in subsets), default=None),
        population=max((one.population or 0 for one in subsets), default=None) or None,
    )


def fill_cell(runs: Sequence[Run], quantity: Quantity, references: Mapping[int, Run]) -> Cell:
    """Make a cell of a quantity: its mean over the seeds that count, its spread, and its marks.

    runs: all seeds of a cell, at least one.
    references: by seed, the runs that a number may be relative to.
    """
    shown = list(runs) if quantity.fixed else select_counted(runs)
    values = [quantity.find(run, references.get(run.seed)) for run in shown]
    final = all(run.progress.final for run in shown)
    never = sum(value == math.inf for value in values)
    cell = average_values([value if math.isfinite(value) else math.nan for value in values]) if values else Cell()
    if never and never == len(values):
        cell = replace(cell, missing=NEVER if final else NOT_YET)
    left = [f"{never} of {len(values)} {'not reached' if final else NOT_YET}"] if 0 < never < len(values) else []
    if 0 < cell.seeds < len(values) - never:
        left.append(f"known of {cell.seeds} of {len(values)} seeds")
    cell = replace(cell, note="; ".join(left), ranked=_may_lead(cell, shown, quantity))
    cell = _set_spread(add_subset(cell, shown, quantity), shown, quantity)
    if quantity.fixed:
        return cell
    cell = mark_progress(cell, runs)
    if quantity.relative and any(not run.progress.final for run in references.values()) and math.isfinite(cell.mean):
        return replace(cell, mark=DAGGER, ranked=False)  # what it is compared with may still change
    return cell


def _may_lead(cell: Cell, runs: Sequence[Run], quantity: Quantity) -> bool:
    """Whether a number can be the best: not where the model is no better than guessing."""
    if quantity.guessing:
        chance = max((run.chance for run in runs if math.isfinite(run.chance)), default=math.nan)
        return not is_at_chance(cell, Column("", chance=chance))
    return not quantity.study or not are_guessing(runs)


def _set_spread(cell: Cell, runs: Sequence[Run], quantity: Quantity) -> Cell:
    """Show the spread that the quantity asks for; the error over seeds is kept for what is set bold."""
    if quantity.spread == "seeds":
        return cell
    known = [one for run in runs if math.isfinite(one := quantity.deviation(run))] if quantity.spread else []
    return replace(cell, seed_error=cell.over_seeds, spread=float(np.mean(known)) if known else math.nan)


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
            told = "; ".join(f"{named[run.name]}: {describe_end(run)}" for run in those)
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


def describe_end(run: Run) -> str:
    """Say in which round a run diverged, or how far an unfinished one is."""
    progress = run.progress
    if progress.state == "diverged":
        return f"in round {progress.rounds + 1}"
    return f"round {progress.rounds}" + (f" of {progress.planned}" if progress.planned is not None else "")

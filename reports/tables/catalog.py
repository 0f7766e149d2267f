"""Tables in the shapes that the papers use. A new one is a function and one line in TABLES."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from reports.inputs.progress import DAGGER, select_counted
from reports.inputs.reading import attempt
from reports.inputs.runs import Collection, Run, name_score
from reports.names import name_class, name_strategy
from reports.quantities.measures import (
    MEASURES,
    count_bytes_per_round,
    find_last_participants,
    find_target_cost,
    list_personal_scores,
    list_personal_strategies,
    list_targets,
)
from reports.tables.by_method import describe_seed_counts, list_sections, sort_variants, tabulate_methods
from reports.tables.cells import Found, average_values, make_cell, make_column, mark_progress, write_footnotes
from reports.tables.grid import capitalise
from reports.tables.table import BOLD, Cell, Column, Line, Table
from reports.tables.typeset import SUFFIXES, render, save
from reports.variants import Variant

__all__ = ["SUFFIXES", "TABLES", "Table", "make_tables", "render", "save"]

MEGA = 1e6
CLIENTS = 10  # rows of clients of one data set and partition, at most
OWNED = 0.9  # share of a client's examples from which a class is called its own


def make_accuracy(everything: Collection) -> Table | None:
    """Tabulate final accuracy by method and partition, with what a round costs (FedGloSS, Table 3)."""
    columns, lines = tabulate_methods(
        everything,
        lambda section, runs, _: [make_column(MEASURES["accuracy"], f"{name_score(runs)} (%)", section, runs)],
    )
    if not lines:
        return None
    costs = _find_costs(everything)
    if costs:
        columns = (Column("bytes a round", decimals=1, unit="\N{MULTIPLICATION SIGN}"), *columns)
        lines = tuple(Line(one.label, one.runs, (Cell(costs.get(one.label, math.nan)), *one.cells)) for one in lines)
    swa = " Of the SWA model where there is one." if any("swa" in run.settings for run in everything.runs) else ""
    return Table(
        "accuracy",
        "good",
        f"Final test {name_score(everything.runs)}",
        "Higher is better; the last evaluated rounds of each run are averaged first.",
        "method",
        columns,
        lines,
        f"{describe_seed_counts(lines)} Mean over the last evaluated rounds.{swa}",
    )


def _find_costs(everything: Collection) -> dict[str, float]:
    """Bytes of a round, relative to the first method of the same data set and partition."""
    found: dict[str, float] = {}
    for _, _, methods in list_sections(everything):
        sent = {one.name: float(np.mean([count_bytes_per_round(run) for run in one.runs])) for one in methods}
        first = next(iter(sent.values()))
        for name, value in sent.items():
            if math.isfinite(value / first if first else math.nan):
                found.setdefault(name, value / first)
    return found


def make_communication(everything: Collection) -> Table | None:
    """Tabulate accuracy, and rounds and megabytes to the first method's highest target (FedGloSS, Table 5)."""

    def columns_of(section: str, runs: list[Run], methods: list[Variant]) -> list[Found]:
        target = _choose_target(runs, methods)
        if target is None:
            return []
        titles = (f"rounds to {100 * target:g} %", f"MB to {100 * target:g} %")
        return [
            make_column(MEASURES["accuracy"], f"{name_score(runs)} (%)", section, runs),
            (Column(titles[0], section, "lower", 0), lambda variant: _make_target_cell(variant, target, 0, 1.0)),
            (Column(titles[1], section, "lower", 1), lambda variant: _make_target_cell(variant, target, 1, MEGA)),
        ]

    columns, lines = tabulate_methods(everything, columns_of)
    if not lines:
        return None
    return Table(
        "communication",
        "good",
        f"{capitalise(name_score(everything.runs))} and what it costs to get there",
        "Fewer rounds and bytes are better; never: not within the rounds that were run.",
        "method",
        columns,
        lines,
        f"{describe_seed_counts(lines)} Bytes down and up, until the server's model or its SWA average is as good.",
    )


def _choose_target(runs: Sequence[Run], methods: Sequence[Variant]) -> float | None:
    """The highest target that the first method reaches with every seed, or any method with any."""
    wanted = list_targets(runs)
    reached = [one for one in wanted if all(math.isfinite(find_target_cost(run, one)[0]) for run in methods[0].runs)]
    anyone = [one for one in wanted if any(math.isfinite(find_target_cost(run, one)[0]) for run in runs)]
    return max(reached or anyone, default=None)


def _make_target_cell(variant: Variant, target: float, which: int, unit: float) -> Cell:
    """Average over the seeds that count; an unfinished run may still reach a target, so it is open, not missed."""
    known = [run for run in select_counted(variant.runs) if run.measured("training") is not None]
    values = [find_target_cost(run, target)[which] / unit for run in known]
    if not known:
        return mark_progress(Cell(), variant.runs)
    final = all(run.progress.final for run in known)
    cell = average_values(values, missing="never" if final else "not yet")
    never = sum(not math.isfinite(value) for value in values)
    note = f"{never} of {len(values)} {cell.missing}" if 0 < never < len(values) else ""
    return mark_progress(replace(cell, note=note), variant.runs)


def make_sharpness(everything: Collection) -> Table | None:
    """Tabulate the largest eigenvalue and its ratio to the fifth (FedGloSS, Table 8; FedASAM, Table 1)."""
    columns, lines = tabulate_methods(
        everything,
        lambda section, *_: [
            make_column(MEASURES["lambda_1"], "λ₁", section),
            make_column(MEASURES["ratio"], "λ₁/λ₅", section),
        ],
    )
    if not lines:
        return None
    return Table(
        "sharpness",
        "flat",
        "Sharpness of the global model",
        "Lower is flatter; compare models of about the same loss.",
        "method",
        columns,
        lines,
        f"{describe_seed_counts(lines)} Eigenvalues of the Hessian at the last round looked at."
        + _describe_model(everything),
    )


def _describe_model(everything: Collection) -> str:
    """Say whose eigenvalues stand in rows with SWA in their name."""
    averaged = [run.answer("curvature") for run in everything.runs if "swa" in run.settings]
    models = sorted({str(answer.settings.get("model", "server")) for answer in averaged if answer is not None})
    words = {
        "final": "the averaged model",
        "swa": "the averaged model",
        "server": "the server's model",
        "mean": "the mean",
    }
    return f" With SWA: of {' or '.join(dict.fromkeys(words[model] for model in models))}." if models else ""


def make_personal(everything: Collection) -> Table | None:
    """Tabulate accuracy of global and personal models on clients' own data (FedFSA, T1; FedSoL, T5)."""

    def columns_of(section: str, runs: list[Run], methods: list[Variant]) -> list[Found]:
        strategies = list_personal_strategies(runs)
        if not any(run.personal for run in runs):
            return []
        return [
            _average_clients(None, "global model", section),
            *(_average_clients(name, name_strategy(name), section) for name in strategies),
        ]

    columns, lines = tabulate_methods(everything, columns_of)
    if not lines:
        return None
    return Table(
        "personal",
        "good",
        "Accuracy on the clients' own test data",
        "Higher is better; a gain over the global model is what personalisation brings. ± is over clients: how evenly "
        "they are served.",
        "method",
        columns,
        lines,
        "Mean ± standard deviation over clients, each counting once; of several seeds the means of both.",
    )


def _average_clients(strategy: str | None, title: str, section: str) -> Found:
    """Mean and standard deviation over clients (divided by their number), each averaged over seeds."""

    def find(variant: Variant) -> Cell:
        scores = [some for run in select_counted(variant.runs) if len(some := list_personal_scores(run, strategy))]
        cell = average_values([float(some.mean()) for some in scores]) if scores else Cell()
        spread = float(np.mean([some.std() for some in scores])) if scores else math.nan
        over_seeds = cell.spread / math.sqrt(cell.seeds) if cell.seeds > 1 else math.nan
        return mark_progress(replace(cell, spread=spread, seed_error=over_seeds), variant.runs)

    return Column(f"{title} (%)", section, "higher", 1), find


def make_local_global(everything: Collection) -> Table | None:
    """Tabulate the largest eigenvalue of local models, on own data and on everyone's (FedGloSS, Table 1)."""
    parts = [
        (title, runs, [one for one in methods if _was_measured(one)])
        for title, runs, methods in list_sections(everything)
    ]
    there = {one.name for _, _, methods in parts for one in methods}
    names = [name for name in sort_variants(everything) if name in there]
    if not names:
        return None
    lines: list[Line] = []
    for title, _, methods in parts:
        if methods:
            lines += _list_client_lines(title, {one.name: one for one in methods}, names)
    shown = {
        name: tuple(run for _, _, ms in parts for one in ms if one.name == name for run in one.names) for name in names
    }
    columns = []
    for name in names:
        columns.append(Column("λ₁ own", name, runs=shown[name]))
        columns.append(Column("λ₁ everyone", name, "lower", runs=shown[name]))
    return Table(
        "local_global",
        "agree",
        "Sharpness of local models on their own data and on everyone's",
        "A model that is flat for its client (left) and sharp for everyone (right) shows the incompatibility.",
        "client",
        tuple(columns),
        tuple(lines),
        "Clients of the first seed, last round with local models; mean: over clients, ± over seeds.",
        across=True,
    )


def _was_measured(variant: Variant) -> bool:
    return any(_find_last_pairs(run) for run in variant.runs)


def _list_client_lines(title: str, methods: dict[str, Variant], names: Sequence[str]) -> list[Line]:
    looked = {name: [run for run in select_counted(one.runs) if _find_last_pairs(run)] for name, one in methods.items()}
    first = {name: some[0] for name, some in looked.items() if some}
    values = {name: _find_last_pairs(run) for name, run in first.items()}
    clients = sorted({client for one in values.values() for client in one})
    runs = tuple(run for one in methods.values() for run in one.names)
    lines = []
    for client in clients[:CLIENTS]:
        pair = tuple(
            _make_client_cell(value, first.get(name))
            for name in names
            for value in values.get(name, {}).get(client, (math.nan, math.nan))
        )
        lines.append(Line(_name_client(next(iter(first.values())), client), runs, pair, title))
    means: list[Cell] = []
    for name in names:
        for key in ("local", "everyone"):
            means.append(make_cell(methods[name].runs, MEASURES[key]) if name in methods else Cell())
    return [*lines, Line("mean", runs, tuple(means), title)]


def _make_client_cell(value: float, run: Run | None) -> Cell:
    if run is None or not math.isfinite(value):
        return Cell()
    return Cell(value, seeds=1, mark="" if run.progress.final else DAGGER, ranked=run.progress.final)


def _find_last_pairs(run: Run) -> dict[int, tuple[float, float]]:
    """Client -> largest eigenvalue on its own data and on everyone's, at the last round with local models."""
    data = run.measured("local_global")
    if data is None or "local_eigenvalue" not in data:
        return {}
    last = find_last_participants(data, "distance").sel(rank=1)
    columns = (last[name].values.tolist() for name in ("client", "local_eigenvalue", "global_eigenvalue"))
    return {client: (own, wide) for client, own, wide in zip(*columns, strict=True)}


def _name_client(run: Run, client: int) -> str:
    """Name a client as papers do: with its class, where it holds a single one."""
    if run.class_counts is not None and run.dealt_by == "class" and client < len(run.class_counts):
        counts = run.class_counts[client]
        if counts.max() >= OWNED * counts.sum():
            return f"{client} ({name_class(run.data, int(counts.argmax()), run.class_names)})"
    return str(client)


TABLES: dict[str, Callable[[Collection], Table | None]] = {
    "accuracy": make_accuracy,
    "communication": make_communication,
    "personal": make_personal,
    "sharpness": make_sharpness,
    "local_global": make_local_global,
}


USED = {  # measures of a table, for its footnotes
    "sharpness": ("lambda_1", "ratio"),
    "local_global": ("local", "everyone"),
}


def make_tables(everything: Collection, *, bold: str = "clear", problems: list[str] | None = None) -> list[Table]:
    """Make every table for which there are numbers.

    bold: what is set bold, a key of BOLD.
    problems: gets a line for each table that cannot be made; None: such a table is an error.
    """
    if bold not in BOLD:
        raise ValueError(f"bold must be one of {', '.join(BOLD)}; got {bold!r}")
    said: list[str] = []
    found = [attempt(said, Path(f"table {name}"), make, everything) for name, make in TABLES.items()]
    if problems is None and said:
        raise ValueError("; ".join(said))
    if problems is not None:
        problems += said
    return [_finish(table, everything, bold) for table in found if table is not None]


def _finish(table: Table, everything: Collection, bold: str) -> Table:
    """With what bold and the marks mean."""
    names = [name for line in table.lines for name in line.runs]
    measures = [MEASURES[name] for name in USED.get(table.name, ())]
    below = write_footnotes(everything, names, measures)
    return replace(table, bold=bold, note=f"{table.note} {BOLD[bold]}", footnotes=below)

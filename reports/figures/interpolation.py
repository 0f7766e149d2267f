"""Loss and error along the straight line between two models, with the barrier marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from analysis.store import Stored, Table
from reports.figure import Drawn, Figure
from reports.plotting.fitting import finite, shared_legend
from reports.plotting.heat import no_data
from reports.plotting.measured import measured, setting
from reports.plotting.style import OKABE_ITO, canvas, caption, label, mark
from reports.runs import Collection, Run
from reports.variants import titles

PLACE = re.compile(r"(?P<run>.*) round (?P<round>\d+)(?: client (?P<client>\d+))?")  # as the study names models
KINDS = {  # as the study calls them, and in words
    "client-client": "between two clients",
    "client-global": "from a client to the global model",
    "round-round": "between two rounds",
    "run-run": "between two runs",
}
PANEL, DRAWING = 6, len(OKABE_ITO)  # most lines in one panel, and colours for a drawing
SMALL = 0.005  # of the height of a panel: barriers that would not be seen are not written


@dataclass(frozen=True, eq=False)
class Line:
    """One row of a table, and the runs at its ends."""

    stored: Stored
    row: int
    ends: tuple[re.Match[str], re.Match[str]]
    runs: tuple[str, ...]

    @property
    def table(self) -> Table:
        return self.stored.tables["lines"]

    @property
    def kind(self) -> str:
        clients = sum(end["client"] is not None for end in self.ends)
        return "run-run" if len(self.runs) > 1 else ("round-round", "client-global", "client-client")[clients]

    @property
    def barrier(self) -> float:
        return float(self.table["loss_barrier"][self.row, 0, 0])

    def name(self, words: Mapping[str, str]) -> str:
        """The ends in a few words; the round where it does not tell them apart."""
        rounds = list(dict.fromkeys(end["round"] for end in self.ends))
        after = f", round {rounds[0]}" if len(rounds) == 1 else ""
        if self.kind == "round-round":
            return f"round {self.ends[0]['round']} to round {self.ends[1]['round']}"
        if self.kind == "run-run":
            return " to ".join(words[end["run"]] for end in self.ends) + after
        return " to ".join(f"client {one['client']}" if one["client"] else "global" for one in self.ends) + after


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    words = titles(runs, everything)
    drawn: list[Drawn] = []
    shared = list(_compared(runs, everything))
    for run in runs:
        lines = [*_own(run), *(line for line in shared if line.runs == (run.name,))]
        if lines:
            drawn.append(_drawing(_first(lines), [run], words, f"_{len(drawn)}" if drawn else ""))
    between = [line for line in shared if len(line.runs) > 1]
    if between:
        ends = {name for line in between for name in line.runs}
        words = titles([run for run in everything.runs if run.name in ends], everything)
        drawn.append(_drawing(_first(between), runs, words, "_runs"))
    return drawn


def _own(run: Run) -> Iterator[Line]:
    """Lines of a study that looked at this run alone."""
    stored = run.results.get("interpolation")
    if stored is not None:
        for row, ends in _ends(stored):
            yield Line(stored, row, ends, (run.name,))


def _compared(runs: Sequence[Run], everything: Collection) -> Iterator[Line]:
    """Lines of studies that looked at several runs, the first end in this section."""
    names, known = {run.name for run in runs}, {run.name for run in everything.runs}
    for stored in everything.together.get("interpolation", []):
        for row, ends in _ends(stored):
            found = tuple(dict.fromkeys(end["run"] for end in ends))
            if found[0] in names and known.issuperset(found):
                yield Line(stored, row, ends, found)


def _ends(stored: Stored) -> Iterator[tuple[int, tuple[re.Match[str], re.Match[str]]]]:
    table = stored.tables["lines"]
    for row, (start, end) in enumerate(zip(table["start"], table["end"], strict=True)):
        first, second = PLACE.fullmatch(str(start)), PLACE.fullmatch(str(end))
        if first and second:
            yield row, (first, second)


def _first(lines: Sequence[Line]) -> list[Line]:
    """Every pair once: of several treatments of norm layers the one stored first."""
    found: dict[tuple[str, ...], Line] = {}
    for line in lines:
        found.setdefault(tuple(end[0] for end in line.ends), line)
    return list(found.values())


def _shown(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """By kind, as many of each as there are colours for; where some have to go, the highest barriers stay."""
    groups = {kind: [line for line in lines if line.kind == kind] for kind in KINDS}
    groups = {kind: some for kind, some in groups.items() if some}
    room = dict.fromkeys(groups, 0)
    while sum(room.values()) < DRAWING:
        open_ = [kind for kind, some in groups.items() if room[kind] < min(len(some), PANEL)]
        if not open_:
            break
        room[min(open_, key=lambda kind: room[kind])] += 1
    chosen = {}
    for kind, some in groups.items():
        highest = sorted(some, key=lambda line: -np.nan_to_num(line.barrier))[: room[kind]]
        chosen[kind] = [line for line in some if line in highest]
    return chosen


def _drawing(lines: Sequence[Line], runs: Sequence[Run], words: Mapping[str, str], suffix: str) -> Drawn:
    groups = _shown(lines)
    figure, axes = canvas(len(groups), 2, width=9.0, height=2.9 * len(groups) + 0.9)
    colours, rows = iter(OKABE_ITO), list[dict[str, Any]]()
    for place, (kind, some) in enumerate(groups.items()):
        pair, shades = axes[2 * place : 2 * place + 2], [next(colours) for _ in some]
        for panel, field in zip(pair, ("loss", "error"), strict=True):
            for line, color in zip(some, shades, strict=True):
                _curves(panel, line, field, color, line.name(words))
            for model in (0, 1):
                panel.axvline(model, color="0.7", linewidth=0.8)
            title = KINDS[kind] if len(runs) > 1 else f"{words[runs[0].name]}, {KINDS[kind]}"
            label(panel, "from the first model (0) to the second (1)", field, title)
            panel.xaxis.set_major_locator(MultipleLocator(0.5))
            _barriers(panel, some, field, shades)
        rows += [row for line in some for row in _rows(line)]
    shared_legend(figure, 3)
    counts = [f"{len(some)} of {sum(one.kind == kind for one in lines)} {kind}" for kind, some in groups.items()]
    less = ", highest barriers first" if sum(map(len, groups.values())) < len(lines) else ""
    said = ["solid: train, dashed: test", f"lines shown: {', '.join(counts)}{less}", *_said(lines)]
    return Drawn(figure, rows, caption([*setting(runs), *said]), suffix)


def _curves(axes: Axes, line: Line, field: str, color: str, name: str) -> None:
    for place, split in enumerate(line.table["split"]):
        style, said = "-" if str(split) == "train" else "--", "_" if place else name
        curve = axes.plot(line.table["x"], line.table[field][line.row, place], style, color=color, label=said)
        mark(curve, line.runs)


def _barriers(axes: Axes, lines: Sequence[Line], field: str, colours: Sequence[str]) -> None:
    """Limits by what lies between the models; a bar from the chord to the curve, and its height written above it."""
    between = [line.table[field][line.row][:, (line.table["x"] >= 0) & (line.table["x"] <= 1)] for line in lines]
    known = finite(np.concatenate([some.ravel() for some in between]))
    if not len(known):
        no_data(axes)
        return
    top = 1.5 * known.max() if field == "loss" else min(1.3 * known.max(), 1.0)
    top = top if top > 0 else 1.0
    axes.set_ylim(0, top)
    taken: list[tuple[float, float]] = []
    for line, color in zip(lines, colours, strict=True):
        if f"{field}_barrier" not in line.table.variables:
            continue
        height, where = (float(line.table[f"{field}_{name}"][line.row, 0, 0]) for name in ("barrier", "where"))
        if not np.isfinite(height) or height <= SMALL * top:
            continue
        x, curve = line.table["x"], line.table[field][line.row, 0]
        peak = float(np.interp(where, x, curve))
        place = peak
        while any(abs(where - other) < 0.3 and abs(place - at) < 0.07 * top for other, at in taken):
            place += 0.02 * top  # labels do not cover each other
        taken.append((where, place))
        bar = axes.vlines(where, peak - height, peak, color=color, linewidth=3, alpha=0.4)
        text = axes.annotate(
            f"{height:.2g}", (where, place), (0, 4), textcoords="offset points", color=color, ha="center", fontsize=8
        )
        mark([bar, text], line.runs)


def _rows(line: Line) -> Iterator[dict[str, Any]]:
    table, row = line.table, line.row
    for place, split in enumerate(table["split"]):
        about = {"kind": line.kind, "start": line.ends[0][0], "end": line.ends[1][0], "split": str(split)}
        height = float(table["loss_barrier"][row, place, 0])
        for g, loss, error in zip(table["x"], table["loss"][row, place], table["error"][row, place], strict=True):
            yield {**about, "gamma": float(g), "loss": float(loss), "error": float(error), "loss_barrier": height}


def _said(lines: Sequence[Line]) -> list[str]:
    """The treatment of norm layers and the number of examples, as stored."""
    tables = [(line.table, line.row) for line in lines]
    policies = sorted({str(table["batchnorm"][row]) for table, row in tables if "batchnorm" in table.variables})
    counts = {
        f"{count} {split}"
        for table, row in tables
        if "examples" in table.variables
        for split, count in zip(table["split"], table["examples"][row], strict=True)
    }
    return [
        "numbers: barrier of the first curve above the chord of its ends",
        "what lies higher than the axis is beyond the two models and not shown",
        f"{', '.join(sorted(counts))} examples" if counts else "",
        *([f"BatchNorm {', '.join(policies)}"] if policies else measured([line.stored for line in lines])),
    ]


FIGURE = Figure(
    name="interpolation",
    topic="connected",
    title="Along the line between two models",
    reading="No hump between 0 and 1 means one basin; the height of the hump is the barrier.",
    needs=("interpolation",),
    draw=draw,
)

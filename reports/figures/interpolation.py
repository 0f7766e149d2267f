"""Loss and error along the straight line between two models, with the barrier marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray

from landscape.plotting.style import OKABE_ITO, join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.names import name_split
from reports.plotting.fitting import draw_shared_legend, select_finite
from reports.plotting.heat import mark_empty
from reports.plotting.loss.between import Line, draw_curves, get_curve, list_rows, read_lines
from reports.plotting.measured import describe_setting
from reports.plotting.origins import Origin
from reports.rows import Row
from reports.variants import make_titles

KINDS = {  # as the study calls them, and as captions do
    "client-client": "between two clients",
    "client-global": "from a client to the global model",
    "round-round": "between two rounds",
    "run-run": "between two runs",
}
PANEL, DRAWING = 6, len(OKABE_ITO)  # most lines in one panel, and colours for a drawing
LABELS = {"loss": "loss", "error": "error (fraction of {counted})"}
CAP = 2.0  # highest value shown, times the highest between the models: beyond them the loss may rise far
WIDEST = 48  # letters in a line of a title
LETTERS = 0.1  # height of a label, of the height of a panel
SMALL = 0.005  # of the height of a panel: barriers that would not be seen are not written


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the lines within each run, then those between runs."""
    words = make_titles(runs, everything)
    drawn: list[Drawing] = []
    shared = list(_find_compared(runs, everything))
    for run in runs:
        lines = [*_find_own(run), *(line for line in shared if line.runs == (run.name,))]
        if lines:
            drawn.append(_draw_lines(_drop_repeated(lines), [run], words, f"_{len(drawn)}" if drawn else ""))
    between = [line for line in shared if len(line.runs) > 1]
    if between:
        ends = {name for line in between for name in line.runs}
        words = make_titles([run for run in everything.runs if run.name in ends], everything)
        drawn.append(_draw_lines(_drop_repeated(between), runs, words, "_runs"))
    return drawn


def _find_own(run: Run) -> Iterator[Line]:
    """Lines of a study that looked at this run alone."""
    answer = run.answer("interpolation")
    if answer is not None:
        for data, start, end in read_lines(answer):
            yield Line(data, start, end, (run.name,))


def _find_compared(runs: Sequence[Run], everything: Collection) -> Iterator[Line]:
    """Lines of studies that looked at several runs, the first end in this section."""
    names, known = {run.name for run in runs}, {run.name for run in everything.runs}
    for answer in everything.together.get("interpolation", []):
        for data, start, end in read_lines(answer):
            if start.run in names and end.run in known:
                yield Line(data, start, end, tuple(dict.fromkeys((start.run, end.run))))


def _drop_repeated(lines: Sequence[Line]) -> list[Line]:
    """Every pair once: a run may be analysed alone and together with others."""
    found: dict[tuple[Origin, Origin], Line] = {}
    for line in lines:
        found.setdefault((line.start, line.end), line)
    return list(found.values())


def _choose_lines(lines: Sequence[Line]) -> dict[str, list[Line]]:
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


def _draw_lines(lines: Sequence[Line], runs: Sequence[Run], words: Mapping[str, str], suffix: str) -> Drawing:
    groups = _choose_lines(lines)
    figure, axes = make_canvas(len(groups), 2, width=9.0, height=2.9 * len(groups) + 0.9)
    colours, rows = iter(OKABE_ITO), list[Row]()
    for place, (kind, some) in enumerate(groups.items()):
        pair, shades = axes[2 * place : 2 * place + 2], [next(colours) for _ in some]
        for panel, field in zip(pair, LABELS, strict=True):
            for line, color in zip(some, shades, strict=True):
                draw_curves(panel, line, field, color, line.name(words))
            for model in (0, 1):
                panel.axvline(model, color="0.7", linewidth=0.8)
            title = KINDS[kind] if len(runs) > 1 else fill(f"{words[runs[0].name]}, {KINDS[kind]}", WIDEST)
            counted = "pixels" if runs[0].score == "miou" else "examples"
            label = LABELS[field].format(counted=counted)
            label_axes(panel, "from the first model (0) to the second (1)", label, title)
            panel.xaxis.set_major_locator(MultipleLocator(0.5))
            top = _set_limit(panel, some, field, shades)
            _draw_barriers(panel, some, field, shades, top)
        rows += [row for line in some for row in list_rows(line)]
    if any(len(line.data["split"]) > 1 for some in groups.values() for line in some):
        for style, split in (("-", "training data"), ("--", "test data")):
            axes[-1].plot([], [], style, color="0.4", label=split)  # last in the legend
    draw_shared_legend(figure, 3)
    counts = [f"{len(some)} of {sum(one.kind == kind for one in lines)} {kind}" for kind, some in groups.items()]
    less = ", highest barriers first" if sum(map(len, groups.values())) < len(lines) else ""
    said = ["solid: training data, dashed: test data", f"lines shown: {', '.join(counts)}{less}", *_describe(lines)]
    return Drawing(figure, rows, join_caption([*describe_setting(runs), *said]), suffix)


def _set_limit(axes: Axes, lines: Sequence[Line], field: str, colours: Sequence[str]) -> float:
    """Show the curves up to twice their height between the models; a triangle where one leaves. Return the height."""
    curves = [
        (line, color, *get_curve(line.data, field, str(split)))
        for line, color in zip(lines, colours, strict=True)
        for split in line.data["split"].values
    ]
    every = select_finite(np.concatenate([values for *_, values in curves]))
    between = select_finite(np.concatenate([values[(x >= 0) & (x <= 1)] for *_, x, values in curves]))
    if not len(every):
        mark_empty(axes)
        return 0.0
    highest = float(min(every.max(), CAP * between.max() if len(between) else np.inf))
    top = 1.05 * highest if highest > 0 else 1.0
    axes.set_ylim(0, top)
    for line, color, x, values in curves:
        places = _find_exits(x, values, top)
        if len(places):  # an empty line that is not clipped has no extent, and upsets the layout
            leaving = axes.plot(places, np.full(len(places), top), "^", color=color, markersize=5, clip_on=False)
            mark(leaving, line.runs)
    return top


def _find_exits(x: NDArray[np.float64], values: NDArray[np.float64], top: float) -> NDArray[np.float64]:
    """Find where a curve passes a height, upwards or downwards."""
    known = np.isfinite(values)
    x, above = x[known], values[known] - top
    before, after = above[:-1], above[1:]
    passed = (before > 0) != (after > 0)
    share = before[passed] / (before[passed] - after[passed])
    found: NDArray[np.float64] = x[:-1][passed] + share * np.diff(x)[passed]
    return found


def _draw_barriers(axes: Axes, lines: Sequence[Line], field: str, colours: Sequence[str], top: float) -> None:
    """Draw a bar from the chord to the curve, and write its height above it.

    top: of the axis.
    """
    taken: list[tuple[float, float]] = []
    for line, color in zip(lines, colours, strict=True):
        first = line.data.isel(split=0).sel(definition="linear")
        height, where = (float(first[f"{field}_{name}"]) for name in ("barrier", "where"))
        if not np.isfinite(height) or height <= SMALL * top:
            continue
        peak = float(np.interp(where, *get_curve(line.data, field, str(first["split"].item()))))
        place = _find_free(where, peak, peak - height, taken, top)
        taken.append((where, place))
        bar = axes.vlines(where, peak - height, peak, color=color, linewidth=3, alpha=0.4)
        text = axes.annotate(f"{height:.2g}", (where, place), (0, 4), textcoords="offset points", color=color)
        text.set(ha="center", fontsize=8, path_effects=[withStroke(linewidth=2, foreground="white")])
        mark([bar, text], line.runs)


def _find_free(where: float, peak: float, foot: float, taken: Sequence[tuple[float, float]], top: float) -> float:
    """Find a height for a label that covers no other and stays in the panel: above the bar, else below it.

    where, peak, foot: place and ends of the bar. taken: where labels are. top: of the axis.
    """
    highest = (1 - LETTERS) * top
    above = np.arange(peak, highest, 0.02 * top)
    below = np.arange(min(foot - LETTERS * top, highest), 0.0, -0.02 * top)
    free = (
        float(place)
        for place in (*above, *below)
        if not any(abs(where - other) < 0.3 and abs(place - at) < LETTERS * top for other, at in taken)
    )
    return next(free, min(peak, highest))


def _describe(lines: Sequence[Line]) -> list[str]:
    """The treatment of norm layers and the number of examples, as stored."""
    policies = sorted({str(line.data["batchnorm"].item()) for line in lines})
    counts = {
        f"{int(count)} {name_split(str(split))}"
        for line in lines
        for split, count in zip(line.data["split"].values, line.data["examples"].values, strict=True)
    }
    return [
        "numbers: barrier of the first curve above the chord of its ends",
        "triangles: a curve leaves the axis there, beyond the two models",
        f"{', '.join(sorted(counts))} examples",
        f"BatchNorm {', '.join(policies)}",
    ]


FIGURE = Figure(
    name="interpolation",
    topic="connected",
    title="Along the line between two models",
    reading="No hump between 0 and 1 means one basin; the height of the hump is the barrier.",
    needs=("interpolation",),
    draw=draw,
)

"""A figure in a paper's layout: panels in rows, one legend, one colour bar for each shared scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d import Axes3D

from analysis.store import Answer
from landscape.plotting.relief import draw_colorbar
from landscape.plotting.style import STYLE, TICKS, join_caption
from reports.artefact import Entry, Layout, Panel
from reports.figure_type import Drawing
from reports.inputs.progress import describe_progress
from reports.inputs.runs import Run
from reports.panels.kind import Shown
from reports.panels.prepare import Prepared, prepare_panels
from reports.plotting.fitting import draw_notes, draw_shared_legend
from reports.plotting.measured import describe_measurement, find_answers
from reports.rows import Row

PAGE = 7.2  # inches: the width of a page, which panels share
NARROWEST, LOWEST = 1.9, 1.7  # inches of a panel, where many stand side by side
EDGE = 0.06  # inches around a figure that was trimmed
ALONE = 1.4  # times as wide where a panel has a row to itself
SMALL: Any = {**STYLE, "font.size": 8, "lines.linewidth": 1.3, "lines.markersize": 4}
BROKEN = (KeyError, IndexError, TypeError, ValueError)  # where another version of a study has written other variables


def draw_layout(
    name: str,
    title: str,
    layout: Layout,
    find_runs: Callable[[Panel, Entry], Sequence[Run]],
    find_answer: Callable[[Panel], Answer | None],
    *,
    lacking: Callable[[Panel, Entry], str] | None = None,
) -> Drawing:
    """Draw a figure of a paper from stored numbers; panels without numbers say so.

    name: of the artefact, for example "fedsam/figure4". title: what it shows.
    find_runs: finds one run for each seed of a series; their answers are those of the artefact's questions.
    find_answer: finds the answer of a study that compares the series of a panel; None where there is none.
    lacking: says in a few words why a series has no runs; by default "not run".
    """
    found = prepare_panels(layout, find_runs, find_answer, lacking or (lambda panel, entry: "not run"))
    with rc_context(SMALL):
        figure, places = _make_canvas(found, layout.across)
        rows: list[Row] = []
        notes: dict[str, Artist] = {}
        for axes, one in zip(places, found, strict=True):
            drawn = _draw_panel(axes, one)
            rows += [{"figure": name, "panel": one.panel.title, **row} for row in drawn]
            if drawn:
                notes |= _list_notes(one, drawn, len(found))
            _set_title(axes, one)
        _drop_repeated_labels(places, layout.across)
        _draw_bars(figure, places, found)
        draw_shared_legend(figure)
        draw_notes(figure, notes)
        _trim(figure, places)
    return Drawing(figure, rows, join_caption([title, *_describe(found), layout.note]))


def _make_canvas(found: Sequence[Prepared], across: int) -> tuple[Canvas, list[Axes]]:
    """Axes in reading order, of three dimensions where their kind asks for it."""
    columns = min(across, len(found))
    down = math.ceil(len(found) / columns)
    wanted, high = min(one.kind.size[0] for one in found), max(one.kind.size[1] for one in found)
    width = max(NARROWEST, min(wanted if columns > 1 else ALONE * wanted, PAGE / columns))
    height = max(LOWEST, high * min(width / wanted, 1.0))
    figure = Canvas(figsize=(columns * width, down * height + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid, places = figure.add_gridspec(down, columns), []
    for number, one in enumerate(found):
        cell = grid[divmod(number, columns)]
        if one.kind.relief:
            places.append(figure.add_subplot(cell, projection="3d", computed_zorder=False))
        else:
            places.append(figure.add_subplot(cell))
            places[-1].locator_params(nbins=TICKS)
    return figure, places


def _draw_panel(axes: Axes, one: Prepared) -> list[Row]:
    """What a panel shows; one line in its middle where it has no numbers."""
    if one.empty:
        _say(axes, ", ".join(dict.fromkeys(shown.lacks for shown in one.shown if shown.lacks)) or "not run")
        return []
    try:
        rows = one.kind.draw(axes, one.shown, one.options, one.given)
    except BROKEN as error:
        axes.clear()
        _say(axes, f"cannot be drawn ({type(error).__name__}: {error})")
        return []
    if not rows:
        axes.clear()
        states = {run.progress.state for shown in one.shown for run in shown.runs}
        _say(axes, "diverged" if states == {"diverged"} else _say_unmeasured(one))
    return rows


def _set_title(axes: Axes, one: Prepared) -> None:
    """The panel's title; where it has none, or where the kind adds a heading, what the kind gave it."""
    own = axes.get_title()
    both = [one.panel.title, own] if one.kind.heading else [one.panel.title or own]
    axes.set_title("\n".join(text for text in both if text), fontsize=9, y=1.0)


def _say_unmeasured(one: Prepared) -> str:
    """That runs are there but not their numbers, and which study has them."""
    studies = one.kind.studies(one.options)
    return f"not measured (study {', '.join(studies)})" if studies else "not measured"


def _say(axes: Axes, text: str) -> None:
    """One line in the middle of an empty panel."""
    write = axes.text2D if isinstance(axes, Axes3D) else axes.text
    write(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.4", wrap=True)
    axes.set_axis_off()


def _list_notes(one: Prepared, rows: Sequence[Row], panels: int) -> dict[str, Artist]:
    """Lines of the legend on series that diverged, are unfinished or have no numbers; with the panel, if of several."""
    where = f" [{one.panel.title}]" if panels > 1 and one.panel.title else ""
    drawn = {(row.get("group"), row["series"]) for row in rows}
    found: dict[str, Artist] = {}
    absent: dict[str, list[str]] = {}  # reason -> series, which share a line: there may be many
    for shown in one.shown:
        said = describe_progress(shown.runs)
        if said:
            found[f"{_name(shown)}: {said}{where}"] = _make_key(shown)
        elif not (one.kind.together or (shown.group, shown.name) in drawn or (None, shown.name) in drawn):
            absent.setdefault(shown.lacks or "not measured", []).append(_name(shown))
    for reason, names in absent.items():
        found[f"{', '.join(names)}: {reason}{where}"] = Line2D([], [], linestyle="none")
    return found


def _name(shown: Shown) -> str:
    return f"{shown.group}, {shown.name}" if shown.group else shown.name


def _make_key(shown: Shown) -> Line2D:
    """A cross for a series that diverged; else nothing."""
    if shown.diverged:
        return Line2D([], [], linestyle="none", marker="x", color=shown.look.color, markeredgewidth=2)
    return Line2D([], [], linestyle="none")


def _drop_repeated_labels(places: Sequence[Axes], across: int) -> None:
    """Name an axis once where panels beside or below each other have the same."""
    flat = [None if isinstance(axes, Axes3D) else axes for axes in places]
    names = [("", "") if axes is None else (axes.get_xlabel(), axes.get_ylabel()) for axes in flat]
    for number, axes in enumerate(flat):
        if axes is None:
            continue
        below, left = number + across, number - 1
        if below < len(flat) and names[below][0] == names[number][0]:
            axes.set_xlabel("")
        if number % across and names[left][1] == names[number][1]:
            axes.set_ylabel("")


def _trim(figure: Canvas, places: Sequence[Axes]) -> None:
    """Take away the empty room above and below panels whose axes share one scale: their shape follows from the data."""
    if all(isinstance(axes, Axes3D) or axes.get_aspect() == "auto" or not axes.axison for axes in places):
        return
    figure.draw_without_rendering()
    needed = figure.get_tightbbox().height + 2 * EDGE
    if needed < figure.get_figheight():
        figure.set_figheight(needed)


def _draw_bars(figure: Canvas, places: Sequence[Axes], found: Sequence[Prepared]) -> None:
    """A colour bar for each scale that panels share."""
    groups: dict[int, list[int]] = {}
    for number, one in enumerate(found):
        if one.given.scale is not None and one.kind.bar(one.options):
            groups.setdefault(id(one.given.scale), []).append(number)
    for numbers in groups.values():
        first = found[numbers[0]]
        assert first.given.scale is not None
        draw_colorbar(figure, [places[number] for number in numbers], first.given.scale, first.kind.bar(first.options))


def _describe(found: Sequence[Prepared]) -> list[str]:
    """For the caption, every sentence once: what panels say of themselves, and on how much it was measured."""
    said: dict[str, None] = {}
    for one in found:
        if one.empty:
            continue
        runs = [run for shown in one.shown for run in shown.shown]
        own = [one.given.answer] if one.given.answer is not None else []
        answers = [*own, *(answer for study in one.kind.studies(one.options) for answer in find_answers(runs, study))]
        clipped = one.given.scale.describe() if one.given.scale is not None else ""
        for text in (*one.kind.describe(one.shown, one.options, one.given), clipped, *describe_measurement(answers)):
            said.setdefault(text)
    return list(said)

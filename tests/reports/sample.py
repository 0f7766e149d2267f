"""Two figures that say which runs they show: one to look at, one to turn. For tests of the page, not of figures."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.plotting.style import draw_legend, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks


def draw_lines(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """A line per run, in axes that it shares with the others, and a map of its own beside it."""
    figure, axes = make_canvas(1, 1 + len(runs), width=9.0, height=3.0)
    chosen = assign_looks(run.algorithm for run in everything.runs)
    rows = []
    for place, run in enumerate(runs):
        line = axes[0].plot([0, 1], [place, place + 1], "o-", color=chosen[run.algorithm].color, label=run.method)
        mark(line, [run.name])
        axes[1 + place].pcolormesh([[place, 1], [2, 3]])
        axes[1 + place].text(0.5, 0.5, "inside")
        label_axes(axes[1 + place], "x", "y", "above")
        mark(axes[1 + place], [run.name])
        rows += [{"run": run.name, "x": x, "y": place + x} for x in (0, 1)]
    label_axes(axes[0], "x", "y")
    draw_legend(axes[0])
    return [Drawing(figure, rows, "lines; n = 2 < 3")]


def draw_surface(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    figure, (axes,) = make_canvas()
    label_axes(axes, "x", "y")
    traces = [
        {
            "type": "surface",
            "name": run.algorithm,
            "meta": {"run": run.name},
            "z": [[1, 2, place], [2, 0, 2], [1, None, 1]],
        }
        for place, run in enumerate(runs)
    ]
    camera = {"eye": {"x": 1.5, "y": 1.5, "z": 1.0}}
    scene = {"data": traces, "layout": {"scene": {"camera": camera}}}
    return [Drawing(figure, [{"run": run.name, "z": 1} for run in runs], "surface", interactive=scene)]


def fail(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    raise ZeroDivisionError("no numbers")


LINES = Figure("lines", "good", "Lines of runs", "Up is up.", (), draw_lines)
SURFACE = Figure("bowl", "flat", "A bowl", "Low is low.", (), draw_surface)
FAILING = Figure("broken", "agree", "A broken one", "It is not there.", (), fail)

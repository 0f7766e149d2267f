"""Where a method's loss is lower than the baseline's, and where it is higher."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from landscape.plotting.maps import draw_bar, fill_contours, format_number, make_maps, mark_centre
from landscape.plotting.scales import choose_decades
from landscape.plotting.style import SIGNED, join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.loss.surfaces import describe, find_comparison, name_axes, name_surfaces

TICKS = 5  # numbers on either side of zero
SPAN = 1e3  # from the largest difference down to the smallest that gets a colour


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a map of the loss of each method minus that of the baseline."""
    comparison = find_comparison(runs, everything)
    if comparison is None:
        return []
    base, others = comparison
    reference, *names = name_surfaces([base, *others], everything)
    gaps = [_find_gap(one.loss, base.loss) for one in others]
    levels, beyond = _choose_levels(gaps)
    figure, panels = make_maps(len(others))
    shown, rows = None, []
    for axes, one, title, gap in zip(panels, others, names, gaps, strict=True):
        shown = fill_contours(axes, one.x, one.y, gap, levels, "both" if beyond else "neither", SIGNED) or shown
        if np.nanmin(gap, initial=0) < 0 < np.nanmax(gap, initial=0):
            axes.contour(one.x, one.y, np.clip(gap, levels[0], levels[-1]).T, [0.0], colors="black", linewidths=1.2)
        mark_centre(axes)
        label_axes(axes, *name_axes(one), f"{title} minus {reference}")
        mark(axes, [one.run.name])
        where = {"run": one.run.name, "algorithm": one.run.algorithm, "baseline": base.run.name}
        rows += [
            {**where, "x": x, "y": y, "difference": gap[i, j]} for i, x in enumerate(one.x) for j, y in enumerate(one.y)
        ]
    ticks = _choose_ticks(levels)
    texts = [format_number(level) for level in ticks]
    if beyond:
        texts[0], texts[-1] = f"< {texts[0]}", f"> {texts[-1]}"
    if shown is not None:
        draw_bar(figure, panels, shown, (ticks, texts), "difference of training losses")
    remarks = [
        "black line: equal loss" if shown is not None else "",
        f"white: less than {levels[len(levels) // 2]:g} apart",
        "cross: the models themselves",
    ]
    return [Drawing(figure, rows, join_caption([*describe([base, *others], "training loss"), *remarks]))]


def _find_gap(loss: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract losses; NaN where either is missing, or both are infinite."""
    with np.errstate(invalid="ignore"):
        return loss - base


def _choose_levels(gaps: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], bool]:
    """Choose levels, alike on both sides of zero in equal steps of the logarithm; tell whether anything lies beyond."""
    sizes = np.abs(np.concatenate([np.ravel(gap) for gap in gaps]))
    finite = sizes[np.isfinite(sizes) & (sizes > 0)]
    high = float(finite.max()) if len(finite) else 1.0
    side = choose_decades(high / SPAN, high)
    return np.concatenate([-side[::-1], side]), bool(np.isinf(sizes).any())


def _choose_ticks(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose levels that are written, alike on both sides of zero: as many as can be read, the outermost among them."""
    side = levels[len(levels) // 2 :]
    chosen = side[::-1][:: -(-len(side) // TICKS)][::-1]
    return np.concatenate([-chosen[::-1], chosen])


FIGURE = Figure(
    name="difference",
    topic="flat",
    title="A method's loss minus the baseline's",
    reading="Blue: the method's loss is the lower one; red: the baseline's; white: hardly a difference.",
    needs=("surface",),
    draw=draw,
    wants="runs of several methods, in one call of `landscape analyze RUN... --study surface`",
)

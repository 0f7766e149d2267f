"""Pictures of single results, for `plot()` of the records: onto given axes, or in a new window of pyplot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D
from numpy.typing import NDArray

from landscape.plotting.scales import Array
from landscape.plotting.style import OKABE_ITO, STYLE, draw_legend, label_axes, write_powers

BLUE, ORANGE = OKABE_ITO[:2]


def open_axes(axes: Axes | None = None, *, size: tuple[float, float] = (4.8, 3.4), equal: bool = False) -> Axes:
    """Return the given axes, or those of a new figure of pyplot in our style.

    axes: None for a new figure.
    size: of a new figure, in inches.
    equal: whether both axes will have one scale: matplotlib's usual layout would then cut off their labels.
    """
    if axes is not None:
        return axes
    with rc_context(STYLE):
        return _open_figure(size, "compressed" if equal else "constrained").add_subplot()


def open_relief_axes(axes: Axes | None = None, *, size: tuple[float, float] = (4.8, 4.0)) -> Axes3D:
    """Return the given axes in three dimensions, or those of a new figure; ValueError for axes in two.

    axes: None for a new figure.
    size: of a new figure, in inches.
    """
    if axes is None:
        with rc_context(STYLE):
            return _open_figure(size).add_subplot(projection="3d", computed_zorder=False)
    if not isinstance(axes, Axes3D):
        raise ValueError('kind="3d" needs axes in three dimensions: figure.add_subplot(projection="3d")')
    return axes


def _open_figure(size: tuple[float, float], layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout=layout)


def draw_eigenvalues(axes: Axes, values: Array, residuals: Array, converged: NDArray[np.bool_], label: str) -> Axes:
    """Draw eigenvalues by rank with their residuals as bars; negative ones as triangles, open: not converged."""
    ranks = np.arange(1, len(values) + 1)
    color = _next_color(axes)
    for negative, marker in ((False, "o"), (True, "v")):
        for sure, face in ((True, color), (False, "white")):
            some = ((values < 0) == negative) & (converged == sure)
            if some.any():
                axes.errorbar(
                    ranks[some],
                    values[some],
                    residuals[some],
                    fmt=marker,
                    color=color,
                    markerfacecolor=face,
                    capsize=2,
                    label=label if label and not negative and sure else "_",
                )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(axes, "rank of the eigenvalue, largest first", "eigenvalue λ")
    if label:
        draw_legend(axes)
    return axes


def draw_density(axes: Axes, grid: Array, curve: Array, error: Array, ends: tuple[float, float], label: str) -> Axes:
    """Draw the density of eigenvalues on a logarithmic axis, its standard error as a band, its ends as ticks below."""
    color = _next_color(axes)
    least = max(float(curve.max()) * 1e-8, np.finfo(float).tiny)
    axes.plot(grid, np.maximum(curve, least), color=color, label=label or "_")
    if np.isfinite(error).all():
        low, high = (np.maximum(curve + sign * error, least) for sign in (-1, 1))
        axes.fill_between(grid, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(ends, [0, 0], "|", color=color, markersize=12, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_yscale("log")
    write_powers(axes.yaxis)
    axes.set_ylim(bottom=max(least, float(curve.min()) / 3))
    label_axes(axes, "eigenvalue λ (ticks: smallest and largest node)", "density")
    if label:
        draw_legend(axes)
    return axes


def draw_layers(axes: Axes, layers: Mapping[str, tuple[float, float]], total: tuple[float, float]) -> Axes:
    """Draw the trace of every layer's block, and of all, with standard errors."""
    names = [*layers, "all"]
    found = np.array([*layers.values(), total], dtype=np.float64)
    places = np.arange(len(names))[::-1]
    for some, marker in ((slice(0, -1), "o"), (slice(-1, None), "D")):
        axes.errorbar(found[some, 0], places[some], xerr=found[some, 1], fmt=marker, color=BLUE, capsize=2)
    axes.set_yticks(places, names)
    label_axes(axes, "trace of the diagonal block", "layer")
    return axes


def draw_rise(
    axes: Axes, radius: float, value: float, error: float, bounds: tuple[float, float], label: str, kind: str
) -> Axes:
    """Draw one sharpness at its radius: results of several radii onto the same axes make a curve.

    error: standard error, or NaN. bounds: the lower of two searches and an upper bound, NaN where there is none.
    """
    color = _next_color(axes)
    axes.errorbar([radius], [value], None if np.isnan(error) else [error], fmt="o", color=color, label=label, capsize=2)
    low, high = bounds
    if np.isfinite(low):
        axes.plot([radius, radius], [low, value], "-", color=color, linewidth=3, alpha=0.3)
    if np.isfinite(high):
        axes.plot([radius], [high], "_", color=color, markersize=10)
    label_axes(axes, "radius ρ", f"rise of the loss ({kind})")
    draw_legend(axes)
    return axes


def draw_profile(axes: Axes, x: Array, values: Array, error: Array | None, label: str, words: tuple[str, str]) -> Axes:
    """Draw a quantity along a line, with its standard error as a band where it comes from a subset of the data."""
    (curve,) = axes.plot(x, values, label=label or "_", color=_next_color(axes))
    if error is not None:
        axes.fill_between(x, values - error, values + error, color=curve.get_color(), alpha=0.2, linewidth=0)
    label_axes(axes, *words)
    if label:
        draw_legend(axes)
    return axes


def draw_barrier(
    axes: Axes, path: tuple[Array, Array], refined: tuple[Array, Array], height: tuple[float, float], name: str
) -> Axes:
    """Draw a path with the chord between its ends, and the barrier as an arrow from the chord to the path.

    path: x and the quantity on the grid. refined: those between grid points.
    height: of the barrier above the chord, and where it is.
    name: of the quantity.
    """
    x, values = (np.concatenate([path[part], refined[part]]) for part in (0, 1))
    order = np.argsort(x, kind="stable")
    axes.plot(x[order], values[order], color=BLUE)
    axes.plot(path[0], path[1], "o", color=BLUE, markersize=3)
    ends = path[1][[0, -1]]
    axes.plot(path[0][[0, -1]], ends, "--", color="0.4", linewidth=1)
    rise, where = height
    if np.isfinite(rise) and rise > 0:
        base = (1 - where) * ends[0] + where * ends[1]
        axes.annotate(
            "", (where, base + rise), (where, base), arrowprops={"arrowstyle": "<->", "color": ORANGE, "linewidth": 1.4}
        )
    axes.set_title(f"barrier {rise:.3g} at x = {where:.3g}", fontsize=10, color=ORANGE)
    label_axes(axes, "x: from the first model (0) to the second (1)", name)
    return axes


def draw_positions(axes: Axes, places: Array, names: Sequence[str], *, joined: bool = False) -> Axes:
    """Mark models in a plane, each with its name.

    places: (models, 2). joined: whether to draw a line from one to the next, as for a trajectory.
    """
    if joined:
        axes.plot(places[:, 0], places[:, 1], "-", color="black", linewidth=1)
    for (x, y), shape, name in zip(places, ("o", "s", "D", *["o"] * len(places)), names, strict=False):
        axes.plot(
            x,
            y,
            "o" if joined else shape,
            color="white",
            markeredgecolor="black",
            markersize=4 if joined else 8,
            clip_on=False,
        )
        axes.annotate(name, (x, y), (6, 6), textcoords="offset points", fontsize=8)
    return axes


def _next_color(axes: Axes) -> str:
    """A colour of our palette that the axes have not used yet."""
    used = {str(line.get_color()) for line in axes.lines}
    return next((color for color in OKABE_ITO if color not in used), BLUE)

"""A plane through three models onto given axes: filled levels, the models marked and named, a colour bar beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from analysis.store import Answer
from landscape.plotting.maps import clip_to_levels, draw_bar, fill_contours
from landscape.plotting.style import MAGNITUDE
from reports.plotting.origins import Origin, read_origins
from reports.rows import Row

PANELS = {  # split -> field, name, factor
    "train": ("loss", "training loss", 1.0),
    "test": ("error", "test error (%)", 100.0),
    "own": ("loss", "training loss on the first participant's own data", 1.0),
}
SHAPES = ("o", "s", "D", "*")  # three models, and the global one beside them
LEVELS, NEAREST = 7, 1 / 16  # levels, and how near the lowest comes to the minimum, of the whole height
HALO = [withStroke(linewidth=2.5, foreground="white")]  # to be seen on any colour


@dataclass(frozen=True, eq=False)
class Plane:
    """One plane.

    data: what was measured of it.
    models: the three that span it, and the global model where it is shown beside participants.
    through: what it goes through: clients, runs or rounds.
    """

    data: xr.Dataset
    models: Sequence[Origin]
    through: str

    @property
    def x(self) -> NDArray[np.float64]:
        """Coordinates from the first model towards the second."""
        return self.data["x"].values

    @property
    def y(self) -> NDArray[np.float64]:
        """Coordinates at right angles to x."""
        return self.data["y"].values

    @property
    def places(self) -> NDArray[np.float64]:
        """Where the models lie, (model, 2)."""
        return np.stack([self.data["model_x"], self.data["model_y"]], axis=1)


def read_planes(answer: Answer) -> list[Plane]:
    """Read every plane of an answer."""
    each = [answer.data.isel(plane=number) for number in range(answer.data.sizes["plane"])]
    return [Plane(data, read_origins(data, "model"), str(answer.data.attrs["models"])) for data in each]


def draw_plane(axes: Axes, plane: Plane, split: str, names: Sequence[str], *, lowest: bool = False) -> list[Row]:
    """Draw one split of a plane: training loss or test error. Returns the models first, then the grid.

    axes: with room on the right for a colour bar.
    split: a key of PANELS.
    names: of the models.
    lowest: whether the lowest point of the grid gets a cross.
    """
    field, _, factor = PANELS[split]
    measured = plane.data.sel(split=split)
    values, at_models = factor * measured[field].values, factor * measured[f"model_{field}"].values
    levels = choose_levels(values, at_models)
    beyond = bool((values > levels[-1]).any())
    shown = fill_contours(axes, plane.x, plane.y, values, levels, "max" if beyond else "neither", MAGNITUDE)
    if shown is not None:
        lines = clip_to_levels(values, levels).T
        axes.contour(plane.x, plane.y, lines, levels[1:], colors="white", linewidths=0.5, alpha=0.7)
        figure = axes.get_figure(root=True)
        assert figure is not None
        draw_bar(figure, [axes], shown, (levels, _format_levels(levels, beyond)), "")  # the title names it
    _mark_models(axes, plane, names)
    if lowest and np.isfinite(values).any():
        i, j = np.unravel_index(np.nanargmin(values), values.shape)
        axes.plot(plane.x[i], plane.y[j], "X", color="black", markeredgecolor="white", markersize=10, clip_on=False)
    models = zip(names, plane.places, at_models, strict=True)
    return [
        *({"split": split, "measure": field, "model": name, "x": x, "y": y, "value": v} for name, (x, y), v in models),
        *(
            {"split": split, "measure": field, "model": "", "x": x, "y": y, "value": values[i, j]}
            for i, x in enumerate(plane.x)
            for j, y in enumerate(plane.y)
        ),
    ]


def choose_levels(values: NDArray[np.float64], at_models: NDArray[np.float64]) -> NDArray[np.float64]:
    """Above the minimum in equal steps of the logarithm (Garipov et al. 2018); the three models lie within."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([0.0, 1.0])
    near = at_models[:3][np.isfinite(at_models[:3])]
    low, high = float(finite.min()), max([float(np.percentile(finite, 95)), *map(float, near)])
    if high <= low:
        high = max(float(finite.max()), low + 1e-3 * max(abs(low), 1.0))
    return np.asarray(low + (high - low) * np.array([0.0, *np.geomspace(NEAREST, 1, LEVELS)]))


def _format_levels(levels: NDArray[np.float64], beyond: bool) -> list[str]:
    """As many digits as it takes to tell them apart."""
    every = [[f"{level:.{digits}g}" for level in levels] for digits in range(2, 9)]
    texts = next((some for some in every if len(set(some)) == len(some)), every[-1])
    return [*texts[:-1], f"> {texts[-1]}" if beyond else texts[-1]]


def _mark_models(axes: Axes, plane: Plane, names: Sequence[str]) -> None:
    """Markers with names beside them, away from the middle; dashed lines between the three."""
    points = plane.places
    ring = points[[0, 1, 2, 0]]
    axes.plot(ring[:, 0], ring[:, 1], "--", color="black", linewidth=1.1, path_effects=HALO)
    middle = points[:3].mean(axis=0)
    for (x, y), shape, name in zip(points, SHAPES, names, strict=False):
        size = 13 if shape == "*" else 8
        axes.plot(x, y, shape, color="white", markeredgecolor="black", markersize=size, clip_on=False)
        below = y < middle[1]
        axes.annotate(
            name,
            (x, y),
            (0, -9 if below else 9),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=8,
            path_effects=HALO,
        )

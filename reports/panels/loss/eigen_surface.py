"""The loss in the plane of the top two Hessian eigenvectors, with the largest eigenvalue and its ratio to the fifth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpl_toolkits.mplot3d import Axes3D

from reports.panels.kind import Array, Given, Kind, Shown
from reports.panels.loss.surface import NAMES, choose_seed, describe_axes, find_all
from reports.plotting.loss.relief import draw_solid, finish_axes, mark_panel
from reports.rows import Row

RATIO = 5  # the papers compare the first eigenvalue with this one


@dataclass(frozen=True)
class Options:
    """Which surface is drawn.

    split: the data, train or test.
    scale: panels with the same word share heights and colours.
    """

    split: str = "train"
    scale: str = ""


def draw(axes: Axes3D, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the surface of the first series, with its eigenvalues written above it."""
    found = find_all(shown[:1], given, options.split)
    if not found or given.scale is None:
        return []
    surface = found[shown[0].name][-1]
    if surface.about.get("axes") != "eigen":
        raise ValueError(f"{surface.run.name} was measured along {surface.about.get('axes')} axes, not eigenvectors")
    draw_solid(axes, surface, given.scale, rasterized=True)
    finish_axes(axes, surface, given.scale, shown[0].name, small=True)
    mark_panel(axes, surface.run.name)
    largest, ratio = _find_eigenvalues(shown)
    texts = ((largest, f"$\\lambda_1$ = {largest:.3g}"), (ratio, f"$\\lambda_1/\\lambda_{RATIO}$ = {ratio:.2f}"))
    known = [text for number, text in texts if np.isfinite(number)]
    axes.text2D(
        0.02, 0.96, "\n".join(known) or "eigenvalues not measured", transform=axes.transAxes, va="top", fontsize=8
    )
    about: Row = {"series": shown[0].name, "lambda_1": largest, "ratio": ratio}
    return [{**about, **row} for row in surface.rows(given.scale)]


def _find_eigenvalues(shown: Sequence[Shown]) -> tuple[float, float]:
    """The largest eigenvalue of the last round, and its ratio to the fifth; NaN where they were not measured."""
    run = choose_seed(shown[:1]).get(shown[0].name)
    data = None if run is None else run.measured("curvature")
    if data is None:
        return np.nan, np.nan
    values = data["eigenvalue"].isel(round=-1).values
    fifth = values[RATIO - 1] if len(values) >= RATIO else np.nan
    return float(values[0]), float(values[0] / fifth) if fifth else np.nan


def list_losses(shown: Sequence[Shown], options: Options, given: Given) -> list[Array]:
    """List the losses that share a scale."""
    return [some[-1].loss for some in find_all(shown[:1], given, options.split).values()]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what the axes are."""
    found = [some[-1] for some in find_all(shown[:1], given, options.split).values()]
    return describe_axes(found, NAMES.get(options.split, options.split), given)


KIND = Kind(
    name="eigen_surface",
    shows="the loss in the plane of the top two eigenvectors",
    draw=draw,
    options=Options,
    studies=lambda options: ("surface", "curvature"),
    relief=True,
    most=1,
    values=list_losses,
    bar=lambda options: NAMES.get(options.split, options.split),
    describe=describe,
    size=(3.4, 2.8),
)

"""Surfaces to turn with the mouse: plotly figures as plain JSON."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from landscape.plotting.relief import LINES, LossGrid
from landscape.plotting.scales import Scale

Trace = dict[str, object]  # as plotly takes it


def make_solid_trace(surface: LossGrid, scale: Scale, title: str, color: str, **look: object) -> Trace:
    """Make a surface coloured by its height, with thin lines of one colour to tell several apart.

    look: further entries of plotly's trace.
    """
    x, y = surface.x, surface.y
    lines = {"show": True, "color": color, "width": 2, "highlight": False}
    return {
        "type": "surface",
        "name": title,
        "x": to_lists(x),
        "y": to_lists(y),
        "z": to_lists(scale.shown(surface.loss).T),  # plotly's rows go along y
        "surfacecolor": to_lists(scale.heights(surface.loss).T),
        "coloraxis": "coloraxis",
        "contours": {
            "x": {**lines, "start": float(x[0]), "end": float(x[-1]), "size": float(x[-1] - x[0]) / 10},
            "y": {**lines, "start": float(y[0]), "end": float(y[-1]), "size": float(y[-1] - y[0]) / 10},
        },
        "hovertemplate": f"{title}<br>%{{x:.3g}}, %{{y:.3g}}<br>loss %{{z:.4g}}<extra></extra>",
        "showlegend": True,
        **look,
    }


def make_net_trace(surface: LossGrid, scale: Scale, title: str, color: str, **look: object) -> Trace:
    """Make a surface as one line along all rows and all columns, broken between them.

    look: further entries of plotly's trace.
    """
    heights = scale.shown(surface.loss)
    every_x, every_y = (max(-(-len(one) // LINES), 1) for one in (surface.x, surface.y))
    x, y = np.meshgrid(surface.x, surface.y, indexing="ij")
    stacked = np.stack([x, y, heights])
    rows, columns = stacked[:, ::every_x], stacked[:, :, ::every_y].swapaxes(1, 2)
    line = np.concatenate([_join_lines(rows), _join_lines(columns)], axis=1)
    return {
        "type": "scatter3d",
        "mode": "lines",
        "name": title,
        "x": to_lists(line[0]),
        "y": to_lists(line[1]),
        "z": to_lists(line[2]),
        "line": {"color": color, "width": 3},
        "connectgaps": False,
        "hovertemplate": f"{title}<br>%{{x:.3g}}, %{{y:.3g}}<br>loss %{{z:.4g}}<extra></extra>",
        "showlegend": True,
        **look,
    }


def _join_lines(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """(3, lines, points) one after the other, a gap after each."""
    gaps = np.full((*lines.shape[:2], 1), np.nan)
    return np.concatenate([lines, gaps], axis=2).reshape(3, -1)


def make_scene(traces: Sequence[Trace], axes: tuple[str, str], scale: Scale, name: str) -> dict[str, object]:
    """Make one scene of all traces: loss logarithmic where its range is wide, colours and ticks in plain numbers.

    axes: names of the two directions.
    name: of the quantity along the heights.
    """
    across, along = axes
    values, texts = scale.ticks()
    low, high = scale.heights(np.array([scale.low, scale.high]))
    height = {
        "title": {"text": name},
        "type": "log" if scale.log else "linear",
        "range": [float(low), float(high)],
        "tickvals": to_lists(values),
        "ticktext": texts,
    }
    colors = {
        "colorscale": "Viridis",
        "cmin": float(low),
        "cmax": float(high),
        "colorbar": {
            "title": {"text": name},
            "tickvals": to_lists(scale.heights(values)),
            "ticktext": texts,
            "len": 0.7,
            "thickness": 14,
        },
    }
    return {
        "data": list(traces),
        "layout": {
            "scene": {
                "xaxis": {"title": {"text": across}},
                "yaxis": {"title": {"text": along}},
                "zaxis": height,
                "aspectmode": "cube",
                # a look at a point below the middle: titles of the axes hang out at the bottom, nothing does above
                "camera": {"eye": {"x": 1.4, "y": -1.7, "z": 0.85}, "center": {"x": 0, "y": 0, "z": -0.2}},
            },
            "coloraxis": colors,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "margin": {"l": 0, "r": 0, "t": 30, "b": 0},
        },
    }


def to_lists(values: NDArray[np.float64]) -> list[object]:
    """Turn an array into lists of numbers of five digits, with None where a number is missing."""
    if values.ndim > 1:
        return [to_lists(one) for one in values]
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]

"""Draw a partition: how many examples of each class every client holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from training.console.tables import show_settings
from training.data.partition import Partition
from training.storage.atomic_files import replace_file

PLURALS = {"class": "classes", "user": "users"}  # what examples are dealt by: users where only pixels have classes
MOST_CLIENTS = 200  # more columns than this cannot be distinguished
MOST_NUMBERS = 15  # up to this many rows and columns there is room for the numbers themselves


def draw_partition(split: Partition, path: Path, kind: str = "class") -> Path:
    """Draw a partition as a PNG file and return its path; if writing fails, the old file stays.

    split: the partition. path: the file. kind: what examples were dealt by, one of PLURALS.
    """
    with replace_file(path) as temporary:
        make_figure(split, kind).savefig(temporary, dpi=120, format="png")
    return path


def make_figure(split: Partition, kind: str = "class") -> Figure:
    """Make a heat map of examples, classes or users up and clients across, with the clients' sizes on top."""
    drawn = np.unique(np.linspace(0, len(split.indices) - 1, min(len(split.indices), MOST_CLIENTS)).astype(int))
    counts, sizes = split.histogram[drawn].T, split.sizes[drawn]
    classes, clients = counts.shape
    figure = Figure(figsize=(float(np.clip(2.5 + 0.45 * clients, 6, 12)), 6), layout="constrained")
    FigureCanvasAgg(figure)  # no pyplot: needs no window system, leaves no global state
    top, map_ = figure.subplots(2, 1, sharex=True, height_ratios=[1, 4])
    top.bar(np.arange(clients), sizes, width=1.0 if clients > 50 else 0.8, color="#0072B2")
    top.set_ylabel("examples")
    top.spines[["top", "right"]].set_visible(False)
    shades = colormaps["Blues"](np.linspace(0.2, 1, 256))  # so that a single example is not white
    palette = ListedColormap(shades).with_extremes(bad="white")  # white: a class that a client does not hold
    scale = PowerNorm(0.5, vmin=0)  # square root: small counts stay distinguishable beside a large one
    image = map_.imshow(np.ma.masked_equal(counts, 0), aspect="auto", origin="lower", cmap=palette, norm=scale)
    if max(classes, clients) <= MOST_NUMBERS:
        _write_numbers(map_, counts)
    map_.set(xlabel="client", ylabel=kind, xlim=(-0.5, clients - 0.5))
    _whole_ticks(map_, drawn)
    figure.colorbar(image, ax=map_, label=f"examples of the {kind}", pad=0.01)
    everyone = len(split.indices)
    left_out = f", {clients} of them shown" if clients < everyone else ""
    figure.suptitle(f"{describe_partition(split)}: {everyone} client{'s' if everyone > 1 else ''}{left_out}")
    return figure


def describe_partition(split: Partition) -> str:
    """Describe a partition by its name and settings, without long lists."""
    short = {key: value for key, value in split.settings.items() if not isinstance(value, tuple)}
    return f"{split.name} ({show_settings(short)})" if short else split.name


def _write_numbers(axes: Axes, counts: np.ndarray) -> None:
    dark = counts > 0.3 * counts.max()
    for cls, client in np.argwhere(counts > 0):
        colour = "white" if dark[cls, client] else "black"
        axes.text(client, cls, str(counts[cls, client]), ha="center", va="center", color=colour, fontsize=8)


def _whole_ticks(axes: Axes, clients: np.ndarray) -> None:
    """Put ticks at whole numbers, labelled with the numbers of the clients."""
    axes.yaxis.set_major_locator(MaxNLocator(10, integer=True))
    ticks = np.unique(np.asarray(MaxNLocator(12, integer=True).tick_values(0, len(clients) - 1), dtype=int))
    ticks = ticks[(ticks >= 0) & (ticks < len(clients))]
    axes.set_xticks(ticks, [str(client) for client in clients[ticks]])

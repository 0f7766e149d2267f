"""Panels, labels, captions and marks in the same style in every figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from landscape.errors import choose, positive

MAGNITUDE, SIGNED = "viridis", "RdBu_r"  # maps for sizes, and for values with a sign, centred at zero
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A500")  # for categories
WIDTH, HEIGHT = 6.4, 4.0  # inches: one column and a half of a paper
WIDTHS = {  # inches of a column, or of the whole text ("2"), as the authors' kits of venues set them
    "icml": 3.25,
    "icml2": 6.75,
    "neurips": 5.5,
    "iclr": 5.5,
    "cvpr": 3.25,
    "cvpr2": 6.875,
    "eccv": 4.8,
}
NARROWEST = 1.5  # inches of a panel: where panels would be narrower, fewer stand side by side
BELOW = 0.5  # inches for labels and a legend, which do not shrink with the panels
SHARE = 0.3  # of the width of a relief that its label may take
LETTERS = 8.0  # points of the largest letters in a figure of a given width: captions of papers have 9
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
TICKS = 5  # spaces between numbers along an axis at most: measuring and drawing ticks is half the work of a figure
ROUNDS = "communication round"  # what an axis of rounds is called
MARK = "runs:"  # begins the id of everything that belongs to runs
STYLE: Any = {
    "figure.dpi": 150,  # for laying out as for PNG: the size of every word is measured once for both
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "pdf.fonttype": 42,  # text stays text: journals refuse Type 3 fonts
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fl-landscape",  # names inside the file do not change from one time to the next
}


class PaperFigure(Figure):
    """A matplotlib figure that is written in our style: `savefig` embeds fonts as publishers want them."""

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Write the figure; arguments as those of matplotlib."""
        with rc_context(STYLE):
            super().savefig(*args, **kwargs)


def make_canvas(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = HEIGHT, narrowest: float = NARROWEST
) -> tuple[Figure, list[Axes]]:
    """Make a figure with axes in reading order, without pyplot: no window system, no state left behind.

    rows, columns: how many axes.
    width, height: of the whole figure, in inches.
    narrowest: inches of a panel, where the width is given: with a colour bar of its own it needs more.
    """
    count = rows * columns
    rows, columns, width, height = fit_panels(rows, columns, width, height, narrowest)
    with rc_context(STYLE):
        figure = PaperFigure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.locator_params(nbins=TICKS if width / columns > 2 else 3)
    flat = [one for row in axes for one in row]
    for spare in flat[count:]:
        spare.remove()
    return figure, flat[:count]


_width: ContextVar[float | None] = ContextVar("width", default=None)  # of figures that are being drawn, in inches


@contextmanager
def use_width(width: float | None) -> Iterator[None]:
    """Make figures of one width within a block: of a column of a paper, so that letters are printed in their size.

    width: in inches; None for the widths that figures choose.
    """
    token = _width.set(width)
    try:
        yield
    finally:
        _width.reset(token)


def find_width(name: str) -> float | None:
    """Find the width that a name or a number means, in inches; None for an empty name.

    name: a key of WIDTHS, or a number of inches.
    """
    if not name:
        return None
    try:
        return positive("width", float(name))
    except ValueError:
        return WIDTHS[choose("width", name, WIDTHS)]


def fit_panels(
    rows: int, columns: int, width: float, height: float, narrowest: float = NARROWEST
) -> tuple[int, int, float, float]:
    """Fit panels into the width that `use_width` asks for: fewer side by side, each of its shape; else as they are.

    rows, columns: how many panels. width, height: of the whole figure, in inches. narrowest: of a panel, likewise.

    >>> with use_width(3.25):
    ...     fit_panels(1, 4, 12.0, 3.0)
    (2, 2, 3.25, 3.75)
    """
    asked = _width.get()
    if asked is None:
        return rows, columns, width, height
    fitting = max(1, min(columns, int(asked / narrowest)))
    down = rows if fitting == columns else math.ceil(rows * columns / fitting)
    shape = (height / rows) / (width / columns)
    return down, fitting, asked, down * max(shape, 0.6) * asked / fitting + BELOW


def shrink_letters(figure: Figure) -> None:
    """Let no letters of a figure be larger than a paper's: see LETTERS."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(min(text.get_fontsize(), LETTERS))
    for axes in figure.axes:
        axes.tick_params(labelsize=LETTERS - 1)
    wrap_labels(figure)


def wrap_labels(figure: Figure) -> None:
    """Break titles and labels that are longer than their panel or axis: in narrow panels they would overlap.

    In three dimensions, where two lines would overlap too, labels lose what stands in brackets, and a colour bar names
    the height.
    """
    with rc_context(STYLE):
        _thin_out(figure)
        figure.draw_without_rendering()
        for legend in figure.legends:
            if legend.get_window_extent().width > figure.bbox.width:
                for text in legend.get_texts():
                    text.set_text(break_line(text.get_text(), ", "))
        for axes in figure.axes:
            room = axes.get_window_extent()
            _fit_text(axes.title, room.width)
            for axis, length in (
                (axes.xaxis, room.width),
                (axes.yaxis, room.height),
                (getattr(axes, "zaxis", None), 0.0),
            ):
                label = axis.label if axis is not None else None
                if label is None or not label.get_text():
                    continue
                box = label.get_window_extent()
                if axis is getattr(axes, "zaxis", None):
                    label.set_text("" if any(one.name != "3d" for one in figure.axes) else label.get_text())
                elif axes.name == "3d" and max(box.width, box.height) > SHARE * length:
                    label.set_text(label.get_text().partition(" (")[0])
                else:
                    _fit_text(label, length)


def _fit_text(text: Text, length: float) -> None:
    """Break a text that is longer than its place; what is too long even so loses its brackets, or gets small letters.

    length: of the place, in pixels.
    """

    def is_too_long() -> bool:
        box = text.get_window_extent()
        return bool(max(box.width, box.height) > length)

    said = text.get_text()
    if said and is_too_long():
        text.set_text(break_line(said))
        if is_too_long() and " (" in said:
            text.set_text(said.partition(" (")[0])
        elif is_too_long():
            text.set_fontsize(min(text.get_fontsize(), LETTERS - 1))


def _thin_out(figure: Figure) -> None:
    """Label a vertical axis once where panels side by side have the same one, and number narrow panels sparsely."""
    grid = [axes for axes in figure.axes if axes.get_subplotspec() is not None and axes.name != "3d"]
    shared = len({axes.get_ylabel() for axes in grid}) == 1
    for axes in grid:
        spec = axes.get_subplotspec()
        assert spec is not None
        columns = spec.get_gridspec().ncols
        if shared and not spec.is_first_col():
            axes.set_ylabel("")
        if figure.get_figwidth() / columns < 2 and isinstance(axes.xaxis.get_major_locator(), MaxNLocator):
            axes.locator_params(axis="x", nbins=2)


def break_line(text: str, before: str = " (") -> str:
    """Break a text at the first of some signs, or else at the space nearest to its middle; never within a formula.

    before: the signs; a space among them is where the text is broken.

    >>> break_line("direction 1 (filter-normalised)")
    'direction 1\\n(filter-normalised)'
    >>> break_line("mean of $a - b$")
    'mean of\\n$a - b$'
    """
    spaces = [place for place, sign in enumerate(text) if sign == " " and text.count("$", 0, place) % 2 == 0]
    if "\n" in text or not spaces:
        return text
    wanted = text.find(before) + before.index(" ")
    place = wanted if before in text and wanted in spaces else min(spaces, key=lambda one: abs(one - len(text) / 2))
    return f"{text[:place]}\n{text[place + 1 :]}"


def label_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Name both axes, and the panel if there is a title. Rounds are numbered by whole numbers."""
    axes.set_xlabel(x)
    locator = axes.xaxis.get_major_locator()
    if x == ROUNDS and isinstance(locator, MaxNLocator):
        locator.set_params(integer=True)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, fontsize=10, y=1.0)  # no place given: matplotlib measures all ticks again to find one


def write_plain_numbers(axis: Axis) -> None:
    """Write plain numbers at 1, 2 and 5 along a logarithmic axis, legible also where a decade is not filled."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def write_powers(axis: Axis) -> None:
    """Write powers of ten along a logarithmic axis as plain text: as formulas they took longer than the curves."""

    def name(value: float, _: int) -> str:
        power = round(math.log10(abs(value))) if value else 0
        if not value or not math.isclose(abs(value), 10.0**power):
            return f"{value:g}"
        return f"{'-' if value < 0 else ''}10{str(power).translate(RAISED)}"

    axis.set_major_formatter(FuncFormatter(name))


def draw_legend(axes: Axes, **where: Any) -> None:
    """Draw a small legend without a frame.

    where: options of matplotlib's `legend`.
    """
    axes.legend(**{"frameon": False, "fontsize": 8, **where})


def mark(artists: object, runs: Iterable[str]) -> None:
    """Record which runs an artist shows, in the SVG too: the page hides it when all of them are hidden.

    artists: one artist, or any nesting of lists of them, as matplotlib's calls return.
    runs: their names; quoted, because spaces separate them.
    """
    if isinstance(artists, (list, tuple)):
        for one in artists:
            mark(one, runs)
    elif isinstance(artists, Artist):
        artists.set_gid(f"{MARK}{' '.join(map(quote, runs))}")


def join_caption(parts: Sequence[str]) -> str:
    """Join the parts of a caption, without empty ones."""
    return "; ".join(part for part in parts if part)

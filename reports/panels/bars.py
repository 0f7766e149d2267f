"""One number per series as bars, side by side or in groups, with gains written on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from landscape.plotting.style import label_axes, mark
from reports.inputs.progress import CROSS
from reports.panels.kind import Given, Kind, Shown, find_quantity, list_values
from reports.quantities.catalog import ACCURACY, Quantity
from reports.rows import Row

WIDE = 0.8  # share of a group's room that its bars take
MANY = 6  # bars, from which numbers and names stand upright
HATCHES = {
    "-": "",
    "--": "///",
    "-.": "...",
    ":": "xxx",
}  # kinds of lines as bars have them: colours repeat after eight


@dataclass(frozen=True)
class Options:
    """What bars show.

    quantity: of every series that has none of its own.
    gain: write the difference to the first bar of the group instead of the number itself.
    reference: name of the series that the quantity compares with.
    label: of the y axis; by default the quantity's.
    """

    quantity: Quantity = ACCURACY
    gain: bool = False
    reference: str = ""
    label: str = ""


def draw(axes: Axes, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw a bar for each series: groups stand along the axis, or else the series themselves."""
    reference = next((one for one in shown if one.name == options.reference), None)
    places = arrange_bars(shown)
    found: dict[int, Row] = {}
    for number, one in enumerate(shown):
        row = _measure(one, find_quantity(one, options.quantity), reference)
        if row is not None:
            found[number] = row
    for number, one in enumerate(shown):
        _draw_bar(axes, one, *places[number], found.get(number))
    _write_numbers(axes, shown, options, [place for place, _ in places], found)
    groups = list(dict.fromkeys(one.group or one.name for one in shown))
    steep = 60 if len(groups) > MANY else 30
    axes.set_xticks(range(len(groups)), groups, rotation=steep, ha="right", rotation_mode="anchor", fontsize=7)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(False, axis="x")
    label_axes(axes, "", options.label or options.quantity.label)
    return list(found.values())


def arrange_bars(shown: Sequence[Shown]) -> list[tuple[float, float]]:
    """The place and width of each bar: groups at whole numbers, bars of a group side by side.

    >>> from reports.palette import Look
    >>> look = Look("k", "o", "-")
    >>> arrange_bars([Shown("a", (), look), Shown("b", (), look)])
    [(0.0, 0.8), (1.0, 0.8)]
    """
    groups = list(dict.fromkeys(one.group or one.name for one in shown))
    members = {group: [one for one in shown if (one.group or one.name) == group] for group in groups}
    width = WIDE / max((len(some) for some in members.values()), default=1)
    return [
        (
            groups.index(group) + width * (members[group].index(one) - (len(members[group]) - 1) / 2),
            width,
        )
        for one in shown
        for group in [one.group or one.name]
    ]


def _measure(one: Shown, quantity: Quantity, reference: Shown | None) -> Row | None:
    """Mean and spread over the seeds that count; None where nothing is known."""
    values = list_values(one, quantity, reference)
    if not len(values):
        return None
    spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    about: Row = {"series": one.name, "group": one.group, "quantity": quantity.name}
    return {**about, "mean": float(values.mean()), "spread": spread, "seeds": len(values)}


def _draw_bar(axes: Axes, one: Shown, place: float, width: float, row: Row | None) -> None:
    """A bar with its spread; a cross where all seeds diverged, words where nothing was run or measured."""
    if row is None:
        diverged = bool(one.runs) and len(one.diverged) == len(one.runs)
        said, size, turned = (CROSS, 14, 0) if diverged else (one.lacks or "not measured", 7, 90)
        color = one.look.color if diverged else "0.4"
        text = axes.annotate(
            said, (place, 0), (0, 2), textcoords="offset points", ha="center", color=color, fontsize=size
        )
        text.set_rotation(turned)
        mark(text, one.names)
        axes.plot(place, 0, linestyle="none", label=None)  # the axis reaches as far as this
        return
    name = one.name if one.group else None  # without groups the axis has the names
    bars = axes.bar(place, float(row["mean"]), 0.92 * width, label=name)
    style_bars(bars.patches, one)
    mark(bars.patches, one.names)
    if np.isfinite(float(row["spread"])):
        mark(axes.errorbar(place, float(row["mean"]), float(row["spread"]), color="0.2", capsize=2), one.names)


def style_bars(bars: Sequence[Rectangle], one: Shown) -> None:
    """Give bars the look of their series: hatched where another method has its colour; open where it is unfinished."""
    for bar in bars:
        bar.set(facecolor=one.look.color, edgecolor="white", linewidth=0, hatch=HATCHES[one.look.line])
        if one.unfinished:
            bar.set(facecolor="none", edgecolor=one.look.color, linewidth=1.2)


def _write_numbers(
    axes: Axes, shown: Sequence[Shown], options: Options, places: Sequence[float], found: dict[int, Row]
) -> None:
    """The number above each bar; where gains are asked for, the difference to the first bar of the group."""
    turned = 90 if len(found) > MANY else 0
    above = 6 if turned else 3  # points; nearer to an upright number the cap of an error bar looks like a minus sign
    first: dict[str, float] = {}
    for number, row in found.items():
        one = shown[number]
        quantity = find_quantity(one, options.quantity)
        digits = f".{quantity.decimals}f" if quantity.decimals is not None else ".3g"
        mean, spread = float(row["mean"]), np.nan_to_num(float(row["spread"]))
        said = format(mean, digits)
        if options.gain and (one.group or one.name) in first:
            row["gain"] = mean - first[one.group or one.name]
            said = format(float(row["gain"]), "+" + digits).replace("-", "\N{MINUS SIGN}")
        first.setdefault(one.group or one.name, mean)
        text = axes.annotate(
            said, (places[number], mean + spread), (0, above), textcoords="offset points", ha="center", fontsize=7
        )
        text.set_rotation(turned)
        mark(text, one.names)
    axes.margins(y=0.22 if turned else 0.1)
    if all(float(row["mean"]) >= 0 for row in found.values()):  # room for numbers is needed above, not below
        lowest = min((float(row["mean"]) - np.nan_to_num(float(row["spread"])) for row in found.values()), default=0.0)
        axes.set_ylim(bottom=1.1 * min(lowest, 0.0))


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what error bars and written numbers are."""
    return [
        f"{options.quantity.label}" if not options.label else "",
        "error bars: standard deviation over seeds" if any(len(one.counted) > 1 for one in shown) else "",
        "numbers with a sign: gain over the first bar of the group" if options.gain else "",
        "open bars: unfinished" if any(one.unfinished for one in shown) else "",
    ]


KIND = Kind(
    name="bars",
    shows="one number per series",
    draw=draw,
    options=Options,
    studies=lambda options: (options.quantity.study,) if options.quantity.study else (),
    describe=describe,
)

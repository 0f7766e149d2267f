"""Loss surfaces of global models in shared directions: the first series solid, the others as nets over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpl_toolkits.mplot3d import Axes3D

from reports.inputs.runs import Collection, Run
from reports.panels.kind import Array, Given, Kind, Shown
from reports.plotting.loss.relief import Net, add_key, draw_nets, draw_solid, finish_axes, mark_panel
from reports.plotting.loss.surfaces import ABOUT, Surface, find_surfaces
from reports.rows import Row

NAMES = {"train": "training loss", "test": "test loss"}


@dataclass(frozen=True)
class Options:
    """Which surfaces are drawn.

    split: the data, train or test.
    scale: panels with the same word share heights and colours; those of other data sets may have their own.
    """

    split: str = "train"
    scale: str = ""


def choose_seed(shown: Sequence[Shown]) -> dict[str, Run]:
    """Choose one run of each series that has any: of the smallest seed that all have, or else its first."""
    there = [one for one in shown if one.shown]
    common = set.intersection(*({run.seed for run in one.shown} for one in there)) if there else set()
    return {
        one.name: next((run for run in one.shown if run.seed == min(common, default=None)), one.shown[0])
        for one in there
    }


def find_all(shown: Sequence[Shown], given: Given, split: str, *, local: bool = False) -> dict[str, list[Surface]]:
    """Find the surfaces of every series that has any, by its name; in the order of rounds.

    local: of participants' models, instead of the global one.
    """
    chosen = choose_seed(shown)
    together = [given.answer] if given.answer is not None and given.answer.study == "surface" else []
    runs = list(chosen.values())
    collection = Collection(runs, {"surface": together}, [])
    found = {name: find_surfaces(run, runs, collection, split, local=local) for name, run in chosen.items()}
    return {name: some for name, some in found.items() if some}


def draw(axes: Axes3D, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the last surface of each series; the order of the series decides which one is solid."""
    found = find_all(shown, given, options.split)
    if not found or given.scale is None:
        return []
    present = [one for one in shown if one.name in found]
    base, *others = [found[one.name][-1] for one in present]
    check_ranges(base, others)
    if others:
        nets = [Net(other, one.look.color, one.name) for one, other in zip(present[1:], others, strict=True)]
        draw_nets(axes, base, nets, given.scale)
        finish_axes(axes, base, given.scale, f"solid: {present[0].name}", small=True)
        for net in nets:
            add_key(axes, net.color, f"{net.name} (net)")
    else:
        draw_solid(axes, base, given.scale, rasterized=True)
        finish_axes(axes, base, given.scale, present[0].name, small=True)
        mark_panel(axes, base.run.name)
    return [
        {"series": one.name, **row}
        for one, surface in zip(present, (base, *others), strict=True)
        for row in surface.rows(given.scale)
    ]


def check_ranges(base: Surface, others: Sequence[Surface]) -> None:
    """Check that surfaces can be laid over each other; ValueError where their axes differ."""
    for one in others:
        if not (np.array_equal(base.x, one.x) and np.array_equal(base.y, one.y)):
            raise ValueError(f"{one.run.name} was measured on another range than {base.run.name}")


def list_losses(shown: Sequence[Shown], options: Options, given: Given) -> list[Array]:
    """List the losses that share a scale."""
    return [some[-1].loss for some in find_all(shown, given, options.split).values()]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what the axes are, and how to read a logarithmic height."""
    found = [some[-1] for some in find_all(shown, given, options.split).values()]
    return describe_axes(found, NAMES.get(options.split, options.split), given)


def describe_axes(found: Sequence[Surface], what: str, given: Given) -> list[str]:
    """Say what was measured on how many examples, along which directions, and of which seed."""
    if not found:
        return []
    first = found[0]
    counts = sorted({one.examples for one in found if one.examples})
    log = given.scale is not None and given.scale.log
    return [
        f"{what}, n = {', '.join(map(str, counts))}" if counts else what,
        ABOUT.get(str(first.about.get("axes")), "").format(seed=first.about.get("seed")),
        f"seed {first.run.seed}",
        "logarithmic heights: a deep well is a lower loss, not a sharper minimum" if log else "",
    ]


KIND = Kind(
    name="surface",
    shows="loss surfaces in shared directions",
    draw=draw,
    options=Options,
    studies=lambda options: ("surface",),
    relief=True,
    heading=True,
    values=list_losses,
    bar=lambda options: NAMES.get(options.split, options.split),
    describe=describe,
    size=(3.4, 2.8),
)

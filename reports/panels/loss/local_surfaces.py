"""A participant's model on its own data and on everyone's, with another method's as a net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpl_toolkits.mplot3d import Axes3D

from landscape.plotting.relief import find_middle_color
from landscape.plotting.scales import Scale
from landscape.plotting.style import mark
from reports.panels.clients import name_client
from reports.panels.kind import Array, Given, Kind, Shown
from reports.panels.loss.surface import check_ranges, describe_axes, find_all
from reports.plotting.loss.relief import add_key, draw_net, draw_solid, finish_axes
from reports.plotting.loss.surfaces import Surface
from reports.rows import Row


@dataclass(frozen=True)
class Options:
    """Whose surfaces are drawn.

    client: place of the client among those of the last round that were measured, from 0.
    classes: names of classes, by which clients are named.
    scale: panels with the same word share heights and colours.
    """

    client: int = 0
    classes: tuple[str, ...] = ()
    scale: str = ""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The surfaces of a panel: of the first series on the client's data and on everyone's, and nets of the others."""

    own: Surface
    wide: Surface
    nets: list[tuple[Shown, Surface]]

    @property
    def surfaces(self) -> list[Surface]:
        return [self.own, self.wide, *(one for _, one in self.nets)]


def _choose(shown: Sequence[Shown], options: Options, given: Given) -> Chosen | None:
    """None where the first series lacks its surfaces."""
    own, wide = (find_all(shown, given, split, local=True) for split in ("own", "train"))
    first = shown[0].name if shown else ""
    if first not in own or first not in wide:
        return None
    mine, beside = (_pick(some[first], options.client) for some in (own, wide))
    if mine is None or beside is None:
        return None
    nets = [(one, net) for one in shown[1:] if (net := _find_client(wide.get(one.name, []), mine)) is not None]
    return Chosen(mine, beside, nets)


def _pick(surfaces: Sequence[Surface], place: int) -> Surface | None:
    """The surface of a client of the last round, by its place; None where fewer were measured."""
    last = [one for one in surfaces if one.round == surfaces[-1].round]
    return last[place] if place < len(last) else None


def _find_client(surfaces: Sequence[Surface], like: Surface) -> Surface | None:
    """Another method's surface of the same client in its last round; None where it took no part."""
    return next((one for one in reversed(surfaces) if one.client == like.client), None)


def draw(axes: Axes3D, shown: Sequence[Shown], options: Options, given: Given) -> list[Row]:
    """Draw the local loss solid, the global loss above it in the method's colour, and nets of the other series."""
    chosen = _choose(shown, options, given)
    if chosen is None or given.scale is None:
        return []
    check_ranges(chosen.own, chosen.surfaces[1:])
    color = shown[0].look.color
    draw_solid(axes, chosen.own, given.scale)
    _draw_sheet(axes, chosen.wide, given.scale, color)
    for one, net in chosen.nets:
        draw_net(axes, net, chosen.wide, given.scale, one.look.color)
    whose = name_client(chosen.own.run, chosen.own.client or 0, options.classes)
    finish_axes(axes, chosen.own, given.scale, whose, small=True)
    add_key(axes, find_middle_color(chosen.own, given.scale), "local loss (solid)", thick=True)
    add_key(axes, color, f"{shown[0].name}: global loss", thick=True)
    for one, _ in chosen.nets:
        add_key(axes, one.look.color, f"{one.name}: global loss (net)")
    named = [shown[0].name] * 2 + [one.name for one, _ in chosen.nets]
    return [
        {"series": name, "named": whose, **row}
        for name, surface in zip(named, chosen.surfaces, strict=True)
        for row in surface.rows(given.scale)
    ]


def _draw_sheet(axes: Axes3D, surface: Surface, scale: Scale, color: str) -> None:
    """A surface of one colour that lets what lies below it be seen."""
    x, y = np.meshgrid(surface.x, surface.y, indexing="ij")
    sheet = axes.plot_surface(x, y, scale.heights(surface.loss), color=color, alpha=0.4, linewidth=0, zorder=2.5)
    mark(sheet, [surface.run.name])


def list_losses(shown: Sequence[Shown], options: Options, given: Given) -> list[Array]:
    """List the losses that share a scale."""
    chosen = _choose(shown, options, given)
    return [] if chosen is None else [one.loss for one in chosen.surfaces]


def describe(shown: Sequence[Shown], options: Options, given: Given) -> list[str]:
    """Say what is local and what is global."""
    chosen = _choose(shown, options, given)
    if chosen is None:
        return []
    return [
        "local loss: a participant's model on its own data; above it the same model on everyone's training data",
        f"round {chosen.own.round}",
        *describe_axes(chosen.surfaces, "loss", given),
        "every surface has its own model in the middle",
    ]


KIND = Kind(
    name="local_surfaces",
    shows="a participant's model on its own data and on everyone's",
    draw=draw,
    options=Options,
    studies=lambda options: ("surface",),
    relief=True,
    heading=True,
    values=list_losses,
    bar=lambda options: "loss",
    describe=describe,
    size=(3.4, 2.8),
)

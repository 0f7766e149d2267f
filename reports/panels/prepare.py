"""What each panel of a layout shows: its series with their looks, and the scales that panels share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.store import Answer
from landscape.errors import choose
from landscape.plotting.scales import Scale, share_scale
from reports.artefact import Entry, Layout, Panel
from reports.inputs.runs import Run
from reports.palette import MARKERS, Look, assign_looks, spread_looks
from reports.panels.catalog import PANELS
from reports.panels.kind import Array, Given, Kind, Shown
from reports.variants import shade

Runs = Callable[[Panel, Entry], Sequence[Run]]
Answers = Callable[[Panel], Answer | None]
Reasons = Callable[[Panel, Entry], str]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A panel with all that is drawn in it."""

    panel: Panel
    kind: Kind
    options: Any
    shown: tuple[Shown, ...]
    given: Given

    @property
    def empty(self) -> bool:
        """Whether no series was run and no study compared any."""
        return not any(one.runs for one in self.shown) and self.given.answer is None


def prepare_panels(layout: Layout, find_runs: Runs, find_answer: Answers, lacking: Reasons) -> list[Prepared]:
    """Find what each panel of a layout shows.

    find_runs, find_answer, lacking: as in `reports.panels.layout.draw_layout`.
    """
    kinds = [_find_kind(panel) for panel in layout.panels]
    runs = [[tuple(find_runs(panel, entry)) for entry in panel.series] for panel in layout.panels]
    looks = _choose_looks(layout, kinds, runs)
    found = []
    for panel, kind, some in zip(layout.panels, kinds, runs, strict=True):
        shown = tuple(
            Shown(
                entry.label,
                own,
                looks[_name_line(kind, entry)],
                entry.group,
                entry.quantity,
                "" if own else lacking(panel, entry),
            )
            for entry, own in zip(panel.series, some, strict=True)
        )
        found.append(Prepared(panel, kind, kind.read_options(panel.options), shown, Given(find_answer(panel))))
    return _share_scales(found)


def _find_kind(panel: Panel) -> Kind:
    """The kind of a panel; ValueError where there is none, or where it cannot show so many series."""
    kind = PANELS[choose("kind of panel", panel.kind, PANELS)]
    if not panel.series or (kind.most is not None and len(panel.series) > kind.most):
        wanted = "at least one" if kind.most is None else f"1 to {kind.most}" if kind.most > 1 else "one"
        raise ValueError(
            f"panel {panel.title!r} of kind {kind.name}: expected {wanted} series, got {len(panel.series)}"
        )
    return kind


def _name_line(kind: Kind, entry: Entry) -> str:
    """What legends call a series: by its group where a group is one line."""
    return (entry.group or entry.label) if kind.lines else entry.label


def _choose_looks(
    layout: Layout, kinds: Sequence[Kind], runs: Sequence[Sequence[tuple[Run, ...]]]
) -> Mapping[str, Look]:
    """The look of each name in legends: its method's; several of one method by shade, marker and kind of line.

    Where all are of one method, its colour would tell nothing: each has a colour of its own then.
    """
    methods: dict[str, str] = {}
    guessed: dict[str, str] = {}
    for panel, kind, some in zip(layout.panels, kinds, runs, strict=True):
        for entry, own in zip(panel.series, some, strict=True):
            name = _name_line(kind, entry)
            guessed.setdefault(name, _guess_method(panel, entry))
            if own:
                methods.setdefault(name, own[0].algorithm)
    methods = {name: methods.get(name, guess) for name, guess in guessed.items()}
    chosen = assign_looks(methods.values())
    if len(chosen) == 1 and len(methods) > 1:
        return spread_looks(list(methods))
    found = {}
    for method, look in chosen.items():
        names = [name for name, one in methods.items() if one == method]
        for place, name in enumerate(names):
            marker = MARKERS[(MARKERS.index(look.marker) + place) % len(MARKERS)]
            found[name] = replace(shade(look, place, len(names)), marker=marker)
    return found


def _guess_method(panel: Panel, entry: Entry) -> str:
    """The method of a series without runs, by its settings or else by its name."""
    for settings in (entry.settings, panel.settings):
        whole = settings.get("algorithm")
        name = whole.get("name") if isinstance(whole, Mapping) else settings.get("algorithm.name", whole)
        if isinstance(name, str):
            return name
    return entry.label


def _share_scales(found: Sequence[Prepared]) -> list[Prepared]:
    """Give panels of a kind whose options name the same scale one scale; those without numbers have none."""
    values: dict[tuple[str, str], list[Array]] = {}
    for one in found:
        if one.kind.values is not None and not one.empty:
            values.setdefault(_name_scale(one), []).extend(one.kind.values(one.shown, one.options, one.given))
    scales: dict[tuple[str, str], Scale] = {
        name: share_scale(some) for name, some in values.items() if any(np.isfinite(array).any() for array in some)
    }
    return [replace(one, given=replace(one.given, scale=scales.get(_name_scale(one)))) for one in found]


def _name_scale(one: Prepared) -> tuple[str, str]:
    return one.kind.name, str(getattr(one.options, "scale", ""))

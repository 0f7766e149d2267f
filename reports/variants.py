"""Runs that differ in nothing but their seed belong together: one line in a figure, one row in a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.colors import to_hex, to_rgb

from reports.inputs.progress import describe_progress, select_counted
from reports.inputs.recipes import as_number, is_number
from reports.inputs.runs import Collection, Run
from reports.inputs.summary import differing
from reports.names import name_setting
from reports.palette import LINES, Look, assign_looks
from training.storage import toml

PANELS = 12  # for runs in a figure; with more runs each variant is shown by one seed
PALEST = 0.55  # share of white in the last of many variants of a method


@dataclass(frozen=True, eq=False)
class Variant:
    """A method with its settings, and one run for each seed."""

    name: str  # as in legends: the method, and the settings in which it was varied
    runs: tuple[Run, ...]
    look: Look

    @property
    def algorithm(self) -> str:
        """The short name of the method, the key of its colour."""
        return self.runs[0].algorithm

    @property
    def label(self) -> str:
        """The name as legends print it: with what is to know of runs that diverged or are unfinished."""
        said = describe_progress(self.runs)
        return f"{self.name} ({said})" if said else self.name

    @property
    def shown(self) -> list[Run]:
        """The seeds whose mean is drawn: those that count; where all diverged, as far as they came."""
        return self.counted or list(self.runs)

    @property
    def counted(self) -> list[Run]:
        """The seeds whose numbers may stand in a mean: see `select_counted`; none where all diverged."""
        return select_counted(self.runs)

    @property
    def names(self) -> list[str]:
        return [run.name for run in self.runs]


def find_variants(runs: Sequence[Run], everything: Collection, *, apart: Sequence[str] = ()) -> list[Variant]:
    """Group runs by method and settings, in the same order everywhere, with a shade of the method's colour for each.

    everything: the whole report, whose methods decide the colours.
    apart: dotted settings that may differ within a variant as the seed does, because a figure shows them along an axis.
    """
    chosen = assign_looks(run.algorithm for run in everything.runs)
    found = []
    for algorithm in chosen:
        same = [run for run in runs if run.algorithm == algorithm]
        keys = [key for key in differing([flatten_settings(run) for run in same]) if key not in apart]
        groups: dict[str, list[Run]] = {}
        for run in same:
            own = flatten_settings(run)
            groups.setdefault(json.dumps([own.get(key) for key in keys], default=str), []).append(run)
        for place, members in enumerate(
            sorted(groups.values(), key=lambda group: _make_sort_key(flatten_settings(group[0]), keys))
        ):
            name = ", ".join([members[0].method, *_describe_settings(flatten_settings(members[0]), keys)])
            look = shade(chosen[algorithm], place, len(groups))
            found.append(Variant(name, tuple(members), look))
    return found


def flatten_settings(run: Run) -> dict[str, object]:
    """Return every setting of a run by its dotted key, for example "rounds.count"."""
    return dict(toml.flatten(run.settings))


def get_number(run: Run, key: str) -> float:
    """Return a setting of a run that is a number.

    key: its dotted key; see `numeric_settings` for those that can be asked for.
    """
    return as_number(flatten_settings(run)[key])


def make_titles(runs: Sequence[Run], everything: Collection) -> dict[str, str]:
    """Make a title for the panel of each run: its variant, and its seed where there are several.

    Returns titles by the names of runs, in the order of panels.
    """
    found = {}
    for variant in find_variants(runs, everything):
        for run in variant.runs:
            title = f"{variant.name}, seed {run.seed}" if len(variant.runs) > 1 else variant.name
            found[run.name] = f"{title} ({run.progress.description})" if run.progress.description else title
    return found


def choose_shown(runs: Sequence[Run], everything: Collection) -> list[Run]:
    """Choose the runs that get a panel each, in the order of panels; of too many, one seed of every variant.

    runs: those that have what is drawn. The seed is the same for all variants where they have it.
    """
    variants = find_variants(runs, everything)
    if len(runs) <= PANELS:
        return [run for variant in variants for run in variant.runs]
    seeds = Counter(seed for variant in variants for seed in {run.seed for run in variant.runs})
    usual = min(seeds, key=lambda seed: (-seeds[seed], seed))
    return [min(variant.shown, key=lambda run: (run.seed != usual, run.seed)) for variant in variants]


def describe_shown(shown: Sequence[Run], runs: Sequence[Run]) -> str:
    """Say for a caption that some seeds have no panel; empty where all have one.

    shown: as `choose_shown` returns them. runs: what it chose from.
    """
    return f"{len(shown)} of {len(runs)} runs shown, one seed each" if len(shown) < len(runs) else ""


def make_full_titles(runs: Sequence[Run], everything: Collection) -> dict[str, str]:
    """Make a title for each run that tells it from all others: its variant, data, partition and seed."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.data, run.heterogeneity), []).append(run)
    found = [variant for same in groups.values() for variant in find_variants(same, everything)]
    return {run.name: run.describe(variant.name) for variant in found for run in variant.runs}


def sort_by_title(runs: Sequence[Run], named: Mapping[str, str]) -> list[Run]:
    """Sort runs in the order of their titles.

    named: as `make_titles` returns them.
    """
    places = {name: place for place, name in enumerate(named)}
    return sorted(runs, key=lambda run: places[run.name])


def find_numeric_settings(runs: Sequence[Run]) -> list[str]:
    """Find the dotted settings with numbers in which runs of the same method differ."""
    found: dict[str, None] = {}
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        same = [flatten_settings(run) for run in runs if run.algorithm == algorithm]
        for key in differing(same):
            known = [one[key] for one in same if key in one]
            if len(set(map(str, known))) > 1 and all(is_number(value) for value in known):
                found[key] = None
    return list(found)


def describe_seeds(variants: Iterable[Variant]) -> str:
    """Describe for a caption over how many seeds a mean goes; empty where there is one seed."""
    counts = sorted({len(variant.shown) for variant in variants})
    if counts[-1:] == [1] or not counts:
        return ""
    return (
        f"mean and range over {counts[0]} seeds"
        if len(counts) == 1
        else f"mean and range over up to {counts[-1]} seeds"
    )


def _describe_settings(settings: dict[str, object], keys: Sequence[str]) -> list[str]:
    """Describe settings by their printed names, where these tell them apart."""
    printed = {key: name_setting(key) for key in keys}
    same = Counter(printed.values())
    names = {key: key if same[printed[key]] > 1 else printed[key] for key in keys}
    return [
        str(settings[key]) if key.endswith(".name") else f"{names[key]} = {_format_value(settings[key])}"
        for key in keys
        if key in settings
    ]


def _make_sort_key(settings: dict[str, object], keys: Sequence[str]) -> list[tuple[bool, float, str]]:
    """Sort by values: numbers by size, before texts."""
    known: list[object] = [settings.get(key) for key in keys]
    return [(False, float(value), "") if is_number(value) else (True, 0.0, str(value)) for value in known]


def _format_value(value: object) -> str:
    return f"{value:g}" if is_number(value) else str(value)


def shade(look: Look, place: int, count: int) -> Look:
    """Make the method's colour paler from one variant to the next, with another kind of line.

    look: the method's. place: of the variant among `count`; the first keeps the look.
    """
    if place == 0:
        return look
    white = PALEST * place / (count - 1)
    red, green, blue = ((1 - white) * part + white for part in to_rgb(look.color))
    return replace(look, color=to_hex((red, green, blue)), line=LINES[(LINES.index(look.line) + place) % len(LINES)])

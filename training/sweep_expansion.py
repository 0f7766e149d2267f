"""The [sweep] of a recipe file and --set on the command line, expanded to the settings of single runs."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from training.storage import toml

MOST_RUNS = 10_000  # of one sweep: each is checked before the first is trained

Axes = dict[str, object]  # dotted key -> list of values


def expand(content: Mapping[str, object], overrides: Sequence[str], source: str) -> Iterator[dict[str, object]]:
    """Yield the nested settings of every run of a recipe file: one, or the cross product of its [sweep].

    content: the file's tables. Several sweeps, each headed [[sweep]], are expanded one after the other.
    overrides: "key=value" with a dotted key. Where the setting is swept, "local.lr=0.1" fixes it, and
        "sweep.local.lr=[0.1, 0.2]" sweeps other values.
    source: where the content comes from, for messages.

    >>> list(expand({"seed": 1, "sweep": {"local.lr": [0.1, 0.2]}}, [], "mine.toml"))
    [{'seed': 1, 'local': {'lr': 0.1}}, {'seed': 1, 'local': {'lr': 0.2}}]
    """
    single = {key: value for key, value in content.items() if key != "sweep"}
    sweeps = _read_sweeps(content.get("sweep", {}), source)
    fixed: dict[str, object] = {}
    for override in overrides:
        key, value = parse_override(override)
        if key.startswith("sweep."):
            for axes in sweeps:
                axes[key.removeprefix("sweep.")] = value
        else:
            fixed[key] = value
            for axes in sweeps:
                axes.pop(key, None)
    count = sum(count_combinations(axes, source) for axes in sweeps)
    if count > MOST_RUNS:
        sizes = ", ".join(
            f"{key} {len(values)}" for axes in sweeps[:3] for key, values in axes.items() if isinstance(values, list)
        )
        raise ValueError(
            f"{source}: sweep: {count:,} combinations ({sizes}), at most {MOST_RUNS:,} at a time; split the sweep"
        )
    for axes in sweeps:
        yield from combine(single, axes, fixed, source)


def _read_sweeps(given: object, source: str) -> list[Axes]:
    sweeps = given if isinstance(given, list) and given else [given]
    tables = [sweep for sweep in sweeps if isinstance(sweep, dict)]
    if len(tables) < len(sweeps):
        raise ValueError(
            f'{source}: sweep must be a table such as [sweep] "local.lr" = [0.1, 0.2], got {toml.show(given)}'
        )
    return [dict(toml.flatten(table)) for table in tables]


def parse_override(text: str) -> tuple[str, object]:
    """Split an override into its dotted key and its value.

    text: as it is written after --set.

    >>> parse_override("local.lr=0.1")
    ('local.lr', 0.1)
    """
    if not toml.is_utf8(text):
        raise ValueError(f"--set expects text in UTF-8, got '{text[:80]}'")
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not all(key.split(".")) or key.count(".") > toml.DEEPEST:
        raise ValueError(f"--set expects key=value, for example local.lr=0.1; got '{text[:80]}'")
    return key, toml.parse_value(value)


def count_combinations(axes: Mapping[str, object], source: str = "recipe") -> int:
    """Count the runs of a sweep; ValueError if a setting has no list of values, or an empty one.

    axes: lists of values by dotted keys.
    source: where they come from, for messages.

    >>> count_combinations({"local.lr": [0.1, 0.2], "seed": [0, 1, 2]})
    6
    """
    sizes = []
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            example = "must be a list of values such as [0.1, 0.2]"
            raise ValueError(f"{source}: sweep.{key} {example}, got {toml.show(values)}")
        sizes.append(len(values))
    return math.prod(sizes)


def combine(
    content: Mapping[str, object], axes: Mapping[str, object], fixed: Mapping[str, object], source: str = "recipe"
) -> Iterator[dict[str, object]]:
    """Yield every combination of the lists in `axes`, set into `content`.

    content: nested settings.
    axes: lists of values by dotted keys, "local.lr" -> [0.1, 0.01].
    fixed: values by dotted keys, which take precedence.
    source: where the content comes from, for messages.
    """
    lists = [values for values in axes.values() if isinstance(values, list)]
    for combination in itertools.product(*lists):
        single = copy.deepcopy(dict(content))
        for key, value in [*zip(axes, combination, strict=True), *fixed.items()]:
            try:
                toml.set_key(single, key, copy.deepcopy(value))
            except ValueError as error:
                raise ValueError(f"{source}: {error}") from None
        yield single

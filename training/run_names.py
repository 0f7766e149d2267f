"""Names of run directories: readable, one path component, different whenever anything that matters differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from training.storage import toml

LONGEST_NAME = 120  # characters of a run's name before its seed and digest
SKEWS = {"alpha": "alpha", "beta": "beta", "shards_per_client": "shards", "classes_per_client": "classes"}
WORDS = {"rounds.count": "rounds", "evaluation.every": "evaluation", "checkpoints.every": "checkpoints"}
ALWAYS = ("seed", "data.name", "algorithm.name")  # settings that every name contains
NEVER = ("data.root", "data.download", "model.weights_digest", "swa.name")


def name_run(
    recipe: Mapping[str, object], defaults: Mapping[str, object], digest: str, keys: Iterable[str] = ()
) -> str:
    """Make the name of a run: data, method, skew of the partition, unusual settings, seed, digest.

    recipe: every setting of the run, as nested tables.
    defaults: the same tables with the defaults of its method and partition.
    digest: of the recipe; its first eight characters end the name.
    keys: dotted keys of further settings to mention, as far as there is room. The key of a whole table stands for those
        of its settings that differ from their defaults.
    """
    flat, usual = dict(toml.flatten(recipe)), dict(toml.flatten(defaults))
    method = str(flat.get("adopted.method") or flat["algorithm.name"])
    pieces = [str(flat["data.name"]), method, _describe_skew(flat)]
    pieces += ["swa"] if recipe["swa"] else []
    unusual = [key for key, value in flat.items() if key not in usual or value != usual[key]]
    shown = [key for key in unusual if key.startswith("algorithm.")]
    for asked in keys:
        shown += [asked] if asked in flat else [key for key in unusual if key.startswith(f"{asked}.")]
    pieces += [
        _describe_setting(key, flat[key], method)
        for key in dict.fromkeys(shown)
        if key in flat and not _is_shown_anyway(key)
    ]
    slugs = [slug for slug in map(make_slug, pieces) if slug]
    while len("_".join(slugs)) > LONGEST_NAME:
        slugs.pop()
    return "_".join([*slugs, f"seed{flat['seed']}"[:24], digest[:8]])


def make_slug(text: str) -> str:
    """Keep letters, digits and . + - _ only, so that any text is safe as a part of a file's name.

    text: at most 32 characters of it are kept.

    >>> make_slug("../my model:net")
    'my-model-net'
    """
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip(".-")[:32]


def _describe_skew(flat: Mapping[str, object]) -> str:
    """Describe how the data are partitioned: alpha0.1, shards2; a partition without such a number by its name."""
    for key, word in SKEWS.items():
        if f"partition.{key}" in flat:
            value = flat[f"partition.{key}"]
            return f"{word}inf" if value is None else f"{word}{value:g}"  # JSON writes infinity as null
    return str(flat["partition.name"])


def _describe_setting(key: str, value: object, method: str) -> str:
    """Write a setting as part of a name: lr0.1, rounds50, part-head, no-clip."""
    table, _, leaf = key.rpartition(".")
    if leaf == "name":
        return str(value)
    word = WORDS.get(key)
    if word is None:
        # start and cycle mean little without swa, and a method's alpha is not the partition's
        word = f"swa-{leaf}" if table == "swa" else leaf
        word = f"{method}-{leaf}" if table == "algorithm" and leaf in SKEWS else word
    if value is None or isinstance(value, bool):
        return word if value else f"no-{word}"
    if isinstance(value, (str, list)):
        return "-".join([word, *map(str, [value] if isinstance(value, str) else value)])
    return f"{word}{value:g}" if isinstance(value, float) else f"{word}{value}"


def _is_shown_anyway(key: str) -> bool:
    """Tell whether every name contains this setting, or none does."""
    table, _, leaf = key.partition(".")
    return key in ALWAYS or key in NEVER or (table == "partition" and leaf in SKEWS)

"""Prepare the directory of a recipe, and find the directory of a run by its recipe."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from training import config
from training.config import Recipe
from training.data import partition
from training.plugins import describe_source, explain_change
from training.storage.atomic_files import remove_temporary_files, write_atomically
from training.storage.run_directory import (
    CHECKPOINTS,
    CONFIG,
    PARTITION,
    PROVENANCE,
    SMALL_FILES,
    STATUS,
    has_recipe,
    read_provenance,
)
from training.storage.verified_files import FORMAT, require_inside

PACKAGES = ("fl-landscape", "torch", "numpy", "safetensors")  # whose versions are recorded


def open_run(
    path: Path,
    recipe: Recipe,
    split: partition.Partition,
    digests: Mapping[str, str],
    find_more: Callable[[], Mapping[str, object]] = dict,
    task: str = "",
) -> None:
    """Prepare the directory of a recipe, new or found; ValueError if it holds another recipe or other data.

    path: the run directory. recipe, split: what is trained, and who holds which example.
    digests: of the data and the partition, by the names they have in provenance.json.
    find_more: called if provenance.json is to be written, for what else belongs there.
    task: 'module:name' of the data's task, if it is a user's own.
    """
    plugins = (*recipe.plugins, *([task] if task else []))
    found = has_recipe(path)
    if found:
        _refuse_another(path, recipe, digests, plugins)
    (path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    for name in (CHECKPOINTS, STATUS, *SMALL_FILES):
        require_inside(path / name, path)
    for folder in (path, path / CHECKPOINTS):
        remove_temporary_files(folder)
    if not found or not (path / PARTITION).exists():
        partition.save(split, path / PARTITION)
    if not found or not (path / PROVENANCE).exists():
        packages = {name: version(name) for name in PACKAGES}
        about = {"format": FORMAT, "digest": recipe.digest, "packages": packages, "python": platform.python_version()}
        own = {name: describe_source(name) for name in plugins}
        about |= {"plugins": own} if own else {}
        write_atomically(path / PROVENANCE, json.dumps({**about, **digests, **find_more()}, indent=2).encode())
    if not found:
        write_atomically(path / CONFIG, config.dump(recipe).encode())  # last: a directory without it is started anew


def find_run(root: Path, recipe: Recipe, name: str = "") -> Path:
    """Find the directory of a recipe under `root`: the existing one, or the one that will be made.

    name: of a new directory, from `recipe.name`; by default the recipe's slug.

    A run is known by the digest at the end of its name. What comes before is for people, and may differ between two
    ways to ask for the same run.
    """
    for path in sorted(root.glob(f"*_{recipe.digest[:8]}")):
        if has_recipe(path):
            return path
    return root / (name or recipe.slug)


def _refuse_another(path: Path, recipe: Recipe, digests: Mapping[str, str], plugins: Sequence[str]) -> None:
    digest = config.load(path / CONFIG)[0].digest
    if digest != recipe.digest:
        raise ValueError(
            f"{path} holds a run of another recipe (digest {digest[:8]}, wanted {recipe.digest[:8]}): "
            "choose another --out, or remove it"
        )
    about = read_provenance(path) if (path / PROVENANCE).exists() else {}
    _refuse_other_plugins(path, plugins, about.get("plugins"))
    changed = [key for key, value in digests.items() if about.get(key, value) != value]
    if changed:
        raise ValueError(
            f"{path} was begun with other data ({', '.join(changed)} differs): give the data.root it was begun with, "
            "or choose another --out"
        )


def _refuse_other_plugins(path: Path, plugins: Sequence[str], stored: object) -> None:
    """Raise ValueError if a user's own module is not what the run was begun with.

    plugins: what of a user's own takes part, as 'module:name'.
    stored: what provenance.json says of them; runs of earlier versions say nothing.
    """
    for name in plugins:
        before = stored.get(name) if isinstance(stored, Mapping) else None
        change = explain_change(name, before, describe_source(name)) if isinstance(before, Mapping) else ""
        if change:
            raise ValueError(f"{path} was begun with another version of {change}: restore it, or choose another --out")

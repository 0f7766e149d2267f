"""Files to start from: a recipe with every setting explained, a method, a study, and a schema of recipes."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from keyword import iskeyword
from pathlib import Path

from landscape.errors import choose
from training.config import Recipe
from training.recipe_tables import Swa
from training.settings import About, Settings, describe, fields
from training.storage import toml
from training.storage.atomic_files import write_atomically
from training.storage.verified_files import Json

TEMPLATES = Path(__file__).parent / "templates"
SCHEMA = "recipe.schema.json"
HEAD = f"""#:schema ./{SCHEMA}
# A recipe: everything that determines a run. Every setting has its default here; change what you need, remove the rest.
# Train it: landscape train FILE. Names: landscape list algorithms (datasets, partitions, models).
"""
TAIL = """
# Several runs at once: every combination of these values.
# [sweep]
# "algorithm.name" = ["fedavg", "fedsam"]
# seed = [0, 1, 2]
"""
OPTIONAL = "swa"  # a table that changes a run by being there
STORED = "adopted"  # a table that only stored recipes have


def write_starting_recipe() -> str:
    """Write a recipe with every setting at its default, each with what it means and what it may be."""
    single = [about for about in describe(Recipe) if about.name != STORED and not _find_table(about.name)]
    lines = [HEAD, *(line for about in single for line in _explain(about))]
    for name in fields(Recipe):
        table = _find_table(name)
        if table is not None:
            mark = "# " if name == OPTIONAL else ""
            lines += [
                "",
                f"{mark}[{name}]",
                *(f"{mark}{line}" for about in describe(table) for line in _explain(about)),
            ]
    return "\n".join([*lines, TAIL])


def _find_table(name: str) -> type[Settings] | None:
    """The class of a table of recipes; None for a single setting."""
    if name == OPTIONAL:
        return Swa
    annotation = fields(Recipe)[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Settings) else None


def _explain(about: About) -> Iterator[str]:
    allowed = f" ({about.allowed})" if about.allowed else ""
    yield f"# {about.description}{allowed}"
    if about.default is None:
        yield f"# {about.name} ="
    else:
        yield f"{about.name} = {toml.show(list(about.default) if isinstance(about.default, tuple) else about.default)}"


def make_schema() -> Json:
    """Make a JSON schema of recipes, from which editors complete and check TOML files."""
    schema = Recipe.model_json_schema()
    schema["title"] = "fl-landscape recipe"
    schema["properties"].pop(STORED)
    schema["properties"]["sweep"] = {
        "description": "dotted settings with lists of values: every combination is a run",
        "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}],
    }
    return schema


def write_module(kind: str, module: str) -> str:
    """Write a Python module that works as it stands, with comments on what to change.

    kind: "method" or "study". module: the name by which it will be imported.
    """
    return (TEMPLATES / f"{kind}.py.txt").read_text(encoding="utf-8").replace("MODULE", module)


FILES: dict[str, tuple[str, Callable[[str], str]]] = {  # what can be started: the usual file, and its content by stem
    "recipe": ("recipe.toml", lambda _: write_starting_recipe()),
    "method": ("my_method.py", lambda stem: write_module("method", stem)),
    "study": ("my_study.py", lambda stem: write_module("study", stem)),
    "schema": (SCHEMA, lambda _: json.dumps(make_schema(), indent=2) + "\n"),
}


def write_new(kind: str, out: str | os.PathLike[str] | None = None) -> Path:
    """Write a file to start from; one that exists is left alone.

    kind: a key of FILES. out: the file; by default the usual name in the current folder. Returns its path.
    """
    name, write = FILES[choose("new", kind, FILES)]
    path = Path(name if out is None else out)
    if path.exists():
        raise ValueError(f"{path} exists already: choose another name")
    if name.endswith(".py"):
        _check_module(path, name)
    write_atomically(path, write(path.stem).encode())
    return path


def _check_module(path: Path, usual: str) -> None:
    """Raise ValueError for a file that Python could not import by its name."""
    if path.suffix != ".py" or not path.stem.isidentifier() or iskeyword(path.stem):
        raise ValueError(f"{path}: Python must be able to import it: letters, digits and _, such as {usual}")
    if importlib.util.find_spec(path.stem) is not None:
        raise ValueError(f"{path}: there is a module '{path.stem}' already; choose another name, such as {usual}")

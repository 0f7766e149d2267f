r"""Docstrings for autodoc: a line "name: what it is" becomes a field, and no sign of a formula is taken for markup.

progress: whether to print.      ->  :param progress: whether to print.
|w - w_k| * mu                   ->  \|w - w\_k\| \* mu
"""

from __future__ import annotations

import inspect
import re

from sphinx.application import Sphinx

FIELD = re.compile(r"^(\w+(?:, \w+)*)(?::| ) +(?=\S)")


def process(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite the lines of one docstring in place, as Sphinx asks for it."""
    known = list_names(thing)
    found: list[str] = []
    example = False  # whether lines belong to an example
    names, text = [], ""  # of the field that the last lines belong to
    for line in [*lines, ""]:
        example = line.startswith(">>>") or (example and bool(line.strip()))
        matched = None if example else FIELD.match(line)
        begins = matched is not None and known.issuperset(matched[1].split(", "))
        if names and line.strip() and not example and not begins:
            text += f" {line.strip()}"
            continue
        if names:
            found += [*([""] if found and not found[-1].startswith(":") else []), *write_fields(names, text, known)]
            names = []
        if matched is not None and begins:
            names, text = matched[1].split(", "), line[matched.end() :]
        else:
            found.append(line if example else escape(line))
    lines[:] = found


def write_fields(names: list[str], text: str, known: set[str]) -> list[str]:
    """Write the fields of arguments that share a text, and of those that are explained behind them in the same line.

    names: of the arguments. text: "folder of the data. download: whether to fetch it". known: names of all arguments.
    """
    first, *rest = re.split(r"(?<=[.;?]) (\w+): ", text)
    found = [f":param {name}: {escape(first)}" for name in names]
    for name, words in zip(rest[::2], rest[1::2], strict=True):
        if name in known:
            found.append(f":param {name}: {escape(words)}")
        else:
            found[-1] += f" {name}: {escape(words)}"
    return found


def list_names(thing: object) -> set[str]:
    """List the names of the arguments of a function, or of those that make an object of a class."""
    try:
        return set(inspect.signature(thing).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set()


def escape(line: str) -> str:
    """Escape what reStructuredText takes for markup, and write `code` as code."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(f"`{part}`" if part.startswith("`") else re.sub(r"([*|\\_`])", r"\\\1", part) for part in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

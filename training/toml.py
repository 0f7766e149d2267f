"""TOML beside what tomllib does: writing values, reading one value, and dotted keys in nested tables."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any


def written(value: Any) -> str:
    """A value as TOML writes it, for files and for messages."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key(name)} = {written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(written(part) for part in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for surrogate pairs (so: characters as they are) and the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def key(name: str) -> str:
    """A key, in quotes if it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else written(name)


def document(content: Mapping[str, Any]) -> str:
    """A file: values first, then one table for each dictionary."""
    lines = [f"{key(name)} = {written(value)}" for name, value in content.items() if not isinstance(value, dict)]
    for name, table in content.items():
        if isinstance(table, dict):
            lines += ["", f"[{key(name)}]", *(f"{key(leaf)} = {written(value)}" for leaf, value in table.items())]
    return "\n".join(lines) + "\n"


def parse(text: str) -> Any:
    """A value if the text is one, else the text itself: 0.1, true, [1, 2], fedsam."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def plain(name: str, value: Any) -> Any:
    """The value of a setting, if every stage can store it: tuples become lists, dates are refused."""
    if isinstance(value, (list, tuple)):
        return [plain(name, part) for part in value]
    if isinstance(value, Mapping):
        return {str(leaf): plain(name, part) for leaf, part in value.items()}
    if isinstance(value, (str, bool, int, float)):
        return value
    raise ValueError(f"{name} must be text, a number, true, false, a list or a table, got {value}")


def put(content: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted key in nested tables."""
    *folders, leaf = path.split(".")
    for folder in folders:
        content = content.setdefault(folder, {})
        if not isinstance(content, dict):
            raise ValueError(f"{path}: '{folder}' is a value, not a table")
    content[leaf] = value


def dotted(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values of nested tables by their dotted keys."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

"""TOML beside what tomllib does: writing values, reading one value, dotted keys in nested tables. Imports no torch."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DEEP = 20  # tables and lists inside each other
# more parts of a dotted key than that: tomllib takes memory in the square of their number
ENDLESS_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){200}""", re.ASCII)


def written(value: Any) -> str:
    """A value as TOML writes it, for files and for messages."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key(name)} = {written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(written(part) for part in value) + "]"
    if isinstance(value, str):
        if not is_text(value):
            raise ValueError(f"{value.encode(errors='backslashreplace').decode()}: not valid UTF-8; rename it")
        # JSON's escapes are TOML's, but for surrogate pairs (so: characters as they are) and the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def is_text(value: str) -> bool:
    """Whether a text can be written as UTF-8; a name from the command line that is not UTF-8 cannot."""
    return value.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in value)


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


def read(path: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


def loads(text: str) -> dict[str, Any]:
    """What a TOML document holds; ValueError if it is none, or if it nests deeper than any recipe does.

    Whole numbers have 64 bits, as TOML says; tomllib alone would take more.
    """
    if ENDLESS_KEY.search(text):
        raise ValueError(f"nested more than {DEEP} deep")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEEP} deep") from None
    level: list[Any] = [content]
    for _ in range(DEEP):
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
        if any(isinstance(part, int) and not -(2**63) <= part < 2**63 for part in level):
            raise ValueError("a whole number of more than 64 bits, which TOML does not have")
        level = [part for part in level if isinstance(part, (dict, list))]
    if level:
        raise ValueError(f"nested more than {DEEP} deep")
    return content


def parse(text: str) -> Any:
    """A value if the text is one, else the text itself: 0.1, true, [1, 2], fedsam."""
    try:
        found = loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise ValueError(f"--set: '{text[:80]}': {error}") from None
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

"""Read and write TOML: limits on input, single values, dotted keys. Imports no torch."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from training.storage.verified_files import Json

DEEPEST = 20  # tables and lists inside each other
# a dotted key of more parts than this is refused: tomllib's memory grows with the square of their number
ENDLESS_KEY = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){200}""", re.ASCII)


def read(path: Path) -> Json:
    """Read a TOML file; ValueError with its name if it cannot be read or is not valid."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


def parse(text: str) -> Json:
    """Parse a TOML document; ValueError if it is not valid, nested too deep, or has integers beyond 64 bits."""
    if ENDLESS_KEY.search(text):
        raise ValueError(f"nested more than {DEEPEST} deep")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} deep") from None
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if any(isinstance(inner, int) and not -(2**63) <= inner < 2**63 for inner in level):
            raise ValueError("a whole number of more than 64 bits, which TOML does not have")
        level = [inner for inner in level if isinstance(inner, (dict, list))]
    if level:
        raise ValueError(f"nested more than {DEEPEST} deep")
    return content


def parse_value(text: str) -> object:
    """Parse one value as --set takes it: 0.1, true, [1, 2]; text that is not a TOML value is returned unchanged."""
    try:
        found = parse(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise ValueError(f"--set: '{text[:80]}': {error}") from None
    return found["value"] if len(found) == 1 else text


def write(content: Mapping[str, object]) -> str:
    """Write nested tables as a TOML document; ValueError if a text in it is not valid UTF-8."""
    text = tomli_w.dumps(content)
    if not is_utf8(text):
        texts = (value for _, value in flatten(content) if isinstance(value, str))
        bad = next((value for value in texts if not is_utf8(value)), text)
        raise ValueError(f"{bad.encode(errors='backslashreplace').decode()}: not valid UTF-8; rename it")
    return text


def show(value: object) -> str:
    """Write one value on one line in TOML syntax, for messages.

    >>> show({"alpha": 0.1, "names": ["a"], "on": True})
    '{alpha = 0.1, names = ["a"], on = true}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_show_key(name)} = {show(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, (str, bool)):
        # JSON escapes as TOML does, except for surrogate pairs (hence ensure_ascii=False) and the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _show_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else show(name)


def is_utf8(value: str) -> bool:
    """Tell whether a text can be encoded as UTF-8; an argument of the command line may hold other bytes."""
    return value.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def require_plain(name: str, value: object) -> object:
    """Return the value of a setting with tuples as lists; ValueError if TOML and JSON cannot both store it."""
    if isinstance(value, (list, tuple)):
        return [require_plain(name, inner) for inner in value]
    if isinstance(value, Mapping):
        return {str(leaf): require_plain(name, inner) for leaf, inner in value.items()}
    if isinstance(value, (str, bool, int, float)):
        return value
    raise ValueError(f"{name} must be text, a number, true, false, a list or a table, got {value}")


def set_key(content: Json, path: str, value: object) -> None:
    """Set a dotted key in nested tables, creating the tables on the way."""
    *folders, leaf = path.split(".")
    for folder in folders:
        content = content.setdefault(folder, {})
        if not isinstance(content, dict):
            raise ValueError(f"{path}: '{folder}' is a value, not a table")
    content[leaf] = value


def flatten(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by their dotted keys."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

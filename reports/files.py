"""Names and errors of the files that a report writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 80  # letters of a name


@contextmanager
def name_path_in_errors(path: Path) -> Iterator[None]:
    """Name the file in errors of writing, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, f"{error.strerror}, while writing", str(path)) from error


def make_slug(text: str) -> str:
    """Make a name for a file or a folder: only letters, digits, underscores, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:LONGEST] or "x"


def make_slugs(texts: Iterable[str]) -> list[str]:
    """Make a slug for every text in turn, no two alike, also where capitals make no difference."""
    found: list[str] = []
    for text in texts:
        base = name = make_slug(text)
        number = 1
        while name.lower() in {one.lower() for one in found}:
            number += 1
            name = f"{base}-{number}"
        found.append(name)
    return found

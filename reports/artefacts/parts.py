"""What is kept of an artefact that was made: the page of its paper is put together from it. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from training.storage.atomic_files import write_atomically

FOLDER = "parts"


@dataclass(frozen=True)
class Made:
    """An artefact that was made.

    files: the first one is for people to open. caption: what it shows and what was scaled down. html: for the page.
    missing: what is not final: unfinished or absent runs.
    """

    name: str
    title: str
    files: tuple[str, ...]
    caption: str
    html: str
    missing: str = ""


def write_part(folder: Path, made: Made) -> None:
    """Keep what the page shows of an artefact; folder: of the paper."""
    path = folder / FOLDER / f"{made.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(asdict(made)).encode())


def read_part(folder: Path, name: str) -> Made | None:
    """Read what the page shows of an artefact; None if it has not been made, or not by this version.

    folder: of the paper. name: of the artefact.
    """
    try:
        content = json.loads((folder / FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        return Made(**{**content, "files": tuple(content["files"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None

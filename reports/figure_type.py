"""What a figure is: its topic, a line on how to read it, and a function of stored numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from landscape.plotting.style import STYLE
from reports.files import name_path_in_errors
from reports.inputs.runs import Collection, Run
from reports.rows import Row, to_csv
from training.storage.verified_files import Json

TOPICS = {
    "good": "How good is it?",
    "flat": "How flat is it?",
    "agree": "Do clients agree?",
    "connected": "Is it connected?",
}
FORMATS = ("png", "pdf", "svg")
USUAL = ("png", "svg")  # PDF on request: cutting its fonts to size would take a third of the time of a report


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture, the numbers in it, and a caption with what they were measured on."""

    canvas: Canvas
    rows: list[Row]  # as CSV beside the picture
    caption: str
    suffix: str = ""  # tells several pictures of one figure apart
    interactive: Json | None = None  # a plotly figure as JSON, for the page


@dataclass(frozen=True)
class Figure:
    """A figure of the catalogue: what it shows, how to read it, what it needs, and how it is drawn."""

    name: str
    topic: str  # key of TOPICS: what it helps to answer
    title: str
    reading: str  # how to read it, in one sentence
    needs: tuple[str, ...]  # studies; none for metrics alone
    draw: Callable[[Sequence[Run], Collection], list[Drawing]] = field(compare=False)
    wants: str = ""  # what is missing when its studies are there and it cannot be drawn: an option, or other runs
    across: bool = False  # compares runs of all partitions of a data set, instead of being drawn for each of them


def save(drawn: Drawing, folder: Path, stem: str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Save a drawing in every format, and its numbers as CSV; returns the paths, the CSV last.

    stem: the name of the files, without an ending.
    """
    with name_path_in_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in formats:
        path = folder / f"{stem}.{kind}"
        with rc_context(STYLE), name_path_in_errors(path):
            # no date inside: the same numbers give the same bytes
            metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
            options: Any = {"pil_kwargs": {"compress_level": 1}} if kind == "png" else {}  # faster, and hardly larger
            drawn.canvas.savefig(path, format=kind, metadata=metadata, **options)
        paths.append(path)
    table = folder / f"{stem}.csv"
    with name_path_in_errors(table):
        table.write_text(to_csv(drawn.rows), encoding="utf-8", newline="")
    return [*paths, table]

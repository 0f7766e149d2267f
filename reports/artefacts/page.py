"""One page per paper: its artefacts in the paper's order, each with its caption, numbers and files."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.artefact import Facts, NotReproduced, Paper
from reports.artefacts.parts import Made, read_part
from reports.artefacts.scales import Scale
from reports.page.page import HERE as STYLES
from training.storage.atomic_files import write_atomically

HERE = Path(__file__).parent
PAGE = "index.html"
PIXELS = 96 / 72  # of a point


def write_paper_page(folder: Path, paper: Paper, scale: Scale, before: str = "") -> Path:
    """Write the page of a paper from the artefacts that were made so far.

    folder: of the paper's artefacts. scale: at which they were made. before: HTML to show before them.
    """
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    made = {one.name: part for one in paper.artefacts if (part := read_part(folder, one.name)) is not None}
    text = environment.get_template("paper.html").render(
        version=version("fl-landscape"),
        paper=paper,
        scale=scale,
        css=Markup((STYLES / "page.css").read_text(encoding="utf-8")),
        artefacts=[
            {
                "name": one.name,
                "label": describe_name(one.name),
                "title": one.title,
                "made": made.get(one.name),
                "html": Markup(made[one.name].html) if one.name in made else "",
                "width": _measure(made[one.name].html) if one.name in made else 0,
                "facts": isinstance(one.shape, Facts),
                "files": _list_files(folder, made.get(one.name)),
                "why": one.shape.why if isinstance(one.shape, NotReproduced) else "",
                "command": f"landscape reproduce {paper.key}/{one.name}",
            }
            for one in paper.artefacts
        ],
        done=len(made),
        open=sum(bool(one.missing) for one in made.values()),
        before=Markup(before),
        heading=paper.title if before else f"{paper.name}: its tables and figures, made again",
    )
    path = folder / PAGE
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return path


def describe_name(name: str) -> str:
    """Write the name of an artefact as papers do; empty where it is not a numbered table or figure.

    >>> describe_name("table3"), describe_name("figure12"), describe_name("methods"), describe_name("cifar10")
    ('Table 3', 'Figure 12', '', '')
    """
    word = name.rstrip("0123456789")
    return f"{word.capitalize()} {name.removeprefix(word)}" if word in ("table", "figure") else ""


def _measure(html: str) -> int:
    """Return the natural width of a picture in pixels; 0 for a table."""
    found = re.match(r"<svg[^>]* viewBox=\"0 0 ([0-9.]+) ", html)
    return 0 if found is None else round(float(found[1]) * PIXELS)


def _list_files(folder: Path, made: Made | None) -> dict[str, str]:
    """File endings -> addresses from the page."""
    if made is None:
        return {}
    return {Path(file).suffix[1:]: os.path.relpath(file, folder) for file in made.files}

"""One self-contained page: what was compared, every figure by topic, tables, what is missing, and provenance."""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.drawing import Outcome, Picture, Section
from reports.figure_type import TOPICS
from reports.files import make_slug
from reports.inputs.progress import CROSS, DAGGER, Progress
from reports.inputs.reading import attempt
from reports.inputs.runs import Collection, Run, name_score
from reports.page import provenance
from reports.palette import assign_looks
from reports.quantities.measures import find_final_accuracy
from reports.tables import numbers, typeset
from reports.tables.table import BOLD, Table, rank_cells
from training.storage.atomic_files import write_atomically

HERE = Path(__file__).parent  # the template, its style and its script
HEAVY = 20_000  # characters of CSV; more of them are packed
PLAIN = " !'()*,/:;=?@[]$+"  # characters that an address in an attribute can do without escaping
SHAPES = {  # markers of figures as small drawings, within -5 .. 5
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    "s": "M-3.7 -3.7H3.7V3.7H-3.7Z",
    "^": "M0 -4.3L4.4 3.6H-4.4Z",
    "v": "M0 4.3L4.4 -3.6H-4.4Z",
    "D": "M0 -4.8L4.8 0L0 4.8L-4.8 0Z",
    "P": "M-1.6 -4.6H1.6V-1.6H4.6V1.6H1.6V4.6H-1.6V1.6H-4.6V-1.6H-1.6Z",
    "X": "M-4.4 -2.2L-2.2 -4.4L0 -2.2L2.2 -4.4L4.4 -2.2L2.2 0L4.4 2.2L2.2 4.4L0 2.2L-2.2 4.4L-4.4 2.2L-2.2 0Z",
    "*": "M0 -5L1.3 -1.6H5L2 .8L3.1 4.4L0 2.2L-3.1 4.4L-2 .8L-5 -1.6H-1.3Z",
}


def write_page(
    path: Path,
    everything: Collection,
    outcomes: Sequence[Outcome],
    *,
    tables: Sequence[Table] = (),
    missing: Sequence[str] = (),
    problems: Sequence[str] = (),
    bold: str = "clear",
) -> Path:
    """Write the page aside, then rename it, so that a reader sees the old page or the new one. See `render`."""
    text = render(everything, outcomes, tables=tables, missing=missing, problems=problems, bold=bold)
    write_atomically(path, text.encode())
    return path


def render(
    everything: Collection,
    outcomes: Sequence[Outcome],
    *,
    tables: Sequence[Table] = (),
    missing: Sequence[str] = (),
    problems: Sequence[str] = (),
    bold: str = "clear",
) -> str:
    """Render the page as HTML; it depends on the stored results alone.

    outcomes: the figures.
    tables: in the order of the page.
    missing: a line for each thing that was not drawn.
    problems: a line for each file that could not be read, or figure that failed.
    bold: what is set bold in the key numbers, a key of reports.tables.table.BOLD.
    """
    runs, problems = everything.runs, list(problems)
    keys = _list_key_numbers(everything, bold, problems)
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    chosen = assign_looks(run.algorithm for run in runs)
    turnable = any(picture.interactive for outcome in outcomes for picture in outcome.pictures)
    return environment.get_template("index.html").render(
        version=version("fl-landscape"),
        title=_make_title(runs),
        sentence=_make_sentence(runs),
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        plotly=_pack_plotly() if turnable else "",
        looks=chosen,
        shapes=SHAPES,
        methods=[_describe_method(runs, key) for key in chosen],
        seeds=len({run.seed for run in runs}),
        keys=keys,
        bold=BOLD[bold],
        runs=[_describe_run(run) for run in runs],
        score=name_score(runs),
        topics=_list_topics(everything, outcomes, tables),
        missing=[_format_line(line) for line in missing],
        problems=[_format_line(line) for line in problems],
        provenance=[provenance.describe_run(run) for run in runs],
        together=provenance.describe_comparisons(everything),
    )


def _format_line(text: str) -> Markup:
    """What stands between backquotes is code."""
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 and place < len(parts) - 1 else part
        for place, part in enumerate(parts)
    )


def _pack_plotly() -> str:
    from plotly.offline import get_plotlyjs

    return _pack(get_plotlyjs())


def _pack(text: str) -> str:
    """Compressed, as letters; the page's script unpacks it when it is needed."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _quote_names(names: Iterable[str]) -> str:
    """Runs in an attribute: names may have blanks in them."""
    return " ".join(map(quote, names))


def _describe_method(runs: Sequence[Run], key: str) -> dict[str, str]:
    """A method as the page's switch shows it: its key for colours, its printed name, and its runs."""
    own = [run for run in runs if run.algorithm == key]
    return {"key": key, "name": own[0].method, "runs": _quote_names(run.name for run in own)}


def _make_title(runs: Sequence[Run]) -> str:
    data = _join_names(run.data_name for run in runs)
    return f"How flat is the minimum? {pluralise(len(runs), 'run')} on {data}"


def _make_sentence(runs: Sequence[Run]) -> str:
    """What was compared."""
    methods = [_describe_method(runs, key)["name"] for key in assign_looks(run.algorithm for run in runs)]
    trained = [run for run in runs if run.settings]
    if not trained:
        return f"{pluralise(len(runs), 'model')} not trained here: {_join_names(methods)}."
    seeds = sorted({run.seed for run in trained})
    rounds = sorted({len(run.metrics) for run in trained})
    said = (
        f"{pluralise(len(runs), 'run')} of {_join_names(methods)} on {_join_names(run.data_name for run in runs)}, "
        f"dealt out to clients by {_join_names(run.heterogeneity for run in runs)}; "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {_join_names(map(str, seeds))}; "
        f"{rounds[0]}{f' to {rounds[-1]}' if len(rounds) > 1 else ''} rounds of training."
    )
    numbers = {state: sum(run.progress.state == state for run in runs) for state in ("diverged", "unfinished")}
    open_ = [f"{number} {state}" for state, number in numbers.items() if number]
    return f"{said} Not final: {', '.join(open_)}." if open_ else said


def pluralise(number: int, name: str) -> str:
    """Write a number of things, such as "1 run" or "3 runs"."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def _join_names(names: Iterable[str]) -> str:
    known = list(dict.fromkeys(name for name in names if name))
    return " and ".join(part for part in (", ".join(known[:-1]), known[-1]) if part) if known else "data not named"


def _list_key_numbers(everything: Collection, bold: str, problems: list[str]) -> list[dict[str, object]]:
    """Key numbers, a table per setting; settings in which nothing was measured have none."""
    found: list[dict[str, object]] = []
    for data, heterogeneity in everything.settings:
        section = Section(data, heterogeneity)
        made = partial(numbers.make_key_numbers, bold=bold)
        table = attempt(problems, Path("key numbers"), made, section.title, section.select(everything), everything)
        if table is None:
            continue
        best = rank_cells(table)
        rows = [
            {
                "label": line.label,
                "algorithm": line.group,
                "names": _quote_names(line.runs),
                "cells": [
                    {"text": numbers.format_short(cell, column), "best": best.get((i, j)) == 1}
                    for j, (cell, column) in enumerate(zip(line.cells, table.columns, strict=True))
                ],
            }
            for i, line in enumerate(table.lines)
        ]
        names = _quote_names(run.name for run in section.select(everything))
        about = {"title": section.title, "runs": names, "footnotes": table.footnotes}
        found.append({**about, "columns": table.columns, "rows": rows})
    return found


def _describe_run(run: Run) -> dict[str, object]:
    accuracy = find_final_accuracy(run)
    return {
        "key": quote(run.name),
        "name": run.name,
        "algorithm": run.algorithm,
        "method": run.method,
        "data": run.data_name,
        "partition": run.heterogeneity,
        "seed": run.seed,
        "rounds": len(run.metrics) if run.settings else "—",
        "accuracy": _format_accuracy(accuracy, run.progress),
        "progress": run.progress.description or ("not trained here" if run.progress.state == "given" else "finished"),
    }


def _format_accuracy(accuracy: float, progress: Progress) -> str:
    """A number as tables show it: nothing half-done looks final."""
    if progress.state == "diverged":
        return CROSS
    return f"{accuracy:.1f}{'' if progress.final else DAGGER}" if math.isfinite(accuracy) else "—"


def _list_topics(
    everything: Collection, outcomes: Sequence[Outcome], tables: Sequence[Table]
) -> list[dict[str, object]]:
    """Tables and figures by topic; figures by setting, in the order of the catalogue."""
    found: list[dict[str, object]] = []
    for key, title in TOPICS.items():
        shown = [_describe_table(table) for table in tables if table.topic == key]
        parts = []
        for section in dict.fromkeys(outcome.section for outcome in outcomes):
            figures = [
                _describe_figure(outcome)
                for outcome in outcomes
                if outcome.section == section and outcome.figure.topic == key and outcome.pictures
            ]
            if figures:
                part = {"id": f"{key}-{section.slug}", "title": section.title, "figures": figures}
                parts.append({**part, "runs": _quote_names(run.name for run in section.select(everything))})
        if parts or shown:
            found.append({"id": key, "title": title, "parts": parts, "tables": shown})
    return found


def _describe_table(table: Table) -> dict[str, object]:
    return {
        "id": f"table-{make_slug(table.name)}",
        "title": table.title,
        "reading": table.reading,
        "html": Markup(typeset.to_html(table)),
        "files": {suffix: f"tables/{table.name}.{suffix}" for suffix in typeset.SUFFIXES.values()},
    }


def _describe_figure(outcome: Outcome) -> dict[str, object]:
    figure = outcome.figure
    return {
        "id": f"{outcome.section.slug}-{make_slug(figure.name)}",
        "title": figure.title,
        "reading": figure.reading,
        "pictures": [_describe_picture(picture) for picture in outcome.pictures],
    }


def _describe_picture(picture: Picture) -> dict[str, object]:
    heavy = len(picture.table) > HEAVY
    beside, within = f"{picture.folder}/{picture.stem}.csv", quote(picture.table, safe=PLAIN)
    return {
        "runs": _quote_names(picture.runs),
        "stem": picture.stem,
        "caption": picture.caption,
        "html": Markup(picture.html),
        "raster": picture.html.startswith("<img"),
        "width": picture.width,
        "csv": beside if heavy else f"data:text/csv;charset=utf-8,{within}",
        "packed": _pack(picture.table) if heavy else "",
        "files": picture.files,
        "interactive": Markup(picture.interactive.replace("<", "\\u003c")) if picture.interactive else "",
    }

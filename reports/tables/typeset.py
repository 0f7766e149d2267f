"""How tables are written: LaTeX for a paper, Markdown, HTML for the page, CSV with every digit."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from analysis.summary import harmless
from reports.files import name_path_in_errors
from reports.progress import CROSS, DAGGER
from reports.tables.table import Cell, Column, Table, ranks, text_of

SUFFIXES = {"latex": "tex", "markdown": "md", "csv": "csv"}  # of files
TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "±": r"$\pm$",
        "\N{MULTIPLICATION SIGN}": r"$\times$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
    },
    **{"λ": r"$\lambda$", "₁": "$_1$", "₅": "$_5$", "—": "---", "†": r"$\dagger$"},
}


def _written(table: Table, plain: Callable[[str], str], marks: Sequence[str]) -> list[list[str]]:
    """All cells as text; marks: how the best and the second best are set, with {} for the text."""
    best = ranks(table)
    rows = []
    for i, line in enumerate(table.lines):
        texts = [plain(text_of(cell, table.columns[j])) for j, cell in enumerate(line.cells)]
        rows.append(
            [marks[best[i, j] - 1].replace("{}", text) if (i, j) in best else text for j, text in enumerate(texts)]
        )
    return rows


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headings above the columns, and how many columns each covers."""
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)]


def tex(text: str) -> str:
    """Any text for LaTeX."""
    return "".join(TEX.get(sign, sign) for sign in text).replace("$$", "")  # neighbours in one formula


def latex(table: Table) -> str:
    """With booktabs; the document needs \\usepackage{booktabs}."""
    rows = _written(table, tex, (r"\textbf{{}}", r"\underline{{}}"))
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{tex(_caption(table))}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    spans, first = _spans(table.columns), 2
    if any(group for group, _ in spans):
        heads, rules = [], []
        for group, count in spans:
            heads.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(group)}}}")
            rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
            first += count
        lines += [f" & {' & '.join(heads)} \\\\", " ".join(rules)]
    lines += [" & ".join([tex(table.stub), *(tex(column.heading) for column in table.columns)]) + r" \\", r"\midrule"]
    group = ""
    for place, (line, texts) in enumerate(zip(table.lines, rows, strict=True)):
        if line.group != group:
            lines += [r"\midrule"] if place else []
            lines.append(rf"\multicolumn{{{1 + len(texts)}}}{{l}}{{\emph{{{tex(line.group)}}}}} \\")
            group = line.group
        lines.append(" & ".join([tex(line.label), *texts]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {tex(one)}" for one in table.footnotes]
    return "\n".join([*lines, r"\end{table}", ""])


def _caption(table: Table) -> str:
    return f"{table.title}. {table.note}".strip()


def _mark_down(text: str) -> str:
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>#|~" else sign for sign in text.replace("\n", " "))


def markdown(table: Table) -> str:
    """A table with pipes: headings above columns become part of their names."""
    rows = _written(table, _mark_down, ("**{}**", "<u>{}</u>"))
    heads = [f"{column.group}: {column.heading}" if column.group else column.heading for column in table.columns]
    labels = [f"{line.group}: {line.label}" if line.group else line.label for line in table.lines]
    cells = [[_mark_down(text) for text in (table.stub, *heads)], [":---", *("---:" for _ in heads)]]
    cells += [[_mark_down(label), *texts] for label, texts in zip(labels, rows, strict=True)]
    below = [line for one in table.footnotes for line in ("", _mark_down(one))]
    return "\n".join([_mark_down(_caption(table)), "", *(f"| {' | '.join(one)} |" for one in cells), *below, ""])


def html(table: Table) -> str:
    """For the page, which gives it its looks: rows and columns say which runs they show."""
    rows = _written(table, escape, ("<b>{}</b>", "<u>{}</u>"))
    text = ["<table>", f"<caption>{escape(table.note)}</caption>" if table.note else "", "<thead>"]
    spans = _spans(table.columns)
    if any(group for group, _ in spans):
        heads = "".join(f'<th colspan="{count}" scope="colgroup">{escape(group)}</th>' for group, count in spans)
        text.append(f"<tr><td></td>{heads}</tr>")
    heads = "".join(f'<th scope="col"{_runs(column.runs)}>{escape(column.heading)}</th>' for column in table.columns)
    text += [f'<tr><th scope="col">{escape(table.stub)}</th>{heads}</tr>', "</thead>", "<tbody>"]
    group = ""
    for line, cells in zip(table.lines, rows, strict=True):
        if line.group != group:
            runs = [run for one in table.lines if one.group == line.group for run in one.runs]
            wide = f'<th colspan="{1 + len(cells)}" scope="rowgroup">{escape(line.group)}</th>'
            text.append(f"<tr{_runs(tuple(dict.fromkeys(runs)))}>{wide}</tr>")
            group = line.group
        columns = zip(table.columns, cells, strict=True)
        row = "".join(f'<td class="number"{_runs(column.runs)}>{cell}</td>' for column, cell in columns)
        text.append(f'<tr{_runs(line.runs)}><th scope="row">{escape(line.label)}</th>{row}</tr>')
    text.append("</tbody>")
    if table.footnotes:
        across = 1 + len(table.columns)
        below = "".join(f'<tr><td colspan="{across}">{escape(one)}</td></tr>' for one in table.footnotes)
        text.append(f"<tfoot>{below}</tfoot>")
    return "\n".join(one for one in [*text, "</table>"] if one)


def _runs(names: Sequence[str]) -> str:
    """The page hides what shows only runs that are switched off."""
    return f' data-runs="{escape(" ".join(map(quote, names)))}"' if names else ""


def comma_separated(table: Table) -> str:
    """Every number to the last digit: mean, spread, seeds, standard error and size of a subset, and what to know."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", " spread", " seeds", " standard error", " examples", " note")
    heads = [f"{column.group}: {column.title}" if column.group else column.title for column in table.columns]
    writer.writerow([harmless(one) for one in ("group", table.stub, *(f"{h}{part}" for h in heads for part in parts))])
    for line in table.lines:
        cells: list[str] = []
        for cell in line.cells:
            cells += [_digits(cell.mean), _digits(cell.spread), str(cell.seeds), _digits(cell.error)]
            cells += ["" if cell.examples is None else str(cell.examples), harmless(_said(cell))]
        writer.writerow([harmless(line.group), harmless(line.label), *cells])
    return text.getvalue()


def _said(cell: Cell) -> str:
    """Marks in words: a CSV file has no footnotes."""
    known = {CROSS: "diverged", DAGGER: "unfinished"}
    if not math.isfinite(cell.mean):
        return known.get(cell.missing, cell.missing)
    return "; ".join(one for one in (known.get(cell.mark, ""), cell.note) if one)


def _digits(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""


RENDERERS: dict[str, Callable[[Table], str]] = {
    "latex": latex,
    "markdown": markdown,
    "csv": comma_separated,
    "html": html,
}


def render(table: Table, kind: str) -> str:
    """kind: latex, markdown, csv or html."""
    if kind not in RENDERERS:
        raise ValueError(f"kind must be one of {', '.join(RENDERERS)}; got {kind!r}")
    return RENDERERS[kind](table)


def save(table: Table, folder: Path) -> dict[str, Path]:
    """Write a table as LaTeX, Markdown and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{table.name}.{suffix}" for kind, suffix in SUFFIXES.items()}
    for kind, path in paths.items():
        with name_path_in_errors(path):
            path.write_text(render(table, kind), encoding="utf-8")
    return paths

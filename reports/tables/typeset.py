"""How tables are written: LaTeX for a paper, Markdown, HTML for the page, CSV with every digit."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from reports.files import make_slug, name_path_in_errors
from reports.inputs.progress import CROSS, DAGGER
from reports.inputs.summary import escape_formula
from reports.tables.cells import NEVER
from reports.tables.table import Cell, Column, PrintedCell, Table, format_cell, format_printed, rank_cells

PARTS = ("", " spread", " seeds", " standard error", " examples", " note")  # of a cell, in CSV
BESIDE = (" printed", " printed spread", " difference in standard errors")
SUFFIXES = {"latex": "tex", "markdown": "md", "csv": "csv"}  # of files
NO_BREAK = "\N{NO-BREAK SPACE}"
HELD = re.compile(r" ± |\(n = [^)]*\)")  # parts of a cell that are not broken over lines
GREEK = ("alpha", "beta", "gamma", "delta", "varepsilon", "rho", "lambda", "eta", "mu")
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
    **{sign: rf"$\{name}$" for sign, name in zip("αβγδερλημ", GREEK, strict=True)},
    **{sign: f"$_{number}$" for number, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{"—": "---", "\N{EN DASH}": "--", "†": r"$\dagger$", "√": r"$\surd$"},
    **{"✓": r"$\surd$", "✗": r"$\times$"},  # \checkmark needs amssymb
}


def _format_cells(table: Table, plain: Callable[[str], str], marks: Sequence[str]) -> list[list[str]]:
    """Format all cells as text.

    plain: escapes a text.
    marks: how the best and the second best are set, with {} for the text.
    """
    best = rank_cells(table)
    rows = []
    for i, line in enumerate(table.lines):
        texts = [plain(format_cell(cell, table.columns[j])) for j, cell in enumerate(line.cells)]
        texts = [marks[best[i, j] - 1].replace("{}", text) if (i, j) in best else text for j, text in enumerate(texts)]
        beside = [plain(format_printed(cell, table.columns[j])) for j, cell in enumerate(line.cells)]
        rows.append([f"{text} {other}".strip() for text, other in zip(texts, beside, strict=True)])
    return rows


def _find_spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headings above the columns, and how many columns each covers."""
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)]


def escape_tex(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(TEX.get(sign, sign) for sign in text).replace("$$", "")  # neighbours in one formula


def to_latex(table: Table) -> str:
    """Typeset a table for LaTeX; the document needs \\usepackage{booktabs}."""
    rows = _format_cells(table, escape_tex, (r"\textbf{{}}", r"\underline{{}}"))
    caption = rf"\caption{{{escape_tex(_make_caption(table))}}}"
    lines = [r"\begin{table}", r"\centering", caption, rf"\label{{tab:{make_slug(table.name)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    spans, first = _find_spans(table.columns), 2
    if any(group for group, _ in spans):
        heads, rules = [], []
        for group, count in spans:
            heads.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_tex(group)}}}")
            rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
            first += count
        lines += [f" & {' & '.join(heads)} \\\\", " ".join(rules)]
    lines += [
        " & ".join([escape_tex(table.stub), *(escape_tex(column.heading) for column in table.columns)]) + r" \\",
        r"\midrule",
    ]
    group = ""
    for place, (line, texts) in enumerate(zip(table.lines, rows, strict=True)):
        if line.group != group:
            lines += [r"\midrule"] if place else []
            lines.append(rf"\multicolumn{{{1 + len(texts)}}}{{l}}{{\emph{{{escape_tex(line.group)}}}}} \\")
            group = line.group
        lines.append(" & ".join([escape_tex(line.label), *texts]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {escape_tex(one)}" for one in table.footnotes]
    return "\n".join([*lines, r"\end{table}", ""])


def _make_caption(table: Table) -> str:
    return f"{table.title}. {table.note}".strip()


def _escape_markdown(text: str) -> str:
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>#|~" else sign for sign in text.replace("\n", " "))


def to_markdown(table: Table) -> str:
    """Typeset a table for Markdown; headings above columns become part of their names."""
    rows = _format_cells(table, _escape_markdown, ("**{}**", "<u>{}</u>"))
    heads = [f"{column.group}: {column.heading}" if column.group else column.heading for column in table.columns]
    labels = [f"{line.group}: {line.label}" if line.group else line.label for line in table.lines]
    cells = [[_escape_markdown(text) for text in (table.stub, *heads)], [":---", *("---:" for _ in heads)]]
    cells += [[_escape_markdown(label), *texts] for label, texts in zip(labels, rows, strict=True)]
    below = [line for one in table.footnotes for line in ("", _escape_markdown(one))]
    return "\n".join(
        [_escape_markdown(_make_caption(table)), "", *(f"| {' | '.join(one)} |" for one in cells), *below, ""]
    )


def to_html(table: Table) -> str:
    """Typeset a table for the page, which styles it; rows and columns name the runs they show.

    The table scrolls where a page is too narrow for it; its notes stand below, and do not scroll with it.
    """
    rows = _format_cells(table, _escape_html, ("<b>{}</b>", "<u>{}</u>"))
    text = ['<div class="scroll">', f'<table aria-label="{escape(table.title)}">', "<thead>"]
    spans = _find_spans(table.columns)
    if any(group for group, _ in spans):
        heads = "".join(f'<th colspan="{count}" scope="colgroup">{escape(group)}</th>' for group, count in spans)
        text.append(f"<tr><td></td>{heads}</tr>")
    heads = "".join(
        f'<th scope="col"{_tag_runs(column.runs)}>{escape(column.heading)}</th>' for column in table.columns
    )
    text += [f'<tr><th scope="col">{escape(table.stub)}</th>{heads}</tr>', "</thead>", "<tbody>"]
    group = ""
    for line, cells in zip(table.lines, rows, strict=True):
        if line.group != group:
            runs = [run for one in table.lines if one.group == line.group for run in one.runs]
            wide = f'<th colspan="{1 + len(cells)}" scope="rowgroup">{escape(line.group)}</th>'
            text.append(f"<tr{_tag_runs(tuple(dict.fromkeys(runs)))}>{wide}</tr>")
            group = line.group
        columns = zip(table.columns, cells, strict=True)
        row = "".join(f'<td class="number"{_tag_runs(column.runs)}>{cell}</td>' for column, cell in columns)
        text.append(f'<tr{_tag_runs(line.runs)}><th scope="row">{escape(line.label)}</th>{row}</tr>')
    notes = [f'<p class="note">{escape(one)}</p>' for one in (*table.footnotes, table.note) if one]
    return "\n".join([*text, "</tbody>", "</table>", "</div>", *notes])


def _escape_html(text: str) -> str:
    """Escape a text for HTML; a number and its error, or what stands in its brackets, are not broken over lines."""
    return escape(HELD.sub(lambda found: found[0].replace(" ", NO_BREAK), text))


def _tag_runs(names: Sequence[str]) -> str:
    """Name runs in an attribute: the page hides what shows only hidden runs."""
    return f' data-runs="{escape(" ".join(map(quote, names)))}"' if names else ""


def to_csv(table: Table) -> str:
    """Write a table as CSV, to the last digit: mean, spread, seeds, standard error, examples and note of each cell.

    Where a paper's numbers stand beside ours: these too, with their spread, and the difference in standard errors.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    beside = any(cell.printed is not None for line in table.lines for cell in line.cells)
    parts = (*PARTS, *(BESIDE if beside else ()))
    heads = [f"{column.group}: {column.title}" if column.group else column.title for column in table.columns]
    writer.writerow(
        [escape_formula(one) for one in ("group", table.stub, *(f"{h}{part}" for h in heads for part in parts))]
    )
    for line in table.lines:
        cells = [one for cell in line.cells for one in _list_parts(cell, beside)]
        writer.writerow([escape_formula(line.group), escape_formula(line.label), *cells])
    return text.getvalue()


def _list_parts(cell: Cell, beside: bool) -> list[str]:
    """What CSV says of a cell: see PARTS and BESIDE."""
    numbers = [_format_digits(cell.mean), _format_digits(cell.spread), str(cell.seeds), _format_digits(cell.error)]
    found = [*numbers, "" if cell.examples is None else str(cell.examples), escape_formula(_explain_marks(cell))]
    printed = cell.printed or PrintedCell()
    if beside:
        found += [printed.sign or _format_digits(printed.value), _format_digits(printed.spread)]
        found.append(_format_digits(printed.difference))
    return found


def _explain_marks(cell: Cell) -> str:
    """Spell out the mark of a cell: a CSV file has no footnotes."""
    known = {CROSS: "diverged", DAGGER: "unfinished", NEVER: "not reached"}
    if not math.isfinite(cell.mean):
        return cell.note or known.get(cell.missing, cell.missing)
    marks = [said for mark, said in known.items() if mark in cell.mark]
    return "; ".join(one for one in (*marks, cell.note) if one)


def _format_digits(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""


RENDERERS: dict[str, Callable[[Table], str]] = {
    "latex": to_latex,
    "markdown": to_markdown,
    "csv": to_csv,
    "html": to_html,
}


def render(table: Table, kind: str) -> str:
    """Typeset a table.

    kind: latex, markdown, csv or html.
    """
    if kind not in RENDERERS:
        raise ValueError(f"kind must be one of {', '.join(RENDERERS)}; got {kind!r}")
    return RENDERERS[kind](table)


def save(table: Table, folder: Path) -> dict[str, Path]:
    """Write a table as LaTeX, Markdown and CSV into a folder; returns the paths by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{table.name}.{suffix}" for kind, suffix in SUFFIXES.items()}
    for kind, path in paths.items():
        with name_path_in_errors(path):
            path.write_text(render(table, kind), encoding="utf-8")
    return paths

"""Make one artefact from the runs that are there: the table or figure in the paper's shape, and its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis import store
from analysis.store import Answer
from reports.artefact import Artefact, Entry, Facts, Grid, Layout, Panel, Paper, list_cells
from reports.artefacts.parts import Made, write_part
from reports.artefacts.plan import list_comparisons, make_content, read_keys
from reports.artefacts.scales import Scale, describe_changes
from reports.figure_type import Drawing
from reports.figure_type import save as save_drawing
from reports.inputs.runs import Run, read_runs
from reports.panels.layout import draw_layout
from reports.plotting.svg import inline_svg
from reports.tables import table as tables
from reports.tables import typeset
from reports.tables.grid import capitalise, make_grid
from reports.tables.published import read_printed
from reports.tables.table import Column, Line, Table


def make_artefact(
    paper: Paper,
    artefact: Artefact,
    scale: Scale,
    paths: Mapping[str, Path],
    folder: Path,
    *,
    formats: Sequence[str],
    bold: str = "clear",
) -> Made:
    """Make a table or figure, and keep what the paper's page shows of it.

    paths: directories of runs by key. folder: of the paper. formats: of figures. bold: what tables set bold.
    """
    finder = RunFinder(paper, artefact, scale, paths)
    caption = write_caption(paper, artefact, scale)
    shape = artefact.shape
    if isinstance(shape, Layout):
        made = _draw(finder, shape, folder, formats, caption)
    elif isinstance(shape, Grid):
        made = _tabulate(finder, shape, folder, bold, caption)
    else:
        assert isinstance(shape, Facts)
        made = _save_table(artefact, make_facts(artefact, shape), folder, caption)
    made = replace(made, missing=finder.describe_missing())
    write_part(folder, made)
    return made


def write_caption(paper: Paper, artefact: Artefact, scale: Scale) -> str:
    """Write what an artefact shows, what was scaled down, and what the paper leaves open."""
    changes: dict[str, dict[str, None]] = {}
    for cell in list_cells(paper, artefact):
        for word, change in describe_changes(cell.settings, make_content(paper, cell, scale, 0)):
            changes.setdefault(word, {})[change] = None
    told = "; ".join(f"{word} {', '.join(some)}" for word, some in changes.items())
    note = getattr(artefact.shape, "note", "")
    return " ".join(end(one) for one in (artefact.title, note, artefact.note, told and f"Scaled down: {told}") if one)


def end(sentence: str) -> str:
    """End a sentence with a full stop.

    >>> end("Two runs"), end("Two runs.")
    ('Two runs.', 'Two runs.')
    """
    return f"{sentence.rstrip('.')}."


class RunFinder:
    """Finds the runs of a cell or series among those on disk, with the answers of the artefact's questions alone."""

    def __init__(self, paper: Paper, artefact: Artefact, scale: Scale, paths: Mapping[str, Path]):
        self.paper, self.artefact, self.scale, self.paths = paper, artefact, scale, paths
        self.cells = {(id(cell.row), id(cell.column)): cell for cell in list_cells(paper, artefact)}
        self.runs = self._read()

    def _read(self) -> dict[str, Run]:
        keys = {key for cell in self.cells.values() for key in read_keys(self.paper, cell, self.scale)}
        there = {key: self.paths[key] for key in keys if key in self.paths and self.paths[key].exists()}
        runs = read_runs(list(dict.fromkeys(there.values()))).runs if there else []
        by_path = {run.path: self._keep_answers(run) for run in runs}
        return {key: by_path[path] for key, path in there.items() if path in by_path}

    def _keep_answers(self, run: Run) -> Run:
        """Keep the answers to the artefact's questions; one with other settings under the same name is none of them."""
        asked = {(one.study, one.name): one.at(self.scale.name) for one in self.artefact.questions}
        kept = {
            study: tuple(
                one
                for one in answers
                if (study, one.question) in asked and _has_settings(one, asked[study, one.question])
            )
            for study, answers in run.answers.items()
        }
        return replace(run, answers=kept)

    def find(self, row: Entry, column: Entry | Panel) -> list[Run]:
        """Find the runs of a cell or series, one per seed; none where it is empty or has not been run."""
        cell = self.cells.get((id(row), id(column)))
        keys = [] if cell is None else read_keys(self.paper, cell, self.scale)
        return [self.runs[key] for key in keys if key in self.runs]

    def explain_lack(self, row: Entry, column: Entry | Panel) -> str:
        """Say why a cell or series has no runs."""
        return "not run" if (id(row), id(column)) in self.cells else ""

    def describe_missing(self) -> str:
        """Say how many runs of the artefact are not final."""
        keys = {key for cell in self.cells.values() for key in read_keys(self.paper, cell, self.scale)}
        unfinished = sum(run.progress.state == "unfinished" for run in self.runs.values())
        counts = {"missing": len(keys - set(self.runs)), "unfinished": unfinished}
        return "; ".join(
            f"{count} of {len(keys)} runs {'is' if count == 1 else 'are'} {state}"
            for state, count in counts.items()
            if count
        )

    def find_answer(self, panel: Panel) -> Answer | None:
        """Find the answer that compares the runs of a panel."""
        shape = self.artefact.shape
        assert isinstance(shape, Layout)
        place = next(place for place, one in enumerate(shape.panels) if one is panel)
        return next(iter(self.read_answers(place)), None)

    def read_answers(self, place: int) -> list[Answer]:
        """Read the answers that compare the runs of a panel, one per seed, as far as they are there.

        place: of the panel in its figure.
        """
        found = []
        for compared in list_comparisons(self.paper, self.artefact, self.scale):
            if compared.panel == place and all(key in self.paths for key in compared.runs):
                folder = self.paths[compared.runs[0]].parent / "analysis" / compared.question.study
                path = folder / f"{compared.name}.h5"
                found += [store.read(path)] if path.exists() else []
        return found


def _has_settings(answer: Answer, wanted: Mapping[str, object]) -> bool:
    """Whether an answer was given with these settings; those that are not named may be any."""
    plain = json.loads(json.dumps(dict(wanted)))
    return all(answer.settings.get(key) == value for key, value in plain.items())


def _draw(finder: RunFinder, layout: Layout, folder: Path, formats: Sequence[str], caption: str) -> Made:
    artefact = finder.artefact
    drawing: Drawing = draw_layout(
        artefact.name,
        "",  # the caption begins with title and note
        replace(layout, note=""),
        lambda panel, series: finder.find(series, panel),
        finder.find_answer,
        lacking=lambda panel, series: finder.explain_lack(series, panel),
    )
    kinds = list(dict.fromkeys(("svg", *formats)))
    files = save_drawing(drawing, folder, artefact.name, kinds)
    text = f"{caption} {end(capitalise(drawing.caption))}" if drawing.caption else caption
    html = inline_svg(files[0].read_text(encoding="utf-8"), artefact.name, text)
    return Made(artefact.name, artefact.title, tuple(map(str, files)), text, html)


def _tabulate(finder: RunFinder, grid: Grid, folder: Path, bold: str, caption: str) -> Made:
    artefact, full = finder.artefact, finder.scale.name == "full"
    printed = read_printed(f"{finder.paper.key}/{artefact.name}")
    table = make_grid(
        artefact.name,
        artefact.title,
        replace(grid, note=""),  # the caption has it
        finder.find,
        printed=printed,
        beside=full,
        bold=bold,
        lacking=finder.explain_lack,
    )
    return _save_table(artefact, table, folder, caption)


def _save_table(artefact: Artefact, table: Table, folder: Path, caption: str) -> Made:
    whole = replace(
        table, note=" ".join(one for one in (caption.removeprefix(end(artefact.title)).strip(), table.note) if one)
    )
    files = typeset.save(whole, folder)
    return Made(
        artefact.name,
        artefact.title,
        tuple(str(files[kind]) for kind in ("markdown", "latex", "csv")),
        caption,
        typeset.render(whole, "html"),
    )


def make_facts(artefact: Artefact, facts: Facts) -> Table:
    """Make a table of texts, such as settings or sizes."""
    columns = tuple(Column(heading) for heading in facts.headings[1:])
    lines = tuple(
        Line(row[0], (), tuple(tables.Cell(missing=text, ranked=False) for text in row[1:])) for row in facts.rows
    )
    return Table(artefact.name, "", artefact.title, "", facts.headings[0], columns, lines, bold="plain")

"""What tests of the papers' artefacts share: the runs a paper declares beside those of shipped recipes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from reports.artefact import Artefact, Entry, Grid, Layout, Paper, get_key, list_cells
from reports.artefacts.plan import plan_paper
from reports.artefacts.scales import SCALES
from reports.panels.catalog import PANELS
from reports.tables.grid import get_place
from reports.tables.published import read_printed
from training import config

KEPT = ("checkpoints", "evaluation", "record", "seed")  # what two recipes of the same run may differ in


def normalise(recipe: config.Recipe) -> str:
    """The settings of a recipe, with all defaults, without what it keeps and its seed."""
    content = recipe.model_dump()
    return json.dumps({key: value for key, value in content.items() if key not in KEPT}, sort_keys=True, default=str)


def list_declared(paper: Paper) -> set[str]:
    """All runs of a paper at full scale."""
    return {normalise(config.validate(one.content)) for one in plan_paper(paper, SCALES["full"]).values()}


def list_undeclared(paper: Paper, recipes: Mapping[str, Iterable[str]]) -> list[str]:
    """The runs of shipped recipes that no artefact of the paper has, by their recipes and methods.

    recipes: names, each with the settings to lay over it.
    """
    declared = list_declared(paper)
    return [
        f"{name}: {one.algorithm.model_dump()}, {one.partition.model_dump()}"
        for name, overrides in recipes.items()
        for one in config.load(name, list(overrides))
        if normalise(one) not in declared
    ]


def find_missing(paper: Paper, artefact: Artefact) -> list[tuple[str, str]]:
    """The printed numbers that no cell of a table stands for, and those that two cells stand for."""
    assert isinstance(artefact.shape, Grid)
    places = Counter(
        get_place(artefact.shape, row, column)
        for row in artefact.shape.rows
        for column in artefact.shape.columns
        if (get_key(row), get_key(column)) not in artefact.shape.absent
    )
    printed = read_printed(f"{paper.key}/{artefact.name}")
    return [*(set(printed) - set(places)), *(place for place, count in places.items() if count > 1)]


def read_cell(paper: Paper, artefact: str, row: str, column: str) -> dict[str, object]:
    """The published settings of the runs of a cell, by the names of published.csv."""
    one = paper.find(artefact)
    assert isinstance(one.shape, Grid)
    found = [
        cell.settings
        for cell in list_cells(paper, one)
        if isinstance(cell.column, Entry) and get_place(one.shape, cell.row, cell.column) == (row, column)
    ]
    assert len(found) == 1
    return found[0]


def list_unmeasured(paper: Paper) -> list[str]:
    """The panels that read a study which nobody is asked; unknown kinds and options are refused on the way."""
    found = []
    for artefact in paper.artefacts:
        for panel in artefact.shape.panels if isinstance(artefact.shape, Layout) else ():
            kind = PANELS[panel.kind]
            asked = {one.study for one in (*artefact.questions, panel.question) if one is not None}
            lacking = set(kind.studies(kind.read_options(panel.options))) - asked
            found += [f"{artefact.name}, {panel.kind}: {study}" for study in sorted(lacking)]
    return found


def count_series(artefact: Artefact) -> list[int]:
    """How many series each panel of a figure has."""
    assert isinstance(artefact.shape, Layout)
    return [len(panel.series) for panel in artefact.shape.panels]

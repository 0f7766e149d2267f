"""What an artefact is: a table or figure of a paper, declared as runs, questions and a shape. Imports no torch.

Settings are those of recipes, by dotted keys ("local.lr"), always as published; `reports.artefacts.scales` makes them
smaller. The settings of a run are laid over each other in this order: the paper's, the artefact's, those of the column
(or panel), those of the row (or series), and what `Grid.adjust` (or `Panel.adjust`) adds for the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from reports.quantities.quantity import Quantity

Settings = Mapping[str, object]  # dotted keys of a recipe -> values; "algorithm" may be a whole table


@dataclass(frozen=True)
class Question:
    """A study with its settings, asked of every run of an artefact.

    study: its name. name: of the answer's file; artefacts that ask the same share it.
    settings: as published. digits, small: what is different at these scales.
    """

    study: str
    name: str
    settings: Settings = field(default_factory=dict)
    digits: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)

    def at(self, scale: str) -> dict[str, object]:
        """Return the settings at a scale: digits, small or full."""
        changes = {"digits": self.digits, "small": self.small}.get(scale, {})
        return {**self.settings, **changes}


@dataclass(frozen=True)
class Entry:
    """A row or column of a table, or a series of a figure.

    label: as the paper prints it.
    settings: those of its runs that it decides.
    group: heading above entries that belong together.
    key: its name, different from all others of the table, and what published.csv calls it; by default its label, after
    "group: " where there is a group.
    quantity: what its cells show, where that is not the same in the whole table.
    """

    label: str
    settings: Settings = field(default_factory=dict)
    group: str = ""
    key: str = ""
    quantity: Quantity | None = None


@dataclass(frozen=True)
class Grid:
    """A table: rows by columns; a cell shows one quantity of the runs with the settings of its row and column.

    quantity: what cells show, or a function of row and column that says so; a column's or row's own quantity goes
    before it, the row's first.
    adjust: further settings of a pair (row, column), for example a radius tuned for each data set.
    absent: pairs of keys (row, column) that the paper leaves empty.
    printed: what published.csv calls the row and the column of a cell, where it is not the keys of the two.
    reference: label or key of the row that quantities are compared with, such as "FedAvg"; of several with that label,
    the one in the same group; or an entry that the table does not show.
    stub: heading above the row labels.
    note: what readers must know, for the caption.
    blocks: whether the best is marked within each group of rows, not in the whole column.
    across: whether it is marked within each row, among columns with the same label in different groups.
    paired: whether it is marked within each row, among the columns of a group.
    rivals: what of a row is compared: rows with the same text are; by default those of a group, or all.
    facts: heading of a column of texts -> key of a row -> its text, such as a tick; they stand before the columns.
    arrows: whether every number gets an arrow, up or down, against that of the reference; with `paired`, against the
    first of its row and group of columns.
    """

    rows: tuple[Entry, ...]
    columns: tuple[Entry, ...]
    quantity: Quantity | Callable[[Entry, Entry], Quantity] | None = None
    adjust: Callable[[Entry, Entry], Settings] | None = None
    absent: frozenset[tuple[str, str]] = frozenset()
    printed: Callable[[Entry, Entry], tuple[str, str]] | None = None
    reference: str | Entry = ""
    stub: str = "method"
    note: str = ""
    blocks: bool = False
    across: bool = False
    paired: bool = False
    rivals: Callable[[Entry], str] | None = None
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arrows: bool = False


@dataclass(frozen=True)
class Panel:
    """One set of axes of a figure.

    kind: a key of `reports.panels.catalog.PANELS`: curves, bars, surface, ...
    series: what is drawn, in the order of the legend; each stands for one run per seed.
    title: above the axes. settings: of all its runs. options: of its kind. adjust: as in `Grid`, for the series.
    question: a study that compares the runs of the series (plane, interpolation), if one is drawn: of the first seed,
    or of every seed where `every_seed` says so.
    """

    kind: str
    series: tuple[Entry, ...]
    title: str = ""
    settings: Settings = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    adjust: Callable[[Entry], Settings] | None = None
    question: Question | None = None
    every_seed: bool = False


@dataclass(frozen=True)
class Layout:
    """A figure: panels in rows of `across` panels; note: what readers must know, for the caption."""

    panels: tuple[Panel, ...]
    across: int = 2
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """A table that needs no runs, such as settings or sizes: rows of texts under headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class NotReproduced:
    """A concept drawing, a theorem, example images: nothing that runs could give. why: which of these."""

    why: str


Shape = Grid | Layout | Facts | NotReproduced


@dataclass(frozen=True, eq=False)
class Artefact:
    """A numbered table or figure of a paper.

    name: "table3". title: what it shows. shape: how it is laid out.
    settings: of all its runs, on top of the paper's. questions: asked of each of its runs.
    seeds: of its runs; by default the paper's.
    note: what is lost or contradictory in the paper, and what was chosen.
    """

    name: str
    title: str
    shape: Shape
    settings: Settings = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    seeds: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper and its artefacts.

    key: as on the command line. name: of its method. title, where: as cited.
    settings: of all runs, as published. seeds: of all runs.
    most_seeds: scale -> how many of the seeds are run there, where it is not what the scale says.
    made_for: the scale whose settings these are; nothing is changed there.
    at_digits: settings that win at scale digits.
    """

    key: str
    name: str
    title: str
    where: str
    settings: Settings
    seeds: tuple[int, ...]
    artefacts: tuple[Artefact, ...]
    most_seeds: Mapping[str, int] = field(default_factory=dict)
    made_for: str = "full"
    at_digits: Settings = field(default_factory=dict)

    def find(self, name: str) -> Artefact:
        """Return the artefact of a name; ValueError with the nearest where there is none."""
        from landscape.errors import choose

        return {one.name: one for one in self.artefacts}[choose(f"artefact of {self.key}", name, self.names)]

    @property
    def names(self) -> list[str]:
        """The names of all artefacts, in the order of the paper."""
        return [one.name for one in self.artefacts]


@dataclass(frozen=True)
class Cell:
    """One cell or series of an artefact: the published settings of its runs, without their seed."""

    artefact: Artefact
    row: Entry
    column: Entry | Panel
    settings: dict[str, object]


def list_cells(paper: Paper, artefact: Artefact) -> Iterator[Cell]:
    """List the cells of a table, or the series of a figure, with the settings of their runs."""
    shape = artefact.shape
    if isinstance(shape, Grid):
        hidden = (shape.reference,) if isinstance(shape.reference, Entry) else ()
        for row in (*shape.rows, *hidden):
            for column in shape.columns:
                if (get_key(row), get_key(column)) not in shape.absent:
                    extra = {} if shape.adjust is None else shape.adjust(row, column)
                    yield Cell(artefact, row, column, merge(paper, artefact, column.settings, row.settings, extra))
    elif isinstance(shape, Layout):
        for panel in shape.panels:
            for series in panel.series:
                extra = {} if panel.adjust is None else panel.adjust(series)
                yield Cell(artefact, series, panel, merge(paper, artefact, panel.settings, series.settings, extra))


def merge(paper: Paper, artefact: Artefact, *layers: Settings) -> dict[str, object]:
    """Lay settings over those of the paper and of the artefact.

    layers: later ones win. A whole table ("algorithm") replaces single settings below it, and vice versa.
    """
    merged: dict[str, object] = {}
    tables: set[str] = set()  # that have single settings
    for layer in (paper.settings, artefact.settings, *layers):
        for key, value in layer.items():
            if key in tables:
                merged = {old: kept for old, kept in merged.items() if not old.startswith(f"{key}.")}
            merged[key] = value
            while key := key.rpartition(".")[0]:
                tables.add(key)
    return merged


def get_key(entry: Entry) -> str:
    """Return the name of a row or column, different from all others of its table."""
    return entry.key or (f"{entry.group}: {entry.label}" if entry.group else entry.label)

"""What a group of benchmarks found, on the terminal and as a section of results.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

RESULTS = Path(__file__).with_name("results.md")
PREAMBLE = "# Benchmarks\n\nWritten by `make bench`. Ratios are what counts: they hold on one machine, in one run.\n"


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Target:
    """One line of the design's targets; `met` is None where nothing can be said."""

    work: str
    wanted: str
    found: str
    met: bool | None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "NOT met", None: "undecided"}[self.met]


@dataclass(frozen=True)
class Section:
    """One group of benchmarks."""

    title: str
    notes: list[str]
    tables: list[Table]
    targets: list[Target] = field(default_factory=list)

    def all_tables(self) -> list[Table]:
        rows = [[target.work, target.wanted, target.found, target.verdict] for target in self.targets]
        return [*self.tables, Table("Targets", ["work", "target", "found", ""], rows)] if rows else self.tables


def show(section: Section, console: Console) -> None:
    console.rule(section.title)
    for note in section.notes:
        console.print(note, highlight=False, markup=False)
    for table in section.all_tables():
        rich = RichTable(title=table.title, box=box.SIMPLE, title_justify="left")
        for index, column in enumerate(table.columns):
            rich.add_column(column, justify="left" if index == 0 else "right")
        for row in table.rows:
            rich.add_row(*row)
        console.print(rich)


def markdown(section: Section) -> str:
    lines = [f"## {section.title}", "", *(f"- {note}" for note in section.notes)]
    for table in section.all_tables():
        lines += ["", f"### {table.title}", "", _row(table.columns), _row(["---"] * len(table.columns))]
        lines += [_row(row) for row in table.rows]
    return "\n".join(lines) + "\n"


def record(section: Section, path: Path = RESULTS) -> None:
    """Write the section into the file, in place of an earlier one of the same title."""
    before = path.read_text() if path.exists() else ""
    sections = {text.splitlines()[0]: text.strip() + "\n" for text in re.split(r"^## ", before, flags=re.M)[1:]}
    sections[section.title] = markdown(section).removeprefix("## ")
    path.write_text(PREAMBLE + "".join(f"\n## {text}" for text in sections.values()))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

"""Tables of any shape: settings of the runs as rows and columns, one quantity in the cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from landscape.errors import choose
from reports.artefact import Entry, Grid, get_key
from reports.inputs.recipes import find_table, is_number
from reports.inputs.runs import Run, label_score
from reports.inputs.summary import differing
from reports.names import name_method, name_setting
from reports.palette import assign_looks
from reports.quantities.catalog import QUANTITIES
from reports.tables.grid import capitalise, make_grid
from reports.tables.table import Table
from reports.variants import flatten_settings

SHORT = {  # what may be written instead of a dotted setting
    "algorithm": "algorithm.name",
    "data": "data.name",
    "model": "model.name",
    "partition": "partition.name",
    "swa": "",  # whether there is such a table
}
TOPICS = {"curvature": "flat", "sharpness": "flat", "local_global": "agree", "incompatibility": "agree"}  # by study
Values = tuple[object, ...]  # of the settings of a row or column


def tabulate_settings(
    runs: Sequence[Run], rows: Sequence[str], columns: Sequence[str], quantity: str = "accuracy", *, bold: str = "clear"
) -> Table:
    """Make a table with a row for each value of some settings, and a column for each value of others.

    rows, columns: dotted settings such as "partition.alpha", or keys of SHORT; of several the last is the label, and
    those before it make groups.
    quantity: what cells show, a key of QUANTITIES; those relative to a reference compare with the first row.
    bold: what is set bold, a key of BOLD.
    """
    trained = [run for run in runs if run.settings]
    shown = QUANTITIES[choose("quantity", quantity, QUANTITIES)]
    if quantity == "accuracy":
        shown = replace(shown, label=label_score(trained))
    known = {key for run in trained for key in flatten_settings(run)} | set(SHORT)
    for key in (*rows, *columns):
        choose("setting", key, known)
    if not rows or not columns:
        raise ValueError("a table needs settings for both: write --rows algorithm --columns partition.alpha")
    keys = (*rows, *columns)
    _require_seeds(trained, keys)
    down, across = (_list_entries(trained, some, keys) for some in (rows, columns))
    of_row, of_column = ({get_key(entry): values for values, entry in some.items()} for some in (down, across))
    reference = next(iter(down.values())).label if shown.relative else ""
    grid = Grid(
        tuple(down.values()),
        tuple(across.values()),
        shown,
        reference=reference,
        stub=", ".join(rows),
        note=f"Compared with {reference}" if reference else "",
    )

    def find_runs(row: Entry, column: Entry) -> list[Run]:
        wanted = (of_row[get_key(row)], of_column[get_key(column)])
        return [run for run in trained if (_read(run, rows, keys), _read(run, columns, keys)) == wanted]

    name = "_".join([quantity, "by", *rows, "and", *columns]).replace(".", "_")
    title = f"{capitalise(shown.label)} by {', '.join(rows)} and {', '.join(columns)}"
    made = make_grid(name, title, grid, find_runs, bold=bold)
    return replace(made, topic=TOPICS.get(shown.study, "good"))


def _read(run: Run, settings: Sequence[str], keys: Sequence[str]) -> Values:
    """Read the values of some settings; the method without SWA if SWA has its own row or column.

    keys: all settings that the table shows.
    """
    flat = flatten_settings(run)
    found: list[object] = []
    for key in settings:
        if key == "swa":
            found.append("swa" in run.settings)
        elif key == "algorithm":
            found.append(find_table(run.settings, "algorithm").get("name") if "swa" in keys else run.algorithm)
        else:
            value = flat.get(SHORT.get(key, key))
            found.append(str(value) if isinstance(value, list) else value)  # keys of dicts cannot be lists
    return tuple(found)


def _list_entries(runs: Sequence[Run], settings: Sequence[str], keys: Sequence[str]) -> dict[Values, Entry]:
    """List the rows or columns: every combination of values that some run has, numbers by size."""
    looks = list(assign_looks(run.algorithm for run in runs))

    def rank(values: Values) -> list[tuple[int, float, str]]:
        ranks = []
        for key, value in zip(settings, values, strict=True):
            methods = [place for place, one in enumerate(looks) if one.removesuffix(" + SWA") == value or one == value]
            if key == "algorithm" and methods:
                ranks.append((0, float(methods[0]), ""))
            else:
                ranks.append(
                    (0, float(value), "") if is_number(value) or value in (True, False) else (1, 0.0, str(value))
                )
        return ranks

    found = sorted(dict.fromkeys(_read(run, settings, keys) for run in runs), key=rank)
    return {values: _make_entry(settings, values) for values in found}


def _make_entry(settings: Sequence[str], values: Values) -> Entry:
    *above, label = [_describe(key, value) for key, value in zip(settings, values, strict=True)]
    return Entry(label, group=", ".join(above))


def _describe(key: str, value: object) -> str:
    """Describe a value for a heading: names as they are, numbers with the printed name of their setting."""
    if key == "swa":
        return "with SWA" if value else "without SWA"
    if key in ("algorithm", "algorithm.name"):
        return name_method(str(value))
    if value is None:
        return f"no {name_setting(key)}"
    if key in SHORT or key.endswith(".name"):
        return str(value)
    return f"{name_setting(key)} = {f'{value:g}' if is_number(value) else value}"


def _require_seeds(runs: Sequence[Run], keys: Sequence[str]) -> None:
    """Refuse to average runs that differ in more than their seed and the settings of the table."""
    groups: dict[Values, list[Run]] = {}
    for run in runs:
        groups.setdefault(_read(run, keys, keys), []).append(run)
    for some in groups.values():
        more = differing([flatten_settings(run) for run in some])
        if more:
            names = ", ".join(run.name for run in some)
            raise ValueError(
                f"{names} would share a cell, but differ in {', '.join(more)}; add --rows or --columns {more[0]}, or "
                "report on fewer runs"
            )

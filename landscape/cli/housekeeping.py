"""Commands that keep order among runs: list, compare, clean, and start new files. Imports inside the functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from landscape.cli.app import Json, Runs, app, make_console, print_json
from landscape.cli.completion import offer

NEXT = {  # what can be started, and how to go on
    "recipe": "next: landscape train {path}",
    "method": "next: its first lines say how to train it; python {path} tests it",
    "study": "next: its first lines say how to measure runs with it",
    "schema": "next: landscape new recipe, beside it; editors that know TOML then complete and check recipes",
}


@app.command(name="runs")
def runs_(
    where: Annotated[
        str,
        typer.Argument(metavar="[FILTER]", help='Settings, as "algorithm=fedsam seed=1"; a value may have * and ?.'),
    ] = "",
    folder: Annotated[list[Path] | None, typer.Option("--in", help="Folder of runs; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """List runs with the settings in which they differ, only those with some settings if a filter is given."""
    from training.console.run_list import list_runs
    from training.runs import load_runs

    found = load_runs(folder or [Path("runs")], where)
    if as_json:
        print_json([run.describe() for run in found])
    elif not found:
        print(f"no run has {where}")
    else:
        make_console().print(list_runs([(run.path, run.settings) for run in found]))


@app.command()
def compare(runs: Runs, as_json: Json = False) -> None:
    """Put runs side by side: the settings that differ, and every number that was measured."""
    from rich.markup import escape

    from reports.interface import compare
    from reports.quantities.measures import MEASURES
    from training.console.tables import make_table

    found = compare(runs)
    if as_json:
        content = {kind: some.droplevel(0).to_dict("index") for kind, some in found.groupby(level=0, sort=False)}
        print_json(content)
        return
    table = make_table("", *(escape(str(name)) for name in found.columns))
    for kind, some in found.groupby(level=0, sort=False):
        table.add_row(f"[bold]{kind}[/bold]")
        for (_, key), values in some.iterrows():
            label = MEASURES[key].label if kind == "metrics" else key
            table.add_row(escape(label), *(_write_number(value) for value in values))
    make_console().print(table)


def _write_number(value: object) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@app.command()
def clean(
    runs: Runs,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help="Also checkpoints before the last of finished runs: no study can measure those rounds again.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete what interrupted work left behind: pieces of studies, half-written files, damaged files moved aside."""
    from training.cleaning import find_removable, remove_all
    from training.console.messages import printable

    found = find_removable(runs, checkpoints=checkpoints)
    for one in found:
        print(f"{printable(one.path)}: {one.why}, {one.bytes / 2**20:.1f} MB")
    if not found:
        print("nothing to delete")
        return
    total = sum(one.bytes for one in found)
    if not yes and not typer.confirm(f"Delete these {len(found)}, {total / 2**20:.1f} MB?"):
        print("nothing was deleted")
        return
    print(f"{remove_all(found) / 2**20:.1f} MB freed")


@app.command()
def new(
    kind: Annotated[str, typer.Argument(metavar="|".join(NEXT), help="What to start.", autocompletion=offer(*NEXT))],
    out: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="File to write.", show_default=False)] = None,
) -> None:
    """Write a file to start from, which works as it stands: a recipe with every setting explained, a method or a study.

    The schema of recipes lets editors complete and check them.
    """
    from training.starting_files import write_new

    path = write_new(kind, out)
    print(path)
    print(NEXT[kind].format(path=path))

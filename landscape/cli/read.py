"""Commands that only read: list, show, check. Other packages are imported only inside the functions."""

from __future__ import annotations

from typing import Annotated

import typer

from landscape.cli.app import Json, Runs, app, make_console, print_json
from landscape.cli.completion import complete_study, offer

LISTS = ("algorithms", "datasets", "partitions", "models", "recipes", "studies", "figures", "artefacts")


@app.command(name="list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(metavar="|".join(LISTS), help="What to list.", autocompletion=offer(*LISTS)),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A study, to list its settings.",
            autocompletion=complete_study,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the names that recipes and commands accept, or the settings of a study."""
    from landscape.errors import choose

    if choose("list", kind, LISTS) == "studies":
        from analysis.command import list_settings, list_studies

        table = list_studies() if name is None else list_settings(name)
    elif name is not None:
        raise ValueError(f"only studies take a name, got '{name}'; write: landscape list {kind}")
    elif kind == "figures":
        from reports.command import tabulate_figures

        table = tabulate_figures()
    elif kind == "artefacts":
        from reports.artefacts.costs import list_artefacts
        from reports.reproduction import OUT, PAPERS

        table = list_artefacts(PAPERS, OUT)
    else:
        from training.console.listings import make_listing

        table = make_listing(kind)
    if as_json:
        from training.console.tables import to_records

        print_json(to_records(table))
    else:
        make_console().print(table)


@app.command()
def show(runs: Runs, as_json: Json = False) -> None:
    """Show the settings, status, results and partition of a run, or one line for each of several runs."""
    from training.console import summaries
    from training.console.messages import printable
    from training.runs import load_runs
    from training.storage.run_directory import find_runs

    if as_json:
        print_json([run.describe() for run in load_runs(runs)])
        return
    problems = summaries.show_all(find_runs(runs), make_console())
    for problem in problems:
        print(printable(problem))
    if problems:
        raise typer.Exit(1)


@app.command()
def check(runs: Runs, as_json: Json = False) -> None:
    """Verify every file of runs and of their results against its stored hash."""
    from dataclasses import asdict

    import analysis
    from training.console.messages import printable

    found = analysis.check(runs)
    several = sum(one.checkpoints is not None for one in found) > 1
    if as_json:
        print_json([asdict(one) for one in found])
    for one in [] if as_json else found:
        lines = one.problems or [f"{one.path}: {one.description}" if several else one.description]
        for line in lines:
            print(printable(line))
    if any(one.problems for one in found):
        raise typer.Exit(1)

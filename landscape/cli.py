"""The front door: the `landscape` command. Other packages are imported inside the handlers only."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as landscape train makes them.")]


@app.callback(invoke_without_command=True)
def root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Loss landscapes and sharpness for federated learning."""
    if show_version:
        print(version("fl-landscape"))
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Train a small network on the embedded digits and look at its landscape."""
    from landscape.demo import run

    run(out, seed)


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe's name (landscape list recipes) or a file.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. local.lr=0.1; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data if they are not there.")] = False,
    backend: Annotated[str, typer.Option(help="auto, serial, processes or vmap.")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Processes at most (default: one a core).", show_default=False)
    ] = None,
) -> None:
    """Train a recipe: one run, or every combination of its sweep. Goes on with what is there."""
    import training
    from training.config import load
    from training.sweep import train_all

    _import_from_here(training.__file__)
    loaded = load(recipe, settings or [])
    where = {"root": str(data_root.absolute())} if data_root is not None else {}
    given = {**where, **({"download": True} if download else {})}
    recipes = [one.model_copy(update={"data": one.data.model_copy(update=given)}) for one in loaded]
    train_all(recipes, out, console=_console(), backend=backend, workers=workers)


@app.command(name="list")
def list_(
    kind: Annotated[str, typer.Argument(metavar="algorithms|datasets|partitions|models|recipes", help="What to list.")],
) -> None:
    """List what a recipe can name."""
    from training.tables import listing

    _console().print(listing(kind))


@app.command()
def show(run: Run) -> None:
    """Show what is in a run: settings, status, results, and who holds which class."""
    from training import show

    show.show(run, _console())


@app.command()
def check(run: Run) -> None:
    """Verify every file of a run against the hash that was written with it."""
    from training import checkpoint, show

    problems = checkpoint.check(show.require_run(run))
    for problem in problems:
        print(problem)
    if problems:
        raise typer.Exit(1)
    print(f"sound: {len(checkpoint.rounds(run))} checkpoints")


def _console() -> Console:
    """As wide as the terminal; elsewhere wide enough for one line a row, so that grep and files are of use."""
    console = Console()
    wide = console.is_terminal or "COLUMNS" in os.environ
    return console if wide else Console(width=500)


def _import_from_here(package: str | None) -> None:
    """Make the current folder's modules importable, for models and data sets named "module:function".

    Behind everything installed: a random.py or a training/ of the user's must not take the place of ours. Our own
    home goes before it, since an editable install is otherwise searched after all folders, in worker processes too.
    """
    for folder in (str(Path(package or __file__).parents[1]), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)


def main() -> None:
    """Run the command; a user's mistake is one clear line and exit code 2, a failure of the system is 1."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
        try:
            app()
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None

"""The front door: the `landscape` command. Other packages are imported inside the handlers only."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


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


def main() -> None:
    """Run the command; a user's mistake is one clear line and exit code 2, a failure of the system is 1."""
    try:
        app()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None

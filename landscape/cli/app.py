"""The application that all commands belong to, and what they share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help='Run directories, folders of runs, or patterns such as "runs/*sam*".'),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def make_console() -> Console:
    """Make a console as wide as the terminal; elsewhere so wide that each row is one line, for grep and files."""
    console = Console()
    wide = console.is_terminal or "COLUMNS" in os.environ
    return console if wide else Console(width=500)


def print_json(content: object) -> None:
    """Print values as JSON; what it has no form for, such as a path, as text."""
    print(json.dumps(content, indent=2, default=str))

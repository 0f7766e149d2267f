"""The application that all commands belong to, and what they share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from landscape import __version__
from landscape.cli.completion import complete_run, complete_tracker, offer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help='Run directories, folders of runs, or patterns such as "runs/*sam*".',
        autocompletion=complete_run,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
DEVICES = offer("auto", "cpu", "cuda", "mps")
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1 or mps.", autocompletion=DEVICES)]
Address = Annotated[
    str,
    typer.Option(help="Ray cluster, e.g. auto or 10.0.0.1:6379 (default: $RAY_ADDRESS, else Ray on this machine)."),
]
Gpus = Annotated[float, typer.Option(help="GPUs for each of Ray's workers; 0.25: four workers share one.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also tell a tracker: tensorboard, wandb, mlflow or module:name; may be repeated.",
        autocompletion=complete_tracker,
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Loss landscapes and sharpness for federated learning."""
    if show_version:
        print(__version__)
        raise typer.Exit
    if os.environ.get("LANDSCAPE_PLUGINS"):
        from training.plugins import import_plugins, use_current_folder

        use_current_folder()
        import_plugins()


def make_console() -> Console:
    """Make a console as wide as the terminal; in files and pipes so wide that each row is one line."""
    console = Console()
    wide = console.is_terminal or "COLUMNS" in os.environ
    return console if wide else Console(width=500)


def print_json(content: object) -> None:
    """Print values as JSON; anything that JSON cannot represent, such as a path, becomes text."""
    print(json.dumps(content, indent=2, default=str))


def choose_backend(backend: str, address: str) -> str:
    """Choose Ray if an address is given; ValueError if another backend is given as well."""
    if address and backend not in ("auto", "ray"):
        raise ValueError(f"--address is for the backend ray, but --backend is {backend}; omit one of them")
    return "ray" if address else backend

"""The `landscape` command. Other packages are imported only inside the functions of the commands."""

from __future__ import annotations

import importlib.util
import io
import sys
import warnings
from pathlib import Path

from landscape.cli.app import app

# isort: off
from landscape.cli import train, analyze, report, read  # each adds its commands, in the order of --help
from landscape.cli import adoption, housekeeping

# isort: on

__all__ = ["adoption", "analyze", "app", "housekeeping", "main", "read", "report", "train"]


def find_hidden_packages() -> str:
    """Find a file of the user's that has the name of one of our packages and hides it; nothing if there is none."""
    home = Path(__file__).parents[2]
    for name in ("training", "analysis", "reports"):
        found = importlib.util.find_spec(name)
        place = Path(found.origin) if found is not None and found.origin else None
        if place is not None and place != home / name / "__init__.py":
            return f"{place} hides the package '{name}' of fl-landscape: give your file another name"
    return ""


def main() -> None:
    """Run the command. A ValueError is printed as one line, with exit code 2; an OSError has exit code 1."""
    hidden = find_hidden_packages()
    if hidden:
        print(f"error: {hidden}", file=sys.stderr)
        raise SystemExit(2)
    from landscape.runtime.termination import listen
    from training.console.messages import printable

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the name of a file may not be valid UTF-8: shown as \xff
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings(), listen():
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {printable(message)}", file=sys.stderr)
        try:
            app()
        except ValueError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
            raise SystemExit(2) from None
        except OSError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
            raise SystemExit(1) from None

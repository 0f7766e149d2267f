"""The command that adopts runs of other frameworks. Other packages are imported only inside its function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from landscape.cli.app import app, make_console


@app.command()
def adopt(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the models, with adopt.toml.")],
    out: Annotated[Path, typer.Option(help="Folder in which the run directory is created.")] = Path("runs"),
    description: Annotated[
        Path | None,
        typer.Option(help="TOML file that describes the models (default: DIR/adopt.toml).", show_default=False),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where models are tested: auto, cpu, cuda, cuda:1 or mps.")] = "auto",
) -> None:
    """Make a run of what another framework saved (Flower, PFLlib, own code); every study can then measure it."""
    import training
    from training.plugins import use_current_folder

    use_current_folder()
    training.adopt(folder, out, description=description, data_root=data_root, device=device, console=make_console())

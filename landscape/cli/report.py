"""Commands that draw, typeset and export. Other packages are imported only inside the functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from landscape.cli.app import Address, Device, Gpus, Track, app, make_console
from landscape.cli.completion import complete_artefact, complete_figure, complete_run, complete_width, offer

RunsOrNone = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run directories, folders of runs or of answers, or patterns.",
        autocompletion=complete_run,
    ),
]
Folder = Annotated[
    Path | None, typer.Option(help="Folder for the page (default: report/ beside the runs).", show_default=False)
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        help="Format of the figures: png, pdf or svg; may be repeated. Default: png and svg.",
        autocompletion=offer("png", "pdf", "svg"),
    ),
]
Figures = Annotated[
    list[str] | None,
    typer.Option(
        help="Draw only this figure (landscape list figures), or module:name; may be repeated.",
        autocompletion=complete_figure,
    ),
]
Width = Annotated[
    str,
    typer.Option(
        help="Width of all figures: icml, icml2, neurips, iclr, cvpr, cvpr2, eccv, or inches.",
        autocompletion=complete_width,
    ),
]
Bold = Annotated[
    str,
    typer.Option(
        help="Bold in tables: clear (best by more than its error) or plain (best, as in papers).",
        autocompletion=offer("clear", "plain"),
    ),
]
Questions = Annotated[
    list[str] | None,
    typer.Option(help="Show only answers of this name, where a study has one (analyze --name); may be repeated."),
]
Rows = Annotated[
    list[str] | None,
    typer.Option(help="Setting whose values are rows of one more table: algorithm, local.epochs; may be repeated."),
]
Columns = Annotated[
    list[str] | None, typer.Option(help="Setting whose values are its columns: partition.alpha; may be repeated.")
]
QuantityName = Annotated[
    str, typer.Option(help="What that table shows: accuracy, best_accuracy, lambda_1, communication, ...")
]


@app.command()
def report(
    runs: RunsOrNone,
    out: Folder = None,
    kind: Formats = None,
    figure: Figures = None,
    width: Width = "",
    animate: Annotated[bool, typer.Option("--animate", help="Make animations of the surfaces too.")] = False,
    bold: Bold = "clear",
    question: Questions = None,
    rows: Rows = None,
    columns: Columns = None,
    quantity: QuantityName = "accuracy",
    track: Track = None,
) -> None:
    """Make figures, tables and a web page from the results of analyze. Needs no torch."""
    from reports.command import report
    from reports.figure_type import USUAL
    from training.plugins import use_current_folder

    use_current_folder()
    report(
        runs,
        out,
        formats=kind or USUAL,
        figures=figure or None,
        console=make_console(),
        animate=animate,
        bold=bold,
        questions=question or [],
        rows=rows or [],
        columns=columns or [],
        quantity=quantity,
        width=width,
        track=track or [],
    )


@app.command()
def reproduce(
    artefacts: Annotated[
        list[str],
        typer.Argument(
            metavar="PAPER[/ARTEFACT]...",
            help='fedgloss, fedgloss/table3, ..., or "all".',
            autocompletion=complete_artefact,
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="digits (embedded data, minutes), small (real data, hours) or full (as published).",
            autocompletion=offer("digits", "small", "full"),
        ),
    ] = "digits",
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("papers"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")] = None,
    device: Device = "auto",
    backend: Annotated[
        str,
        typer.Option(
            help="Where runs are trained and measured: processes (this machine) or ray.",
            autocompletion=offer("processes", "ray"),
        ),
    ] = "processes",
    address: Address = "",
    gpus: Gpus = 0.0,
    kind: Formats = None,
    bold: Bold = "clear",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would take.")] = False,
    typeset: Annotated[
        bool, typer.Option("--typeset", help="Only typeset existing results; nothing is trained or measured.")
    ] = False,
) -> None:
    """Train, measure and typeset tables and figures of the papers by name. Finished runs are reused."""
    from reports.figure_type import USUAL
    from reports.reproduction import reproduce
    from training.executors.ray_pool import make_cluster

    reproduce(
        artefacts,
        scale,
        out,
        console=make_console(),
        data_root=data_root,
        workers=workers,
        device=device,
        backend="ray" if address else backend,
        cluster=make_cluster(address, gpus),
        formats=kind or USUAL,
        bold=bold,
        dry_run=dry_run,
        typeset=typeset,
    )


@app.command()
def export(
    results: Annotated[Path, typer.Argument(metavar="FILE", help="An answer of the study surface or plane (.h5).")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="NAME.vts for ParaView, or NAME.h5 in Goldstein's layout.")
    ],
    run: Annotated[str | None, typer.Option(help="Run of the model at the centre.", show_default="first")] = None,
    round: Annotated[int | None, typer.Option(help="Round of that model.", show_default="first")] = None,
    client: Annotated[
        int | None, typer.Option(help="Client of that model; -1 for a global model.", show_default="first")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Data of the loss in a .vts file: train, test or own.", show_default="first")
    ] = None,
) -> None:
    """Export a stored surface for another program. The model of a plane may be any of those that it contains."""
    from reports.exports import export

    export(results, out, run=run, round=round, client=client, split=split)
    print(out)


@app.command(name="import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A surface in Goldstein's HDF5 layout.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, e.g. analysis/surface/NAME.h5.")],
) -> None:
    """Import a surface that was computed with Goldstein's loss-landscape code."""
    from reports.exports import import_surface

    import_surface(source, out)
    print(out)

"""The command that measures runs and models. Other packages are imported only inside the functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from landscape.cli.app import Address, Device, Gpus, app, choose_backend, make_console
from landscape.cli.completion import complete_run, complete_study, offer

RunsOrNone = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN...",
        help='Run directories, folders of runs, or patterns such as "runs/*sam*".',
        autocompletion=complete_run,
    ),
]
Studies = Annotated[
    list[str] | None,
    typer.Option(
        help="A study (landscape list studies), or module:name; may be repeated. Default: all studies.",
        autocompletion=complete_study,
    ),
]
Rounds = Annotated[
    str | None, typer.Option(help='Rounds for every study: last, all, "every 10" or 0,50,100.', show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STUDY.KEY=VALUE", help="Change a setting, e.g. curvature.top=10."),
]
Workers = Annotated[
    int | None, typer.Option(help="Threads, or pieces at a time (default: one per core).", show_default=False)
]
Backend = Annotated[
    str,
    typer.Option(
        help="serial: piece by piece; processes or ray: several at a time; auto: what is faster.",
        autocompletion=offer("auto", "serial", "processes", "ray"),
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory limit for stored graphs, e.g. 8G (default: a quarter of the free memory)."),
]
Weights = Annotated[
    list[Path] | None, typer.Option(help="Weights of that model: safetensors, or a file of torch.save.")
]
OwnData = Annotated[str | None, typer.Option(help="Data for that model: a data set, a .npz file, or module:function.")]
Folder = Annotated[
    Path | None, typer.Option(help="Folder for the results (default: analysis/ in the run).", show_default=False)
]
AnswerName = Annotated[
    str, typer.Option(help="Name of the answers (default: made from the changed settings).", show_default=False)
]


@app.command()
def analyze(
    runs: RunsOrNone = None,
    study: Studies = None,
    rounds: Rounds = None,
    settings: Changes = None,
    workers: Workers = None,
    backend: Backend = "auto",
    address: Address = "",
    gpus: Gpus = 0.0,
    memory: Memory = None,
    device: Device = "auto",
    model: Annotated[str | None, typer.Option(help="Instead of runs: module:function that returns a model.")] = None,
    weights: Weights = None,
    data: OwnData = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder of the data.", show_default=False)] = None,
    out: Folder = None,
    name: AnswerName = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be computed, and its cost.")] = False,
) -> None:
    """Measure runs, or your own model: curvature, surfaces, barriers, incompatibility and more, stored as HDF5."""
    from analysis import command
    from training.executors.ray_pool import make_cluster
    from training.plugins import use_current_folder

    use_current_folder()
    if weights is not None and len(weights) > 1:
        raise ValueError(f"--weights takes one file, got {len(weights)}: call landscape analyze once for each")
    subjects = command.open_subjects(
        runs or [],
        model=model,
        weights=weights[0] if weights else None,
        data=data,
        data_root=data_root,
        workers=workers,
        memory=memory,
        device=device,
        out=out,
    )
    wanted = [f"{name}.rounds={rounds}" for name in command.list_with_rounds(study or [])] if rounds is not None else []
    command.analyze(
        subjects,
        study or [],
        [*wanted, *(settings or [])],
        console=make_console(),
        out=out,
        name=name,
        dry_run=dry_run,
        backend=choose_backend(backend, address),
        workers=workers,
        cluster=make_cluster(address, gpus),
    )

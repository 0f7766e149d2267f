"""Commands that train: demo, train, personal. Other packages are imported only inside the functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from landscape.cli.app import DEVICES, Address, Device, Gpus, Runs, Track, app, choose_backend, make_console
from landscape.cli.completion import complete_recipe, complete_setting, offer


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results (default: runs/demo, or runs/quick).", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Two methods and four studies, in about a minute.")] = False,
) -> None:
    """Train, analyse and report four methods on the embedded digits, in about four minutes."""
    from reports.demo import run_demo

    run_demo(out or "", seed, quick=quick, console=make_console())


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="The name of a recipe (landscape list recipes), or a TOML file.",
        autocompletion=complete_recipe,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. local.lr=0.1; may be repeated.",
        autocompletion=complete_setting,
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
]
Workers = Annotated[
    int | None, typer.Option(help="Largest number of processes (default: one per core).", show_default=False)
]
RecipeDevice = Annotated[
    str | None,
    typer.Option(
        help="Where to compute: auto, cpu, cuda, cuda:1 or mps (default: as the recipe says, else auto).",
        autocompletion=DEVICES,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory limit for vectors that clients keep, e.g. 2G; the others are kept in a file "
        "(default: a quarter of the free memory)."
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        help="Executor: auto, serial, processes, vmap or ray.",
        autocompletion=offer("auto", "serial", "processes", "vmap", "ray"),
    ),
]
Shard = Annotated[
    str, typer.Option(metavar="I/N", help="Train only the I-th of N parts of a sweep: 0/4, 1/4, 2/4 or 3/4.")
]


@app.command()
def train(
    recipe: RecipeName,
    settings: Changes = None,
    out: Annotated[Path, typer.Option(help="Folder in which run directories are created.")] = Path("runs"),
    data_root: DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data.")] = False,
    backend: Backend = "auto",
    workers: Workers = None,
    device: RecipeDevice = None,
    address: Address = "",
    gpus: Gpus = 0.0,
    memory: Memory = None,
    shard: Shard = "",
    track: Track = None,
) -> None:
    """Train a recipe: one run, or every combination of its sweep. Partial runs are resumed, finished ones skipped."""
    from training.executors.ray_pool import make_cluster
    from training.interface import train_sweep
    from training.plugins import use_current_folder

    use_current_folder()
    train_sweep(
        recipe,
        out,
        settings=settings or [],
        data_root=data_root,
        download=download,
        backend=choose_backend(backend, address),
        workers=workers,
        device=device,
        cluster=make_cluster(address, gpus),
        memory=memory,
        shard=shard,
        track=track or [],
        console=make_console(),
    )


@app.command()
def personal(
    runs: Runs,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY",
            help="finetune, global, knn, local or own; may be repeated. Default: finetune.",
            autocompletion=offer("finetune", "global", "knn", "local", "own"),
            show_default=False,
        ),
    ] = None,
    way: Annotated[list[str] | None, typer.Option(hidden=True, help="The former name of --strategy.")] = None,
    round: Annotated[
        int | None, typer.Option(help="Round of the global model (default: the newest checkpoint).", show_default=False)
    ] = None,
    model: Annotated[str, typer.Option(help="Which global model: server, mean or swa.")] = "server",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set an option of the strategies, e.g. epochs=5; may be repeated."
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Test only this many clients, drawn by the run's seed.", show_default=False)
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data, if not the one used in training.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Make a model for each client and test it on the client's own data. Stored results are not computed again."""
    from training.console.personal_results import evaluate_runs
    from training.plugins import use_current_folder

    use_current_folder()
    evaluate_runs(
        runs,
        [*(strategy or []), *(way or [])] or ["finetune"],
        settings or [],
        console=make_console(),
        round=round,
        model=model,
        sample=clients,
        data_root=data_root,
        device=device,
    )

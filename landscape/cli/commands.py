"""Commands that train, measure, report and read. Other packages are imported only inside their functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from landscape import __version__
from landscape.cli.app import Json, Runs, app, make_console, print_json
from landscape.cli.completion import (
    complete_artefact,
    complete_figure,
    complete_recipe,
    complete_setting,
    complete_study,
    complete_tracker,
)

LISTS = ("algorithms", "datasets", "partitions", "models", "recipes", "studies", "figures", "artefacts")


Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1 or mps.")]

Address = Annotated[
    str,
    typer.Option(help="Ray cluster, e.g. auto or 10.0.0.1:6379 (default: $RAY_ADDRESS, else Ray on this machine)."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also tell a tracker: tensorboard, wandb, mlflow or module:name; may be repeated.",
        autocompletion=complete_tracker,
        show_default=False,
    ),
]
Gpus = Annotated[float, typer.Option(help="GPUs for each of Ray's workers; 0.25: four workers share one.")]


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
    from reports.demo import run, run_quickly

    chosen = run_quickly if quick else run
    chosen(out or Path("runs/quick" if quick else "runs/demo"), seed, console=make_console())


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The name of a recipe (landscape list recipes), or a TOML file.",
            autocompletion=complete_recipe,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting, e.g. local.lr=0.1; may be repeated.",
            autocompletion=complete_setting,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder in which run directories are created.")] = Path("runs"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data.")] = False,
    backend: Annotated[str, typer.Option(help="Executor: auto, serial, processes, vmap or ray.")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Largest number of processes (default: one per core).", show_default=False)
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1 or mps (default: as the recipe says, else auto)."),
    ] = None,
    address: Address = "",
    gpus: Gpus = 0.0,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory limit for vectors that clients keep, e.g. 2G; the others are kept in a file "
            "(default: a quarter of the free memory)."
        ),
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Train only the I-th of N parts of a sweep: 0/4, 1/4, 2/4 or 3/4.")
    ] = "",
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
        backend=_choose_backend(backend, address),
        workers=workers,
        device=device,
        cluster=make_cluster(address, gpus),
        memory=memory,
        shard=shard,
        track=track or [],
        console=make_console(),
    )


@app.command()
def analyze(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help='Run directories, folders of runs, or patterns such as "runs/*sam*".'),
    ] = None,
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="A study (landscape list studies), or module:name; may be repeated. Default: all studies.",
            autocompletion=complete_study,
        ),
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(help='Rounds for every study: last, all, "every 10" or 0,50,100.', show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STUDY.KEY=VALUE", help="Change a setting, e.g. curvature.top=10."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads, or pieces at a time (default: one per core).", show_default=False)
    ] = None,
    backend: Annotated[
        str, typer.Option(help="serial: piece by piece; processes or ray: several at a time; auto: what is faster.")
    ] = "auto",
    address: Address = "",
    gpus: Gpus = 0.0,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit for stored graphs, e.g. 8G (default: a quarter of the free memory)."),
    ] = None,
    device: Device = "auto",
    model: Annotated[str | None, typer.Option(help="Instead of runs: module:function that returns a model.")] = None,
    weights: Annotated[
        list[Path] | None, typer.Option(help="Weights of that model: safetensors, or a file of torch.save.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data for that model: a data set, a .npz file, or module:function.")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder of the data.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default: analysis/ in the run).", show_default=False)
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the answers (default: made from the changed settings).", show_default=False)
    ] = "",
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
    wanted = [f"{name}.rounds={rounds}" for name in command.with_rounds(study or [])] if rounds is not None else []
    command.analyze(
        subjects,
        study or [],
        [*wanted, *(settings or [])],
        console=make_console(),
        out=out,
        name=name,
        dry_run=dry_run,
        backend=_choose_backend(backend, address),
        workers=workers,
        cluster=make_cluster(address, gpus),
    )


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories, folders of runs or of answers, or patterns."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page (default: report/ beside the runs).", show_default=False)
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--format", help="Format of the figures: png, pdf or svg; may be repeated. Default: png and svg."),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Draw only this figure (landscape list figures), or module:name; may be repeated.",
            autocompletion=complete_figure,
        ),
    ] = None,
    width: Annotated[
        str, typer.Option(help="Width of all figures: icml, icml2, neurips, iclr, cvpr, cvpr2, eccv, or inches.")
    ] = "",
    animate: Annotated[bool, typer.Option("--animate", help="Make animations of the surfaces too.")] = False,
    bold: Annotated[
        str, typer.Option(help="Bold in tables: clear (best by more than its error) or plain (best, as in papers).")
    ] = "clear",
    question: Annotated[
        list[str] | None,
        typer.Option(help="Show only answers of this name, where a study has one (analyze --name); may be repeated."),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(help="Setting whose values are rows of one more table: algorithm, local.epochs; may be repeated."),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Setting whose values are its columns: partition.alpha; may be repeated.")
    ] = None,
    quantity: Annotated[
        str, typer.Option(help="What that table shows: accuracy, best_accuracy, lambda_1, communication, ...")
    ] = "accuracy",
    track: Track = None,
) -> None:
    """Make figures, tables and a web page from the results of analyze. Needs no torch."""
    from reports.catalog import CATALOG
    from reports.command import report
    from reports.figure_type import USUAL
    from training.plugins import use_current_folder

    use_current_folder()
    report(
        runs,
        out,
        formats=kind or USUAL,
        figures=[CATALOG.find(name) for name in figure] if figure else None,
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
        str, typer.Option(help="digits (embedded data, minutes), small (real data, hours) or full (as published).")
    ] = "digits",
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("papers"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")] = None,
    device: Device = "auto",
    backend: Annotated[
        str, typer.Option(help="Where runs are trained and measured: processes (this machine) or ray.")
    ] = "processes",
    address: Address = "",
    kind: Annotated[
        list[str] | None,
        typer.Option("--format", help="Format of the figures: png, pdf or svg; may be repeated. Default: png and svg."),
    ] = None,
    bold: Annotated[
        str, typer.Option(help="Bold in tables: clear (best by more than its error) or plain (best, as in papers).")
    ] = "clear",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would take.")] = False,
    typeset: Annotated[
        bool, typer.Option("--typeset", help="Only typeset what is there; nothing is trained or measured.")
    ] = False,
) -> None:
    """Train, measure and typeset tables and figures of the papers by name. Finished parts are kept."""
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
        cluster=make_cluster(address, 0.0),
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
    from analysis import store
    from reports.exports import import_goldstein

    if out.exists():
        raise ValueError(f"{out} exists already: choose another name")
    store.write(out, import_goldstein(source, out.stem))
    print(out)


@app.command(name="list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(metavar="|".join(LISTS), help="What to list."),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A study, to list its settings.", show_default=False)
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


@app.command()
def personal(
    runs: Runs,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY",
            help="finetune, global, knn, local or own; may be repeated. Default: finetune.",
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


def _choose_backend(backend: str, address: str) -> str:
    """Choose Ray where an address is given; ValueError if another backend is asked for as well."""
    if address and backend not in ("auto", "ray"):
        raise ValueError(f"--address is for the backend ray, and {backend} is asked for; leave one of them away")
    return "ray" if address else backend

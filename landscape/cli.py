"""The `landscape` command. Other packages are imported only inside the functions of the commands."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from landscape import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

LISTS = ("algorithms", "datasets", "partitions", "models", "recipes", "studies", "figures", "artefacts")
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help='Run directories, folders of runs, or patterns such as "runs/*sam*".'),
]


@app.callback(invoke_without_command=True)
def root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Loss landscapes and sharpness for federated learning."""
    if show_version:
        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Train, analyse and report four methods on the embedded digits, in about four minutes."""
    from reports.demo import run

    run(out, seed, console=_console())


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="The name of a recipe (landscape list recipes), or a TOML file.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. local.lr=0.1; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder in which run directories are created.")] = Path("runs"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data.")] = False,
    backend: Annotated[str, typer.Option(help="Executor: auto, serial, processes or vmap.")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Largest number of processes (default: one per core).", show_default=False)
    ] = None,
) -> None:
    """Train a recipe: one run, or every combination of its sweep. Partial runs are resumed, finished ones skipped."""
    import training
    from training.config import load
    from training.console.sweep import train_all

    _import_from_here(training.__file__)
    loaded = load(recipe, settings or [])
    where = {"root": str(data_root.absolute())} if data_root is not None else {}
    given = {**where, **({"download": True} if download else {})}
    recipes = [one.model_copy(update={"data": one.data.model_copy(update=given)}) for one in loaded]
    asked = [one.partition("=")[0].strip().removeprefix("sweep.") for one in settings or []]
    train_all(recipes, out, console=_console(), backend=backend, workers=workers, asked=asked)


@app.command()
def analyze(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help='Run directories, folders of runs, or patterns such as "runs/*sam*".'),
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(help="A study (landscape list studies); may be repeated. Default: all studies.")
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(help='Rounds for every study: last, all, "every 10" or 0,50,100.', show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STUDY.KEY=VALUE", help="Change a setting, e.g. curvature.top=10."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads (default: one per core).", show_default=False)] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit for stored graphs, e.g. 8G (default: a quarter of the free memory)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Instead of runs: module:function that returns a model.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of that model: safetensors, or a file of torch.save.")
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
    import training
    from analysis import command

    _import_from_here(training.__file__)
    subjects = command.open_subjects(
        runs or [],
        model=model,
        weights=weights,
        data=data,
        data_root=data_root,
        workers=workers,
        memory=memory,
        out=out,
    )
    wanted = [f"{name}.rounds={rounds}" for name in command.with_rounds(study or [])] if rounds is not None else []
    command.analyze(
        subjects, study or [], [*wanted, *(settings or [])], console=_console(), out=out, name=name, dry_run=dry_run
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
) -> None:
    """Make figures, tables and a web page from the results of analyze. Needs no torch."""
    from reports import command
    from reports.figure import USUAL

    command.report(
        runs,
        out,
        formats=kind or USUAL,
        console=_console(),
        animate=animate,
        bold=bold,
        questions=question or [],
        rows=rows or [],
        columns=columns or [],
        quantity=quantity,
    )


@app.command()
def reproduce(
    artefacts: Annotated[
        list[str],
        typer.Argument(metavar="PAPER[/ARTEFACT]...", help='fedgloss, fedgloss/table3, ..., or "all".'),
    ],
    scale: Annotated[
        str, typer.Option(help="digits (embedded data, minutes), small (real data, hours) or full (as published).")
    ] = "digits",
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("papers"),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder of the data (default: $LANDSCAPE_DATA, else data).", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")] = None,
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
    from reports.figure import USUAL
    from reports.reproduce import reproduce

    reproduce(
        artefacts,
        scale,
        out,
        console=_console(),
        data_root=data_root,
        workers=workers,
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
    from analysis.exports import export

    export(results, out, run=run, round=round, client=client, split=split)
    print(out)


@app.command(name="import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A surface in Goldstein's HDF5 layout.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, e.g. analysis/surface/NAME.h5.")],
) -> None:
    """Import a surface that was computed with Goldstein's loss-landscape code."""
    from analysis import store
    from analysis.exports import import_goldstein

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
) -> None:
    """List the names that recipes and commands accept, or the settings of a study."""
    from landscape.errors import choose

    if choose("list", kind, LISTS) == "studies":
        from analysis.command import list_settings, list_studies

        table = list_studies() if name is None else list_settings(name)
    elif name is not None:
        raise ValueError(f"only studies take a name, got '{name}'; write: landscape list {kind}")
    elif kind == "figures":
        from reports.command import list_figures

        table = list_figures()
    elif kind == "artefacts":
        from reports.artefacts.costs import list_artefacts
        from reports.reproduce import OUT, PAPERS

        table = list_artefacts(PAPERS, OUT)
    else:
        from training.console.listings import make_listing

        table = make_listing(kind)
    _console().print(table)


@app.command()
def show(runs: Runs) -> None:
    """Show the settings, status, results and partition of a run, or one line for each of several runs."""
    from training.console import summaries
    from training.console.messages import printable
    from training.storage.run_directory import find_runs

    problems = summaries.show_all(find_runs(runs), _console())
    for problem in problems:
        print(printable(problem))
    if problems:
        raise typer.Exit(1)


@app.command()
def check(runs: Runs) -> None:
    """Verify every file of runs and of their results against its stored hash."""
    from analysis import store
    from training import verification
    from training.console.messages import printable
    from training.storage import run_directory

    found = run_directory.find_runs(runs)
    shared = [path for path in runs if path.is_dir() and path not in found]  # may hold results that compare runs
    unsound = False
    for folder in [*found, *shared]:
        results = store.find_answers(folder / "analysis")
        problems = verification.check_run(folder) if folder in found else []
        problems += [text for text in map(store.verify, results) if text]
        for problem in problems:
            print(printable(problem))
        unsound |= bool(problems)
        if not problems and (folder in found or results):
            whose = f"{folder}: " if len(found) > 1 else ""
            counts = [f"{len(run_directory.checkpoint_rounds(folder))} checkpoints"] if folder in found else []
            counts += [f"{len(results)} results of analyze"] if results else []
            print(f"{whose}sound: {', '.join(counts)}")
    if unsound:
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
) -> None:
    """Make a model for each client and test it on the client's own data. Stored results are not computed again."""
    import training
    from training.console.personal_results import evaluate_runs

    _import_from_here(training.__file__)
    evaluate_runs(
        runs,
        [*(strategy or []), *(way or [])] or ["finetune"],
        settings or [],
        console=_console(),
        round=round,
        model=model,
        sample=clients,
        data_root=data_root,
    )


def _console() -> Console:
    """Make a console as wide as the terminal; elsewhere so wide that each row is one line, for grep and files."""
    console = Console()
    wide = console.is_terminal or "COLUMNS" in os.environ
    return console if wide else Console(width=500)


def _import_from_here(package: str | None) -> None:
    """Make the current folder's modules importable, for models and data sets named "module:function".

    package: the file of one of our packages. The current folder goes to the end of the path, so that a random.py or a
    training/ in it does not replace an installed module. Our own folder goes before it, since an editable install would
    otherwise be searched after all folders, in worker processes too.
    """
    for folder in (str(Path(package or __file__).parents[1]), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)


def main() -> None:
    """Run the command. A ValueError is printed as one line, with exit code 2; an OSError has exit code 1."""
    from training.console.messages import printable

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the name of a file may not be valid UTF-8: shown as \xff
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {printable(message)}", file=sys.stderr)
        try:
            app()
        except ValueError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
            raise SystemExit(2) from None
        except OSError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
            raise SystemExit(1) from None

"""The demo: four methods on the embedded digits, one class per client and all classes, every study, and the page.

It is `landscape train`, `landscape analyze` and `landscape report`, with settings that fit into four minutes. The quick
demo has two methods, one class per client and four studies, and fits into one minute. The packages that need torch are
opened inside the functions: reports stay free of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from reports.catalog import FIGURES
from reports.command import report
from reports.inputs.recipes import as_number, find_table
from reports.inputs.runs import Run, read_runs
from reports.quantities.measures import MEASURES

RECIPE = "digits_demo"
QUESTION = "demo"  # what the answers are called
SWA = ('algorithm={name="fedasam", rho=0.5, eta=0.2}', "swa.start=0.75", "swa.cycle=2", "swa.lr_end=0.01")
STUDIES: dict[str, dict[str, object]] = {
    "training": {},
    "forgetting": {},
    "robustness": {"severities": (1, 3, 5)},
    "personal": {},
    "features": {"count": 360},
    "curvature": {"density": 2},
    "surface": {"steps": 13},
    "sharpness": {"kinds": ("sam", "asam", "average"), "samples": 8, "clients": 2},
    "local_global": {"rounds": "10,30", "clients": 4},
    "incompatibility": {"steps": 0, "batches": 4, "radius": 0.05},  # one radius for all methods
    "drift": {},
    "sensitivity": {},
    "plane": {"steps": 11},
    "interpolation": {"steps": 6, "low": -0.5, "high": 1.5, "clients": 2, "batchnorm": ("interpolated",)},
}
QUICK = (
    "sweep.partition.alpha=[0.0]",
    'sweep.algorithm=[{name="fedavg"}, {name="fedgloss", rho_s=0.15, rho=0.15, beta=10.0}]',
    "rounds.count=15",
    "checkpoints.keep_locals=last",
)
QUICK_STUDIES: dict[str, dict[str, object]] = {
    "training": {},
    "curvature": {"rounds": "last", "density": 0},
    "surface": {"steps": 9, "splits": ("train",)},
    "local_global": {"rounds": "last", "clients": 2},
}


def run_demo(
    out: str | os.PathLike[str] = "", seed: int = 0, *, quick: bool = False, console: Console | None = None
) -> Path:
    """Train, analyse and report the demo, as `landscape demo` does; finished parts are kept.

    out: folder of the runs; by default runs/demo, or runs/quick. seed: of all random numbers.
    quick: two methods and four studies, in about a minute; else four methods and every study, in about four.
    console: where to print; by default the terminal.

    Returns the path of the page.
    """
    chosen = run_quickly if quick else run
    return chosen(Path(out or ("runs/quick" if quick else "runs/demo")), seed, console=console)


def run_quickly(out: Path, seed: int = 0, *, console: Console | None = None) -> Path:
    """Train, analyse and report two methods in less than a minute; arguments as those of `run`."""
    console = console or Console()
    console.print("Ten clients learn to read digits together, by two methods. Each client sees one digit.")
    figures = [one for one in FIGURES.values() if set(one.needs) <= set(QUICK_STUDIES) and not one.across]
    paths = train(out, [*QUICK, f"seed={seed}"], console, swa=False)
    analyze(paths, QUICK_STUDIES, console)
    page = report(paths, out / "report", console=Console(quiet=True), figures=figures)
    return conclude(paths, page, console)


def run(
    out: Path,
    seed: int = 0,
    *,
    settings: Sequence[str] = (),
    studies: Mapping[str, Mapping[str, object]] = STUDIES,
    console: Console | None = None,
) -> Path:
    """Train, analyse and report; finished parts are kept.

    out: the folder of the runs.
    settings: changes of the recipe, as key=value.
    studies: study -> its settings.
    console: where to print; by default the terminal.

    Returns the path of the page.
    """
    console = console or Console()
    console.print("Ten clients learn to read digits together, by four methods: once each sees one digit, once all.")
    paths = train(out, [*settings, f"seed={seed}"], console)
    analyze(paths, studies, console)
    page = report(paths, out / "report", console=console)
    return conclude(paths, page, console)


def train(out: Path, settings: Sequence[str], console: Console, *, swa: bool = True) -> list[Path]:
    """Train every run, with a progress bar for each.

    settings: changes of the recipe. swa: whether to add the method with averaging.
    """
    from training.config import load
    from training.console.progress import bars
    from training.console.sweep import find_end
    from training.engine import opening
    from training.engine.run import train as train_recipe

    paths = []
    with bars(console) as bar:
        for recipe in [*load(RECIPE, settings), *(load(RECIPE, [*settings, *SWA]) if swa else [])]:
            path, count = opening.find_run(out, recipe), recipe.rounds.count
            if not find_end(path, recipe):
                about = Run(path, recipe.model_dump(exclude_none=True), [])
                move = bar(f"train {about.method}, {about.heterogeneity}")
                path = train_recipe(
                    recipe,
                    out,
                    on_round=lambda record, move=move, count=count: move(record["round"], count),  # type: ignore[misc]
                    on_message=lambda line: console.print(line, highlight=False, markup=False),
                )
            paths.append(path)
    return paths


def analyze(paths: Sequence[Path], studies: Mapping[str, Mapping[str, object]], console: Console) -> None:
    """Run every study on every run, with a progress bar for each study."""
    from analysis import command, runner
    from training.console.progress import bars

    subjects = command.open_subjects(paths)
    with command.hold_folders(subjects, list(studies), None), bars(console) as bar:
        plans = command.make_plans(subjects, list(studies), studies, console=console, name=QUESTION)
        for name in studies:
            own = [plan for plan in plans if plan.study.name == name and not plan.kept]
            if own:
                move, total, done = bar(name), sum(len(plan.pieces) for plan in own), 0
                for plan in own:
                    runner.carry_out(plan, say=lambda line: console.print(line, highlight=False, markup=False))
                    done += len(plan.pieces)
                    move(done, total)


def conclude(paths: Sequence[Path], page: Path, console: Console) -> Path:
    """Print the three main numbers of every run, and where the page is; returns its path."""
    table = Table("a client sees", "method", "accuracy", "sharpness of the result", "of local models: own data → all")
    for one in sorted(read_runs(paths).runs, key=_alpha):
        accuracy, top, local, everyone = (
            MEASURES[name].find(one) for name in ("accuracy", "lambda_1", "local", "everyone")
        )
        seen = "one class" if _alpha(one) == 0 else "all classes"
        table.add_row(seen, one.method, f"{accuracy:.1f} %", f"{top:.3g}", f"{local:.3g} → {everyone:.3g}")
    console.print(table)
    console.print("sharpness: the largest eigenvalue of the Hessian of the training loss; lower is flatter")
    console.print(f"Open {page} in a browser: it needs no network.", highlight=False, markup=False, soft_wrap=True)
    return page


def _alpha(run: Run) -> float:
    return as_number(find_table(run.settings, "partition")["alpha"])

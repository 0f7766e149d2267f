"""`landscape report`: read runs, draw every figure, write tables and the page. Missing results are no errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from analysis.store import FOLDER
from landscape.errors import choose
from landscape.plotting.style import find_width
from reports.catalog import CATALOG
from reports.drawing import Outcome, draw_all
from reports.figure_type import FORMATS, TOPICS, USUAL, Figure
from reports.inputs.runs import Collection, read_runs
from reports.page.page import pluralise, write_page
from reports.tables import catalog as tables
from reports.tables.by_setting import tabulate_settings
from reports.tables.table import BOLD
from training.console.messages import printable
from training.console.tables import print_line
from training.runs import Places, list_paths
from training.storage.run_directory import expand_pattern, has_recipe, runs_in
from training.tracking.catalog import list_trackers
from training.tracking.following import send_report
from training.tracking.tracker import Exhibit, Subject, open_subject

PAGE = "index.html"


def report(
    paths: Places,
    out: str | os.PathLike[str] | None = None,
    *,
    formats: Sequence[str] = USUAL,
    console: Console | None = None,
    animate: bool = False,
    figures: Iterable[str | Figure] | None = None,
    workers: int | None = None,
    strict: bool = False,
    bold: str = "clear",
    questions: Sequence[str] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    quantity: str = "accuracy",
    width: str | float = "",
    track: str | Sequence[str] = (),
) -> Path:
    """Write figures, tables and the page of some runs into a folder.

    paths: runs, folders of them, folders of answers (`analyze --model`, `--out`), or patterns; one or several.
    out: the folder; by default `report` in the run, or beside several runs.
    formats: of the figures, some of png, pdf and svg.
    console: where to print; by default the terminal.
    animate: whether to make animations of the surfaces too.
    figures: the figures to draw, by name, 'module:name' or themselves; by default all.
    workers: number of processes that draw; by default one per core.
    strict: whether a figure that fails raises its error; otherwise the page names it.
    bold: what tables set bold: "clear", the best where it leads by more than its error; "plain", the best.
    questions: names of questions; a study that has answers of these names shows only those.
    rows, columns: dotted settings, for one more table with their values as rows and columns.
    quantity: what that table shows, a key of reports.quantities.catalog.QUANTITIES.
    width: of all figures: icml, icml2 (both columns), neurips, iclr, cvpr, cvpr2, eccv, or inches; "" as they choose.
    track: trackers that get figures and tables: tensorboard, wandb, mlflow, or 'module:name'; one or several.

    Returns the path of the page.
    """
    console = console or Console()
    trackers = list_trackers(track)
    _check_choices(formats, bold, trackers)
    inches = find_width(str(width))
    runs = find_runs(list_paths(paths))
    everything = _read(runs, questions)
    asked = [tabulate_settings(everything.runs, rows, columns, quantity, bold=bold)] if rows or columns else []
    folder = choose_folder(runs) if out is None else Path(out)
    chosen = _find_figures(CATALOG.entries() if figures is None else figures)
    outcomes = list(draw_all(everything, chosen, folder, formats, workers=workers, strict=strict, width=inches))
    problems = [*everything.problems, *_list_failures(outcomes)]
    missing = [*_list_missing_figures(everything, outcomes), *_list_missing_studies(everything, outcomes)]
    made = [*asked, *tables.make_tables(everything, bold=bold, problems=problems)]
    saved = [Exhibit(table.name, table.title, tables.save(table, folder / "tables")) for table in made]
    if animate:
        missing += _animate(everything, folder / "animations", console)
    page = write_page(folder / PAGE, everything, outcomes, tables=made, missing=missing, problems=problems, bold=bold)
    _track(everything, folder, outcomes, saved, trackers, console)
    pictures = sum(len(outcome.pictures) for outcome in outcomes)
    counts = f"{pluralise(pictures, 'figure')} of {pluralise(len(everything.runs), 'run')}"
    for line in [*map(printable, [*problems, *missing]), counts, str(page)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return page


def _find_figures(figures: Iterable[str | Figure]) -> list[Figure]:
    return [CATALOG.find(one) if isinstance(one, str) else one for one in figures]


def _animate(everything: Collection, folder: Path, console: Console) -> list[str]:
    """Make animations of surfaces; returns a line for each that could not be made."""
    from reports.plotting.loss import animation

    films, lines = animation.animate(everything, folder)
    console.print(f"{len(films)} animations in {folder}", highlight=False, markup=False)
    return lines


def _track(
    everything: Collection,
    folder: Path,
    outcomes: Sequence[Outcome],
    saved: Sequence[Exhibit],
    trackers: Sequence[str],
    console: Console,
) -> None:
    """Send figures and tables to trackers: into the entry of a single run, or into a new entry for the report."""
    runs = everything.runs
    own = [run.path for run in runs if has_recipe(run.path)] if len(runs) == 1 else []
    subject = open_subject(own[0]) if own else Subject(folder, f"{folder.absolute().parent.name} report")
    figures = [
        Exhibit(
            f"{outcome.section.slug}/{one.stem}", one.caption, {kind: folder / at for kind, at in one.files.items()}
        )
        for outcome in outcomes
        for one in outcome.pictures
    ]
    rounds = max((run.progress.rounds for run in runs), default=0)
    send_report(subject, trackers, figures, saved, lambda line: print_line(console, line), round=rounds)


def _read(runs: Sequence[Path], questions: Sequence[str]) -> Collection:
    everything = keep_questions(read_runs(runs), questions)
    if not everything.runs:
        why = "; ".join(everything.problems) or "no run directory was given"
        raise ValueError(f"no runs to report on ({why}). Write landscape report RUN..., runs as landscape train makes")
    return everything


def _check_choices(formats: Sequence[str], bold: str, trackers: Sequence[str]) -> None:
    unknown = [kind for kind in formats if kind not in FORMATS]
    if unknown:
        raise ValueError(f"formats: {', '.join(unknown)} cannot be drawn; choose among {', '.join(FORMATS)}")
    if trackers and "png" not in formats:
        raise ValueError(f"track: trackers show figures as png; add that to the formats {', '.join(formats)}")
    if bold not in BOLD:
        raise ValueError(f"bold must be one of {', '.join(BOLD)}; got '{bold}'")


def keep_questions(everything: Collection, names: Sequence[str]) -> Collection:
    """Of every study that has answers to the named questions, keep only those.

    names: of questions; a name that no answer has is an error.
    """
    studies = dict.fromkeys(study for run in everything.runs for study in run.answers) | dict.fromkeys(
        everything.together
    )
    known = {study: everything.questions(study) for study in studies}
    for name in names:
        choose("question", name, {one for some in known.values() for one in some})
    chosen = {study: [one for one in some if one in names] for study, some in known.items()}
    return everything.keep({study: some for study, some in chosen.items() if some})


def tabulate_figures() -> Table:
    """List every figure with its topic and the studies it is drawn from."""
    listed = Table("name", "topic", "what it shows", "studies", box=box.SIMPLE_HEAD, show_edge=False)
    for figure in CATALOG.entries().values():
        listed.add_row(figure.name, TOPICS[figure.topic], figure.title, ", ".join(figure.needs) or "-")
    return listed


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Find the run directories and folders of answers of these paths; a folder of runs stands for those in it.

    A path may be a pattern with * ? [ ]. Folders that belong to the runs beside them (answers that compare runs,
    earlier reports) are passed over.
    """
    found: list[Path] = []
    given = [one for path in paths for one in expand_pattern(path) or [path]]
    beside = {one.absolute().parent / FOLDER for one in given if has_recipe(one)}
    for path in given:
        if path.absolute() in beside or (path / PAGE).exists():
            continue
        inside = [] if has_recipe(path) else sorted(runs_in(path, depth=1))
        found += inside or [path]
    return list(dict.fromkeys(found))


def choose_folder(runs: Sequence[Path]) -> Path:
    """Choose where a report goes: into a single run, or into the folder that holds all runs."""
    if len(runs) == 1:
        return runs[0] / "report"
    return Path(os.path.commonpath([run.absolute().parent for run in runs])) / "report"


def _list_failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{one.figure.name} ({one.section.title}) could not be drawn: {one.problem}" for one in outcomes if one.problem
    ]


def _list_missing_figures(everything: Collection, outcomes: Sequence[Outcome]) -> list[str]:
    """One line per figure that was not drawn, with the command that would change that."""
    lines = []
    for figure in dict.fromkeys(outcome.figure for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.figure == figure]
        empty = [outcome for outcome in own if not outcome.pictures and not outcome.problem]
        if not empty:
            continue
        where = "" if len(empty) == len(own) else f" ({'; '.join(outcome.section.title for outcome in empty)})"
        lines.append(f"not drawn: {figure.name}{where} needs {_suggest_command(figure, everything, empty)}")
    return lines


def _suggest_command(figure: Figure, everything: Collection, empty: Sequence[Outcome]) -> str:
    runs = [run for outcome in empty for run in outcome.section.select(everything)]
    absent = [
        study
        for study in figure.needs
        if study not in everything.together and not all(run.answers.get(study) for run in runs)
    ]
    option = figure.wants if figure.wants.startswith("--") else ""
    if not absent and not option:
        return figure.wants or "other runs, or other settings of its studies"
    studies = "".join(f" --study {study}" for study in absent or figure.needs)
    return f"`landscape analyze RUN...{studies}{' ' + option if option else ''}`"


def _list_missing_studies(everything: Collection, outcomes: Sequence[Outcome]) -> list[str]:
    """Studies that some runs have and others lack: figures show the former alone."""
    lines = []
    needed = dict.fromkeys(study for outcome in outcomes for study in outcome.figure.needs)
    for study in needed:
        trained = [run for run in everything.runs if run.progress.state != "given"]
        lacking = [run.name for run in trained if not run.answers.get(study)]
        if 0 < len(lacking) < len(trained) and study not in everything.together:
            lines.append(f"{study} is not there for {', '.join(lacking)}: `landscape analyze RUN --study {study}`")
    return lines

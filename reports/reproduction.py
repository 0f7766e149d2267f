"""`landscape reproduce`: train, measure and typeset the tables and figures of the papers; interrupted work goes on.

OUT/<scale>/runs/                    runs, shared by all artefacts
OUT/<scale>/<paper>/<artefact>.*     the table (LaTeX, Markdown, CSV) or figure (PNG, SVG, CSV)
OUT/<scale>/<paper>/index.html       all artefacts of the paper that were made
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from landscape.runtime.termination import Terminated
from reports.artefact import Artefact, NotReproduced, Paper
from reports.artefacts import experiments
from reports.artefacts.costs import estimate, list_costs
from reports.artefacts.parts import Made
from reports.artefacts.plan import (
    Wanted,
    can_be_made,
    group_by_paper,
    list_comparisons,
    plan_paper,
    select_artefacts,
    select_runs,
)
from reports.artefacts.scales import SCALES, Scale, find_scale
from reports.artefacts.sizes import FILE as SIZES
from reports.artefacts.sizes import count_sizes
from reports.figure_type import USUAL
from reports.findings.experiments import PAPER as FINDINGS
from reports.papers.catalog import PAPERS as PUBLISHED
from training.console.tables import print_line
from training.executors.pools import Placement
from training.executors.ray_pool import Cluster
from training.storage.atomic_files import write_atomically

OUT = Path("papers")  # default folder
PAPERS = {**PUBLISHED, FINDINGS.key: FINDINGS}  # everything that can be asked for by name


@dataclass(frozen=True)
class Outcome:
    """What became of the artefacts that were asked for: those that were made, and a line for each problem."""

    made: list[Made]
    problems: list[str]


def reproduce(
    wanted: str | Sequence[str],
    scale: str = "digits",
    out: str | os.PathLike[str] = OUT,
    *,
    console: Console | None = None,
    data_root: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    device: str = "auto",
    backend: str = "processes",
    cluster: Cluster | None = None,
    formats: Sequence[str] = USUAL,
    bold: str = "clear",
    dry_run: bool = False,
    typeset: bool = False,
) -> Outcome:
    """Make artefacts: train their runs, answer their questions, typeset them, and write a page for each paper.

    wanted: PAPER, PAPER/ARTEFACT or "all", one or several. scale: digits, small or full.
    out: folder for runs and results. console: where to print. data_root: folder of the data.
    workers: runs at a time; by default one per core.
    device: where to train and measure: auto, cpu, cuda, cuda:1 or mps.
    backend: processes (of this machine) or ray. cluster: of the backend ray; all its nodes must share `out`.
    formats: of figures, some of png, pdf and svg. bold: what tables set bold, "clear" or "plain".
    dry_run: only tell what it would take.
    typeset: whether to typeset existing results only, from recipes, metrics and answers; checkpoints are not needed.
    """
    console = console or Console()
    size = find_scale(scale)
    placement = Placement(backend, workers, cluster or Cluster())
    names = [wanted] if isinstance(wanted, str) else wanted
    chosen = group_by_paper(dict.fromkeys(pair for one in names for pair in select_artefacts(PAPERS, one)))
    folder = Path(out) / size.name
    data = None if data_root is None else Path(data_root)
    if dry_run:
        console.print(list_costs(chosen, size, folder))
        return Outcome([], [])
    found: list[Made] = []
    problems: list[str] = []
    for paper, artefacts in chosen:
        possible = _leave_out(paper, artefacts, console)
        if possible:
            if typeset:
                done = Measured(experiments.find_runs(select_runs(paper, possible, size), folder), [])
            else:
                with _say_what_is_kept(console):
                    done = train_and_measure(paper, possible, size, folder, console, data, placement, device)
            found += _typeset(paper, possible, size, folder, done.runs, console, formats, bold)
            problems += done.problems
    for line in problems:
        print_line(console, f"not measured: {line}")
    return Outcome(found, problems)


@contextmanager
def _say_what_is_kept(console: Console) -> Iterator[None]:
    """Say, when work is interrupted, that nothing is lost."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        print_line(console, "stopped. Nothing saved is lost: the same command goes on where each run stopped")
        raise


def _leave_out(paper: Paper, artefacts: Sequence[Artefact], console: Console) -> list[Artefact]:
    """The artefacts that can be made; says of the others why not."""
    for one in artefacts:
        if isinstance(one.shape, NotReproduced):
            print_line(console, f"{paper.key}/{one.name}: nothing to reproduce, {one.shape.why}")
    return [one for one in artefacts if can_be_made(one)]


def _typeset(
    paper: Paper,
    artefacts: Sequence[Artefact],
    scale: Scale,
    folder: Path,
    paths: Mapping[str, Path],
    console: Console,
    formats: Sequence[str],
    bold: str,
) -> list[Made]:
    """Make the tables, figures and page of a paper from the runs that are there."""
    # here, because figures take a second to import, which a dry run does not need
    from reports.artefacts.page import write_paper_page
    from reports.artefacts.typesetting import make_artefact
    from reports.findings.judging import judge_all, to_html, write_findings

    made = []
    for one in artefacts:
        result = make_artefact(paper, one, scale, paths, folder / paper.key, formats=formats, bold=bold)
        doubt = f" (not final: {result.missing})" if result.missing else ""
        print_line(console, f"{paper.key}/{one.name}: {result.files[0]}{doubt}")
        made.append(result)
    judged = judge_all(scale, paths) if paper is FINDINGS else []
    if judged:
        write_findings(judged, folder / paper.key)
    page = write_paper_page(folder / paper.key, paper, scale, to_html(judged) if judged else "")
    print_line(console, str(page))
    return made


@dataclass(frozen=True)
class Measured:
    """Directories of trained and measured runs by key, and a line for each question that has no answer."""

    runs: Mapping[str, Path]
    problems: list[str]


def train_and_measure(
    paper: Paper,
    artefacts: Sequence[Artefact],
    scale: Scale,
    folder: Path,
    console: Console,
    data_root: Path | None = None,
    placement: Placement = experiments.PLACEMENT,
    device: str = "auto",
) -> Measured:
    """Train and measure everything that some artefacts of a paper need.

    folder: of the scale. placement: where the runs are trained. The other arguments are those of `reproduce`.
    """
    runs: dict[str, Wanted] = select_runs(paper, artefacts, scale)
    if runs:
        cost = estimate(runs)
        takes = f"about {cost.time} of training on two cores, {cost.disk}"
        many = f"{len(artefacts)} artefact{'s' if len(artefacts) > 1 else ''}"
        print_line(console, f"{paper.name}: {len(runs)} run{'s' if len(runs) > 1 else ''} for {many}, {takes}")
    paths, problems = experiments.make_runs(
        runs, folder, scale, console=console, data_root=data_root, placement=placement, device=device
    )
    compared = [one for artefact in artefacts for one in list_comparisons(paper, artefact, scale)]
    problems += experiments.compare_runs(compared, paths, scale, console=console, data_root=data_root, device=device)
    return Measured(paths, problems)


def write_sizes() -> None:
    """Count the networks and methods of all artefacts again, into the file that `reports.artefacts.sizes` reads."""
    plans = (plan_paper(paper, scale) for paper in PAPERS.values() for scale in SCALES.values())
    counted = count_sizes(run.content for plan in plans for run in plan.values())
    write_atomically(SIZES, f"{json.dumps(counted, indent=1)}\n".encode())

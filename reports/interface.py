"""Reports from Python: single figures, tables of runs, and listings, without files. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Canvas

from landscape.errors import choose
from landscape.plotting.style import find_width, shrink_letters, use_width
from reports.catalog import CATALOG
from reports.command import find_runs, keep_questions, tabulate_figures
from reports.drawing import choose_questions, list_sections
from reports.figure_type import Drawing
from reports.inputs.runs import read_runs
from reports.inputs.summary import differing, numbers
from reports.quantities.measures import MEASURES
from reports.variants import flatten_settings
from training.console.tables import to_records
from training.runs import Places, list_paths
from training.storage.verified_files import Json

if TYPE_CHECKING:
    import pandas as pd


def figure(
    name: str, runs: Places, *, which: int = 0, questions: Sequence[str] = (), width: str | float = ""
) -> Canvas:
    """Draw one figure of some runs as a matplotlib figure, which notebooks show and `savefig` writes.

    name: of the figure; `list_entries("figures")` has all of them.
    runs: run directories, folders of runs, or patterns; one or several.
    which: of several drawings, such as one for each partition or method, the one of this number.
    questions: names of questions, where a study has several answers.
    width: icml, icml2, neurips, cvpr, ..., or inches; by default as the figure chooses.
    """
    prepare_notebook()
    with use_width(find_width(str(width))):
        drawn = draw(name, runs, questions=questions)
    if not drawn:
        chosen = CATALOG.find(name)
        needs, wants = ", ".join(chosen.needs), chosen.wants
        raise ValueError(
            f"{name} cannot be drawn of these runs. It needs {needs or 'recorded metrics'}"
            f"{': ' + wants if wants else ''}; analysis.analyze(run, STUDY) measures what is missing"
        )
    if not -len(drawn) <= which < len(drawn):
        raise ValueError(f"which: {name} has {len(drawn)} drawings of these runs, numbered from 0; got {which}")
    if width:
        shrink_letters(drawn[which].canvas)
    return drawn[which].canvas


def prepare_notebook() -> None:
    """Tell a notebook to show figures as pictures, which it otherwise does only after pyplot has drawn something."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None and not any(Canvas in one.type_printers for one in formatter.formatters.values()):
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"png"})


def draw(name: str, runs: Places, *, questions: Sequence[str] = ()) -> list[Drawing]:
    """Draw a figure for every section of a report; returns drawings with their numbers and captions.

    Arguments: see `figure`.
    """
    chosen = CATALOG.find(name)
    everything = keep_questions(read_runs(find_runs(list_paths(runs))), questions)
    if not everything.runs:
        raise ValueError(f"no runs to draw ({'; '.join(everything.problems) or 'no run directory was given'})")
    found: list[Drawing] = []
    for section in list_sections(everything):
        if chosen.across == (section.heterogeneity is None):
            for asked in choose_questions(chosen, section.narrow(everything)):
                narrowed = everything.narrow(asked)
                found += chosen.draw(section.select(narrowed), narrowed)
    return found


def collect(runs: Places, *, everything: bool = False) -> pd.DataFrame:
    """Collect the numbers of runs in one table, a row for each run: what differs, accuracy, sharpness and more.

    runs: run directories, folders of runs, or patterns; one or several.
    everything: every setting, and every single number of every answer.
    """
    import pandas as pd

    read = read_runs(find_runs(list_paths(runs)))
    settings = [flatten_settings(run) for run in read.runs]
    keys = dict.fromkeys(key for one in settings for key in one) if everything else differing(settings)
    rows: list[Json] = []
    for run, own in zip(read.runs, settings, strict=True):
        row: Json = {"run": run.name, "method": run.method, "data": run.data, "seed": run.seed}
        row |= {key: own.get(key) for key in keys if key != "seed"}
        row |= {name: measure.find(run) for name, measure in MEASURES.items()}
        if everything:
            row |= {key: value for some in run.answers.values() for one in some for key, value in numbers(one).items()}
        rows.append(row)
    return pd.DataFrame(rows).dropna(axis="columns", how="all").set_index("run")


def compare(runs: Places) -> pd.DataFrame:
    """Put runs side by side, a column for each: settings that differ, metrics, and the numbers of answers.

    runs: run directories, folders of runs, or patterns; two or more. The index has the kind of a row and its name.
    """
    import pandas as pd

    read = read_runs(find_runs(list_paths(runs)))
    if len(read.runs) < 2:
        raise ValueError(f"compare needs two runs or more, got {len(read.runs)}; landscape show RUN tells of one")
    settings = [flatten_settings(run) for run in read.runs]
    columns: dict[str, dict[tuple[str, str], object]] = {}
    for run, own in zip(read.runs, settings, strict=True):
        column: dict[tuple[str, str], object] = {
            ("settings", key): own.get(key) for key in ["seed", *differing(settings)]
        }
        column |= {("metrics", name): one.find(run) for name, one in MEASURES.items() if not one.study}
        for answer in (one for some in run.answers.values() for one in some):
            column |= {("answers", key): value for key, value in numbers(answer).items()}
        columns[run.name] = column
    keys = dict.fromkeys(
        key for kind in ("settings", "metrics", "answers") for one in columns.values() for key in one if key[0] == kind
    )
    table = pd.DataFrame({name: [one.get(key) for key in keys] for name, one in columns.items()}, dtype=object)
    table.index = pd.MultiIndex.from_tuples(list(keys), names=["kind", "name"])
    return table.dropna(how="all")


def list_entries(kind: str) -> list[Json]:
    """List the figures, or the artefacts of the papers with what they take.

    kind: "figures" or "artefacts".
    """
    if choose("list", kind, ("figures", "artefacts")) == "figures":
        return to_records(tabulate_figures())
    from reports.artefacts.costs import list_artefacts
    from reports.reproduction import OUT, PAPERS

    return to_records(list_artefacts(PAPERS, OUT))

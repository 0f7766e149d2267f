"""Which clients the global model attends to: norms of its outputs on each client's data over rounds (FedSAM, F7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.store import Table
from reports.figure import Drawn, Figure
from reports.plotting.heat import colour_bar, heat, panels, span
from reports.plotting.measured import measured, of_study
from reports.plotting.style import caption, label, mark
from reports.runs import Collection, Run
from reports.variants import ordered, titles

MOST = 12  # panels; with more runs each method and partition is shown by its first seed


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    """A map of clients and rounds for every run of a data set, all partitions side by side in the same colours."""
    named = titles(runs, everything)
    found = [(run, table) for run in ordered(runs, named) if (table := _table(run)) is not None]
    if len(found) > MOST:
        first = min(run.seed for run, _ in found)
        found = [(run, table) for run, table in found if run.seed == first][:MOST]
    limits = span(table["output_norm"] for _, table in found)
    if limits is None:
        return []
    figure, places = panels(len(found), columns=3, width=3.3, height=2.9)
    rows: list[dict[str, Any]] = []
    for axes, (run, table) in zip(places, found, strict=True):
        image = heat(axes, table["output_norm"].T, table["round"], table["client"], limits)
        label(axes, "communication round", "client", _title(run, named[run.name]))
        mark(axes, [run.name])
        rows += _rows(run, table)
    colour_bar(figure, image, places, r"mean of $||f_\theta(x)||_2$ over a client's data")
    shown = [run for run, _ in found]
    return [Drawn(figure, rows, caption(_said(shown, runs)))]


def _title(run: Run, name: str) -> str:
    """With the partition below: it is what the paper compares."""
    return "\n".join(one for one in (*name.replace(" (", "\n(").split("\n"), run.heterogeneity) if one)


def _rows(run: Run, table: Table) -> list[dict[str, Any]]:
    about = {"run": run.name, "algorithm": run.algorithm, "partition": run.heterogeneity, "seed": run.seed}
    return [
        {**about, "round": int(round), "client": int(client), "output_norm": table["output_norm"][i, j]}
        for i, round in enumerate(table["round"])
        for j, client in enumerate(table["client"])
    ]


def _said(shown: Sequence[Run], runs: Sequence[Run]) -> list[str]:
    stored = of_study(shown, "forgetting")
    splits, models = (
        sorted({str(one.settings.get(key, usual)) for one in stored})
        for key, usual in (("client_split", "train"), ("model", "final"))
    )
    seeds = sorted({run.seed for run in shown})
    return [
        shown[0].data,
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        f"f(x): outputs (logits) of the {' or '.join(models)} global model on each client's {' or '.join(splits)} data",
        f"{len(shown)} of {len(runs)} runs shown" if len(shown) < len(runs) else "",
        *measured(stored),
    ]


def _table(run: Run) -> Table | None:
    table = run.table("forgetting", "clients")
    return table if table is not None and "output_norm" in table.variables else None


FIGURE = Figure(
    name="output_norms",
    topic="good",
    title="Norms of the outputs on each client's data",
    reading="Even colours: the model attends to all clients alike; spots that come and go tell of a model that follows "
    "whoever took part last.",
    needs=("forgetting",),
    draw=draw,
    across=True,
)

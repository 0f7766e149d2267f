"""Which clients the global model attends to: norms of its outputs on each client's data over rounds (FedSAM, F7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import xarray as xr

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.heat import draw_colour_bar, draw_heat, find_span, make_panels
from reports.plotting.measured import describe_measurement, find_answers
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, make_titles

MOST = 4  # panels in a row


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a map of clients and rounds for every run of a data set, all partitions in the same colours."""
    measured = [run for run in runs if _find(run) is not None]
    shown = _sort_by_partition(choose_shown(measured, everything))
    pairs = [(run, norms) for run in shown if (norms := _find(run)) is not None]
    limits = find_span(norms for _, norms in pairs)
    if limits is None:
        return []
    columns = min(max(Counter(run.heterogeneity for run, _ in pairs).values()), MOST)  # a row for each partition
    figure, panels = make_panels(len(pairs), columns=columns, width=2.6, height=2.9)
    rows: list[Row] = []
    named = _name_panels(shown, everything)
    for axes, (run, norms) in zip(panels, pairs, strict=True):
        cells = norms.transpose("client", "round")
        image = draw_heat(axes, cells, norms["round"].values, norms["client"].values, limits)
        label_axes(axes, "communication round", "client", named[run.name])
        mark(axes, [run.name])
        rows += _list_rows(run, norms)
    draw_colour_bar(figure, image, panels, r"mean of $||f_\theta(x)||_2$ over a client's data")
    return [Drawing(figure, rows, join_caption(_describe(shown, measured)))]


def _sort_by_partition(runs: Sequence[Run]) -> list[Run]:
    """Put the runs of a partition together, partitions and runs in the order given."""
    partitions = list(dict.fromkeys(run.heterogeneity for run in runs))
    return sorted(runs, key=lambda run: partitions.index(run.heterogeneity))


def _name_panels(runs: Sequence[Run], everything: Collection) -> dict[str, str]:
    """Titles that tell the method, and on a line of its own the partition: it is what the paper compares."""
    titles = {}
    for partition in dict.fromkeys(run.heterogeneity for run in runs):
        same = [run for run in runs if run.heterogeneity == partition]
        for name, title in make_titles(same, everything).items():
            titles[name] = "\n".join(one for one in (title.replace(" (", "\n("), partition) if one)
    return titles


def _list_rows(run: Run, norms: xr.DataArray) -> list[Row]:
    about: Row = {"run": run.name, "algorithm": run.algorithm, "partition": run.heterogeneity, "seed": run.seed}
    return [
        {
            **about,
            "round": int(round),
            "client": int(client),
            "output_norm": float(norms.sel(round=round, client=client)),
        }
        for round in norms["round"].values
        for client in norms["client"].values
    ]


def _describe(shown: Sequence[Run], runs: Sequence[Run]) -> list[str]:
    stored = find_answers(shown, "forgetting")
    splits, models = (
        sorted({str(one.settings.get(key, usual)) for one in stored})
        for key, usual in (("client_split", "train"), ("model", "final"))
    )
    seeds = sorted({run.seed for run in shown})
    named = " or ".join("training" if split == "train" else split for split in splits)
    return [
        shown[0].data,
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        f"f(x): outputs (logits) of the {' or '.join(models)} global model on each client's {named} data",
        describe_shown(shown, runs),
        *describe_measurement(stored),
    ]


def _find(run: Run) -> xr.DataArray | None:
    """Norms by round and client, of the clients that were asked for."""
    data = run.measured("forgetting")
    if data is None or "client_output_norm" not in data:
        return None
    return data["client_output_norm"].dropna("client", how="all")


FIGURE = Figure(
    name="output_norms",
    topic="good",
    title="Norms of the outputs on each client's data",
    reading="Even colours: the model attends to all clients alike; spots that come and go tell of a model that follows "
    "the participants of the last round.",
    needs=("forgetting",),
    draw=draw,
    across=True,
)

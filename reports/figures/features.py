"""How the network sees examples: t-SNE of what enters its classifier, coloured by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from landscape.plotting.style import join_caption, label_axes, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.embedding import draw_class_keys, draw_embedding
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data
from reports.rows import Row
from reports.variants import choose_shown, describe_shown, make_titles


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the features of the last round and the first model, a panel for each run."""
    measured = [run for run in runs if run.measured("features") is not None]
    chosen = choose_shown(measured, everything)
    named = make_titles(chosen, everything)
    found = [(run, get_data(run, "features")) for run in chosen]
    if not found:
        return []
    figure, places = make_panels(len(found), width=3.0, height=3.1)
    rows: list[Row] = []
    for axes, (run, data) in zip(places, found, strict=True):
        drawn = draw_embedding(axes, data.isel(model=0, round=-1))
        rows += [{"run": run.name, "algorithm": run.algorithm, **row} for row in drawn]
        label_axes(axes, "t-SNE, first axis", "t-SNE, second axis", named[run.name])
        mark(axes, [run.name])
    shown = found[0][0]
    draw_class_keys(figure, places[0], shown.data, np.unique(found[0][1]["label"]), shown.class_names)
    (stored,) = find_answers([found[0][0]], "features")
    first = found[0][1].isel(model=0, round=-1)
    said = [
        f"{first.sizes['example']} {stored.settings.get('split', 'test')} examples",
        f"perplexity {stored.settings.get('perplexity', 30):g}",
        f"{first['model'].item()} model, round {int(first['round'])}",
        "open points: classes beyond the eighth" if 8 < len(np.unique(first["label"])) <= 16 else "",
        "crosses: taken for another class",
        describe_shown(chosen, measured),
    ]
    return [Drawing(figure, rows, join_caption([*describe_setting(chosen), *said, *describe_measurement([stored])]))]


FIGURE = Figure(
    name="features",
    topic="good",
    title="How the network sees the classes (t-SNE)",
    reading="Clouds of one class each are easy to tell apart; the size of clouds and the space between mean nothing.",
    needs=("features",),
    draw=draw,
)

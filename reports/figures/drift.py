"""How far clients stray: distances, angles, norms and the proximal loss over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.heat import make_panels
from reports.plotting.measured import (
    REFERENCES,
    describe_measurement,
    describe_setting,
    find_answers,
    find_reference,
    select_runs,
)
from reports.plotting.series import draw_panel, has_numbers
from reports.rows import Row
from reports.variants import describe_seeds, find_variants

PANELS = {  # title and label of the y axis
    "distance": ("client to global model", "$||w_k - w||$"),
    "pair_distance": ("client to client", "$||w_k - w_j||$"),
    "norm": ("norm of the global model", "$||w||$"),
    "update_cosine": ("update and mean update", "cosine"),
    "pair_cosine": ("updates of two clients", "cosine"),
    "proximal_loss": ("proximal loss", "KL to the reference"),
    "endpoint_cosine": ("proximal gradient and way\nback, at the end", "cosine"),
}


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw how far participants move, and in which directions, over rounds."""
    measured = select_runs(runs, "drift", "norm")
    words = {
        name: text
        for name, text in PANELS.items()
        if any(has_numbers(run, "drift", _name_over_rounds(name)) for run in measured)
    }
    if not words:
        return []
    variants = find_variants(measured, everything)
    figure, axes = make_panels(len(words), columns=4 if len(words) > 6 else 3, width=2.7, height=2.6)
    rows: list[Row] = []
    for panel, (name, text) in zip(axes, words.items(), strict=True):
        place, linear = ("drift", _name_over_rounds(name)), text[1] == "cosine"
        rows += draw_panel(panel, variants, place, text, measure=name, linear=linear)
    draw_shared_legend(figure)
    return [
        Drawing(
            figure,
            rows,
            join_caption([*describe_setting(measured), *_describe(measured, words), describe_seeds(variants)]),
        )
    ]


def _name_over_rounds(name: str) -> str:
    """The variable that is drawn: means over participants, but for the norm of the one global model."""
    return name if name == "norm" else f"mean_{name}"


def _describe(runs: Sequence[Run], shown: Mapping[str, object]) -> list[str]:
    stored, proximal = find_answers(runs, "drift"), "proximal_loss" in shown
    missing = [title for name, (title, _) in PANELS.items() if name not in shown]
    return [
        "means over the participants of a round",
        "bars: standard error over participants",
        f"proximal loss at temperature {stored[0].settings.get('tau', math.nan):g}" if proximal else "",
        f"reference of the proximal loss: {REFERENCES[find_reference(runs, 'drift')]}" if proximal else "",
        "its cosine: of the gradient at a client's last model with the way back to the reference; FedSoL's figure 9b, "
        "along the local steps, is in what was recorded in training"
        if "endpoint_cosine" in shown
        else "",
        "updates are counted from the point that was sent" if "update_cosine" in shown else "",
        f"not on record: {', '.join(missing)} (updates need the point that was sent)" if missing else "",
        *describe_measurement(stored),
    ]


FIGURE = Figure(
    name="drift",
    topic="agree",
    title="How far clients drift",
    reading="Growing distances and falling cosines tell of clients that pull apart; a norm that grows without end "
    "makes sharpness hard to compare.",
    needs=("drift",),
    draw=draw,
)

"""How far clients stray: distances, angles, norms and the proximal loss over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reports.figure import Drawn, Figure
from reports.plotting.fitting import shared_legend
from reports.plotting.heat import panels
from reports.plotting.measured import REFERENCES, measured, of_study, reference, select_runs, setting
from reports.plotting.series import has, panel
from reports.plotting.style import caption
from reports.rows import Row
from reports.runs import Collection, Run
from reports.variants import seeds_said, variants

PANELS = {  # title and label of the y axis
    "distance": ("client to global model", "$||w_k - w||$"),
    "pair_distance": ("client to client", "$||w_k - w_j||$"),
    "norm": ("norm of the global model", "$||w||$"),
    "update_cosine": ("update and mean update", "cosine"),
    "pair_cosine": ("updates of two clients", "cosine"),
    "proximal_loss": ("proximal loss", "KL to the reference"),
    "endpoint_cosine": ("proximal gradient and way\nback, at the end", "cosine"),
}


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    looked = select_runs(runs, "drift", "norm")
    words = {
        name: text for name, text in PANELS.items() if any(has(run, "drift", _over_rounds(name)) for run in looked)
    }
    if not words:
        return []
    found = variants(looked, everything)
    figure, axes = panels(len(words), columns=4 if len(words) > 6 else 3, width=2.7, height=2.6)
    rows: list[Row] = []
    for place, (name, text) in zip(axes, words.items(), strict=True):
        rows += panel(place, found, ("drift", _over_rounds(name)), text, measure=name)
    shared_legend(figure)
    return [Drawn(figure, rows, caption([*setting(looked), *_said(looked, words), seeds_said(found)]))]


def _over_rounds(name: str) -> str:
    """The variable that is drawn: means over participants, but for the norm of the one global model."""
    return name if name == "norm" else f"mean_{name}"


def _said(runs: Sequence[Run], shown: Mapping[str, object]) -> list[str]:
    stored, proximal = of_study(runs, "drift"), "proximal_loss" in shown
    missing = [title for name, (title, _) in PANELS.items() if name not in shown]
    return [
        "means over the participants of a round",
        "bars: standard error over participants",
        f"proximal loss at temperature {stored[0].settings.get('tau', math.nan):g}" if proximal else "",
        f"reference of the proximal loss: {REFERENCES[reference(runs, 'drift')]}" if proximal else "",
        "its cosine: of the gradient at a client's last model with the way back to the reference; FedSoL's figure 9b, "
        "along the local steps, is in what was recorded in training"
        if "endpoint_cosine" in shown
        else "",
        "updates are counted from the point that was sent" if "update_cosine" in shown else "",
        f"not on record: {', '.join(missing)} (updates need the point that was sent)" if missing else "",
        *measured(stored),
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

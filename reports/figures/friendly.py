"""Friendly adversaries over rounds: how often a perturbation that hurts one client or batch helps another."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.series import draw_panel, has_numbers
from reports.rows import Row, list_numbers
from reports.variants import describe_seeds, find_variants

STUDY = "incompatibility"
PANELS = {
    "friendly_clients": "of one client to another",
    "friendly_batches": "of one batch to another of the same client",
}
LEAST = 20.0  # per cent along the y axis, however rare they are


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw a panel over rounds for pairs of clients, and one for pairs of batches of one client."""
    measured = [run for run in runs if any(has_numbers(run, STUDY, name) for name in PANELS)]
    shown = {name: title for name, title in PANELS.items() if any(has_numbers(run, STUDY, name) for run in measured)}
    if not shown:
        return []
    variants = find_variants(measured, everything)
    figure, axes = make_panels(len(shown), columns=2, width=4.5, height=3.4)
    rows: list[Row] = []
    for panel, (name, title) in zip(axes, shown.items(), strict=True):
        words = (title, "friendly (% of ordered pairs)")
        some = draw_panel(panel, variants, (STUDY, name), words, factor=100, linear=True)  # zero is a rate like others
        panel.set_ylim(-1, max([LEAST, *(1.08 * high for high in list_numbers(some, "high"))]))
        rows += some
    draw_shared_legend(figure)
    definition = "a perturbation is friendly where it raises the own loss and lowers the other's"
    measurement = describe_measurement(find_answers(measured, STUDY))
    return [
        Drawing(
            figure,
            rows,
            join_caption(
                [*describe_setting(measured), definition, "training data", *measurement, describe_seeds(variants)]
            ),
        )
    ]


FIGURE = Figure(
    name="friendly",
    topic="agree",
    title="Friendly adversaries",
    reading="A high share means that what one client climbs away from, another one welcomes: sharpness found locally "
    "says little about everyone's loss.",
    needs=("incompatibility",),
    draw=draw,
)

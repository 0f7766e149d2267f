"""Where disagreement about flatness comes from: dispersion of the clients' sharpness, its mean and its sources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from landscape.plotting.style import join_caption
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.plotting.fitting import draw_shared_legend
from reports.plotting.heat import make_panels
from reports.plotting.measured import describe_measurement, describe_setting, find_answers
from reports.plotting.series import draw_panel, has_numbers
from reports.rows import Row
from reports.variants import Variant, describe_seeds, find_variants

STUDY = "incompatibility"
PANELS = {  # title and label of the y axis
    "rise_dispersion_corrected": ("flatness incompatibility", "variance of $R_k$ over clients"),
    "rise_mean": ("sharpness that clients see", "mean of $R_k$"),
    "heterogeneity": ("data heterogeneity", "mean of $||g_k - g||^2$"),
}
EXTRA = {  # of methods whose server keeps a direction, or ascends itself
    "tracking_error": ("tracking error of the server's direction", "$||d - g_{IID}||^2$"),
    "delta_epsilon": ("error of the server's perturbation", r"$\delta_\epsilon$"),
}


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw over rounds: dispersion, mean, heterogeneity, and errors of the server's own direction."""
    measured = [run for run in runs if run.measured(STUDY) is not None]
    if not measured:
        return []
    variants = find_variants(measured, everything)
    words = PANELS | {
        name: text for name, text in EXTRA.items() if any(has_numbers(run, STUDY, name) for run in measured)
    }
    figure, axes = make_panels(len(words), columns=2 if len(words) == 4 else 3, width=3.6, height=2.8)
    rows: list[Row] = []
    for panel, (name, text) in zip(axes, words.items(), strict=True):
        rows += draw_panel(panel, variants, (STUDY, name), text)
    draw_shared_legend(figure)
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *_describe(measured, variants)]))]


def _describe(runs: Sequence[Run], variants: Sequence[Variant]) -> list[str]:
    """How it was measured: radius, search direction and clients."""
    sizes = sorted({data.sizes["client"] for run in runs if (data := run.measured(STUDY)) is not None})
    return [
        "Rₖ = Fₖ(w + ρ vₖ / ‖vₖ‖) − Fₖ(w) on training data, vₖ the method's own search direction",
        f"ρ = {_describe_radii(variants)}",
        f"{' or '.join(map(str, sizes))} clients",
        "variance without the noise of sub-samples",
        "a gap in δ_ε: the clients' duals of that round were not kept" if any(map(_has_gap, runs)) else "",
        *describe_measurement(find_answers(runs, STUDY)),
        describe_seeds(variants),
    ]


def _has_gap(run: Run) -> bool:
    """Whether the error of the server's perturbation is known in some rounds only."""
    data = run.measured(STUDY)
    known = np.isfinite(data["delta_epsilon"].values) if data is not None and "delta_epsilon" in data else np.zeros(0)
    return bool(known.any() and not known.all())


def _describe_radii(variants: Sequence[Variant]) -> str:
    """The radius of each method: larger ones give larger rises."""
    radii: dict[str, dict[str, None]] = {}
    for variant in variants:
        for run in variant.runs:
            data = run.measured(STUDY)
            for radius in data["radius"].values if data is not None else ():
                radii.setdefault(f"{radius:g}", {})[variant.name] = None
    if len(radii) == 1:
        return next(iter(radii))
    return ", ".join(f"{radius} ({', '.join(names)})" for radius, names in radii.items())


FIGURE = Figure(
    name="incompatibility",
    topic="agree",
    title="Do clients agree on what is flat?",
    reading="High incompatibility: the same radius raises some clients' loss far more than others'; gradients that "
    "differ between clients are one source of it. Compare methods of equal radius.",
    needs=("incompatibility",),
    draw=draw,
)

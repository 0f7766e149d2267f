"""The largest eigenvalue over rounds, with its residual as a bar."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports.figure import Drawn, Figure
from reports.palette import Look
from reports.plotting.fitting import fit, whole_rounds
from reports.plotting.measured import data_of, measured, of_study, select_runs, setting
from reports.plotting.style import canvas, caption, label, legend, mark
from reports.rows import Row
from reports.runs import Collection, Run
from reports.variants import variants


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    looked = select_runs(runs, "curvature", "eigenvalue")
    if not looked:
        return []
    figure, (axes,) = canvas()
    rows: list[Row] = []
    for variant in variants(looked, everything):
        for place, run in enumerate(variant.runs):
            rows += _line(axes, run, variant.look, "_" if place else variant.label)
    values = [row["lambda_1"] for row in rows]
    label(axes, "communication round", "largest eigenvalue of the Hessian")
    whole_rounds(axes)
    fit(axes, "y", values)
    legend(axes)
    stored = of_study(looked, "curvature")
    said = ["bars: residuals ||Hv - λv||", "open markers: not converged", whose(looked), *measured(stored)]
    return [Drawn(figure, rows, caption([*setting(looked), *said]))]


def _line(axes: Axes, run: Run, look: Look, name: str) -> list[Row]:
    largest = data_of(run, "curvature").sel(rank=1)
    rounds, values, doubts = (largest[name].values for name in ("round", "eigenvalue", "residual"))
    form = f"{look.marker}{look.line}"
    bars = axes.errorbar(rounds, values, yerr=doubts, fmt=form, color=look.color, capsize=2, label=name)
    unsure = largest["converged"].values == 0
    dots = axes.plot(rounds[unsure], values[unsure], look.marker, color="white", markeredgecolor=look.color)
    mark([bars, dots], [run.name])
    return [
        {"run": run.name, "algorithm": run.algorithm, "round": int(t), "lambda_1": v, "residual": r}
        for t, v, r in zip(rounds, values, doubts, strict=True)
    ]


def whose(runs: Sequence[Run]) -> str:
    """The loss and the model whose Hessian it is, as the study was told."""
    settings = [stored.settings for stored in of_study(runs, "curvature")]
    splits, models = ({str(one.get(key, usual)) for one in settings} for key, usual in (("split", ""), ("model", "")))
    return f"{' and '.join(sorted(splits))} loss of the global model ({' and '.join(sorted(models))})".replace(
        " ()", ""
    )


FIGURE = Figure(
    name="eigenvalues",
    topic="flat",
    title="Sharpness of the global model over rounds",
    reading="Lower is flatter. Compare methods at equal loss, and look at the norm of the weights beside it.",
    needs=("curvature",),
    draw=draw,
)

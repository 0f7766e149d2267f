"""The largest eigenvalue over rounds, with its residual as a bar."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from landscape.plotting.style import draw_legend, join_caption, label_axes, make_canvas, mark
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run
from reports.palette import Look
from reports.plotting.fitting import fit_axis, use_whole_rounds
from reports.plotting.measured import describe_measurement, describe_setting, find_answers, get_data, select_runs
from reports.rows import Row
from reports.variants import find_variants


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    """Draw the largest eigenvalues over rounds, a line for each method."""
    measured = select_runs(runs, "curvature", "eigenvalue")
    if len({int(t) for run in measured for t in get_data(run, "curvature")["round"].values}) < 2:
        return []  # points of a single round are in the figure of the spectrum
    figure, (axes,) = make_canvas()
    rows: list[Row] = []
    for variant in find_variants(measured, everything):
        for number, run in enumerate(variant.runs):
            rows += _draw_line(axes, run, variant.look, "_" if number else variant.label)
    values = [row["lambda_1"] for row in rows]
    label_axes(axes, "communication round", "largest eigenvalue of the Hessian")
    use_whole_rounds(axes)
    fit_axis(axes, "y", values)
    draw_legend(axes)
    stored = find_answers(measured, "curvature")
    remarks = [
        "bars: residuals ‖Hv − λv‖",
        "open markers: not converged",
        describe_models(measured),
        *describe_measurement(stored),
    ]
    return [Drawing(figure, rows, join_caption([*describe_setting(measured), *remarks]))]


def _draw_line(axes: Axes, run: Run, look: Look, name: str) -> list[Row]:
    largest = get_data(run, "curvature").sel(rank=1)
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


def describe_models(runs: Sequence[Run]) -> str:
    """Describe the loss and the model whose Hessian was measured."""
    settings = [stored.settings for stored in find_answers(runs, "curvature")]
    splits, models = ({str(one.get(key, usual)) for one in settings} for key, usual in (("split", ""), ("model", "")))
    splits = {"training" if split == "train" else split for split in splits}
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
    wants="--set curvature.rounds=all",
)

"""The largest eigenvalue over rounds, with its residual as a bar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.figure import Drawn, Figure
from reports.runs import Collection, Run
from reports.style import canvas, caption, label, legend, logarithmic, looks


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    figure, (axes,) = canvas()
    chosen, rows = looks(run.algorithm for run in everything.runs), []
    named: set[str] = set()
    for run in runs:
        table = run.table("curvature", "spectrum")
        if table is None:
            continue
        rounds, values, doubts = table["round"], table["eigenvalue"][:, 0], table["residual"][:, 0]
        look = chosen[run.algorithm]
        axes.errorbar(
            rounds,
            values,
            yerr=doubts,
            fmt=f"{look.marker}{look.line}",
            color=look.color,
            capsize=2,
            label="_" if run.algorithm in named else run.algorithm,
        )
        open_ = table["converged"][:, 0] == 0
        axes.plot(rounds[open_], values[open_], look.marker, color="white", markeredgecolor=look.color)
        named.add(run.algorithm)
        rows += [
            {"run": run.name, "algorithm": run.algorithm, "round": int(t), "lambda_1": v, "residual": r}
            for t, v, r in zip(rounds, values, doubts, strict=True)
        ]
    if not rows:
        return []
    if all(row["lambda_1"] > 0 for row in rows) and np.ptp(np.log10([row["lambda_1"] for row in rows])) > 1:
        axes.set_yscale("log")
        logarithmic(axes.yaxis)
    label(axes, "communication round", "largest eigenvalue of the Hessian")
    legend(axes)
    split = next(run.results["curvature"].settings["split"] for run in runs if "curvature" in run.results)
    said = ["bars: residuals ||Hv - λv||", "open markers: not converged", f"{split} loss of the global model"]
    return [Drawn(figure, rows, caption([runs[0].data, runs[0].heterogeneity, *said]))]


FIGURE = Figure(
    name="eigenvalues",
    question="flat",
    title="Sharpness of the global model over rounds",
    reading="Lower is flatter. Compare methods at equal loss, and look at the norm of the weights beside it.",
    needs=("curvature",),
    draw=draw,
)

"""Flat for whom: every participant's model on its own data and on everyone's, joined by a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.figure import Drawn, Figure
from reports.runs import Collection, Run
from reports.style import canvas, caption, label, legend, logarithmic, looks


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    measured = [run for run in runs if run.table("local_global", "local_models") is not None]
    if not measured:
        return []
    figure, panels = canvas(1, len(measured), width=max(3.0 * len(measured), 5.0), height=3.8)
    chosen, rows = looks(run.algorithm for run in everything.runs), list[dict[str, Any]]()
    for axes, run in zip(panels, measured, strict=True):
        rows += _panel(axes, run, chosen[run.algorithm].color)
    legend(panels[0], loc="upper left")
    low = min(min(row["own"], row["everyone"]) for row in rows)
    high = max(max(row["own"], row["everyone"]) for row in rows)
    for axes in panels:
        if low > 0 and high / low > 10:
            axes.set_xscale("log")
            logarithmic(axes.xaxis)
        axes.set_xlim(0.8 * low if low > 0 else low - 0.1 * (high - low), 1.25 * high)
    said = "filled: the client's model on its own data; open: on everyone's; dashed: the global model on everyone's"
    return [Drawn(figure, rows, caption([measured[0].data, measured[0].heterogeneity, said]))]


def _panel(axes: Any, run: Run, color: str) -> list[dict[str, Any]]:
    local, shared = run.table("local_global", "local_models"), run.table("local_global", "global_model")
    assert local is not None
    assert shared is not None
    last = local["round_of"] == local["round_of"].max()
    own, everyone = local["local_eigenvalue"][last, 0], local["global_eigenvalue"][last, 0]
    order = np.argsort(everyone)
    places = np.arange(len(order))
    axes.hlines(places, own[order], everyone[order], color=color, alpha=0.5)
    axes.plot(own[order], places, "o", color=color, label="own data")
    axes.plot(everyone[order], places, "o", color="white", markeredgecolor=color, label="everyone's data")
    whole = float(shared["global_eigenvalue"][-1, 0])
    axes.axvline(whole, linestyle="--", color="0.4", label="global model")
    axes.set_yticks(places, [str(client) for client in local["client"][last][order]])
    label(axes, "largest eigenvalue", "client", run.algorithm)
    return [
        {
            "run": run.name,
            "algorithm": run.algorithm,
            "round": int(local["round_of"].max()),
            "client": int(client),
            "own": near,
            "own_residual": near_doubt,
            "everyone": far,
            "everyone_residual": far_doubt,
            "global_model": whole,
        }
        for client, near, near_doubt, far, far_doubt in zip(
            local["client"][last],
            own,
            local["local_residual"][last, 0],
            everyone,
            local["global_residual"][last, 0],
            strict=True,
        )
    ]


FIGURE = Figure(
    name="local_global",
    question="agree",
    title="Sharpness of local models, seen from each client and from everyone",
    reading="A long line is a model that is flat for its own client and sharp for everyone: the incompatibility.",
    needs=("local_global",),
    draw=draw,
)

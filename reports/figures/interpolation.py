"""Loss and error along the straight line between two models, with the barrier marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.store import Table
from reports.figure import Drawn, Figure
from reports.runs import Collection, Run
from reports.style import OKABE_ITO, canvas, caption, label


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawn]:
    found = [(run.name, run.table("interpolation", "lines")) for run in runs]
    drawn = []
    for number, (name, table) in enumerate((name, table) for name, table in found if table is not None):
        drawn.append(_one(name, table, f"_{number}" if number else ""))
    return drawn


def _one(name: str, table: Table, suffix: str) -> Drawn:
    figure, axes = canvas(1, 2, width=9.0, height=4.2)
    rows: list[dict[str, Any]] = []
    splits = [str(split) for split in table["split"]]
    for row, (start, end) in enumerate(zip(table["start"], table["end"], strict=True)):
        color = OKABE_ITO[row % len(OKABE_ITO)]
        for place, split in enumerate(splits):
            for panel, field in zip(axes, ("loss", "error"), strict=True):
                values = table[field][row, place]
                said = f"{start} to {end}".replace(f"{name} ", "") if place == 0 else "_"
                panel.plot(table["x"], values, "-" if split == "train" else "--", color=color, label=said)
            rows += [
                {"start": start, "end": end, "split": split, "gamma": g, "loss": loss, "error": error}
                for g, loss, error in zip(
                    table["x"], table["loss"][row, place], table["error"][row, place], strict=True
                )
            ]
        height, where = float(table["loss_barrier"][row, 0, 0]), float(table["loss_where"][row, 0, 0])
        if np.isfinite(height) and height > 0:
            peak = float(np.interp(where, table["x"], table["loss"][row, 0]))
            axes[0].annotate(
                f"{height:.2g}", (where, peak), (0, 6), textcoords="offset points", color=color, ha="center"
            )
    for panel, field in zip(axes, ("loss", "error"), strict=True):
        for model in (0, 1):
            panel.axvline(model, color="0.7", linewidth=0.8)
        label(panel, "from the first model (0) to the second (1)", field)
        finite = [row[field] for row in rows if np.isfinite(row[field]) and 0 <= row["gamma"] <= 1]
        if finite:
            panel.set_ylim(0, 1.5 * max(finite) if field == "loss" else min(1.3 * max(finite), 1.0))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return Drawn(
        figure,
        rows,
        caption([name, "solid: train, dashed: test", "numbers: barrier above the chord of the ends"]),
        suffix,
    )


FIGURE = Figure(
    name="interpolation",
    question="connected",
    title="Along the line between two models",
    reading="No hump between 0 and 1 means one basin; the height of the hump is the barrier.",
    needs=("interpolation",),
    draw=draw,
)

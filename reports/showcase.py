"""python -m reports.showcase RUNS FOLDER: a picture of every figure, small, from the runs of the demo."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas
from PIL import Image

from landscape.plotting.style import STYLE
from reports.catalog import FIGURES
from reports.command import find_runs
from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run, read_runs

PREFERRED = {"overlay": "fedgloss", "plane": "fedavg"}  # figure -> part of the suffix of the drawing that is shown
DPI = 150  # sharp also on screens of twice the usual resolution, and small enough to lie in the repository
COLOURS = 256  # of a picture: half the bytes, and the eye sees no difference


def show(runs: Path, folder: Path) -> list[Path]:
    """Save one picture of each figure that these runs allow, for the partition that differs most between clients."""
    everything = read_runs(find_runs([runs]))
    chosen = everything.select(*min(everything.settings, key=lambda setting: float(setting[1].split()[-1])))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in FIGURES.items():
        drawn = _choose(figure, chosen, everything)
        if drawn is not None:
            paths.append(folder / f"{name}.png")
            save(drawn.canvas, paths[-1])
    return paths


def _choose(figure: Figure, chosen: Sequence[Run], everything: Collection) -> Drawing | None:
    """The drawing to show; None where these runs have not what the figure needs."""
    drawn = figure.draw(everything.runs if figure.across else chosen, everything)
    part = PREFERRED.get(figure.name, "")
    return next((one for one in drawn if part in one.suffix), None)


def save(canvas: Canvas, path: Path) -> None:
    """Write a figure as a PNG file of few colours."""
    raw = io.BytesIO()
    with rc_context(STYLE):
        canvas.savefig(raw, dpi=DPI)
    few = Image.open(raw).convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True)


if __name__ == "__main__":
    show(Path(sys.argv[1]), Path(sys.argv[2]))

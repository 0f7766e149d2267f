"""python -m reports.showcase RUNS FOLDER: the README's pictures, small, from the runs of the demo."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib import rc_context

from landscape.plotting.style import STYLE
from reports.catalog import FIGURES
from reports.command import find_runs
from reports.inputs.runs import read_runs

# figure -> part of the suffix of the drawing that is shown
SHOWN = {
    "accuracy": "",
    "eigenvalues": "",
    "local_global": "",
    "overlay": "fedgloss",
    "contours": "",
    "plane": "fedavg",
    "incompatibility": "",
    "robustness": "",
}
DPI = 72  # small enough to lie in the repository


def show(runs: Path, folder: Path) -> list[Path]:
    """Save one picture of each chosen figure, for the partition that differs most between clients."""
    everything = read_runs(find_runs([runs]))
    chosen = everything.select(*min(everything.settings, key=lambda setting: float(setting[1].split()[-1])))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, part in SHOWN.items():
        drawn = next(one for one in FIGURES[name].draw(chosen, everything) if part in one.suffix)
        paths.append(folder / f"{name}.png")
        with rc_context(STYLE):
            drawn.canvas.savefig(paths[-1], dpi=DPI, pil_kwargs={"optimize": True})
    return paths


if __name__ == "__main__":
    show(Path(sys.argv[1]), Path(sys.argv[2]))

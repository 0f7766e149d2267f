"""Pictures of examples that pyplot does not know of: figures that `reports.figure` returned."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

DPI = 120


def save_reports(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save what a block of an example has drawn without pyplot; returns reStructuredText that shows it.

    block: of the example. variables: its names and the paths for pictures. settings: of the gallery.
    """
    found = [one for one in variables["example_globals"].values() if isinstance(one, Figure)]
    paths = []
    for figure in dict.fromkeys(found):
        if not getattr(figure, "shown", False):
            figure.shown = True  # type: ignore[attr-defined]  # a name lives on in later blocks
            if figure.canvas.manager is not None:  # pyplot knows of it, and its own scraper saves and closes it
                continue
            paths.append(next(variables["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=DPI)
    return figure_rst(paths, settings["src_dir"])

"""Figures, tables and one web page from stored results. Imports no torch, except when `reproduce` trains.

Look         figure, draw, collect (numbers of runs as one table), compare
Write        report (the page), reproduce (tables and figures of the papers), run_demo
Exchange     export, import_surface (surfaces for ParaView, and in Goldstein's layout)
Look up      list_entries, register_figure (a figure of your own)

Names are loaded when they are first used (PEP 562).

    reports.figure("overlay", runs)  # a matplotlib figure
    reports.report(runs)  # everything on one page
"""

from typing import TYPE_CHECKING

from landscape.lazy_names import make_getattr

if TYPE_CHECKING:
    from reports.catalog import register_figure
    from reports.command import report
    from reports.demo import run_demo
    from reports.exports import export, import_surface
    from reports.interface import collect, compare, draw, figure, list_entries
    from reports.reproduction import reproduce

HOMES = {  # where every public name is defined
    "collect": "reports.interface",
    "compare": "reports.interface",
    "draw": "reports.interface",
    "export": "reports.exports",
    "figure": "reports.interface",
    "import_surface": "reports.exports",
    "list_entries": "reports.interface",
    "register_figure": "reports.catalog",
    "report": "reports.command",
    "reproduce": "reports.reproduction",
    "run_demo": "reports.demo",
}

__all__ = [
    "collect",
    "compare",
    "draw",
    "export",
    "figure",
    "import_surface",
    "list_entries",
    "register_figure",
    "report",
    "reproduce",
    "run_demo",
]

__getattr__ = make_getattr("reports", HOMES, globals())


def __dir__() -> list[str]:
    return __all__

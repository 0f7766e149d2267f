"""Studies over runs: checkpoints in, HDF5 out.

Measure      analyze, estimate (what it would take), open_model (a model of your own)
Studies      list_entries, register_study (one of your own)
Read         open_answer, list_answers
Verify       check

Names are loaded when they are first used (PEP 562): reading answers needs no torch.

    curvature = analysis.analyze(run, "curvature", rounds="all")  # an xarray.Dataset
    curvature["eigenvalue"].to_pandas()
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.answers import check, list_answers, open_answer
    from analysis.catalog import register_study
    from analysis.interface import analyze, estimate, list_entries
    from analysis.own_models import open_own as open_model

HOMES = {  # where every public name is defined, and what it is called there
    "analyze": ("analysis.interface", "analyze"),
    "check": ("analysis.answers", "check"),
    "estimate": ("analysis.interface", "estimate"),
    "list_answers": ("analysis.answers", "list_answers"),
    "list_entries": ("analysis.interface", "list_entries"),
    "open_answer": ("analysis.answers", "open_answer"),
    "open_model": ("analysis.own_models", "open_own"),
    "register_study": ("analysis.catalog", "register_study"),
}

__all__ = [
    "analyze",
    "check",
    "estimate",
    "list_answers",
    "list_entries",
    "open_answer",
    "open_model",
    "register_study",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first used."""
    if name not in HOMES:
        raise AttributeError(f"module 'analysis' has no attribute '{name}'")
    module, attribute = HOMES[name]
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__

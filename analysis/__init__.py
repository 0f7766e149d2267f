"""Studies over runs: checkpoints in, HDF5 out.

Measure      analyze, estimate (what it would take), open_model (a model of your own)
Studies      list_entries, register_study (one of your own)
Read         open_answer, list_answers
Verify       check

Names are loaded when they are first used (PEP 562): reading answers needs no torch.

    curvature = analysis.analyze(run, "curvature", rounds="all")  # an xarray.Dataset
    curvature["eigenvalue"].to_pandas()
"""

from typing import TYPE_CHECKING

from landscape.lazy_names import make_getattr

if TYPE_CHECKING:
    from analysis.answers import check, list_answers, open_answer
    from analysis.catalog import register_study
    from analysis.interface import analyze, estimate, list_entries
    from analysis.own_models import open_model

HOMES = {  # where every public name is defined
    "analyze": "analysis.interface",
    "check": "analysis.answers",
    "estimate": "analysis.interface",
    "list_answers": "analysis.answers",
    "list_entries": "analysis.interface",
    "open_answer": "analysis.answers",
    "open_model": "analysis.own_models",
    "register_study": "analysis.catalog",
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

__getattr__ = make_getattr("analysis", HOMES, globals())


def __dir__() -> list[str]:
    return __all__

"""Geometry of a loss: pure numerics on any torch model. No files, no federated learning.

What is measured      Objective, Layout
As a linear operator  Operator, MatrixOperator, ShiftedOperator, RescaledOperator, SumOperator
Spectrum              eigenpairs, power_iteration, minibatches, spectral_density, trace
Flatness              sharpness, adaptive_operator
Pictures              directions, line, plane, curvature_extent
Paths                 interpolate, barrier, curve
What comes back       results: frozen records, each number with its error, with plot() and to_pandas()
Progress              show_progress

Names are loaded when they are first used (PEP 562), so that `import landscape` needs no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from landscape.lazy_names import make_getattr

if TYPE_CHECKING:
    from landscape import results
    from landscape.geometry import directions
    from landscape.geometry.curves import curve
    from landscape.geometry.paths import barrier, interpolate
    from landscape.geometry.sharpness import adaptive_operator, sharpness
    from landscape.geometry.surface import curvature_extent, line, plane
    from landscape.layout import Layout
    from landscape.objectives.objective import Objective
    from landscape.operators import MatrixOperator, Operator, RescaledOperator, ShiftedOperator, SumOperator
    from landscape.progress import show_progress
    from landscape.spectrum.density import spectral_density
    from landscape.spectrum.lanczos import eigenpairs
    from landscape.spectrum.power import minibatches, power_iteration
    from landscape.spectrum.trace import trace

MODULES = {"directions": "landscape.geometry.directions", "results": "landscape.results"}
HOMES = {  # where every other public name is defined
    "Layout": "landscape.layout",
    "MatrixOperator": "landscape.operators",
    "Objective": "landscape.objectives.objective",
    "Operator": "landscape.operators",
    "RescaledOperator": "landscape.operators",
    "ShiftedOperator": "landscape.operators",
    "SumOperator": "landscape.operators",
    "adaptive_operator": "landscape.geometry.sharpness",
    "barrier": "landscape.geometry.paths",
    "curvature_extent": "landscape.geometry.surface",
    "curve": "landscape.geometry.curves",
    "eigenpairs": "landscape.spectrum.lanczos",
    "interpolate": "landscape.geometry.paths",
    "line": "landscape.geometry.surface",
    "minibatches": "landscape.spectrum.power",
    "plane": "landscape.geometry.surface",
    "power_iteration": "landscape.spectrum.power",
    "sharpness": "landscape.geometry.sharpness",
    "show_progress": "landscape.progress",
    "spectral_density": "landscape.spectrum.density",
    "trace": "landscape.spectrum.trace",
}

__all__ = [
    "Layout",
    "MatrixOperator",
    "Objective",
    "Operator",
    "RescaledOperator",
    "ShiftedOperator",
    "SumOperator",
    "adaptive_operator",
    "barrier",
    "curvature_extent",
    "curve",
    "directions",
    "eigenpairs",
    "interpolate",
    "line",
    "minibatches",
    "plane",
    "power_iteration",
    "results",
    "sharpness",
    "show_progress",
    "spectral_density",
    "trace",
]

try:
    __version__ = version("fl-landscape")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_load = make_getattr("landscape", HOMES, globals())


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first used."""
    return import_module(MODULES[name]) if name in MODULES else _load(name)


def __dir__() -> list[str]:
    return __all__

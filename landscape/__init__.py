"""Geometry of a loss: pure numerics on any torch model. No files, no federated learning.

What is measured      Objective, Layout
As a linear operator  Operator, MatrixOperator, ShiftedOperator, RescaledOperator, SumOperator
Spectrum              eigenpairs, power_iteration, minibatches, spectral_density, trace
Flatness              sharpness, adaptive_operator
Pictures              directions, line, plane, curvature_extent
Paths                 interpolate, barrier, curve
What comes back       results: frozen records, each number with its doubt
"""

from landscape import directions, results
from landscape.density import spectral_density
from landscape.eigen import eigenpairs
from landscape.layout import Layout
from landscape.objective import Objective
from landscape.operators import MatrixOperator, Operator, RescaledOperator, ShiftedOperator, SumOperator
from landscape.paths import barrier, curve, interpolate
from landscape.power import minibatches, power_iteration
from landscape.sharpness import adaptive_operator, sharpness
from landscape.surface import curvature_extent, line, plane
from landscape.trace import trace

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
    "spectral_density",
    "trace",
]

"""Geometry of a loss: pure numerics on any torch model. No files, no federated learning.

What is measured      Objective, Layout
As a linear operator  Operator, MatrixOperator, ShiftedOperator, RescaledOperator, SumOperator
Spectrum              eigenpairs, power_iteration, minibatches
What comes back       results: frozen records, each number with its doubt
"""

from landscape.eigen import eigenpairs
from landscape.layout import Layout
from landscape.objective import Objective
from landscape.operators import MatrixOperator, Operator, RescaledOperator, ShiftedOperator, SumOperator
from landscape.power import minibatches, power_iteration

__all__ = [
    "Layout",
    "MatrixOperator",
    "Objective",
    "Operator",
    "RescaledOperator",
    "ShiftedOperator",
    "SumOperator",
    "eigenpairs",
    "minibatches",
    "power_iteration",
]

"""Geometry of a loss: pure numerics on any torch model. No files, no federated learning."""

from landscape.objective import Objective

__all__ = ["Objective"]

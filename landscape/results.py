"""Frozen result records. Shapes stand in comments; `dims` in a field's metadata names its axes in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import choose, positive

Array = NDArray[np.float64]
Progress = Callable[[int, int], object]  # (units done, units in all); called from the thread that asked


class Outcome(Enum):
    """How an iteration ended; the value is advice to the reader. Failing to converge is not an exception."""

    CONVERGED = (
        "every residual is below the tolerance: each pair is an eigenpair, and whether none further out was missed "
        "is what `verified` says"
    )
    EXACT = "the Krylov space is the whole space: values are exact to rounding, and none was missed"
    MAX_ITERATIONS = "the budget ran out first: allow more products, loosen tol, or trust only the converged entries"
    STALLED = "restarts no longer lower the residuals: raise max_basis, loosen tol, or trust only the converged entries"
    NOISE = "residuals stopped falling at the rounding level of the operator: use float64 or loosen tol"


def axes(*names: str) -> dict[str, tuple[str, ...]]:
    return {"dims": names}


@dataclass(frozen=True)
class Evaluation:
    """Loss, error and, for a subset of the data, their standard errors."""

    loss: float
    error: float | None
    standard_error: float | None  # of the loss; None: all data were used, or single examples' losses are not known
    error_standard_error: float | None = None  # of the error


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues with what is known of their error: some eigenvalue lies within `residuals[i]` of `values[i]`.

    That it is the i-th one is known only if `verified`.
    """

    values: Array = field(metadata=axes("k"))  # (k,) descending, algebraic
    vectors: Tensor = field(metadata=axes("k", "parameter"))  # (k, size) rows of unit norm
    residuals: Array = field(metadata=axes("k"))  # (k,) ||H v - lambda v||
    converged: NDArray[np.bool_] = field(metadata=axes("k"))  # (k,)
    products: int  # operator-vector products spent
    iterations: NDArray[np.int64] = field(metadata=axes("k"))  # (k,) steps spent up to each pair
    outcome: Outcome
    verified: bool = False  # whether it is improbable (1 in 1000) that an eigenvalue further out was missed


@dataclass(frozen=True)
class Density:
    """Nodes and weights of stochastic Lanczos quadrature; smoothing is left to the moment of drawing."""

    nodes: Array = field(metadata=axes("probe", "node"))  # (probes, steps), NaN after a Krylov space closed
    weights: Array = field(metadata=axes("probe", "node"))  # (probes, steps), each row sums to one
    size: int  # dimension of the operator
    products: int

    def moment(self, power: int) -> tuple[float, float]:
        """Mean of lambda^power over the spectrum, with its standard error over probes."""
        each = np.nansum(self.weights * self.nodes**power, axis=1)
        return float(each.mean()), standard_error(each)

    @property
    def extremes(self) -> tuple[float, float]:
        """Smallest and largest node: the ends of the spectrum are at least this far out."""
        return float(np.nanmin(self.nodes)), float(np.nanmax(self.nodes))

    def curve(self, grid: Array, width: float | str = "resolution") -> tuple[Array, Array]:
        """Density on a grid by a Gaussian of standard deviation `width`, and its standard error over probes.

        A width may be a number or one of WIDTHS. Curves compare only when drawn with one width.
        """
        if isinstance(width, str):
            width = WIDTHS[choose("width", width, WIDTHS)](self)
        positive("width", width)
        nodes, weights = np.nan_to_num(self.nodes), np.nan_to_num(self.weights)
        distance = (np.asarray(grid)[:, None, None] - nodes[None]) / width
        kernel = np.exp(-0.5 * distance**2) / np.sqrt(2 * np.pi)  # in units of the width, whatever its size
        each = (kernel * weights[None]).sum(axis=2)  # (grid, probes)
        error = each.std(axis=1, ddof=1) / np.sqrt(each.shape[1]) if each.shape[1] > 1 else np.full(len(each), np.nan)
        return each.mean(axis=1) / width, error / width


def _resolution(density: Density) -> float:
    """Span of the nodes over their number: what the quadrature can tell apart."""
    return _span(density) / int(np.isfinite(density.nodes).sum(axis=1).max())


def _span(density: Density) -> float:
    """How far the nodes reach; for a single value a small part of it, for zeros alone any small number."""
    low, high = density.extremes
    return max(high - low, 1e-12 * max(abs(low), abs(high))) or 1e-12


def _pyhessian(density: Density) -> float:
    """PyHessian (Yao et al. 2020): 1e-5 max(1, range) is a variance; the range is a mean over probes, 0.01 wider."""
    ends = np.nanmax(density.nodes, axis=1) - np.nanmin(density.nodes, axis=1)
    return float(np.sqrt(1e-5 * max(1.0, ends.mean() + 0.02)))


def _papyan(density: Density) -> float:
    """Papyan 2020 with kappa = 3, on a spectrum mapped to [-1, 1] with a margin of 5 % at either end."""
    steps = int(np.isfinite(density.nodes).sum(axis=1).max())
    return 0.5 * 1.1 * _span(density) * 2 / (max(steps - 1, 1) * float(np.sqrt(8 * np.log(3))))


WIDTHS: dict[str, Callable[[Density], float]] = {
    "resolution": _resolution,
    "pyhessian": _pyhessian,
    "papyan": _papyan,
}


@dataclass(frozen=True)
class Trace:
    """A stochastic trace with its standard error, in all and per layer."""

    value: float
    standard_error: float
    layers: dict[str, tuple[float, float]]  # layer -> (trace of its diagonal block, standard error)
    products: int


@dataclass(frozen=True)
class Sharpness:
    """How much the loss rises within a radius, and the perturbation that does it."""

    value: float  # of maximised kinds a lower bound: the highest that was found
    base: float  # loss at theta, on the same data
    gradient_norm: float  # mean over batches if m is set; away from critical points radius times it dominates
    radius: float
    kind: str
    standard_error: float  # over samples or batches; NaN for a single deterministic answer
    perturbation: Tensor | None = field(default=None, metadata=axes("parameter"))  # (size,) or None for averages
    evaluations: int = 0  # gradient or loss evaluations spent
    p: float = 2.0  # norm of the constraint; always infinite for the box of Keskar
    m: int | None = None  # examples per batch of m-sharpness; None: all data at once
    gap: float = float("nan")  # of maximised kinds: value minus what the lower of two independent searches found
    ceiling: float = float("nan")  # where asked for: an upper bound of the maximum, to second order in the radius


@dataclass(frozen=True)
class Line:
    """Loss and error along base + x * direction, or (1 - x) * start + x * end."""

    x: Array = field(metadata=axes("x"))  # (n,)
    loss: Array = field(metadata=axes("x"))  # (n,) NaN where not computed, else what came out, also inf
    error: Array | None = field(metadata=axes("x"))  # (n,)
    standard_error: Array | None = field(metadata=axes("x"))  # (n,) of the loss, when data are a subset
    done: NDArray[np.bool_] = field(metadata=axes("x"))  # (n,)
    error_standard_error: Array | None = field(default=None, metadata=axes("x"))  # (n,) of the error, likewise


@dataclass(frozen=True)
class Plane:
    """Loss and error over base + x_i * d1 + y_j * d2; arrays are indexed [i, j]."""

    x: Array = field(metadata=axes("x"))  # (nx,)
    y: Array = field(metadata=axes("y"))  # (ny,)
    loss: Array = field(metadata=axes("x", "y"))  # (nx, ny) NaN where not computed
    error: Array | None = field(metadata=axes("x", "y"))  # (nx, ny)
    standard_error: Array | None = field(metadata=axes("x", "y"))  # (nx, ny)
    done: NDArray[np.bool_] = field(metadata=axes("x", "y"))  # (nx, ny)
    cosine: float  # between the two directions
    error_standard_error: Array | None = field(default=None, metadata=axes("x", "y"))  # (nx, ny)


@dataclass(frozen=True)
class Height:
    """The three barriers of one quantity (loss or error) along one path."""

    linear: float  # max_x L(x) - ((1 - x) L(0) + x L(1)), Entezari et al. 2022
    mean: float  # max_x L(x) - (L(0) + L(1)) / 2, Frankle et al. 2020
    max: float  # max_x L(x) - max(L(0), L(1)), the height of the saddle
    where: float  # x of the highest point; NaN losses make every height NaN
    linear_where: float  # x of the highest excess over the chord


@dataclass(frozen=True)
class Barrier:
    """A path between two models with its barriers in loss and, for class labels, in error."""

    path: Line
    loss: Height
    error: Height | None
    refined: Array = field(metadata=axes("refinement", "quantity"))  # (m, 3) rows of x, loss, error beyond the grid


@dataclass(frozen=True)
class Frame:
    """An orthonormal frame of the plane through three models: model k sits at base + x_k * u + y_k * v."""

    base: Tensor = field(metadata=axes("parameter"))  # (size,) the first model
    u: Tensor = field(metadata=axes("parameter"))  # (size,) unit vector towards the second model
    v: Tensor = field(metadata=axes("parameter"))  # (size,) unit vector orthogonal to u, on the side of the third
    coordinates: Array = field(metadata=axes("model", "axis"))  # (3, 2) weight distances


@dataclass(frozen=True)
class Trajectory:
    """The plane through the last checkpoint that holds most of a run's motion, and where each checkpoint falls."""

    base: Tensor = field(metadata=axes("parameter"))  # (size,) the last checkpoint
    u: Tensor = field(metadata=axes("parameter"))  # (size,) first principal direction, unit norm
    v: Tensor = field(metadata=axes("parameter"))  # (size,) second one, orthogonal to u
    coordinates: Array = field(metadata=axes("checkpoint", "axis"))  # (T, 2) of the projections
    explained: Array = field(metadata=axes("axis"))  # (2,) share of the squared distance to the last checkpoint
    distance: Array = field(metadata=axes("checkpoint"))  # (T,) from each checkpoint to the plane


@dataclass(frozen=True)
class Curve:
    """A trained path of low loss between two models, and its loss statistics (Garipov et al. 2018)."""

    kind: str  # "bezier" or "polygon"
    bend: Tensor = field(metadata=axes("parameter"))  # (size,) the control point that was trained
    path: Line  # x is the curve's parameter t
    length: float  # weight distance along the sampled points
    min: float
    max: float
    mean: float  # over evenly spaced t
    arc_mean: float  # over arc length: slow stretches of the parametrisation do not count twice


def standard_error(samples: Array) -> float:
    """Of the mean of independent samples; one sample says nothing about it."""
    if len(samples) < 2:
        return float("nan")
    scale = float(np.abs(samples).max()) or 1.0  # squares of very small or large samples would leave the range
    exponent = int(np.frexp(scale)[1]) if np.isfinite(scale) else 0
    return float(np.ldexp(np.ldexp(samples, -exponent).std(ddof=1) / np.sqrt(len(samples)), exponent))

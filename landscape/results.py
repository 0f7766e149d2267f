"""Frozen records of results; `dims` in a field's metadata names the axes of an array in files.

Every record has `to_pandas()`, and those that can be drawn have `plot()`, which imports matplotlib only then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from landscape.errors import choose, positive
from landscape.record import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Progress = Callable[[int, int], object]  # takes (units done, units in all), in the calling thread


class Outcome(Enum):
    """How an iteration ended, with advice as its value. Failing to converge is a result, not an exception."""

    CONVERGED = (
        "every residual is below the tolerance: each pair is an eigenpair, and whether none further out was missed "
        "is what `verified` says"
    )
    EXACT = "the Krylov space is the whole space: values are exact to rounding, and none was missed"
    MAX_ITERATIONS = "the budget ran out first: allow more products, loosen tol, or trust only the converged entries"
    STALLED = "restarts no longer lower the residuals: raise max_basis, loosen tol, or trust only the converged entries"
    NOISE = "residuals stopped falling at the rounding level of the operator: use float64 or loosen tol"


def axes(*names: str) -> dict[str, tuple[str, ...]]:
    """Return metadata of a field that holds an array.

    names: of the array's axes.
    """
    return {"dims": names}


@dataclass(frozen=True)
class Evaluation(Record):
    """Loss and error at one point, with standard errors if they are measured on a subset of the data.

    loss: the mean loss.
    error: the fraction of wrong predictions; None: errors are not known.
    standard_error: of the loss; None: all data were used, or the losses of single examples are not known.
    error_standard_error: of the error, likewise.
    """

    loss: float
    error: float | None
    standard_error: float | None
    error_standard_error: float | None = None


@dataclass(frozen=True)
class Eigenpairs(Record):
    """Eigenvalues with bounds of their errors: some eigenvalue lies within `residuals[i]` of `values[i]`.

    values: (k,) in descending algebraic order.
    vectors: (k, size) rows of unit norm.
    residuals: (k,) ||H v - lambda v||.
    converged: (k,) whether the residual is within the tolerance.
    products: operator-vector products spent.
    iterations: (k,) steps spent up to each pair.
    outcome: how the iteration ended.
    verified: whether it is improbable (1 in 1000) that an eigenvalue further out was missed. Only then is `values[i]`
        known to be the i-th one.
    """

    values: Array = field(metadata=axes("k"))
    vectors: Tensor = field(metadata=axes("k", "parameter"))
    residuals: Array = field(metadata=axes("k"))
    converged: NDArray[np.bool_] = field(metadata=axes("k"))
    products: int
    iterations: NDArray[np.int64] = field(metadata=axes("k"))
    outcome: Outcome
    verified: bool = False

    def plot(self, axes: Axes | None = None, *, label: str = "") -> Axes:
        """Draw the eigenvalues by rank, residuals as bars; triangles are negative, open markers not converged.

        axes: of matplotlib; by default those of a new figure. label: for a legend. Returns the axes.
        """
        from landscape.plotting.records import draw_eigenvalues, open_axes

        return draw_eigenvalues(open_axes(axes), self.values, self.residuals, self.converged, label)


@dataclass(frozen=True)
class Density(Record):
    """Nodes and weights of stochastic Lanczos quadrature; `curve` smooths them when they are drawn.

    nodes: (probes, steps) where each probe sees eigenvalues; NaN after its Krylov space closed.
    weights: (probes, steps) how many of them, each row summing to one.
    size: dimension of the operator.
    products: operator-vector products spent.
    """

    nodes: Array = field(metadata=axes("probe", "node"))
    weights: Array = field(metadata=axes("probe", "node"))
    size: int
    products: int

    def moment(self, power: int) -> tuple[float, float]:
        """Return the mean of lambda^power over the spectrum, and its standard error over probes.

        power: the exponent.
        """
        each = np.nansum(self.weights * self.nodes**power, axis=1)
        return float(each.mean()), standard_error(each)

    @property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest node: the spectrum reaches at least as far."""
        return float(np.nanmin(self.nodes)), float(np.nanmax(self.nodes))

    def curve(self, grid: Array, width: float | str = "resolution") -> tuple[Array, Array]:
        """Smooth the density by a Gaussian; return it and its standard error over probes, both on the grid.

        grid: where to evaluate it.
        width: standard deviation of the Gaussian, or one of WIDTHS: "resolution", "pyhessian" or "papyan". Curves can
            only be compared if they have the same width.
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

    def plot(
        self, axes: Axes | None = None, *, width: float | str = "resolution", points: int = 1000, label: str = ""
    ) -> Axes:
        """Draw the density on a logarithmic axis, its standard error over probes as a band.

        axes: of matplotlib; by default those of a new figure.
        width: of the Gaussian, as `curve` takes it.
        points: of the grid.
        label: for a legend. Returns the axes.
        """
        from landscape.plotting.records import draw_density, open_axes

        low, high = self.extremes
        grid = np.linspace(low - 0.1 * _span(self), high + 0.1 * _span(self), points)
        return draw_density(open_axes(axes), grid, *self.curve(grid, width), self.extremes, label)


def _resolution(density: Density) -> float:
    """Span of the nodes over their number: what the quadrature can tell apart."""
    return _span(density) / int(np.isfinite(density.nodes).sum(axis=1).max())


def _span(density: Density) -> float:
    """The range of the nodes; a small part of the value if there is only one, any small number for zeros."""
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
class Trace(Record):
    """A stochastic estimate of a trace, in all and per layer.

    value: of the whole operator.
    standard_error: of the value.
    layers: layer -> (trace of its diagonal block, standard error).
    products: operator-vector products spent.
    """

    value: float
    standard_error: float
    layers: dict[str, tuple[float, float]]
    products: int

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the trace of every layer and of all with standard errors.

        axes: of matplotlib; by default those of a new figure. Returns the axes.
        """
        from landscape.plotting.records import draw_layers, open_axes

        return draw_layers(open_axes(axes), self.layers, (self.value, self.standard_error))

    def to_pandas(self) -> pd.DataFrame:
        """Return trace and standard error of every layer, and of all."""
        import pandas as pd

        rows = {**self.layers, "all": (self.value, self.standard_error)}
        return pd.DataFrame(list(rows.values()), pd.Index(rows, name="layer"), ["trace", "standard_error"])


@dataclass(frozen=True)
class Sharpness(Record):
    """How much the loss rises within a radius, and the perturbation that raises it.

    value: the rise; of maximised kinds the highest that was found, a lower bound.
    base: loss at theta, on the same data.
    gradient_norm: mean over batches if m is set. Away from critical points radius times it dominates.
    radius: of the perturbations.
    kind: as asked for.
    standard_error: over samples or batches; NaN for a single deterministic answer.
    perturbation: (size,) or None for averages.
    evaluations: of the loss or of its gradient.
    p: norm of the constraint; always infinite for the box of Keskar.
    m: examples per batch of m-sharpness; None: all data at once.
    gap: of maximised kinds, the value minus what the lower of two independent searches found.
    ceiling: where asked for, an upper bound of the maximum, to second order in the radius.
    """

    value: float
    base: float
    gradient_norm: float
    radius: float
    kind: str
    standard_error: float
    perturbation: Tensor | None = field(default=None, metadata=axes("parameter"))
    evaluations: int = 0
    p: float = 2.0
    m: int | None = None
    gap: float = float("nan")
    ceiling: float = float("nan")

    def plot(self, axes: Axes | None = None, *, label: str = "") -> Axes:
        """Draw the rise at its radius; results of several radii onto the same axes make a curve.

        A thick line goes down to what the lower of two searches found, a dash is the ceiling.

        axes: of matplotlib; by default those of a new figure. label: for the legend. Returns the axes.
        """
        from landscape.plotting.records import draw_rise, open_axes

        bounds = (self.value - self.gap, self.ceiling)
        name = label or f"ρ = {self.radius:g}"
        return draw_rise(open_axes(axes), self.radius, self.value, self.standard_error, bounds, name, self.kind)


@dataclass(frozen=True)
class Line(Record):
    """Loss and error along base + x * direction, or (1 - x) * start + x * end.

    x: (n,) coordinates.
    loss: (n,) NaN where not computed, else the result, which may be infinite.
    error: (n,) or None where errors are not known.
    standard_error: (n,) of the loss, if the data are a subset.
    done: (n,) whether the point was computed.
    error_standard_error: (n,) of the error, if the data are a subset.
    """

    x: Array = field(metadata=axes("x"))
    loss: Array = field(metadata=axes("x"))
    error: Array | None = field(metadata=axes("x"))
    standard_error: Array | None = field(metadata=axes("x"))
    done: NDArray[np.bool_] = field(metadata=axes("x"))
    error_standard_error: Array | None = field(default=None, metadata=axes("x"))

    def plot(self, axes: Axes | None = None, *, quantity: str = "loss", label: str = "") -> Axes:
        """Draw loss or error along the line, with its standard error as a band.

        axes: of matplotlib; by default those of a new figure.
        quantity: "loss" or "error".
        label: for a legend. Returns the axes.
        """
        from landscape.plotting.records import draw_profile, open_axes

        values = _select(self, quantity)
        error = self.standard_error if quantity == "loss" else self.error_standard_error
        return draw_profile(open_axes(axes), self.x, values, error, label, ("x", quantity))


@dataclass(frozen=True)
class Plane(Record):
    """Loss and error over base + x_i * d1 + y_j * d2; arrays are indexed [i, j].

    x: (nx,) coordinates along d1.
    y: (ny,) coordinates along d2.
    loss: (nx, ny) NaN where not computed, else the result, which may be infinite.
    error: (nx, ny) or None where errors are not known.
    standard_error: (nx, ny) of the loss, if the data are a subset.
    done: (nx, ny) whether the point was computed.
    cosine: of the angle between the two directions.
    error_standard_error: (nx, ny) of the error, if the data are a subset.
    """

    x: Array = field(metadata=axes("x"))
    y: Array = field(metadata=axes("y"))
    loss: Array = field(metadata=axes("x", "y"))
    error: Array | None = field(metadata=axes("x", "y"))
    standard_error: Array | None = field(metadata=axes("x", "y"))
    done: NDArray[np.bool_] = field(metadata=axes("x", "y"))
    cosine: float
    error_standard_error: Array | None = field(default=None, metadata=axes("x", "y"))

    def plot(self, kind: str = "contour", axes: Any = None, *, quantity: str = "loss") -> Any:
        """Draw the surface, logarithmic where it spans more than a decade and a half.

        kind: "contour", "3d" or "plotly".
        axes: of matplotlib, or a plotly figure; by default a new one.
        quantity: "loss" or "error". Returns the axes, or the plotly figure.
        """
        from landscape.plotting.planes import KINDS, Heights

        draw = KINDS[choose("kind", kind, KINDS)]
        return draw(axes, Heights(self.x, self.y, _select(self, quantity)), quantity)


@dataclass(frozen=True)
class Height(Record):
    """The three barriers of one quantity L (loss or error) along one path; NaN losses make all of them NaN.

    linear: max_x L(x) - ((1 - x) L(0) + x L(1)), Entezari et al. 2022.
    mean: max_x L(x) - (L(0) + L(1)) / 2, Frankle et al. 2020.
    max: max_x L(x) - max(L(0), L(1)), the height of the saddle.
    where: x of the highest point.
    linear_where: x of the highest excess over the chord.
    """

    linear: float
    mean: float
    max: float
    where: float
    linear_where: float


@dataclass(frozen=True)
class Barrier(Record):
    """A straight path between two models with its barriers.

    path: loss and error on the grid.
    loss: barriers of the loss.
    error: barriers of the error; None where errors are not known.
    refined: (m, 3) rows of x, loss, error that were evaluated between grid points.
    """

    path: Line
    loss: Height
    error: Height | None
    refined: Array = field(metadata=axes("refinement", "quantity"))

    def plot(self, axes: Axes | None = None, *, quantity: str = "loss") -> Axes:
        """Draw the path, the chord between its ends, and the barrier above the chord.

        axes: of matplotlib; by default those of a new figure.
        quantity: "loss" or "error". Returns the axes.
        """
        from landscape.plotting.records import draw_barrier, open_axes

        values = _select(self.path, quantity)
        height = self.loss if quantity == "loss" or self.error is None else self.error
        extra = (self.refined[:, 0], self.refined[:, 1 if quantity == "loss" else 2])
        place = (height.linear, height.linear_where)
        return draw_barrier(open_axes(axes), (self.path.x, values), extra, place, quantity)

    def to_pandas(self) -> pd.DataFrame:
        """Return the path, with what was evaluated between grid points."""
        import pandas as pd

        path = self.path.to_pandas().rename_axis("x")
        names = ["x", "loss", "error"]
        refined = pd.DataFrame(self.refined, columns=names).set_index("x").assign(done=True)
        together = pd.concat([path, refined[[name for name in path if name in refined]]]) if len(refined) else path
        return together.sort_index(kind="stable")


@dataclass(frozen=True)
class Frame(Record):
    """An orthonormal frame of the plane through three models: model k lies at base + x_k * u + y_k * v.

    base: (size,) the first model.
    u: (size,) unit vector towards the second model.
    v: (size,) unit vector orthogonal to u, on the side of the third model.
    coordinates: (3, 2) x_k and y_k, which are distances of weights.
    """

    base: Tensor = field(metadata=axes("parameter"))
    u: Tensor = field(metadata=axes("parameter"))
    v: Tensor = field(metadata=axes("parameter"))
    coordinates: Array = field(metadata=axes("model", "axis"))

    def plot(self, axes: Axes | None = None, *, names: tuple[str, ...] = ("1", "2", "3")) -> Axes:
        """Mark the three models, for example on the axes of a `Plane` in this frame.

        axes: of matplotlib; by default those of a new figure. names: of the models. Returns the axes.
        """
        from landscape.plotting.records import draw_positions, open_axes

        return draw_positions(open_axes(axes), self.coordinates, names)


@dataclass(frozen=True)
class Trajectory(Record):
    """The plane through the last checkpoint that holds most of a run's motion, and where each checkpoint falls.

    base: (size,) the last checkpoint.
    u: (size,) the first principal direction, of unit norm.
    v: (size,) the second one, orthogonal to u.
    coordinates: (T, 2) of the checkpoints' projections.
    explained: (2,) share of the squared distances to the last checkpoint along u and v.
    distance: (T,) from each checkpoint to the plane.
    """

    base: Tensor = field(metadata=axes("parameter"))
    u: Tensor = field(metadata=axes("parameter"))
    v: Tensor = field(metadata=axes("parameter"))
    coordinates: Array = field(metadata=axes("checkpoint", "axis"))
    explained: Array = field(metadata=axes("axis"))
    distance: Array = field(metadata=axes("checkpoint"))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the path of the checkpoints, for example on the axes of a `Plane` along u and v.

        axes: of matplotlib; by default those of a new figure. Returns the axes.
        """
        from landscape.plotting.records import draw_positions, open_axes
        from landscape.plotting.style import label_axes

        axes = open_axes(axes)
        names = ["first", *[""] * (len(self.coordinates) - 2), "last"]
        label_axes(axes, *(f"principal direction {i + 1}: {100 * part:.0f} %" for i, part in enumerate(self.explained)))
        return draw_positions(axes, self.coordinates, names, joined=True)


@dataclass(frozen=True)
class Curve(Record):
    """A trained path of low loss between two models, and its loss statistics (Garipov et al. 2018).

    kind: "bezier" or "polygon".
    bend: (size,) the control point that was trained.
    path: loss and error along the curve; x is its parameter t.
    length: distance of weights along the evaluated points.
    min: lowest loss.
    max: highest loss.
    mean: mean loss over evenly spaced t.
    arc_mean: mean loss over arc length, where slow stretches of the parametrisation do not count twice.
    """

    kind: str
    bend: Tensor = field(metadata=axes("parameter"))
    path: Line
    length: float
    min: float
    max: float
    mean: float
    arc_mean: float

    def plot(self, axes: Axes | None = None, *, quantity: str = "loss", label: str = "") -> Axes:
        """Draw loss or error along the curve.

        axes: of matplotlib; by default those of a new figure.
        quantity: "loss" or "error".
        label: for a legend. Returns the axes.
        """
        return self.path.plot(axes, quantity=quantity, label=label)

    def to_pandas(self) -> pd.DataFrame:
        """Return loss and error along the curve."""
        return self.path.to_pandas()


def _select(found: Line | Plane, quantity: str) -> Array:
    """Loss or error of a result."""
    choose("quantity", quantity, ("loss", "error"))
    values = found.loss if quantity == "loss" else found.error
    if values is None:
        raise ValueError('quantity="error" cannot be drawn: this result has no errors; draw the loss')
    return values


def standard_error(samples: Array) -> float:
    """Return the standard error of a mean; NaN for a single sample.

    samples: independent values.
    """
    if len(samples) < 2:
        return float("nan")
    scale = float(np.abs(samples).max()) or 1.0  # squares of very small or large samples would leave the range
    exponent = int(np.frexp(scale)[1]) if np.isfinite(scale) else 0
    return float(np.ldexp(np.ldexp(samples, -exponent).std(ddof=1) / np.sqrt(len(samples)), exponent))

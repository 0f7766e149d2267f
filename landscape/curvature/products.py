"""Products with a curvature matrix of an objective (Hessian, Gauss-Newton), summed over its chunks.

Four engines give the same numbers (1e-12 in float64):
  retained   the graph of each chunk's gradient is kept; a product is one backward pass through it, about
             4 forwards instead of 7;
  recompute  the graph is built, used for all vectors of the block, and freed;
  forward    forward-over-reverse (jvp of grad): least memory, no second graph;
  auto       retained for as many chunks as the memory budget allows; recompute for the rest, or forward for a
             model that has only that derivative.

How many graphs are kept depends on free memory; the numbers do not, to the bit.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from landscape.errors import choose
from landscape.kernels.convolutions import wants_channels_last
from landscape.kernels.derivatives import CheapSecondDerivatives
from landscape.kernels.selection import enable_second_derivatives, explain_missing_derivatives
from landscape.layout import Layout
from landscape.losses import nests
from landscape.losses.batches import Batch, examples
from landscape.losses.chunk_loss import ChunkLoss
from landscape.losses.exact_losses import ExactLosses
from landscape.losses.summed_loss import Sums
from landscape.operators import Operator
from landscape.runtime.memory import LEDGER, count_saved
from landscape.runtime.replica import Replica, Replicas
from landscape.runtime.workers import ordered_map

ENGINES = ("auto", "retained", "recompute", "forward")
BLOCK = 8  # vectors multiplied per visit to a chunk: bounds the memory of results in flight

SMALL = 2.0**-20  # a mean loss below this is multiplied before it is differentiated in float32,
MOST_SCALE = 64  # by two to the power of this at most: half of the range, for curvature may be larger than the loss

Multiply = Callable[[Sequence[Tensor]], Sequence[Tensor]]  # one vector, as tensors in the parameters' shapes


@dataclass(frozen=True)
class Graph:
    """What is kept of a chunk so that a product is only a backward pass."""

    multiply: Multiply
    gradient: Tensor  # (parameters,) of the chunk's summed loss
    count: float
    loss: float
    scale: float = 1.0  # what the loss was multiplied by before it was differentiated, and products with it

    @classmethod
    def of(cls, multiply: Multiply, gradient: Sequence[Tensor], sums: Sums, scale: float) -> Graph:
        """The graph of a chunk with these sums, from the gradient of its scaled loss."""
        flat = torch.cat([part.detach().reshape(-1) for part in gradient])
        return cls(multiply, unscale(flat, scale), sums.count, sums.value, scale)


class ChunkedObjective(Protocol):
    """What curvature needs to know about an objective; `landscape.Objective` is one.

    layout, dtype, device: of its vectors.
    weight_decay: the factor of the penalty that it adds to the loss.
    memory: bytes that kept graphs may take; None leaves it to the free memory.
    workers: chunks computed at once.
    replicas: copies of its model.
    chunk_loss: the loss of one chunk.
    """

    layout: Layout
    dtype: torch.dtype
    device: torch.device
    weight_decay: float
    memory: int | None
    workers: int
    replicas: Replicas
    chunk_loss: ChunkLoss

    @property
    def size(self) -> int:
        """Number of entries of theta."""

    @property
    def chunks(self) -> Sequence[Batch]:
        """The examples, as batches that are computed one at a time."""

    def statistics(self, theta: Tensor) -> list[Tensor] | None:
        """BatchNorm statistics estimated anew at theta; None unless the policy is "recomputed"."""


class CurvatureOperator(Operator):
    """Products at a fixed theta, chunk by chunk; a subclass says how the graph of one chunk is built.

    objective: the loss.
    theta: a vector that nothing else changes.
    engine: "auto", "retained", "recompute" or "forward"; see the module.
    """

    _linear = False  # whether products need no second derivative of the network itself

    def __init__(self, objective: ChunkedObjective, theta: Tensor, engine: str):
        objective.chunk_loss.check_differentiable()
        if torch.finfo(objective.dtype).bits < 32:
            name = str(objective.dtype).removeprefix("torch.")
            raise ValueError(
                f"curvature in {name} would be rounding noise: measure the model in float32, "
                "Objective(..., dtype=torch.float32)"
            )
        choose("engine", engine, ENGINES)
        self.objective, self.theta = objective, theta
        self.size, self.dtype, self.device = objective.size, objective.dtype, objective.device
        self.layout: Layout = objective.layout
        self._statistics = objective.statistics(theta)
        self._entries = objective.layout.parameters
        with objective.replicas.borrow() as replica:
            self._channels_last = wants_channels_last(replica.module)
            self._leaves = replica.views(theta)  # fixed leaves: graphs stay valid when replicas move on
        self._kept: list[Graph] = []
        self._account = LEDGER.open(self.device, objective.memory)
        with enable_second_derivatives():
            self._keep_graphs(engine)
        self.engine = engine if engine != "auto" else self._choose_engine()
        self.workers = 1 if self.engine == "forward" else objective.workers  # forward mode is not thread-safe in torch

    @abstractmethod
    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        """The graph of one chunk at the operator's theta."""

    def _keep_graphs(self, engine: str) -> None:
        """Build and keep the graphs of as many leading chunks as there is memory for."""
        chunks = self.objective.chunks
        if engine in ("recompute", "forward") or not self.objective.chunk_loss.countable:
            return
        with count_saved([self.theta, *nests.tensors(chunks[0])]) as saved:
            # on one thread, like the others: the same bits, and no waiting for threads of small kernels
            first = next(ordered_map(self._build_graph, chunks[:1], workers=1))
        per_example = saved.kept() / max(examples(chunks[0]), 1)
        costs = [math.ceil(per_example * max(examples(chunk), 1)) for chunk in chunks]
        # "retained" promises the graphs of all chunks, whatever they take
        fits = partial(LEDGER.promise, self._account, always=engine == "retained")
        if fits(costs[0]):
            self._account.hold(costs[0])
            self._kept = [first]
            # lazily: free memory is read again before each graph is begun
            rest = itertools.takewhile(lambda pair: fits(pair[1]), zip(chunks[1:], costs[1:], strict=True))
            built = ordered_map(lambda pair: self._build_graph(pair[0]), rest, self.objective.workers)
            for graph, cost in zip(built, costs[1:], strict=False):
                self._account.hold(cost)
                self._kept.append(graph)
        self.hint = self._compute_gradient()

    def _compute_gradient(self) -> Tensor:
        """The gradient over all chunks, also those whose graphs were not kept: a hint that depended on free memory
        would make eigenvectors depend on it."""
        workers = self.objective.workers
        rest = self.objective.chunks[len(self._kept) :]
        built = ordered_map(lambda chunk: _get_gradient(self._build_graph(chunk)), rest, workers)
        total = torch.zeros(self._leaves_end, dtype=torch.float64, device=self.device)
        count = 0.0
        for gradient, weight in itertools.chain(map(_get_gradient, self._kept), built):
            total += gradient
            count += weight
        hint = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        hint[: self._leaves_end] = total / count
        return hint

    @property
    def graph_bytes(self) -> int:
        """Memory held by kept graphs."""
        return self._account.held

    def _choose_engine(self) -> str:
        """The engine for chunks whose graphs were not kept: the first that this model has derivatives for.

        A choice by the clock would change the last bits from one run to the next.
        """
        if len(self._kept) == len(self.objective.chunks):
            return "retained"
        chunk = self.objective.chunks[-1]
        vector = torch.ones(1, self.size, dtype=self.dtype, device=self.device)
        # recompute first: it runs chunks side by side on all workers; forward mode is not thread-safe in torch
        for name, multiply in (("recompute", self._recompute), ("forward", self._forward)):
            try:
                with enable_second_derivatives():
                    multiply(chunk, vector)
                return name
            except (RuntimeError, NotImplementedError):
                continue  # an operation without that derivative
        raise ValueError("no Hessian product works for this model: an operation lacks a second derivative")

    @property
    def _leaves_end(self) -> int:
        return self.layout.parameter_count

    def _product(self, rows: Tensor) -> Tensor:
        total = torch.zeros(rows.shape, dtype=torch.float64, device=self.device)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            count = 0.0
            with enable_second_derivatives(), explain_missing_derivatives():
                for part, weight in self._multiply_chunks(block):
                    total[start : start + BLOCK, : self._leaves_end] += part
                    count += weight
            total[start : start + BLOCK] /= count
        result = total.to(self.dtype)
        if self.objective.weight_decay:
            result[:, : self._leaves_end] += self.objective.weight_decay * rows[:, : self._leaves_end]
        return result

    def _multiply_chunks(self, rows: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Unnormalised products and counts, chunk by chunk in data order."""
        workers = self.objective.workers
        yield from ordered_map(partial(self._multiply, rows), self._kept, workers)
        rest = self.objective.chunks[len(self._kept) :]
        if self.engine == "forward":
            yield from (self._forward(chunk, rows) for chunk in rest)
        else:
            yield from ordered_map(lambda chunk: self._recompute(chunk, rows), rest, workers)

    def _multiply(self, rows: Tensor, graph: Graph) -> tuple[Tensor, float]:
        products = [torch.cat([part.reshape(-1) for part in graph.multiply(self._shape(row))]) for row in rows]
        return unscale(torch.stack(products), graph.scale), graph.count

    def _recompute(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        return self._multiply(rows, self._build_graph(chunk))

    @abstractmethod
    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        """Products of one chunk without a second graph."""

    def _build_graph(self, chunk: Batch) -> Graph:
        with self.objective.replicas.borrow() as replica:
            try:
                replica.load(self.theta, self._statistics)
                replica.bind(self._leaves)
                # it knows two derivatives; a loss that differentiates itself needs a third
                nested = self.objective.chunk_loss.inner_gradients
                cheap = nullcontext() if nested else CheapSecondDerivatives(linear=self._linear)
                batch = chunk if self._channels_last else make_contiguous(chunk)
                with cheap, ExactLosses():
                    graph = self._build(replica, batch, self._leaves[: len(self._entries)])
            finally:
                replica.bind(replica.leaves)
        if not torch.isfinite(torch.tensor(graph.loss)):
            raise ValueError(f"the loss is {graph.loss} at this theta: there is no curvature to measure")
        return graph

    def _find_scale(self, loss: float, count: float) -> float:
        """A power of two that keeps the derivatives of a very small loss from vanishing in float32; else 1.

        A model that fits its data well has slopes as small as its loss. In float64 no scaling is needed.
        """
        mean = abs(loss) / max(count, 1.0)
        if self.dtype == torch.float64 or not mean < SMALL or not math.isfinite(loss):
            return 1.0
        return float(2.0 ** min(-math.frexp(mean)[1], MOST_SCALE)) if mean else float(2.0**MOST_SCALE)

    def _shape(self, row: Tensor) -> list[Tensor]:
        return [self.objective.layout.view(row, entry) for entry in self._entries]


def _get_gradient(graph: Graph) -> tuple[Tensor, float]:
    return graph.gradient, graph.count


def unscale(products: Tensor, scale: float) -> Tensor:
    """Products of a scaled loss divided by the scale, in float64, where they cannot vanish."""
    return products if scale == 1.0 else products.double() / scale


def make_contiguous(chunk: Batch) -> Batch:
    """The chunk with every tensor in torch's usual memory order."""
    return nests.map_tensors(Tensor.contiguous, chunk)

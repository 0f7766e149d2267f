"""Products with the Hessian or the Gauss-Newton matrix of an objective, summed over its chunks.

Four engines give the same numbers (1e-12 in float64):
  retained   the graph of each chunk's gradient is kept; a product is one backward pass through it, about
             4 forwards instead of 7. Kept for as many chunks as the memory budget allows;
  recompute  the graph is built, used for all vectors of the block, and freed;
  forward    forward-over-reverse (jvp of grad): least memory, no second graph;
  auto       retained while it fits, then recompute, or forward for a model that has only that derivative.

How many graphs are kept depends on free memory; the numbers do not, to the bit.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.errors import choose
from landscape.kernels.convolutions import wants_channels_last
from landscape.kernels.derivatives import CheapSecond
from landscape.layout import Layout
from landscape.objectives import nests
from landscape.objectives.batches import Batch, examples
from landscape.objectives.exact_losses import ExactLosses
from landscape.operators import Operator
from landscape.runtime.memory import LEDGER, counting_saved
from landscape.runtime.replica import Replica
from landscape.runtime.workers import ordered_map

if TYPE_CHECKING:
    from landscape.objectives.objective import Objective

ENGINES = ("auto", "retained", "recompute", "forward")
BLOCK = 8  # vectors multiplied per visit to a chunk: bounds the memory of results in flight

SMALL = 2.0**-20  # a mean loss below this is multiplied before it is differentiated in float32,
MOST_SCALE = 64  # by two to the power of this at most: half of the range, for curvature may be larger than the loss


@dataclass(frozen=True)
class Graph:
    """What a chunk keeps so that a product is only a backward pass."""

    multiply: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    gradient: Tensor  # (parameters,) of the chunk's summed loss
    count: float
    loss: float
    scale: float = 1.0  # what the loss was multiplied by before it was differentiated, and products with it


class _Curvature(Operator):
    """Chunk-wise products at a fixed theta; a final class says how one chunk's graph is built."""

    _linear = False  # whether products need no second derivative of the network itself

    def __init__(self, objective: Objective, theta: Tensor, engine: str):
        choose("engine", engine, ENGINES)
        self.objective, self.theta = objective, theta
        self.size, self.dtype, self.device = objective.size, objective.dtype, objective.device
        self.layout: Layout = objective.layout
        self._statistics = objective.statistics(theta)
        self._entries = objective.layout.parameters
        with objective._replicas.borrow() as replica:
            self._channels_last = wants_channels_last(replica.module)
            self._leaves = replica.views(theta)  # fixed leaves: graphs stay valid when replicas move on
        self._kept: list[Graph] = []
        self._account = LEDGER.open(self.device, objective.memory)
        with _differentiable():
            self._keep(engine)
        self.engine = engine if engine != "auto" else self._choose_rest()
        self.workers = 1 if self.engine == "forward" else objective.workers  # forward mode is not thread-safe in torch

    @abstractmethod
    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        """The graph of one chunk at the operator's theta."""

    def _keep(self, engine: str) -> None:
        """Build and keep the graphs of as many leading chunks as there is memory for."""
        chunks = self.objective.chunks
        if engine in ("recompute", "forward") or not self.objective.terms.countable:
            return
        with counting_saved([self.theta, *nests.tensors(chunks[0])]) as saved:
            # on one thread, like the others: the same bits, and no waiting for threads of small kernels
            first = next(ordered_map(self._graph, chunks[:1], workers=1))
        per_example = saved.kept() / max(examples(chunks[0]), 1)
        costs = [math.ceil(per_example * max(examples(chunk), 1)) for chunk in chunks]
        # "retained" promises the graphs of all chunks, whatever they take
        fits = partial(LEDGER.promise, self._account, always=engine == "retained")
        if fits(costs[0]):
            self._account.settle(costs[0])
            self._kept = [first]
            # lazily: memory is looked at again before each graph is begun
            rest = itertools.takewhile(lambda pair: fits(pair[1]), zip(chunks[1:], costs[1:], strict=True))
            built = ordered_map(lambda pair: self._graph(pair[0]), rest, self.objective.workers)
            for graph, cost in zip(built, costs[1:], strict=False):
                self._account.settle(cost)
                self._kept.append(graph)
        self.hint = self._gradient()

    def _gradient(self) -> Tensor:
        """The gradient over all chunks, also those whose graphs were not kept: a hint that depended on free memory
        would make eigenvectors depend on it."""
        workers = self.objective.workers
        rest = self.objective.chunks[len(self._kept) :]
        built = ordered_map(lambda chunk: _gradient_of(self._graph(chunk)), rest, workers)
        total = torch.zeros(self._leaves_end, dtype=torch.float64, device=self.device)
        count = 0.0
        for gradient, weight in itertools.chain(map(_gradient_of, self._kept), built):
            total += gradient
            count += weight
        hint = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        hint[: self._leaves_end] = total / count
        return hint

    @property
    def graph_bytes(self) -> int:
        """Memory held by kept graphs."""
        return self._account.held

    def _choose_rest(self) -> str:
        """How to treat chunks that were not kept: the first way that this model has derivatives for.

        A choice by the clock would change the last bits from one run to the next.
        """
        if len(self._kept) == len(self.objective.chunks):
            return "retained"
        chunk = self.objective.chunks[-1]
        vector = torch.ones(1, self.size, dtype=self.dtype, device=self.device)
        # recompute first: it runs chunks side by side on all workers; forward mode is not thread-safe in torch
        for name, multiply in (("recompute", self._recompute), ("forward", self._forward)):
            try:
                with _differentiable():
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
            with _differentiable(), _explained():
                for part, weight in self._parts(block):
                    total[start : start + BLOCK, : self._leaves_end] += part
                    count += weight
            total[start : start + BLOCK] /= count
        result = total.to(self.dtype)
        if self.objective.weight_decay:
            result[:, : self._leaves_end] += self.objective.weight_decay * rows[:, : self._leaves_end]
        return result

    def _parts(self, rows: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Unnormalised products and counts, chunk by chunk in data order."""
        workers = self.objective.workers
        yield from ordered_map(partial(self._multiply, rows), self._kept, workers)
        rest = self.objective.chunks[len(self._kept) :]
        if self.engine == "forward":
            yield from (self._forward(chunk, rows) for chunk in rest)
        else:
            yield from ordered_map(lambda chunk: self._recompute(chunk, rows), rest, workers)

    def _multiply(self, rows: Tensor, graph: Graph) -> tuple[Tensor, float]:
        products = [torch.cat([part.reshape(-1) for part in graph.multiply(self._shaped(row))]) for row in rows]
        return _unscaled(torch.stack(products), graph.scale), graph.count

    def _recompute(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        return self._multiply(rows, self._graph(chunk))

    @abstractmethod
    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        """Products of one chunk without a second graph."""

    def _graph(self, chunk: Batch) -> Graph:
        with self.objective._replicas.borrow() as replica:
            try:
                replica.load(self.theta, self._statistics)
                replica.bind(self._leaves)
                # it knows two derivatives; a loss that differentiates itself needs a third
                cheap = nullcontext() if self.objective.terms.inner_gradients else CheapSecond(linear=self._linear)
                with cheap, ExactLosses():
                    laid = chunk if self._channels_last else _contiguous(chunk)
                    graph = self._build(replica, laid, self._leaves[: len(self._entries)])
            finally:
                replica.bind(replica.leaves)
        if not torch.isfinite(torch.tensor(graph.loss)):
            raise ValueError(f"the loss is {graph.loss} at this theta: there is no curvature to measure")
        return graph

    def _scale(self, loss: float, count: float) -> float:
        """A power of two that keeps the derivatives of a very small loss from vanishing in float32; else 1.

        A model that fits its data well has slopes as small as its loss. In float64 no scaling is needed.
        """
        mean = abs(loss) / max(count, 1.0)
        if self.dtype == torch.float64 or not mean < SMALL or not math.isfinite(loss):
            return 1.0
        return float(2.0 ** min(-math.frexp(mean)[1], MOST_SCALE)) if mean else float(2.0**MOST_SCALE)

    def _shaped(self, row: Tensor) -> list[Tensor]:
        return [self.objective.layout.view(row, entry) for entry in self._entries]


class HessianOperator(_Curvature):
    """H = d2 L / d theta2 of an objective at a fixed theta."""

    def __init__(self, objective: Objective, theta: Tensor, engine: str = "auto"):
        super().__init__(objective, theta, engine)

    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        sums = self.objective.terms.sums(replica, chunk)
        loss = float(sums.loss.detach())
        scale = self._scale(loss, sums.count)
        gradient = torch.autograd.grad(
            scale * sums.loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True
        )
        curved = [index for index, part in enumerate(gradient) if part.requires_grad]

        def multiply(vectors: Sequence[Tensor]) -> Sequence[Tensor]:
            if not curved:
                return [torch.zeros_like(leaf) for leaf in leaves]
            return torch.autograd.grad(
                [gradient[index] for index in curved],
                leaves,
                [vectors[index] for index in curved],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )

        flat = torch.cat([part.detach().reshape(-1) for part in gradient])
        return Graph(multiply, _unscaled(flat, scale), sums.count, loss, scale)

    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        count, scale = 0.0, 1.0
        with self.objective._replicas.borrow() as replica:
            replica.load(self.theta, self._statistics)
            fixed = self._leaves[len(self._entries) :]
            piece = _contiguous(chunk)  # forward mode views images in ways that channels-last ones do not allow

            def summed(*leaves: Tensor) -> Tensor:
                nonlocal count
                replica.bind([*leaves, *fixed])
                with ExactLosses():
                    sums = self.objective.terms.sums(replica, piece)
                count = sums.count
                return scale * sums.loss

            try:
                if self.dtype != torch.float64:  # where the scale is always 1
                    with torch.no_grad():
                        scale = self._scale(float(summed(*self._leaves[: len(self._entries)])), count)
                gradient = torch.func.grad(summed, argnums=tuple(range(len(self._entries))))
                leaves = tuple(leaf.detach() for leaf in self._leaves[: len(self._entries)])
                products = [torch.func.jvp(gradient, leaves, tuple(self._shaped(row)))[1] for row in rows]
            finally:
                replica.bind(replica.leaves)
        stacked = torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in products])
        return _unscaled(stacked, scale), count


class GaussNewtonOperator(_Curvature):
    """J' (d2 loss / d outputs2) J at a fixed theta."""

    _linear = True

    def __init__(self, objective: Objective, theta: Tensor):
        super().__init__(objective, theta, "auto")

    def _choose_rest(self) -> str:
        return "retained" if len(self._kept) == len(self.objective.chunks) else "recompute"

    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        outputs = self.objective.terms.predict(replica, chunk)
        # J v as the derivative by u of J' u: two reverse passes, so threads may work side by side
        dual = torch.zeros_like(outputs, requires_grad=True)
        pulled = torch.autograd.grad(
            outputs, leaves, dual, create_graph=True, allow_unused=True, materialize_grads=True
        )
        used = [index for index, part in enumerate(pulled) if part.requires_grad]
        detached = outputs.detach().requires_grad_()
        sums = self.objective.terms.judge(detached, chunk)
        loss = float(sums.loss.detach())
        scale = self._scale(loss, sums.count)
        (slope,) = torch.autograd.grad(scale * sums.loss, detached, create_graph=True)

        def multiply(vectors: Sequence[Tensor]) -> Sequence[Tensor]:
            (pushed,) = torch.autograd.grad(
                [pulled[index] for index in used], dual, [vectors[index] for index in used], retain_graph=True
            )
            (bent,) = (
                torch.autograd.grad(slope, detached, pushed, retain_graph=True, materialize_grads=True)
                if slope.requires_grad
                else (torch.zeros_like(pushed),)
            )
            return torch.autograd.grad(
                outputs, leaves, bent, retain_graph=True, allow_unused=True, materialize_grads=True
            )

        gradient = torch.autograd.grad(
            outputs, leaves, slope.detach(), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        flat = torch.cat([part.reshape(-1) for part in gradient])
        return Graph(multiply, _unscaled(flat, scale), sums.count, loss, scale)

    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        return self._recompute(chunk, rows)


def _gradient_of(graph: Graph) -> tuple[Tensor, float]:
    return graph.gradient, graph.count


def _unscaled(products: Tensor, scale: float) -> Tensor:
    """Divided by the scale in float64, where that cannot vanish."""
    return products if scale == 1.0 else products.double() / scale


def _contiguous(chunk: Batch) -> Batch:
    return nests.map_tensors(Tensor.contiguous, chunk)


class _Kernels:
    """Kernels that have second derivatives: attention by plain matrix products, RNNs without cuDNN.

    torch keeps these choices for the whole process, so threads that work side by side share one change of them.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._chosen = Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._chosen.enter_context(sdpa_kernel(SDPBackend.MATH))
                if torch.cuda.is_available():
                    self._chosen.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            with torch.enable_grad():
                yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._chosen.close()


_differentiable = _Kernels()


@contextmanager
def _explained() -> Iterator[None]:
    """Say in words when an operation has no second derivative in torch."""
    try:
        yield
    except NotImplementedError as error:
        raise ValueError(
            f"an operation of the model has no second derivative in torch ({error}): replace it, for example an "
            "EmbeddingBag by an Embedding and a mean"
        ) from error

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from landscape.curvature.input_span import CompressedCurvature, InputSpan, find_candidates, record_inputs
from landscape.errors import choose
from landscape.kernels.convolutions import wants_channels_last
from landscape.kernels.derivatives import CheapSecondDerivatives
from landscape.kernels.selection import enable_second_derivatives, explain_missing_derivatives
from landscape.layout import Entry, Layout
from landscape.losses import nests
from landscape.losses.batches import Batch, examples, list_sizes
from landscape.losses.chunk_loss import ChunkLoss
from landscape.losses.exact_losses import ExactLosses
from landscape.losses.summed_loss import Sums
from landscape.operators import Compression, Operator
from landscape.runtime.device import choose_sum_device, full_precision, to_float64
from landscape.runtime.memory import LEDGER, count_saved, retry_smaller
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

    @property
    def curvature_chunks(self) -> Sequence[Batch]:
        """The same examples, as batches whose products are computed one at a time."""

    def halve(self, chunks: Sequence[Batch]) -> Sequence[Batch] | None:
        """The same examples in chunks half as large; None where chunks cannot be smaller."""

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
        with objective.replicas.borrow() as replica:
            self._channels_last = wants_channels_last(replica.module)
            self._recurrent = bool(replica.recurrent)
            self._bound = replica.views(theta)  # fixed leaves: graphs stay valid when replicas move on
        self._span: InputSpan | None = None  # of the first layer's inputs, if vectors are compressed to it
        self._inner, self._leaves = objective.layout, self._bound  # what is differentiated by
        self._kept: list[Graph] = []
        self._costs: list[int] = []  # bytes of the graphs of chunks
        self._chunks = objective.curvature_chunks  # its own, since objectives may cut theirs anew
        self._account = LEDGER.open(self.device, objective.memory)
        with enable_second_derivatives(self._recurrent), full_precision():
            self._compress(engine)
            self._keep_graphs(engine)
        self.engine = engine if engine != "auto" else self._choose_engine()
        self.workers = 1 if self.engine == "forward" else objective.workers  # forward mode is not thread-safe in torch

    @abstractmethod
    def _build(self, replica: Replica, chunk: Batch, leaves: Sequence[Tensor]) -> Graph:
        """The graph of one chunk at the operator's theta."""

    def _compress(self, engine: str) -> None:
        """Differentiate by fewer weights of a first linear layer, if there are few examples: see `input_span`."""
        chunks, loss = self._chunks, self.objective.chunk_loss
        candidates = find_candidates(self.layout, sum(list_sizes(chunks)))
        if not candidates or engine == "forward" or loss.inner_gradients or not loss.countable:
            return
        numbers = [self.layout.entries.index(entry) for entry in candidates]

        def record(chunk: Batch) -> tuple[int, Tensor] | None:
            with self._bind() as replica:
                return record_inputs([self._bound[number] for number in numbers], lambda: loss.compute(replica, chunk))

        one = nests.take(chunks[0], slice(0, 1)) if nests.can_be_cut(chunks[0]) else chunks[0]
        if next(ordered_map(record, [one], workers=1)) is None:
            return
        found = [part for part in ordered_map(record, chunks, self.objective.workers) if part is not None]
        which = {number for number, _ in found}
        if len(found) != len(chunks) or len(which) != 1:
            return
        entry, inputs = candidates[which.pop()], torch.cat([rows for _, rows in found])
        if entry not in find_candidates(self.layout, len(inputs)):
            return
        span = next(ordered_map(lambda rows: InputSpan.of(self.layout, entry, rows), [inputs], workers=1))
        self._use(span)
        try:  # a weight that has another use, and a model that only forward mode can differentiate
            self._recompute(one, torch.ones(1, span.layout.size, dtype=self.dtype, device=self.device))
        except (RuntimeError, NotImplementedError):
            self._use(None)

    def _use(self, span: InputSpan | None) -> None:
        self._span = span
        self._inner, self._leaves = self.layout, self._bound
        if span is not None:
            self._inner = span.layout
            number = self.layout.entries.index(span.entry)
            compressed = self._inner.segment(span.compress(self.theta), span.entry.name).clone().requires_grad_()
            self._leaves = [*self._bound[:number], compressed, *self._bound[number + 1 :]]

    def compress(self) -> Compression | None:
        """The same curvature on fewer dimensions, where the inputs of a first linear layer span only a few."""
        if self._span is None:
            return None
        operator = CompressedCurvature(self, self._span)
        return Compression(operator, self._span.compress, self._span.expand, self.objective.weight_decay)

    def _keep_graphs(self, engine: str) -> None:
        """Build and keep the graphs of as many leading chunks as there is memory for."""
        chunks = self._chunks
        self._hinted = engine not in ("recompute", "forward") and self.objective.chunk_loss.countable
        if not self._hinted:
            return
        with count_saved([self.theta, *nests.tensors(chunks[0])]) as saved:
            # on one thread, like the others: the same bits, and no waiting for threads of small kernels
            first = next(ordered_map(self._build_graph, chunks[:1], workers=1))
        per_example = saved.kept() / max(examples(chunks[0]), 1)
        self._costs = costs = [math.ceil(per_example * size) for size in list_sizes(chunks)]
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

    def _find_hint(self) -> Tensor | None:
        """The gradient over all chunks, also those whose graphs were not kept: a hint that depended on free memory
        would make eigenvectors depend on it. None for engines that keep nothing, which would compute all of it."""
        if not self._hinted:
            return None
        with enable_second_derivatives(self._recurrent), full_precision():
            return self._compute_gradient()

    def _compute_gradient(self) -> Tensor:
        workers = self.objective.workers
        rest = self._chunks[len(self._kept) :]
        built = ordered_map(lambda chunk: _get_gradient(self._build_graph(chunk)), rest, workers)
        total = torch.zeros(self._inner.parameter_count, dtype=torch.float64, device=choose_sum_device(self.device))
        count = 0.0
        for gradient, weight in itertools.chain(map(_get_gradient, self._kept), built):
            total += gradient.to(total.device)
            count += weight
        hint = torch.zeros(self._inner.size, dtype=self.dtype, device=self.device)
        hint[: len(total)] = (total / count).to(hint)
        return hint if self._span is None else self._span.expand(hint)

    @property
    def graph_bytes(self) -> int:
        """Memory held by kept graphs."""
        return self._account.held

    def _choose_engine(self) -> str:
        """The engine for chunks whose graphs were not kept: the first that this model has derivatives for.

        A choice by the clock would change the last bits from one run to the next.
        """
        if len(self._kept) == len(self._chunks):
            return "retained"
        chunk = self._chunks[-1]
        vector = torch.ones(1, self._inner.size, dtype=self.dtype, device=self.device)
        # recompute first: it runs chunks side by side on all workers; forward mode is not thread-safe in torch
        for name, multiply in (("recompute", self._recompute), ("forward", self._forward)):
            try:
                with enable_second_derivatives(self._recurrent):
                    multiply(chunk, vector)
                return name
            except (RuntimeError, NotImplementedError):
                continue  # an operation without that derivative
        raise ValueError("no Hessian product works for this model: an operation lacks a second derivative")

    @property
    def _entries(self) -> Sequence[Entry]:
        return self._inner.parameters

    def _product(self, rows: Tensor) -> Tensor:
        if self._span is None:
            return self.decay(self.multiply(rows), rows)
        return self.decay(self._span.expand(self.multiply(self._span.compress(rows))), rows)

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiply rows in the layout that is differentiated by, without weight decay."""
        return retry_smaller(lambda: self._multiply_all(rows), self._make_room, self.device)

    def _make_room(self) -> str:
        """Give up half of the kept graphs, or halve the chunks; says what is left, nothing if neither is possible."""
        if self._kept:
            left = len(self._kept) // 2
            self._account.release(sum(self._costs[left : len(self._kept)]))
            self._kept = self._kept[:left]
            self.engine = "recompute" if self.engine == "retained" else self.engine
            return f"{left} kept graphs of {len(self._chunks)}"
        smaller = self.objective.halve(self._chunks)
        if smaller is None:
            return ""
        self._chunks = smaller
        return f"{max(list_sizes(smaller))} examples at once"

    def _multiply_all(self, rows: Tensor) -> Tensor:
        result = torch.zeros_like(rows)
        end, place = self._inner.parameter_count, choose_sum_device(self.device)
        for start in range(0, len(rows), BLOCK):
            total, count = torch.empty(0), 0.0
            with enable_second_derivatives(self._recurrent), explain_missing_derivatives():
                for part, weight in self._multiply_chunks(rows[start : start + BLOCK]):
                    part = part.to(place)
                    # in float64 as soon as there is something to add
                    total = total.double().add_(part) if len(total) else part
                    count += weight
            result[start : start + BLOCK, :end] = total.div_(count)
        return result

    def decay(self, products: Tensor, rows: Tensor) -> Tensor:
        """Add what weight decay adds to products with these rows, in place."""
        if self.objective.weight_decay:
            end = self.layout.parameter_count - self.layout.size or None  # statistics do not decay
            products[:, :end] += self.objective.weight_decay * rows[:, :end]
        return products

    def _multiply_chunks(self, rows: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Unnormalised products and counts, chunk by chunk in data order."""
        workers = self.objective.workers
        yield from ordered_map(partial(self._multiply, rows), self._kept, workers)
        rest = self._chunks[len(self._kept) :]
        if self.engine == "forward":
            yield from (self._forward(chunk, rows) for chunk in rest)
        else:
            yield from ordered_map(lambda chunk: self._recompute(chunk, rows), rest, workers)

    def _multiply(self, rows: Tensor, graph: Graph) -> tuple[Tensor, float]:
        products = [torch.cat([part.reshape(-1) for part in graph.multiply(self._shape(row))]) for row in rows]
        stacked = products[0][None] if len(products) == 1 else torch.stack(products)
        return unscale(stacked, graph.scale), graph.count

    def _recompute(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        return self._multiply(rows, self._build_graph(chunk))

    @abstractmethod
    def _forward(self, chunk: Batch, rows: Tensor) -> tuple[Tensor, float]:
        """Products of one chunk without a second graph."""

    def _build_graph(self, chunk: Batch) -> Graph:
        batch = chunk if self._channels_last else make_contiguous(chunk)
        with self._bind() as replica:
            graph = self._build(replica, batch, self._leaves[: len(self._entries)])
        if not math.isfinite(graph.loss):
            raise ValueError(f"the loss is {graph.loss} at this theta: there is no curvature to measure")
        return graph

    @contextmanager
    def _bind(self) -> Iterator[Replica]:
        """A copy of the model that computes with the operator's own leaves, by cheap second derivatives."""
        with self.objective.replicas.borrow() as replica, ExitStack() as contexts:
            replica.load(self.theta, self._statistics)
            replica.bind(self._bound)
            contexts.callback(replica.bind, replica.leaves)
            if not self.objective.chunk_loss.inner_gradients:  # they need a third derivative, and it knows two
                contexts.enter_context(CheapSecondDerivatives(linear=self._linear))
            contexts.enter_context(ExactLosses())
            if self._span is not None:
                number = self.layout.entries.index(self._span.entry)
                contexts.enter_context(self._span.substitute(self._bound[number], self._leaves[number]))
            yield replica

    def _find_scale(self, loss: float, count: float) -> float:
        """A power of two that keeps the derivatives of a very small loss from vanishing in float32; else 1.

        A model that fits its data well has slopes as small as its loss. In float64 no scaling is needed.
        """
        mean = abs(loss) / max(count, 1.0)
        if self.dtype == torch.float64 or not mean < SMALL or not math.isfinite(loss):
            return 1.0
        return float(2.0 ** min(-math.frexp(mean)[1], MOST_SCALE)) if mean else float(2.0**MOST_SCALE)

    def _shape(self, row: Tensor) -> list[Tensor]:
        return [self._inner.view(row, entry) for entry in self._entries]


def _get_gradient(graph: Graph) -> tuple[Tensor, float]:
    return graph.gradient, graph.count


def unscale(products: Tensor, scale: float) -> Tensor:
    """Products of a scaled loss divided by the scale, in float64, where they cannot vanish."""
    return products if scale == 1.0 else to_float64(products) / scale


def make_contiguous(chunk: Batch) -> Batch:
    """The chunk with every tensor in torch's usual memory order."""
    return nests.map_tensors(Tensor.contiguous, chunk)

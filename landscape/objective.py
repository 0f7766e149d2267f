"""A loss as a pure function of one flat parameter vector: model + loss + fixed data in fixed chunks.

Sums run over examples and are divided once, so a ragged last chunk counts exactly. All work happens on
private replicas: the caller's model, its buffers, flags, gradients and the global RNG stay as they were,
also after an exception.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import data as batches_of
from landscape import probes
from landscape.curvature import GaussNewtonOperator, HessianOperator
from landscape.data import Batch
from landscape.errors import finite, whole
from landscape.layout import Layout
from landscape.losses import Loss, SummedLoss, Sums, check_labels, class_labels
from landscape.memory import parse_bytes
from landscape.replica import Replica, Replicas, prepare, recompute_statistics
from landscape.results import Evaluation
from landscape.rng import numpy_generator
from landscape.workers import ordered_map

T = TypeVar("T")
BatchLoss = Callable[[nn.Module, Batch], tuple[Any, ...]]


class Objective:
    """L(theta) = (1/N) sum_i l(f(x_i; theta), y_i), with its error, gradient and curvature operators.

    model       any torch module; only read.
    data        (inputs, targets), a list of such batches, or a loader (read once, in order).
    loss        a torch loss, or a callable (outputs, targets) giving one value per example or their mean.
    batch_loss  general form: a callable (model, batch) -> (sum of losses, count[, number of errors]).
    chunk_size  most examples at once. Work is cut finer where activations would leave the cache; only
                batchnorm="batch" takes the size literally, because there it changes the function.
    batchnorm   "frozen": running statistics as they are; "recomputed": re-estimated at every theta (held
                fixed under derivatives); "interpolated": they are part of theta and move with it;
                "batch": each chunk normalises itself.
    mode        "eval", or "caller" to keep each submodule's training flag.
    weight_decay  adds (weight_decay / 2) ||theta||^2: the spectrum shifts by exactly that number.
    parameters  glob patterns of the tensors that make up theta; by default all that require gradients.
    memory      most that kept graphs of the whole process may take, for example "8G". By default a quarter of what
                is free, looked at again before each graph; an eighth of all memory is left alone.
    workers     chunks or points computed at once, one thread each; by default torch's number of threads.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: Loss = functional.cross_entropy,
        *,
        batch_loss: BatchLoss | None = None,
        chunk_size: int | None = None,
        batchnorm: str = "frozen",
        mode: str = "eval",
        weight_decay: float = 0.0,
        parameters: str | list[str] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        memory: str | int | None = None,
        workers: int | None = None,
    ):
        if not (weight_decay >= 0 and math.isfinite(weight_decay)):
            raise ValueError(f"weight_decay must be zero or positive, got {weight_decay}")
        self.layout = Layout.of(model, parameters, statistics=batchnorm == "interpolated")
        own = self.layout.flatten(model)
        self.dtype = dtype or own.dtype
        self.device = torch.device(device) if device is not None else own.device
        self.theta = finite("the model's parameters", own.to(self.device, self.dtype))
        self.batchnorm, self.weight_decay = batchnorm, float(weight_decay)
        self.memory = parse_bytes(memory) if memory is not None else None
        self.workers = 1 if self.device.type != "cpu" else whole("workers", workers or torch.get_num_threads())
        self.population: int | None = None  # number of examples that a subset was drawn from
        self._outputs: Sequence[int] | None = None  # shape of the model's outputs, once it is known
        self._loss = SummedLoss(loss)
        self._batch_loss = batch_loss
        module = prepare(model, batchnorm, mode)
        self._replicas = Replicas(module, self.layout, self.dtype, self.device)
        # oneDNN convolves channels-last images up to twice as fast; the weights may stay as they are
        self._channels_last = self.device.type == "cpu" and any(isinstance(p, nn.Conv2d) for p in module.modules())
        batches = batches_of.read(data, self.device, self.dtype)
        most = whole("chunk_size", chunk_size) if chunk_size is not None else None
        # on one thread, like all other work: threads that wait for each other take longer than these few examples
        size = next(ordered_map(lambda _: self._probe(batches, most), [None], workers=1))
        self.chunks: list[Batch] = self._cut(batches, size or 256)

    def _probe(self, batches: list[Batch], most: int | None) -> int | None:
        """Refuse what is not a fixed function; the size of a chunk that suits it."""
        with self._replicas.borrow() as replica:
            replica.load(self.theta)
            probes.check_deterministic(self, replica, batches)
            return most if self.batchnorm == "batch" else probes.fitting_chunk(self, replica, batches[0], most)

    def _cut(self, batches: list[Batch], size: int) -> list[Batch]:
        chunks = batches_of.split(batches, size)
        return [_channels_last(chunk) for chunk in chunks] if self._channels_last else chunks

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def count(self) -> int:
        """Number of examples."""
        return sum(max(batches_of.examples(chunk), 1) for chunk in self.chunks)

    def flatten(self, model: nn.Module) -> Tensor:
        """Another model of the same architecture as a vector of this objective."""
        return self.layout.flatten(model).to(self.device, self.dtype)

    def loss(self, theta: Tensor) -> float:
        """Mean loss at theta."""
        return self.evaluate(theta).loss

    def error(self, theta: Tensor) -> float:
        """Fraction of wrong arg-max predictions at theta."""
        error = self.evaluate(theta).error
        if error is None:
            raise ValueError("error needs integer class labels (or a third value from batch_loss)")
        return error

    def evaluate(self, theta: Tensor) -> Evaluation:
        """Loss and error in one pass, with a standard error if this objective is a subset."""
        vector = self._own(theta)
        return self._totals(list(self._each_chunk(vector, self._forward)), vector)

    def evaluate_each(self, points: Iterable[Callable[[Tensor], object]]) -> Generator[Evaluation]:
        """Evaluate at many points, several at once: each is a function that writes its vector into a tensor.

        A whole point is one worker's job, so the vector is written once for all of its data. Non-finite
        losses come back as they are.
        """

        def one(write: Callable[[Tensor], object]) -> Evaluation:
            with self._replicas.borrow() as replica, torch.inference_mode():
                replica.version = None
                write(replica.flat)
                if self.batchnorm == "recomputed":
                    self._recompute(replica)
                return self._totals([self._sums(replica, chunk) for chunk in self.chunks], replica.flat)

        return ordered_map(one, points, self.workers)

    def gradient(self, theta: Tensor) -> Tensor:
        """Gradient of the mean loss (and of weight decay, if any) at theta."""
        return self.loss_and_gradient(theta)[1]

    def loss_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient from the same pass."""
        vector = self._own(theta)
        total = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        sums = []
        for chunk_sums, part in self._each_chunk(vector, self._backward):
            sums.append(chunk_sums)
            total[: len(part)] += part
        total /= sum(part.count for part in sums)
        gradient = total.to(self.dtype)
        if self.weight_decay:
            decayed = self.layout.parameters[-1].stop
            gradient[:decayed] += self.weight_decay * vector[:decayed]
        loss = self._totals(sums, vector).loss
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} at this theta: there is no gradient to take")
        return loss, gradient

    def hessian(self, theta: Tensor, engine: str = "auto") -> HessianOperator:
        """The Hessian at theta as an operator; engine: "auto", "retained", "recompute" or "forward"."""
        return HessianOperator(self, self._own(theta), engine)

    def gauss_newton(self, theta: Tensor) -> GaussNewtonOperator:
        """The generalised Gauss-Newton matrix J' (d2 loss / d outputs2) J at theta, positive semi-definite
        for convex losses. It differs from the Hessian wherever residuals are not zero."""
        if self._batch_loss is not None:
            raise ValueError("gauss_newton needs model outputs and a loss of them: use loss=, not batch_loss=")
        return GaussNewtonOperator(self, self._own(theta))

    def subset(self, count: int, seed: int = 0) -> Objective:
        """The same objective on a fixed random subset, stratified by class where there are labels."""
        inputs, targets = batches_of.join(self.chunks)
        whole("count", count, most=len(inputs))
        chosen = batches_of.stratified(class_labels(targets), len(inputs), count, numpy_generator(seed, "subset"))
        return self.on(inputs[chosen], targets[chosen], population=len(inputs))

    def split(self, size: int) -> list[Objective]:
        """Disjoint objectives of `size` examples each, in order; the last may be smaller."""
        whole("size", size)
        inputs, targets = batches_of.join(self.chunks)
        return [self.on(inputs[i : i + size], targets[i : i + size]) for i in range(0, len(inputs), size)]

    def on(self, inputs: Tensor, targets: Tensor, population: int | None = None) -> Objective:
        """The same model, loss and policies on other examples; `population`: how many they were drawn from."""
        if self._outputs is not None:
            check_labels(self._loss, self._outputs, targets)
        other = copy.copy(self)  # replicas are shared: they hold no data
        largest = max(batches_of.examples(chunk) for chunk in self.chunks)
        other.chunks = self._cut(batches_of.read((inputs, targets), self.device, self.dtype), largest)
        other.population = population
        return other

    def _own(self, theta: Tensor) -> Tensor:
        """A private, checked copy of theta; being a new object it also marks what replicas have loaded."""
        vector = self.layout.check(theta).detach().to(self.device, self.dtype, copy=True)
        if vector.ndim != 1:
            raise ValueError(f"theta must be one flat vector, got shape {tuple(theta.shape)}")
        return finite("theta", vector)

    def _each_chunk(self, vector: Tensor, work: Callable[[Replica, Batch], T]) -> Iterator[T]:
        statistics = self.statistics(vector)

        def task(chunk: Batch) -> T:
            with self._replicas.borrow() as replica:
                replica.load(vector, statistics)
                return work(replica, chunk)

        return ordered_map(task, self.chunks, self.workers)

    def statistics(self, vector: Tensor) -> list[Tensor] | None:
        """BatchNorm statistics re-estimated at this vector, or None where the policy is another."""
        if self.batchnorm != "recomputed":
            return None

        def gather(theta: Tensor) -> list[Tensor]:
            with self._replicas.borrow() as replica:
                replica.load(theta)
                return self._recompute(replica)

        return next(ordered_map(gather, [vector], workers=1))  # one thread, like all other work: the same bits

    def _recompute(self, replica: Replica) -> list[Tensor]:
        counted = ((batches_of.examples(chunk), chunk) for chunk in self.chunks)
        return recompute_statistics(replica, counted, lambda chunk: self._sums(replica, chunk))

    def _forward(self, replica: Replica, chunk: Batch) -> Sums:
        with torch.inference_mode():
            return self._sums(replica, chunk)

    def _backward(self, replica: Replica, chunk: Batch) -> tuple[Sums, Tensor]:
        leaves = replica.leaves[: len(self.layout.parameters)]
        sums = self._sums(replica, chunk)
        parts = torch.autograd.grad(sums.loss, leaves, allow_unused=True, materialize_grads=True)
        return replace(sums, loss=sums.loss.detach()), torch.cat([part.reshape(-1) for part in parts])

    def _sums(self, replica: Replica, chunk: Batch) -> Sums:
        if self._batch_loss is None:
            inputs, targets = chunk
            return self._loss(replica.module(inputs), targets)
        total, count, *rest = self._batch_loss(replica.module, chunk)
        errors = float(rest[0]) if rest else float("nan")
        count = float(count)
        return Sums(total, count, float("nan"), int(count), errors, int(count) if rest else 0)

    def _totals(self, sums: list[Sums], vector: Tensor) -> Evaluation:
        count = sum(part.count for part in sums)
        if count <= 0:
            raise ValueError("the loss counts no example: is every target ignored, or every weight zero?")
        loss = math.fsum(float(part.loss) for part in sums) / count
        labelled = sum(part.labelled for part in sums)
        error = sum(part.errors for part in sums) / labelled if labelled else None
        spread = None
        if self.population is not None:
            elements = sum(part.elements for part in sums)
            square = math.fsum(part.squares for part in sums) / elements
            variance = max(square - loss * loss, 0.0) * elements / max(elements - 1, 1)
            # the subset is drawn without replacement from a finite population
            spread = math.sqrt(variance / elements * (1 - self.count / self.population))
        if self.weight_decay:
            decayed = vector[: self.layout.parameters[-1].stop]
            loss += 0.5 * self.weight_decay * float(decayed.double().square().sum())
        return Evaluation(loss, error, spread)


def _channels_last(chunk: Batch) -> Batch:
    if batches_of.is_pair(chunk) and chunk[0].ndim == 4 and chunk[0].is_floating_point():
        return chunk[0].contiguous(memory_format=torch.channels_last), chunk[1]
    return chunk

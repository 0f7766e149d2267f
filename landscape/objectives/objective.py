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

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import finite, whole
from landscape.hessian import GaussNewtonOperator, HessianOperator
from landscape.layout import Layout
from landscape.objectives import batches as batches_of
from landscape.objectives import nests, probes, sampling
from landscape.objectives import outputs as answers
from landscape.objectives.batches import Batch
from landscape.objectives.chunk_terms import BatchLoss, Terms
from landscape.objectives.losses import Loss, SummedLoss, Sums
from landscape.objectives.nests import Nest
from landscape.results import Evaluation
from landscape.rng import numpy_generator
from landscape.runtime.memory import parse_bytes
from landscape.runtime.replica import Replica, Replicas, check_model, check_rest, prepare, recompute_statistics
from landscape.runtime.workers import ordered_map

T = TypeVar("T")


class Objective:
    """L(theta) = (1/N) sum_i l(f(x_i; theta), y_i), with its error, gradient and curvature operators.

    model       any torch module; only read.
    data        (inputs, targets), a list of such batches, or a loader (read once, in order). Inputs and targets may be
                any nesting of tensors with the examples on their first axes: a mapping is passed to the model as
                keyword arguments, a tuple as positional ones. A batch may also be a mapping whose "labels" are the
                targets and the rest the inputs.
    loss        a torch loss, whose reduction is kept (`losses` says how), or a callable (outputs, targets) that gives
                one value per example, a block (B, ...) of values to be averaged, or their mean over examples.
    batch_loss  general form: a callable (model, batch) -> (sum of losses, count[, number of errors]), each one number
                or one per example; a subset has standard errors only if they are given per example. It may take
                gradients by the inputs itself. Batches are cut only where the sums of their parts add up.
    outputs     what the loss is about, if the model does not return a tensor: a key or attribute ("logits"), an index
                (0), or a function of what it returns. A callable loss may also take the whole of it.
    chunk_size  most examples at once. Work is cut finer where activations would leave the cache; only
                batchnorm="batch" takes the size literally, because there it changes the function.
    batchnorm   "frozen": running statistics as they are; "recomputed": re-estimated at every theta (held
                fixed under derivatives); "interpolated": they are part of theta and move with it;
                "batch": each chunk normalises itself. Two models with statistics of their own need
                "interpolated" or "recomputed".
    mode        "eval", or "caller" to keep each submodule's training flag.
    weight_decay  adds (weight_decay / 2) ||theta||^2: the spectrum shifts by exactly that number.
    parameters  glob patterns of the tensors that make up theta; by default all that require gradients.
    dtype       precision of all work; by default the model's. Curvature needs float32 or float64.
    device      where all work is done; by default where the model is.
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
        outputs: answers.Choice = None,
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
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point one such as torch.float64, got {dtype}")
        check_model(model)
        self.layout = Layout.of(model, parameters, statistics=batchnorm == "interpolated")
        own = self.layout.flatten(model)
        self.dtype = dtype or own.dtype
        self.device = torch.device(device) if device is not None else own.device
        self.theta = finite("the model's parameters", own.to(self.device, self.dtype))
        self.batchnorm, self.weight_decay = batchnorm, float(weight_decay)
        self.memory = parse_bytes(memory) if memory is not None else None
        self.workers = 1 if self.device.type != "cpu" else whole("workers", workers or torch.get_num_threads())
        self.drawn: sampling.Draw | None = None  # how the data were drawn, if they are a subset
        self.terms = Terms(SummedLoss(loss, self.device, self.dtype), batch_loss, outputs)
        self._module, self._mode = prepare(model, batchnorm, mode), mode
        self._replicas = Replicas(self._module, self.layout, self.dtype, self.device)
        # oneDNN convolves channels-last images up to twice as fast; the weights may stay as they are
        self._channels_last = self.device.type == "cpu" and any(
            isinstance(part, nn.Conv2d) for part in self._module.modules()
        )
        batches = batches_of.read(data, self.device, self.dtype)
        self.terms.check(batches)
        most = whole("chunk_size", chunk_size) if chunk_size is not None else None
        # on one thread, like all other work: threads that wait for each other take longer than these few examples
        size = next(ordered_map(lambda _: probes.look(self, batches, most), [None], workers=1))
        self._divisible = size is not None  # whether examples of a batch may be parted
        self.chunks: list[Batch] = self._cut(batches, size)

    def _cut(self, batches: list[Batch], size: int | None) -> list[Batch]:
        """Batches of at most `size` examples; None: as they are."""
        chunks = batches if size is None else batches_of.cut(batches, size)
        return [nests.map_tensors(_channels_last, chunk) for chunk in chunks] if self._channels_last else chunks

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def count(self) -> int:
        """Number of examples."""
        return sum(max(batches_of.examples(chunk), 1) for chunk in self.chunks)

    @property
    def population(self) -> int | None:
        """Number of examples that the data were drawn from, if they are a subset."""
        return None if self.drawn is None else self.drawn.population

    def flatten(self, model: nn.Module) -> Tensor:
        """Another model of the same architecture as a vector of this objective.

        Refused where the vector would not be that model: where it differs from this objective's own in something that
        is not part of theta, such as the statistics of BatchNorm under "frozen". `layout.flatten` takes any model.
        """
        vector = self.layout.flatten(model).to(self.device, self.dtype)
        check_rest(self._module, model, self.layout, self.batchnorm, self.dtype)
        probes.check_same(self, prepare(model, self.batchnorm, self._mode), vector)
        return vector

    def loss(self, theta: Tensor) -> float:
        """Mean loss at theta."""
        return self.evaluate(theta).loss

    def error(self, theta: Tensor) -> float:
        """Fraction of wrong predictions at theta: the largest class score, or one output beyond its threshold.

        Known for class labels with torch's losses (classes on axis 1) or outputs (B, classes), for labels 0 and 1 with
        one output, and for a batch_loss that counts errors.
        """
        error = self.evaluate(theta).error
        if error is None:
            raise ValueError(
                f"error needs integer class labels (or a third value from batch_loss): {self.terms.rule.why}"
            )
        return error

    def evaluate(self, theta: Tensor) -> Evaluation:
        """Loss and error in one pass, with standard errors if this objective is a subset."""
        vector = self._own(theta)
        return self._totals(list(self._each_chunk(vector, self._measure)), vector)

    def evaluate_each(self, points: Iterable[Callable[[Tensor], object]]) -> Generator[Evaluation]:
        """Evaluate at many points, several at once: each is a function that writes its vector into a tensor.

        A whole point is one worker's job, so the vector is written once for all of its data. Non-finite
        losses come back as they are.
        """

        def one(write: Callable[[Tensor], object]) -> Evaluation:
            with self._replicas.borrow() as replica:
                with torch.no_grad():
                    replica.version = None
                    write(replica.flat)
                with self.terms.evaluating():
                    if self.batchnorm == "recomputed":
                        self._recompute(replica)
                    return self._totals([self._measure(replica, chunk) for chunk in self.chunks], replica.flat)

        return ordered_map(one, points, self.workers)

    def gradient(self, theta: Tensor) -> Tensor:
        """Gradient of the mean loss (and of weight decay, if any) at theta."""
        return self.loss_and_gradient(theta)[1]

    def loss_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient from the same pass."""
        self._check_differentiable()
        vector = self._own(theta)
        total = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        sums = []
        for chunk_sums, part in self._each_chunk(vector, self._slope):
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
        self._check_curved()
        return HessianOperator(self, self._own(theta), engine)

    def gauss_newton(self, theta: Tensor) -> GaussNewtonOperator:
        """The generalised Gauss-Newton matrix J' (d2 loss / d outputs2) J at theta, positive semi-definite
        for convex losses. It differs from the Hessian wherever residuals are not zero."""
        if self.terms.batch_loss is not None:
            raise ValueError("gauss_newton needs model outputs and a loss of them: use loss=, not batch_loss=")
        if not isinstance(self.terms.sample, Tensor):
            raise ValueError(
                f"gauss_newton needs a tensor of outputs, but the model returns {answers.kind(self.terms.sample)}: "
                f"choose one with {answers.advise(self.terms.sample)}"
            )
        self._check_curved()
        return GaussNewtonOperator(self, self._own(theta))

    def _check_differentiable(self) -> None:
        if self.terms.fault:
            raise ValueError(self.terms.fault)

    def _check_curved(self) -> None:
        self._check_differentiable()
        if torch.finfo(self.dtype).bits < 32:
            name = str(self.dtype).removeprefix("torch.")
            raise ValueError(
                f"curvature in {name} would be rounding noise: measure the model in float32, "
                "Objective(..., dtype=torch.float32)"
            )

    def subset(self, count: int, seed: int = 0) -> Objective:
        """The same objective on a fixed random subset, stratified by class where there are labels.

        Its evaluations carry standard errors, of what they say about all the data: two of them hold the truth in 95 of
        100 subsets. A subset of a subset speaks of the first one's population, without use of its classes.
        """
        whole("count", count, most=self.count)
        drawn = sampling.draw(batches_of.class_labels(self.chunks), self.count, count, numpy_generator(seed, "subset"))
        if self.population is not None:
            drawn = replace(sampling.unstratified(count, self.population), index=drawn.index)
        return self.take(drawn.index, drawn)

    def split(self, size: int) -> list[Objective]:
        """Disjoint objectives of `size` examples each, in order; the last may be smaller."""
        whole("size", size)
        self._check_divisible()
        merged = batches_of.merge(self.chunks)
        places = torch.split(torch.arange(self.count), size)
        return [self._with(batches_of.take(merged, place), None) for place in places]

    def take(self, places: Tensor, drawn: sampling.Draw | None = None) -> Objective:
        """The same objective on the examples at these places; `drawn`: how they were drawn, for standard errors."""
        self._check_divisible()
        return self._with(batches_of.take(self.chunks, places.cpu()), drawn)

    def _check_divisible(self) -> None:
        if not self._divisible:
            raise ValueError(
                "examples cannot be chosen: batches must stay whole, because their tensors do not share one leading "
                "length or batch_loss gives a batch another sum than its parts"
            )

    def on(self, *batch: Nest, population: int | None = None) -> Objective:
        """The same model, loss and policies on other examples: on(inputs, targets), or on(data) as at the beginning.

        population: how many examples these were drawn from, without regard to classes, if they are a random subset.
        """
        data = [batch] if len(batch) == 2 else batch[0]
        batches = batches_of.read(data, self.device, self.dtype)
        self.terms.check(batches)
        count = sum(batches_of.examples(one) for one in batches)
        return self._with(batches, None if population is None else sampling.unstratified(count, population))

    def _with(self, batches: list[Batch], drawn: sampling.Draw | None) -> Objective:
        other = copy.copy(self)  # replicas are shared: they hold no data
        other.terms = copy.copy(self.terms)
        other.terms.learn(batches)
        largest = max(batches_of.examples(chunk) for chunk in self.chunks)
        other.chunks = other._cut(batches, largest if self._divisible else None)
        other.drawn = drawn
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
        def forward(chunk: Batch) -> object:
            with torch.enable_grad() if self.terms.inner_gradients else torch.no_grad():
                return self.terms.sums(replica, chunk)

        counted = ((batches_of.examples(chunk), chunk) for chunk in self.chunks)
        return recompute_statistics(replica, counted, forward)

    def _measure(self, replica: Replica, chunk: Batch) -> Sums:
        return self.terms.measure(replica, chunk, each=self.drawn is not None)

    def _slope(self, replica: Replica, chunk: Batch) -> tuple[Sums, Tensor]:
        return self.terms.slope(replica, chunk, replica.leaves[: len(self.layout.parameters)])

    def _totals(self, sums: list[Sums], vector: Tensor) -> Evaluation:
        count = _sum(part.count for part in sums)
        if count <= 0:
            raise ValueError("the loss counts no example: is every target ignored, or every weight zero?")
        loss = _sum(float(part.loss) for part in sums) / count
        labelled = sum(part.labelled for part in sums)
        error = sum(part.errors for part in sums) / labelled if labelled else None
        spread = self._spread([part.each for part in sums])
        error_spread = self._spread([part.each_error for part in sums]) if labelled else None
        if self.weight_decay:
            decayed = vector[: self.layout.parameters[-1].stop]
            loss += 0.5 * self.weight_decay * float(decayed.double().square().sum())
        return Evaluation(loss, error, spread, error_spread)

    def _spread(self, parts: Sequence[Tensor | None]) -> float | None:
        """Standard error of a subset's ratio of sums, or None where those of single examples are not known."""
        known = [part for part in parts if part is not None]
        if self.drawn is None or len(known) < len(parts):
            return None
        each = np.concatenate([part.cpu().numpy() for part in known])
        return sampling.ratio_error(each[:, 0], each[:, 1], self.drawn)


def _sum(values: Iterable[float]) -> float:
    """Exact; infinite where it is beyond all numbers."""
    known = list(values)
    try:
        return math.fsum(known)
    except (OverflowError, ValueError):  # beyond the largest number, or both infinities
        return float(sum(known))


def _channels_last(tensor: Tensor) -> Tensor:
    images = tensor.ndim == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if images else tensor

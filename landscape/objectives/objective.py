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
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.curvature.gauss_newton import GaussNewtonOperator
from landscape.curvature.hessian import HessianOperator
from landscape.errors import finite, whole
from landscape.layout import Layout
from landscape.losses import batches as batches_of
from landscape.losses import outputs as outputs_of
from landscape.losses.batches import Batch
from landscape.losses.chunk_loss import BatchLoss, ChunkLoss
from landscape.losses.nests import Nest
from landscape.losses.summed_loss import Loss, SummedLoss, Sums
from landscape.objectives import probes, sampling
from landscape.objectives.chunked_data import ChunkedData, ChunkSizes
from landscape.objectives.totals import add_up
from landscape.results import Evaluation
from landscape.runtime.device import choose_sum_device, find_device, full_precision, require_dtype, to_float64
from landscape.runtime.memory import parse_bytes, retry_smaller
from landscape.runtime.replica import Replica, Replicas, check_model, check_rest, prepare, recompute_statistics
from landscape.runtime.workers import ordered_map

T = TypeVar("T")
LARGE = 2**16  # parameters from which on
PARTS = 4  # data are cut into so many chunks at least, so that several cores have work


class Objective:
    """L(theta) = (1/N) sum_i l(f(x_i; theta), y_i), with its error, its gradient and its curvature operators.

    model: any torch module; it is only read.
    data: (inputs, targets), a list of such batches, a loader (read once, in order), or a `losses.sources.Source`, whose
        examples are read when they are computed with and not kept. Inputs and targets may be any nesting of tensors
        with the examples on their first axes: a mapping is passed to the model as keyword arguments, a tuple as
        positional ones. A batch may also be a mapping whose "labels" are the targets and the rest the inputs.
    loss: a torch loss, whose reduction is kept (see `landscape.losses.summed_loss`), or a callable (outputs, targets)
        that returns one value per example, a block (B, ...) of values to be averaged, or their mean over examples.
    batch_loss: the general form, a callable (model, batch) -> (sum of losses, count[, number of errors]), each one
        number or one per example; a subset has standard errors only if they are given per example. It may itself take
        gradients by the inputs. Batches are cut only if the sums of their parts add up.
    outputs: what the loss takes, if the model does not return a tensor: a key or attribute ("logits"), an index (0),
        or a function of what the model returns. A callable loss may also take all of it.
    chunk_size: the most examples computed at once. Chunks are smaller where activations would leave the cache; only
        batchnorm="batch" takes the size literally, because there it changes the function.
    batchnorm: "frozen" keeps the running statistics; "recomputed" estimates them anew at every theta (and holds them
        fixed under derivatives); "interpolated" makes them part of theta; "batch" lets each chunk normalise itself.
        To compare two models with their own statistics, use "interpolated" or "recomputed".
    mode: "eval", or "caller" to keep each submodule's training flag.
    weight_decay: adds (weight_decay / 2) ||theta||^2, which shifts the spectrum by exactly that number.
    parameters: glob patterns of the tensors that make up theta; by default all that require gradients.
    dtype: precision of all computation; by default the model's. Curvature needs float32 or float64.
    device: where everything is computed: "cuda", "cuda:1", "mps", "cpu" or "auto"; by default where the model is.
    memory: the most that kept graphs of the whole process may take, for example "8G"; with little, curvature is also
        computed from fewer examples at once. By default a quarter of what is free, which is read again before each
        graph is kept; an eighth of all memory is never used.
    workers: how many chunks or points are computed at once, one thread each; by default torch's number of threads.
    drawn: how the data were drawn from a larger set, as `drawn` of another objective says; None if they were not.

    Operators and studies build on these attributes and methods: `layout` (where each tensor lies in theta), `data`
    and `chunks` (the examples), `chunk_loss` (the loss of one chunk on a replica), `replicas` (private copies of the
    model), `statistics` (of BatchNorm at a theta) and `map_chunks` (a function of every chunk at a theta).

    >>> inputs, targets = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [2.0], [4.0]])
    >>> model = nn.Linear(1, 1, bias=False)
    >>> objective = Objective(model, (inputs, targets), loss=functional.mse_loss)
    >>> theta = torch.tensor([1.0])
    >>> round(objective.loss(theta), 4)
    0.3333
    >>> objective.gradient(theta)
    tensor([-2.])
    >>> objective.hessian(theta).dense()
    tensor([[9.3333]])
    """

    def __init__(
        self,
        model: nn.Module,
        data: Nest,
        loss: Loss = functional.cross_entropy,
        *,
        batch_loss: BatchLoss | None = None,
        outputs: outputs_of.Choice = None,
        chunk_size: int | None = None,
        batchnorm: str = "frozen",
        mode: str = "eval",
        weight_decay: float = 0.0,
        parameters: str | list[str] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        memory: str | int | None = None,
        workers: int | None = None,
        drawn: sampling.Draw | None = None,
    ):
        if not (weight_decay >= 0 and math.isfinite(weight_decay)):
            raise ValueError(f"weight_decay must be zero or positive, got {weight_decay}")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point one such as torch.float64, got {dtype}")
        check_model(model)
        self.layout = Layout.of(model, parameters, statistics=batchnorm == "interpolated")
        own = self.layout.flatten(model)
        self.dtype = dtype or own.dtype
        self.device = find_device(device) if device is not None else own.device
        require_dtype(self.device, self.dtype)
        self.theta = finite("the model's parameters", own.to(self.device, self.dtype))
        self.batchnorm, self.weight_decay = batchnorm, float(weight_decay)
        self.memory = parse_bytes(memory) if memory is not None else None
        self.workers = 1 if self.device.type != "cpu" else whole("workers", workers or torch.get_num_threads())
        untested = ChunkLoss(SummedLoss(loss, self.device, self.dtype), batch_loss, outputs_of.make_chooser(outputs))
        self._module, self._mode = prepare(model, batchnorm, mode), mode
        self.replicas = Replicas(self._module, self.layout, self.dtype, self.device)
        self._statistics_source: Objective | None = None  # whose data BatchNorm is recomputed on; None: its own
        batches = batches_of.read(data, self.device, self.dtype)
        untested.check_batches(batches)
        most = whole("chunk_size", chunk_size) if chunk_size is not None else None
        self.chunk_loss, sizes = self._probe(untested, batches, most)
        # oneDNN convolves channels-last images up to twice as fast; the weights may stay as they are
        convolutional = any(isinstance(layer, nn.Conv2d) for layer in self._module.modules())
        channels_last = self.device.type == "cpu" and convolutional
        # by the size of the problem, not by the number of cores, on which no bit may depend
        parts = PARTS if self.size >= LARGE and batchnorm != "batch" else 1
        self.data = ChunkedData.cut(batches, sizes, channels_last=channels_last, drawn=drawn, parts=parts)

    @property
    def size(self) -> int:
        """Number of entries of theta."""
        return self.layout.size

    @property
    def count(self) -> int:
        """Number of examples."""
        return self.data.count

    @property
    def chunks(self) -> Sequence[Batch]:
        """The examples, as batches that are computed one at a time."""
        return self.data.chunks

    @property
    def curvature_chunks(self) -> Sequence[Batch]:
        """The examples, as batches whose products with curvature are computed one at a time."""
        return self.data.curvature_chunks

    @property
    def drawn(self) -> sampling.Draw | None:
        """How the data were drawn, if they are a subset."""
        return self.data.drawn

    @property
    def population(self) -> int | None:
        """Number of examples that the data were drawn from, if they are a subset."""
        return None if self.drawn is None else self.drawn.population

    def flatten(self, model: nn.Module) -> Tensor:
        """Another model of the same architecture as a vector of this objective.

        A model is refused if the vector would not be that model: if it differs from this objective's own in something
        that is not part of theta, such as the statistics of BatchNorm under "frozen". `layout.flatten` takes any model.
        """
        vector = self.layout.flatten(model).to(self.device, self.dtype)
        check_rest(self._module, model, self.layout, self.batchnorm, self.dtype)
        probes.check_same_loss(self, prepare(model, self.batchnorm, self._mode), vector)
        return vector

    def loss(self, theta: Tensor) -> float:
        """Return the mean loss.

        theta: the parameters as one flat vector.
        """
        return self.evaluate(theta).loss

    def error(self, theta: Tensor) -> float:
        """Return the fraction of wrong predictions.

        theta: the parameters as one flat vector.

        The prediction is the class with the largest score, or the side of its threshold on which a single output
        lies. Errors are counted for class labels with torch's losses (classes on axis 1) or with outputs (B, classes),
        for labels 0 and 1 with a single output, and by a batch_loss that returns them.
        """
        error = self.evaluate(theta).error
        if error is None:
            raise ValueError(
                "error needs integer class labels (or a third value from batch_loss): "
                f"{self.chunk_loss.error_counter.why}"
            )
        return error

    def evaluate(self, theta: Tensor) -> Evaluation:
        """Return loss and error from one pass, with standard errors if this objective is a subset.

        theta: the parameters as one flat vector.
        """
        vector = self._copy(theta)
        return self._fit(lambda: self._add_up(list(self.map_chunks(vector, self._measure)), vector))

    def observe(self, theta: Tensor, observer: Callable[[Nest, Nest], T]) -> tuple[Evaluation, list[T]]:
        """Return loss and error, and what an observer makes of the model's outputs, from one pass.

        theta: the parameters as one flat vector.
        observer: takes outputs and targets of one chunk; the results are returned in the order of the data.
        """
        vector, each = self._copy(theta), self.drawn is not None

        def observe(replica: Replica, chunk: Batch) -> tuple[Sums, T]:
            return self.chunk_loss.observe(replica, chunk, each, observer)

        found = self._fit(lambda: list(self.map_chunks(vector, observe)))
        return self._add_up([sums for sums, _ in found], vector), [result for _, result in found]

    def evaluate_each(self, points: Iterable[Callable[[Tensor], object]]) -> Generator[Evaluation]:
        """Evaluate at many points, several at once, and yield the evaluations in order.

        points: functions that write the vector of one point into the tensor they are given. A point is computed by one
            worker, so its vector is written once for all data.

        Losses that are not finite are returned as they are.
        """

        def evaluate_one(write: Callable[[Tensor], object]) -> Evaluation:
            with full_precision(), self.replicas.borrow() as replica:
                with torch.no_grad():
                    replica.version = None
                    write(replica.flat)
                with self.chunk_loss.disable_graphs():
                    if self.batchnorm == "recomputed":
                        self._recompute(replica)
                    point = replica.flat
                    return self._fit(lambda: self._add_up([self._measure(replica, one) for one in self.chunks], point))

        return ordered_map(evaluate_one, points, self.workers)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of the mean loss, and of weight decay, if any.

        theta: the parameters as one flat vector.
        """
        return self.loss_and_gradient(theta)[1]

    def loss_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        """Return the mean loss and its gradient from one pass.

        theta: the parameters as one flat vector.
        """
        self.chunk_loss.check_differentiable()
        vector = self._copy(theta)
        return self._fit(lambda: self._sum_gradients(vector))

    def _sum_gradients(self, vector: Tensor) -> tuple[float, Tensor]:
        total = torch.zeros(self.size, dtype=torch.float64, device=choose_sum_device(self.device))
        sums = []
        for chunk_sums, part in self.map_chunks(vector, self._differentiate):
            sums.append(chunk_sums)
            total[: len(part)] += part.to(total.device)
        total /= sum(part.count for part in sums)
        gradient = total.to(self.device, self.dtype)
        if self.weight_decay:
            decayed = self.layout.parameter_count
            gradient[:decayed] += self.weight_decay * vector[:decayed]
        loss = self._add_up(sums, vector).loss
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} at this theta: there is no gradient to take")
        return loss, gradient

    def hessian(self, theta: Tensor, engine: str = "auto") -> HessianOperator:
        """Return the Hessian as an operator.

        theta: the parameters as one flat vector.
        engine: how products are computed: "auto", "retained", "recompute" or "forward"; see
            `landscape.curvature.products`.
        """
        return self._fit(lambda: HessianOperator(self, self._copy(theta), engine))

    def gauss_newton(self, theta: Tensor) -> GaussNewtonOperator:
        """Return the generalised Gauss-Newton matrix J' (d2 loss / d outputs2) J as an operator.

        theta: the parameters as one flat vector.

        It is positive semi-definite for convex losses, and differs from the Hessian wherever residuals are not zero.
        """
        return self._fit(lambda: GaussNewtonOperator(self, self._copy(theta)))

    def subset(self, count: int, seed: int = 0) -> Objective:
        """The same objective on a random subset, stratified by class where there are labels.

        count: number of examples to draw.
        seed: the same seed draws the same examples.

        Its evaluations carry standard errors of what they say about all the data: two of them hold the truth in 95 of
        100 subsets. A subset of a subset refers to the first one's population, without use of its classes.
        """
        drawn = self.data.draw(count, seed)
        return self.take(drawn.index, drawn)

    def split(self, size: int) -> list[Objective]:
        """Disjoint objectives of `size` examples each, in order; the last may be smaller."""
        return [self._with_batches(group) for group in self.data.split(whole("size", size))]

    def take(self, indices: Tensor, drawn: sampling.Draw | None = None) -> Objective:
        """The same objective on some of its examples.

        indices: numbers of the examples.
        drawn: how they were drawn; evaluations then carry standard errors.
        """
        return self._with_batches(self.data.take(indices), drawn)

    def on(self, *batch: Nest, population: int | None = None) -> Objective:
        """The same model, loss and policies on other examples.

        batch: inputs and targets as two arguments, or data of any form that `Objective` takes.
        population: how many examples these were drawn from, without regard to classes, if they are a random subset.
        """
        data = [batch] if len(batch) == 2 else batch[0]
        batches = batches_of.read(data, self.device, self.dtype)
        self.chunk_loss.check_batches(batches)
        count = sum(batches_of.list_sizes(batches))
        drawn = None if population is None else sampling.assume_unstratified(count, population)
        return self._with_batches(batches, drawn)

    def with_statistics_from(self, other: Objective) -> Objective:
        """The same objective whose BatchNorm statistics are recomputed on the data of another one.

        other: an objective of the same model, for example on the training data while this one is on test data.
        """
        if self.batchnorm != "recomputed":
            raise ValueError(f"only batchnorm='recomputed' takes statistics from data, got '{self.batchnorm}'")
        if other.layout != self.layout:
            raise ValueError("statistics must come from an objective of the same architecture and parameters")
        changed = copy.copy(self)
        changed._statistics_source = other
        return changed

    def with_workers(self, workers: int) -> Objective:
        """Return the same objective with another number of workers.

        workers: how many chunks or points are computed at once.
        """
        changed = copy.copy(self)
        changed.workers = 1 if self.device.type != "cpu" else whole("workers", workers)
        return changed

    def halve(self, chunks: Sequence[Batch]) -> Sequence[Batch] | None:
        """Cut chunks in half; None if they cannot be smaller.

        chunks: of examples. Those of batchnorm="batch" stay as they are: each is a batch that normalises itself.
        """
        largest = max(batches_of.list_sizes(chunks))
        if not self.data.divisible or self.batchnorm == "batch" or largest <= 1:
            return None
        return batches_of.cut(chunks, largest // 2)

    def _fit(self, compute: Callable[[], T]) -> T:
        """Compute, in smaller chunks where the memory of the device runs out."""

        def shrink() -> str:
            smaller = self.halve(self.chunks)
            if smaller is None:
                return ""
            self.data = replace(self.data, chunks=smaller)
            return f"{max(batches_of.list_sizes(smaller))} examples at once"

        return retry_smaller(compute, shrink, self.device)

    def map_chunks(self, theta: Tensor, function: Callable[[Replica, Batch], T]) -> Iterator[T]:
        """Yield function(replica, chunk) for every chunk in order, several at once.

        theta: a vector that nothing else changes; the replicas hold it, with BatchNorm statistics by the policy.
        function: takes a private copy of the model and one batch.
        """
        statistics = self.statistics(theta)

        def compute(chunk: Batch) -> T:
            with full_precision(), self.replicas.borrow() as replica:
                replica.load(theta, statistics)
                return function(replica, chunk)

        return ordered_map(compute, self.chunks, self.workers)

    def statistics(self, theta: Tensor) -> list[Tensor] | None:
        """Estimate the BatchNorm statistics anew; None unless the policy is "recomputed".

        theta: the parameters as one flat vector.
        """
        if self.batchnorm != "recomputed":
            return None

        def gather(vector: Tensor) -> list[Tensor]:
            with full_precision(), self.replicas.borrow() as replica:
                replica.load(vector)
                return self._recompute(replica)

        return next(ordered_map(gather, [theta], workers=1))  # one thread, like everything else: the same bits

    def _recompute(self, replica: Replica) -> list[Tensor]:
        source = self._statistics_source or self

        def forward(chunk: Batch) -> object:
            with torch.enable_grad() if source.chunk_loss.inner_gradients else torch.no_grad():
                return source.chunk_loss.compute(replica, chunk)

        counted = ((batches_of.examples(chunk), chunk) for chunk in source.chunks)
        return recompute_statistics(replica, counted, forward)

    def _probe(
        self, loss: ChunkLoss, batches: Sequence[Batch], most: int | None
    ) -> tuple[ChunkLoss, ChunkSizes | None]:
        def probe(theta: Tensor) -> tuple[ChunkLoss, ChunkSizes | None]:
            with full_precision(), self.replicas.borrow() as replica:
                replica.load(theta)
                return probes.probe(loss, replica, batches, self.batchnorm, most, self.memory)

        # on one thread, like everything else: threads that wait for each other take longer than these few examples
        return next(ordered_map(probe, [self.theta], workers=1))

    def _with_batches(self, batches: Sequence[Batch], drawn: sampling.Draw | None = None) -> Objective:
        other = copy.copy(self)  # replicas are shared: they hold no data
        other.chunk_loss = self.chunk_loss.adapt(batches)
        other.data = self.data.replace(batches, drawn)
        return other

    def _copy(self, theta: Tensor) -> Tensor:
        """A private, checked copy of theta; being a new object it also marks what replicas have loaded."""
        vector = self.layout.check(theta).detach().to(self.device, self.dtype, copy=True)
        if vector.ndim != 1:
            raise ValueError(f"theta must be one flat vector, got shape {tuple(theta.shape)}")
        return finite("theta", vector)

    def _measure(self, replica: Replica, chunk: Batch) -> Sums:
        return self.chunk_loss.measure(replica, chunk, each=self.drawn is not None)

    def _differentiate(self, replica: Replica, chunk: Batch) -> tuple[Sums, Tensor]:
        return self.chunk_loss.differentiate(replica, chunk, replica.leaves[: len(self.layout.parameters)])

    def _add_up(self, sums: list[Sums], vector: Tensor) -> Evaluation:
        evaluation = add_up(sums, self.drawn)
        if not self.weight_decay:
            return evaluation
        decayed = vector[: self.layout.parameter_count]
        penalty = 0.5 * self.weight_decay * float(to_float64(decayed).square().sum())
        return replace(evaluation, loss=evaluation.loss + penalty)

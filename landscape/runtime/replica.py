"""Private copies of a model whose tensors can be rebound: the caller's model is never touched."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from landscape.errors import choose
from landscape.layout import Layout, running_statistics

Batch = TypeVar("Batch")  # whatever the caller's function takes

BOUND = 2**18  # entries from which on new views of a vector take less time than a copy of it
ALIGNED = (
    64  # bytes to which torch aligns its own memory; elsewhere, as in a file that was read, kernels may round otherwise
)

BATCHNORM = ("frozen", "recomputed", "interpolated", "batch")
NORM = nn.modules.batchnorm._NormBase
BATCH_NORM = nn.modules.batchnorm._BatchNorm  # the norm layers whose statistics are those of a batch


class Replica:
    """A deep copy of a model whose tensors are views into one flat vector.

    model: the original; it is only read.
    layout: which of its tensors are in the vector, and where.
    dtype: precision of the copy.
    device: where the copy is.
    """

    def __init__(self, model: nn.Module, layout: Layout, dtype: torch.dtype, device: torch.device):
        self.module = copy.deepcopy(model).to(device=device, dtype=dtype)
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.layout = layout
        self.flat = torch.empty(layout.size, dtype=dtype, device=device)
        self.version: object = None  # identity of the vector that `flat` holds a copy of
        modules = dict(self.module.named_modules(remove_duplicate=False))
        self.owners = [
            [(modules[path], leaf) for path, _, leaf in (name.rpartition(".") for name in entry.names)]
            for entry in layout.entries
        ]
        self.statistic_owners = [
            (modules[path], leaf)
            for path, _, leaf in (name.rpartition(".") for name in running_statistics(self.module))
        ]
        self.norms = [m for m in self.module.modules() if isinstance(m, NORM) and m.track_running_stats]
        self.recurrent = [m for m in self.module.modules() if isinstance(m, nn.RNNBase)]
        self.leaves = self._own_leaves = self.views(self.flat)
        self.bind(self.leaves)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Tensors in the model's shapes that share the vector's memory; the parameters among them require gradients."""
        return [
            self.layout.view(vector, entry).detach().requires_grad_(entry.kind != "statistic")
            for entry in self.layout.entries
        ]

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Let the module compute with these tensors, one per layout entry."""
        for owners, entry, tensor in zip(self.owners, self.layout.entries, tensors, strict=True):
            for module, leaf in owners:
                slot = module._buffers if entry.kind == "statistic" else module._parameters
                slot[leaf] = tensor  # any tensor computes; Parameter is only a tag
        for recurrent in self.recurrent:  # RNNs keep a second list of references to their weights
            recurrent._flat_weights = [getattr(recurrent, name) for name in recurrent._flat_weights_names]

    def place(self, vector: Tensor) -> None:
        """Let the module compute at a vector, which must not change until the next one is placed.

        Small vectors are copied. Of large ones, whose copies take as long as a tenth of a local step, `leaves` become
        views, if they lie in memory like a copy: where a vector comes from must not change a bit.
        """
        like = self.flat
        alike = vector.dtype == like.dtype and vector.device == like.device and vector.shape == like.shape
        aligned = vector.is_contiguous() and vector.data_ptr() % ALIGNED == 0
        if alike and aligned and len(vector) >= BOUND:
            self.leaves = self.views(vector)
            self.bind(self.leaves)
            return
        if self.leaves is not self._own_leaves:
            self.leaves = self._own_leaves
            self.bind(self.leaves)
        with torch.no_grad():
            like.copy_(vector)

    def load(self, vector: Tensor, statistics: Sequence[Tensor] | None = None) -> None:
        """Copy a parameter vector in, unless it is already there.

        vector: must not change while replicas hold it, for it is recognised by its identity.
        statistics: of the norm layers, if they do not belong to the vector.
        """
        if self.version is not vector:
            with torch.no_grad():
                self.flat.copy_(vector)
            self.version = vector
        if statistics is not None:
            self.bind_statistics(statistics)

    def bind_statistics(self, statistics: Sequence[Tensor]) -> None:
        """Let the norm layers use these tensors: bound, not copied, for kept graphs may hold the old ones."""
        for (module, leaf), value in zip(self.statistic_owners, statistics, strict=True):
            module._buffers[leaf] = value


class Replicas:
    """A pool of replicas of one model, made on demand, one per concurrent worker; arguments as for `Replica`."""

    def __init__(self, model: nn.Module, layout: Layout, dtype: torch.dtype, device: torch.device):
        # the pattern itself never computes: a copy taken while it did could catch norm layers in training mode
        self._pattern = (model, layout, dtype, device)
        self._idle: queue.LifoQueue[Replica] = queue.LifoQueue()

    @contextmanager
    def borrow(self) -> Iterator[Replica]:
        """Borrow a replica for the time of the block; it must be returned with its own leaves bound."""
        try:
            replica = self._idle.get_nowait()
        except queue.Empty:
            replica = Replica(*self._pattern)
        try:
            yield replica
        finally:
            self._idle.put(replica)


def check_model(model: nn.Module) -> None:
    """Refuse anything but a torch module, and a module whose parameters have no numbers yet."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, tensor in model.named_parameters():
        if isinstance(tensor, nn.parameter.UninitializedParameter):
            raise ValueError(f"'{name}' has no shape yet: pass one batch through the lazy layers first")
        if tensor.is_meta:
            raise ValueError(
                f"'{name}' is on the meta device, so it has a shape but no numbers: load the weights first, "
                "for example model.to_empty(device='cpu') and load_state_dict()"
            )


def check_rest(own: nn.Module, other: nn.Module, layout: Layout, batchnorm: str, dtype: torch.dtype) -> None:
    """Refuse a model that differs from an objective's own in a tensor that is not part of the vector.

    own: the objective's model.
    other: the model that is to be flattened.
    layout: which tensors are part of the vector.
    batchnorm: the policy; running statistics may differ unless it is "frozen".
    dtype: precision in which tensors are compared.

    The vector would otherwise stand for a third model: the other's parameters with the rest of the objective's own.
    """
    laid_out = {name for entry in layout.entries for name in entry.names}
    moving = set() if batchnorm == "frozen" else set(running_statistics(other))
    theirs = dict(_iterate_state(other))
    for name, tensor in _iterate_state(own):
        if name in laid_out or name in moving or name.endswith("num_batches_tracked"):
            continue
        found = theirs.get(name)
        if found is None or found.shape != tensor.shape:
            raise ValueError(f"no tensor '{name}' of shape {tuple(tensor.shape)}: is this another architecture?")
        if not torch.equal(_make_comparable(found, dtype), _make_comparable(tensor, dtype)):
            if name in running_statistics(own):
                raise ValueError(
                    f"this model has BatchNorm statistics of its own ('{name}' differs from the objective's), which "
                    "batchnorm='frozen' would drop: write batchnorm='interpolated' (they are part of theta and move "
                    "with it) or batchnorm='recomputed'"
                )
            raise ValueError(
                f"this model differs from the objective's in '{name}', which is not part of theta: build the objective "
                "so that theta holds it, or take objective.layout.flatten(model) if you want its parameters alone"
            )


def _iterate_state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _make_comparable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.detach().cpu().to(dtype) if tensor.is_floating_point() else tensor.detach().cpu()


def prepare(model: nn.Module, batchnorm: str, mode: str) -> nn.Module:
    """A copy of a model, set up for an objective.

    batchnorm: the policy for norm layers, one of BATCHNORM.
    mode: "eval", or "caller" to keep each submodule's training flag.
    """
    choose("batchnorm", batchnorm, BATCHNORM)
    choose("mode", mode, ("eval", "caller"))
    module = copy.deepcopy(model)
    if mode == "eval":
        module.eval()
    for layer in module.modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            layer.sparse = False  # the same numbers; sparse gradients have no second derivative
    for name, norm in module.named_modules():
        if not isinstance(norm, NORM):
            continue
        if batchnorm == "batch":
            # without running statistics a norm layer uses its batch, in eval mode too, and writes nothing
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        elif norm.running_mean is None and isinstance(norm, BATCH_NORM):
            raise ValueError(
                f"batchnorm='{batchnorm}' needs running statistics, but layer '{name}' keeps none: "
                "write batchnorm='batch' and choose chunk_size deliberately, for each chunk is then one batch"
            )
    return module


def recompute_statistics(
    replica: Replica, batches: Iterable[tuple[int, Batch]], forward: Callable[[Batch], object]
) -> list[Tensor]:
    """Estimate the running statistics of a replica at its present weights, as means over examples.

    replica: keeps the statistics.
    batches: pairs of (number of examples, batch).
    forward: passes a batch through the replica.

    One pass with BatchNorm in training mode and momentum n_b / (n_so_far + n_b), the convention of
    Garipov et al. 2018. The variance is the mean of batch variances, so it depends a little on chunk_size.
    """
    flags = [(norm, norm.training, norm.momentum) for norm in replica.norms]
    total = 0
    # zeros, not the old values: the first batch weighs 1, but 0 * NaN of a diverged point would stay for ever
    fresh = [torch.zeros_like(buffer) for buffer in running_statistics(replica.module).values()]
    replica.bind_statistics(fresh)
    try:
        with torch.no_grad():
            for norm in replica.norms:
                norm.train()
            for count, batch in batches:
                total += count
                for norm in replica.norms:
                    norm.momentum = count / total
                forward(batch)
    finally:
        for norm, training, momentum in flags:
            norm.training, norm.momentum = training, momentum
    return fresh

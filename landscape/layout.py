"""Where each named tensor lies in the flat parameter vector, and what its layers and filters are.

Flat vectors are never sliced by hand anywhere else: two public code bases are silently wrong because of it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from landscape.errors import choose

NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)
TRANSPOSED = nn.modules.conv._ConvTransposeNd


@dataclass(frozen=True)
class Entry:
    """One tensor: its names, its position in the vector, its role and its filters."""

    names: tuple[str, ...]  # several if it is tied
    shape: tuple[int, ...]
    start: int  # first position in the vector
    stop: int  # one behind the last
    kind: str  # "weight", "bias", "norm" (affine of a normalisation) or "statistic" (running mean or variance)
    layer: str  # dotted path of the module that owns it
    filter_shape: tuple[int, ...]  # shape under which one filter is the elements over `filter_axes`
    filter_axes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


@dataclass(frozen=True)
class Layout:
    """The map between one flat vector and a model's named tensors.

    entries: of all tensors, in the order in which they stand in the vector.

    >>> layout = Layout.of(nn.Linear(2, 3))
    >>> layout.size, layout.names
    (9, ('weight', 'bias'))
    >>> layout.segment(torch.arange(9), "bias")
    tensor([6, 7, 8])
    """

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, model: nn.Module, parameters: str | Sequence[str] | None = None, statistics: bool = False) -> Layout:
        """Lay out the trainable parameters of a model, tied ones once.

        model: any torch module; it is only read.
        parameters: glob patterns ("conv*", "head.*") that restrict the vector to some tensors.
        statistics: whether to append BatchNorm's running means and variances, so that they move with the weights.
        """
        patterns = [parameters] if isinstance(parameters, str) else parameters
        owners = dict(model.named_modules(remove_duplicate=False))
        aliases: dict[int, list[str]] = {}
        for name, tensor in model.named_parameters(remove_duplicate=False):
            if tensor.requires_grad:
                aliases.setdefault(id(tensor), []).append(name)
        found = dict(model.named_parameters(remove_duplicate=False))
        tensors = [(tuple(names), found[names[0]]) for names in aliases.values()]
        if patterns is not None:
            tensors = [
                (names, tensor)
                for names, tensor in tensors
                if any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)
            ]
            if not tensors:
                known = ", ".join(names[0] for names in aliases.values())
                raise ValueError(f"parameters: no trainable tensor matches {list(patterns)}. Known: {known}")
        if not tensors:
            raise ValueError("the model has no trainable parameters: is requires_grad off everywhere?")
        entries: list[Entry] = []
        start = 0
        for names, tensor in tensors:
            layer, _, _ = names[0].rpartition(".")
            entries.append(_make_entry(names, tensor, start, layer, owners[layer]))
            start = entries[-1].stop
        if statistics:
            for name, buffer in running_statistics(model).items():
                stop = start + buffer.numel()
                shape = tuple(buffer.shape)
                layer, _, _ = name.rpartition(".")
                entries.append(Entry((name,), shape, start, stop, "statistic", layer, shape, ()))
                start = stop
        return cls(tuple(entries))

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.entries[-1].stop

    @property
    def names(self) -> tuple[str, ...]:
        """The first name of every tensor, in order."""
        return tuple(entry.name for entry in self.entries)

    @cached_property
    def parameters(self) -> tuple[Entry, ...]:
        """The entries that the loss is differentiated by; they come before any statistics."""
        return tuple(entry for entry in self.entries if entry.kind != "statistic")

    @property
    def parameter_count(self) -> int:
        """Number of parameters; they come first in the vector, before any statistics."""
        return self.parameters[-1].stop

    @cached_property
    def layers(self) -> dict[str, tuple[Entry, ...]]:
        """Entries grouped by the module that owns them, in order."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.parameters:
            groups.setdefault(entry.layer, []).append(entry)
        return {layer: tuple(entries) for layer, entries in groups.items()}

    def entry(self, name: str) -> Entry:
        """Return the entry of a tensor.

        name: of the tensor; any of its names if it is tied.
        """
        table = {alias: entry for entry in self.entries for alias in entry.names}
        return table[choose("tensor", name, table)]

    def check(self, vector: Tensor, what: str = "theta") -> Tensor:
        """Return a vector if its last axis fits this layout, or raise ValueError.

        vector: one flat vector, or a stack (..., size). what: its name in the message.
        """
        if not isinstance(vector, Tensor):
            raise ValueError(
                f"{what} must be a flat tensor of parameters, got {type(vector).__name__}: "
                "write objective.flatten(model)"
            )
        if vector.ndim == 0 or vector.shape[-1] != self.size:
            raise ValueError(f"{what} must have {self.size} entries on its last axis, got shape {tuple(vector.shape)}")
        return vector

    def segment(self, vector: Tensor, name: str) -> Tensor:
        """Return a view of one named tensor, in the tensor's own shape.

        vector: one flat vector, or a stack (..., size). name: of the tensor.
        """
        return self.view(vector, self.entry(name))

    def view(self, vector: Tensor, entry: Entry) -> Tensor:
        """Return a view of one entry, in its tensor's shape.

        vector: one flat vector, or a stack (..., size). entry: one of this layout's.
        """
        part = self.check(vector)[..., entry.start : entry.stop]
        return part.view((*vector.shape[:-1], *entry.shape))

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of all tensors by name; tied tensors appear under their first name.

        vector: one flat vector, or a stack (..., size).
        """
        return {entry.name: self.view(vector, entry) for entry in self.entries}

    def flatten(self, tensors: Mapping[str, Tensor] | nn.Module) -> Tensor:
        """Return one new flat vector; ValueError if a tensor is missing or has another shape.

        tensors: a model, or tensors by name.
        """
        if isinstance(tensors, nn.Module):
            tensors = {**dict(tensors.named_parameters(remove_duplicate=False)), **running_statistics(tensors)}
        parts = []
        for entry in self.entries:
            name = next((alias for alias in entry.names if alias in tensors), None)
            if name is None:
                raise ValueError(f"no tensor named '{entry.name}': is this another architecture?")
            tensor = tensors[name].detach()
            if tuple(tensor.shape) != entry.shape:
                raise ValueError(f"'{name}' must have shape {entry.shape}, got {tuple(tensor.shape)}")
            parts.append(tensor.reshape(-1))
        return torch.cat(parts)

    def mask(self, *kinds: str) -> Tensor:
        """A boolean vector that is True on tensors of these kinds: "weight", "bias", "norm" or "statistic"."""
        chosen = torch.zeros(self.size, dtype=torch.bool)
        for entry in self.entries:
            if entry.kind in kinds:
                chosen[entry.start : entry.stop] = True
        return chosen

    def filter_norms(self, vector: Tensor) -> Tensor:
        """Return a vector that holds the norm of its filter at every weight, and zero elsewhere (Li et al. 2018).

        vector: one flat vector.
        """
        norms = torch.zeros_like(self.check(vector))
        for entry in self.entries:
            if entry.kind == "weight":
                part = vector[entry.start : entry.stop].view(entry.filter_shape)
                norm = torch.linalg.vector_norm(part, dim=entry.filter_axes, keepdim=True)
                norms[entry.start : entry.stop].view(entry.filter_shape).copy_(norm.expand(entry.filter_shape))
        return norms


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The running statistics of a model's normalisation layers by name, without the integer counter of batches."""
    return {
        f"{path}.{name}" if path else name: buffer
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.is_floating_point()
    }


def _make_entry(names: tuple[str, ...], tensor: Tensor, start: int, layer: str, owner: nn.Module) -> Entry:
    shape = tuple(tensor.shape)
    stop = start + tensor.numel()
    if isinstance(owner, NORMS):
        return Entry(names, shape, start, stop, "norm", layer, shape, ())
    if tensor.ndim <= 1:
        return Entry(names, shape, start, stop, "bias", layer, shape, ())
    if isinstance(owner, TRANSPOSED):
        # stored as (in, out / groups, ...): the output channel, so the filter, is axis 1 within each group
        grouped = (owner.groups, shape[0] // owner.groups, *shape[1:])
        axes = tuple(axis for axis in range(len(grouped)) if axis not in (0, 2))
        return Entry(names, shape, start, stop, "weight", layer, grouped, axes)
    return Entry(names, shape, start, stop, "weight", layer, shape, tuple(range(1, len(shape))))

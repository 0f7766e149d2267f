"""Data that do not fit into memory: examples that are read when they are computed with, a chunk at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import torch
from torch import Tensor

from landscape.losses import nests
from landscape.losses.nests import Nest

FEW = 8  # examples of a batch before the size of chunks is chosen: they may be large


class Source(ABC):
    """Examples by number, for `Objective`: it reads as many as it computes with at once, and keeps none."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    @abstractmethod
    def read(self, positions: Tensor) -> Nest:
        """Read some examples as one batch: the same numbers must give the same batch.

        positions: (n,) numbers of the examples.
        """

    @property
    def labels(self) -> Tensor | None:
        """A label for each example (N,) that subsets are stratified by; None: they are drawn without."""
        return None


@dataclass(frozen=True, eq=False)
class SourceBatches(Sequence[Nest]):
    """Some examples of a source as batches of at most `size` examples, read one at a time."""

    source: Source
    positions: Tensor  # (n,) numbers of the examples, in the order of the batches
    device: torch.device
    dtype: torch.dtype
    size: int = FEW
    channels_last: bool = False  # whether images are laid out by rows of channels

    def __len__(self) -> int:
        return -(-len(self.positions) // self.size)

    @overload
    def __getitem__(self, place: int) -> Nest: ...

    @overload
    def __getitem__(self, place: slice) -> SourceBatches: ...

    def __getitem__(self, place: int | slice) -> Nest | SourceBatches:
        if isinstance(place, slice):
            first, last, step = place.indices(len(self))
            if step != 1:
                raise ValueError(f"batches are sliced in order, got step {step}")
            return replace(self, positions=self.positions[first * self.size : max(first, last) * self.size])
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} batches, got number {place}")
        first = place % len(self) * self.size
        return nests.map_tensors(self._prepare, self.source.read(self.positions[first : first + self.size]))

    @property
    def sizes(self) -> list[int]:
        """The number of examples of each batch."""
        return [min(self.size, len(self.positions) - first) for first in range(0, len(self.positions), self.size)]

    @property
    def labels(self) -> Tensor | None:
        """The labels of these examples, where the source has any."""
        return None if self.source.labels is None else self.source.labels[self.positions]

    def take(self, index: Tensor) -> SourceBatches:
        """Choose examples by their numbers among these, in increasing order."""
        return replace(self, positions=self.positions[torch.sort(index).values])

    def _prepare(self, tensor: Tensor) -> Tensor:
        moved = tensor.detach().to(device=self.device, dtype=self.dtype if tensor.is_floating_point() else None)
        images = self.channels_last and moved.ndim == 4 and moved.is_floating_point()
        return moved.contiguous(memory_format=torch.channels_last) if images else moved

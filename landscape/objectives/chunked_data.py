"""The data of an objective: fixed examples, cut into chunks that are computed one at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from landscape.errors import whole
from landscape.losses import batches as batches_of
from landscape.losses import nests
from landscape.losses.batches import Batch
from landscape.losses.sources import SourceBatches
from landscape.objectives import sampling
from landscape.objectives.sampling import Draw
from landscape.rng import numpy_generator

FEWEST = 32  # examples of a chunk that is cut only so that there are several


@dataclass(frozen=True)
class ChunkedData:
    """Batches cut into chunks, in the order in which they were given."""

    chunks: Sequence[Batch]
    size: int | None  # the most examples of a chunk; None: those of a batch must not be separated
    channels_last: bool  # whether images lie in memory by rows of channels
    drawn: Draw | None = None  # how the examples were drawn from a larger set; None: they are all there are
    parts: int = 1  # how many chunks there should be at least, so that several cores have work

    @classmethod
    def cut(
        cls,
        batches: Sequence[Batch],
        size: int | None,
        *,
        channels_last: bool,
        drawn: Draw | None = None,
        parts: int = 1,
    ) -> ChunkedData:
        """Cut batches into chunks of at most `size` examples, and into `parts` chunks or so; None: do not cut."""
        chunks = batches
        if size is not None:
            share = math.ceil(sum(batches_of.list_sizes(batches)) / parts)
            chunks = batches_of.cut(batches, min(size, max(share, FEWEST)) if parts > 1 else size)
        if isinstance(chunks, SourceBatches):
            chunks = replace(chunks, channels_last=channels_last)
        elif channels_last:
            chunks = [nests.map_tensors(_order_channels_last, chunk) for chunk in chunks]
        return cls(chunks, size, channels_last, drawn, parts)

    @property
    def divisible(self) -> bool:
        """Whether the examples of a batch may be separated."""
        return self.size is not None

    @property
    def count(self) -> int:
        """Number of examples."""
        return sum(batches_of.list_sizes(self.chunks))

    def replace(self, batches: Sequence[Batch], drawn: Draw | None = None) -> ChunkedData:
        """Other batches, cut as these are."""
        return self.cut(batches, self.size, channels_last=self.channels_last, drawn=drawn, parts=self.parts)

    def draw(self, count: int, seed: int) -> Draw:
        """Draw `count` examples at random, stratified by class where there are labels."""
        whole("count", count, most=self.count)
        labels = batches_of.class_labels(self.chunks)
        drawn = sampling.draw(labels, self.count, count, numpy_generator(seed, "subset"))
        if self.drawn is None:
            return drawn
        return replace(sampling.assume_unstratified(count, self.drawn.population), index=drawn.index)

    def take(self, indices: Tensor) -> Sequence[Batch]:
        """The examples with these numbers, in increasing order."""
        self._check_divisible()
        return batches_of.take(self.chunks, indices.cpu())

    def split(self, size: int) -> list[Sequence[Batch]]:
        """All examples in groups of `size`, in order; the last may be smaller."""
        self._check_divisible()
        merged = self.chunks if isinstance(self.chunks, SourceBatches) else batches_of.merge(self.chunks)
        return [batches_of.take(merged, group) for group in torch.split(torch.arange(self.count), size)]

    def _check_divisible(self) -> None:
        if not self.divisible:
            raise ValueError(
                "examples cannot be chosen: batches must stay whole, because their tensors do not share one leading "
                "length or batch_loss gives a batch another sum than its parts"
            )


def _order_channels_last(tensor: Tensor) -> Tensor:
    images = tensor.ndim == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if images else tensor

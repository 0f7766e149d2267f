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

# Examples of a chunk that is cut only so that there are several: with fewer, what every chunk costs by itself (its
# vectors of results, threads that wait for the interpreter) outweighs a second core
FEWEST = 128


@dataclass(frozen=True)
class ChunkSizes:
    """The most examples that are computed at once, in passes through the network and in products with its curvature."""

    passes: int
    curvature: int


@dataclass(frozen=True)
class ChunkedData:
    """Batches cut into chunks, in the order in which they were given."""

    chunks: Sequence[Batch]
    curvature_chunks: Sequence[Batch]  # the same examples, more of them at once
    sizes: ChunkSizes | None  # of chunks; None: examples of a batch must not be separated
    channels_last: bool  # whether images lie in memory by rows of channels
    drawn: Draw | None = None  # how the examples were drawn from a larger set; None: they are all there are
    parts: int = 1  # how many chunks there should be at least, so that several cores have work

    @classmethod
    def cut(
        cls,
        batches: Sequence[Batch],
        sizes: ChunkSizes | None,
        *,
        channels_last: bool,
        drawn: Draw | None = None,
        parts: int = 1,
    ) -> ChunkedData:
        """Cut batches into chunks of at most the given sizes, and into `parts` chunks or so; None: do not cut."""
        if isinstance(batches, SourceBatches):
            batches = replace(batches, channels_last=channels_last)
        elif channels_last:
            batches = [nests.map_tensors(_order_channels_last, batch) for batch in batches]
        if sizes is None:
            return cls(batches, batches, None, channels_last, drawn, parts)
        share = math.ceil(sum(batches_of.list_sizes(batches)) / parts)
        most = max(share, FEWEST) if parts > 1 else share
        chunks, large = (batches_of.cut(batches, min(size, most)) for size in (sizes.passes, sizes.curvature))
        return cls(chunks, large, sizes, channels_last, drawn, parts)

    @property
    def divisible(self) -> bool:
        """Whether the examples of a batch may be separated."""
        return self.sizes is not None

    @property
    def count(self) -> int:
        """Number of examples."""
        return sum(batches_of.list_sizes(self.chunks))

    def replace(self, batches: Sequence[Batch], drawn: Draw | None = None) -> ChunkedData:
        """Other batches, cut as these are."""
        return self.cut(batches, self.sizes, channels_last=self.channels_last, drawn=drawn, parts=self.parts)

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

"""Examples of a data set as an objective takes them: in memory where they fit, else read a chunk at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from landscape.losses.sources import Source
from training.data.dataset import Dataset, normalise
from training.data.dealing import Ints

MOST_HELD = 2**31  # bytes of examples, as the network sees them, that are held in memory


@dataclass(frozen=True, eq=False)
class DatasetSource(Source):
    """Some examples of a data set, normalised when they are read.

    dataset: whose examples.
    split: train or test.
    positions: their numbers.
    dtype: of images.
    """

    dataset: Dataset
    split: Literal["train", "test"]
    positions: Tensor
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self.dataset.read(self.split, self.positions[positions])
        return normalise(inputs, self.dataset, self.dtype), targets

    @property
    def labels(self) -> Tensor | None:
        found = self.dataset.labels if self.split == "train" else self.dataset.test_labels
        return None if found is None else found[self.positions.to(found.device)].cpu()


def read_or_hold(
    dataset: Dataset, split: Literal["train", "test"], positions: Ints, dtype: torch.dtype
) -> tuple[Tensor, Tensor] | DatasetSource:
    """Read examples as the network sees them, or return a source of them if they would take more than MOST_HELD bytes.

    dataset: whose examples.
    split: train or test.
    positions: their numbers.
    dtype: of images.
    """
    source = DatasetSource(dataset, split, torch.from_numpy(positions), dtype)
    inputs, targets = (
        (dataset.train_inputs, dataset.train_targets)
        if split == "train"
        else (dataset.test_inputs, dataset.test_targets)
    )
    width = dtype.itemsize if dataset.task.inputs == "images" else torch.int64.itemsize
    size = width * math.prod(inputs.shape[1:]) + torch.int64.itemsize * math.prod(targets.shape[1:])
    return source if size * len(positions) > MOST_HELD else source.read(torch.arange(len(positions)))

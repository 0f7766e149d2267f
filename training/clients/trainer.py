"""What local training needs and what never changes during a run: data, batches, and the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from landscape.layout import Layout, running_statistics
from landscape.rng import numpy_generator, torch_generator
from landscape.runtime.replica import Replica
from training.config import Recipe
from training.data.augment import augment, mixup
from training.data.datasets import Dataset, normalise
from training.data.dealing import Ints
from training.methods.method import Method
from training.rules.base import ModelOutput


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """The training examples of every client as one array with bounds: a million clients cost no more than their data.

    >>> indices = ClientIndices.of([np.array([0, 2]), np.array([1])])
    >>> len(indices), indices[1].tolist()
    (2, [1])
    """

    flat: Ints
    bounds: Ints  # (clients + 1,)

    @classmethod
    def of(cls, indices: Sequence[Ints]) -> ClientIndices:
        """Store the example indices of each client."""
        sizes = np.fromiter((len(own) for own in indices), dtype=np.int64, count=len(indices))
        return cls(np.concatenate(indices), np.concatenate([[0], np.cumsum(sizes)]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, client: int) -> Ints:
        return self.flat[self.bounds[client] : self.bounds[client + 1]]


@dataclass
class LocalTrainer:
    """All that local training needs and that never changes in a run; each worker process builds its own.

    model: its weights are not touched; the trainer computes on a replica.
    """

    recipe: Recipe
    dataset: Dataset
    client_indices: ClientIndices  # training examples of every client
    method: Method
    model: nn.Module
    layout: Layout = field(init=False)
    replica: Replica = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = torch.float32 if self.recipe.dtype == "float32" else torch.float64
        self.layout = Layout.of(self.model)
        self.replica = Replica(self.model.train(), self.layout, self.dtype, torch.device("cpu"))
        self._statistics = list(running_statistics(self.replica.module).values())
        self.batch_size = self.recipe.local.batch_size * self.method.perturbation.batches
        self.classifier = self.replica.module.get_submodule(self.layout.entries[-1].layer)
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        self.format = torch.channels_last if convolves else torch.contiguous_format

    def count_steps(self, client: int) -> int:
        """Count the local steps K of a client in one round."""
        local = self.recipe.local
        return local.steps or local.epochs * math.ceil(len(self.client_indices[client]) / self.batch_size)

    def draw_batches(self, client: int, round: int) -> Iterator[Ints]:
        """Draw the examples of each local step of a client in a round: a new keyed order for every epoch."""
        own, size, epoch, taken = self.client_indices[client], self.batch_size, 0, 0
        while True:
            order = numpy_generator(self.recipe.seed, "order", round, client, epoch).permutation(own)
            for start in range(0, len(order), size):
                yield order[start : start + size]
                taken += 1
                if taken == self.count_steps(client):
                    return
            epoch += 1

    def load_batch(self, chosen: Ints, client: int, round: int, step: int) -> tuple[Tensor, Tensor]:
        """Load augmented, normalised images and their labels.

        chosen: indices of the examples.
        client, round, step: the key of the augmentation, so that both gradients of SAM use the same images.
        """
        positions = torch.from_numpy(chosen)
        generator = torch_generator(self.recipe.seed, "augment", round, client, step)
        images = augment(
            self.dataset.train_images[positions], generator, self.recipe.augment, dataset=self.dataset, dtype=self.dtype
        )
        labels = self.dataset.train_labels[positions]
        images, labels = mixup(images, labels, generator, self.recipe.augment, classes=self.dataset.classes)
        return images.contiguous(memory_format=self.format), labels

    def read_examples(self, client: int) -> tuple[Tensor, Tensor]:
        """Read normalised images and labels of a client's training examples, not augmented."""
        chosen = torch.from_numpy(self.client_indices[client])
        images = normalise(self.dataset.train_images[chosen], self.dataset, self.dtype)
        return images.contiguous(memory_format=self.format), self.dataset.train_labels[chosen]

    def read_statistics(self) -> Tensor:
        """Read the running statistics of the norm layers as one vector (b,), empty if there are none."""
        return torch.cat([self.replica.flat[:0], *(buffer.reshape(-1) for buffer in self._statistics)])

    def load_statistics(self, values: Tensor) -> None:
        """Set the running statistics of the norm layers, and their batch counters to zero.

        values: (b,), as `read_statistics` returns them.
        """
        start = 0
        for buffer in self._statistics:
            buffer.copy_(values[start : start + buffer.numel()].view(buffer.shape))
            start += buffer.numel()
        for layer in self.replica.norms:
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.zero_()

    def compute_output(self, network: Callable[[Tensor], Tensor], inputs: Tensor, features: bool) -> ModelOutput:
        """Compute the output of a network on a batch.

        network: the replica's module, or a function that calls it.
        features: whether to keep what enters the classifier.
        """
        if not features:
            return ModelOutput(network(inputs), None)
        caught: list[Tensor] = []
        hook = self.classifier.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        try:
            outputs = network(inputs)
        finally:
            hook.remove()
        return ModelOutput(outputs, caught[-1].flatten(1))


@contextmanager
def put_at_rest(trainer: LocalTrainer, w: Tensor, statistics: Tensor) -> Iterator[nn.Module]:
    """Put weights and statistics into the trainer's network; gives it in eval mode, without gradients."""
    with torch.no_grad():
        trainer.replica.flat.copy_(w)
        trainer.load_statistics(statistics)
        try:
            yield trainer.replica.module.eval()
        finally:
            trainer.replica.module.train()

"""Everything that local training needs and that never changes during a run: data, batches, and the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from landscape.kernels.matmul import LargeProducts
from landscape.layout import Layout, running_statistics
from landscape.rng import numpy_generator, torch_generator
from landscape.runtime.device import CPU, require_dtype
from landscape.runtime.replica import Replica
from training.config import Recipe
from training.data.augment import augment, check_augment, list_changes, mixup
from training.data.dataset import Dataset, normalise, place
from training.data.dealing import ClientIndices, Ints
from training.methods.method import Method
from training.rules.base import ModelOutput
from training.tasks.task import TrainingLoss

WIDE = 2**14  # weights of a layer whose products may be large; smaller networks need not look at each operation


@dataclass
class LocalTrainer:
    """Everything that local training needs and that never changes during a run; each worker process builds its own.

    model: its weights are not touched; the trainer computes on a replica.
    device: where everything is computed. Vectors that come from and go to the server are on the CPU.
    """

    recipe: Recipe
    dataset: Dataset
    client_indices: ClientIndices  # training examples of every client
    method: Method
    model: nn.Module
    device: torch.device = CPU
    layout: Layout = field(init=False)
    replica: Replica = field(init=False)

    def __post_init__(self) -> None:
        check_augment(self.recipe.augment, self.dataset.task)
        self.dtype = torch.float32 if self.recipe.dtype == "float32" else torch.float64
        self.layout = Layout.of(self.model)
        require_dtype(self.device, self.dtype)
        self.replica = Replica(self.model.train(), self.layout, self.dtype, self.device)
        statistics = running_statistics(self.replica.module)
        self._statistics = list(statistics.values())
        self.own_statistics = self._find_own(statistics)
        self.batch_size = self.recipe.local.batch_size * self.method.perturbation.batches
        self.classifier = self.replica.module.get_submodule(self.layout.entries[-1].layer)
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        self.format = torch.channels_last if convolves else torch.contiguous_format

    def _find_own(self, statistics: Mapping[str, Tensor]) -> Tensor:
        """(b,) whether each running statistic stays with its client: all where the recipe says so, or as the method."""
        everything, keeps = self.recipe.rounds.statistics == "own", self.method.correction.keeps_statistic
        parts = [torch.full((one.numel(),), everything or keeps(name)) for name, one in statistics.items()]
        return torch.cat([torch.empty(0, dtype=torch.bool), *parts]).to(self.device)

    @cached_property
    def augments(self) -> bool:
        """Whether training examples are changed at random."""
        return bool(list_changes(self.recipe.augment))

    @property
    def products(self) -> AbstractContextManager[object]:
        """A context in which one client's network computes as fast as it can."""
        return LargeProducts() if self._is_wide else nullcontext()

    @cached_property
    def _is_wide(self) -> bool:
        return self.device == CPU and any(p.dim() == 2 and p.numel() >= WIDE for p in self.model.parameters())

    @cached_property
    def placed(self) -> Dataset:
        """The data set with its tensors on the device, moved there once."""
        return place(self.dataset, self.device)

    def count_steps(self, client: int) -> int:
        """Count the local steps K of a client in one round."""
        local = self.recipe.local
        return local.steps or local.epochs * self.count_batches(len(self.client_indices[client]))

    def count_batches(self, examples: int) -> int:
        """Count the batches of an epoch.

        examples: of a client.
        """
        whole = examples // self.batch_size
        return whole if self.recipe.local.drop_last and whole else math.ceil(examples / self.batch_size)

    def draw_batches(self, client: int, round: int) -> Iterator[Ints]:
        """Draw the examples of each local step of a client in a round: a new keyed order for every epoch."""
        own, size, epoch, taken = self.client_indices[client], self.batch_size, 0, 0
        steps = self.count_steps(client)
        while True:
            order = numpy_generator(self.recipe.seed, "order", round, client, epoch).permutation(own)
            for start in range(0, size * self.count_batches(len(order)), size):
                yield order[start : start + size]
                taken += 1
                if taken == steps:
                    return
            epoch += 1

    def load_batch(self, chosen: Ints, client: int, round: int, step: int) -> tuple[Tensor, Tensor]:
        """Load augmented, normalised inputs and their targets.

        chosen: indices of the examples.
        client, round, step: the key of the augmentation, so that both gradients of SAM use the same inputs.
        """
        if not self.augments:
            return self.read_examples(chosen)
        generator = torch_generator(self.recipe.seed, "augment", round, client, step)
        inputs, targets = self._read(chosen)
        inputs, targets = augment(
            inputs, targets, generator, self.recipe.augment, dataset=self.dataset, dtype=self.dtype
        )
        inputs, targets = mixup(inputs, targets, generator, self.recipe.augment, classes=self.dataset.classes)
        return self._arrange(inputs), targets

    def read_examples(self, chosen: Ints) -> tuple[Tensor, Tensor]:
        """Read normalised inputs and targets of training examples, not augmented.

        chosen: indices of the examples.
        """
        inputs, targets = self._read(chosen)
        return self._arrange(normalise(inputs, self.dataset, self.dtype)), targets

    def _read(self, chosen: Ints) -> tuple[Tensor, Tensor]:
        inputs, targets = self.placed.read("train", torch.from_numpy(chosen))
        return inputs.to(self.device), targets.to(self.device)

    def _arrange(self, inputs: Tensor) -> Tensor:
        """Lay images out in memory as convolutions need them."""
        return inputs.contiguous(memory_format=self.format) if inputs.ndim == 4 else inputs

    @property
    def loss(self) -> TrainingLoss:
        """Compute the loss that local training minimises, from the outputs of all heads of the network."""
        return self.dataset.task.make_training_loss(self.recipe.local.hard_pixels)

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

    def compute_output(
        self, network: Callable[[Tensor], Tensor | tuple[Tensor, ...]], inputs: Tensor, features: bool
    ) -> ModelOutput:
        """Compute the output of a network on a batch.

        network: the replica's module, or a function that calls it.
        features: whether to keep what enters the classifier.
        """
        if not features:
            return ModelOutput.of(network(inputs))
        caught: list[Tensor] = []
        hook = self.classifier.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        try:
            outputs = network(inputs)
        finally:
            hook.remove()
        return ModelOutput.of(outputs, caught[-1].flatten(1))


@contextmanager
def put_at_rest(trainer: LocalTrainer, w: Tensor, statistics: Tensor) -> Iterator[nn.Module]:
    """Put weights and statistics into the trainer's network for a block; yields it in eval mode, without gradients."""
    with torch.no_grad():
        trainer.replica.place(w)
        trainer.load_statistics(statistics)
        try:
            yield trainer.replica.module.eval()
        finally:
            trainer.replica.module.train()

"""Tiny data and networks of segmentation and text, in float64, for tests of every stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training import config
from training.data.dataset import Dataset, make
from training.engine.federation import Federation

HERE = "tests.training.tasks.small_tasks"
SHAPE = (6, 8)  # of a map: not square


def maps(examples: int = 40, tests: int = 14, domains: bool = False, people: bool = False) -> Dataset:
    """Images whose brightness says the class, 0 to 2, ragged amounts of ignored pixels, and one map without a class.

    domains: whether every third test image belongs to an unseen domain. people: whether test images name their users,
        two of whom have no training images and are the unseen domain.
    """
    generator = np.random.default_rng(7)
    truth = generator.integers(0, 3, size=(examples + tests, *SHAPE))
    images = np.clip(60 + 70 * truth[:, None] + generator.normal(0, 30, (len(truth), 2, *SHAPE)), 0, 255)
    void = generator.random(truth.shape) < np.linspace(0, 0.6, len(truth))[:, None, None]
    void[0] = True
    both = images.astype(np.uint8), np.where(void, 255, truth)
    names = [f"city{number % 5}" for number in range(examples)]
    seen = [number % 7 < 5 if people else number % 3 > 0 for number in range(tests)]
    return make(
        "maps",
        (both[0][:examples], both[1][:examples]),
        (both[0][examples:], both[1][examples:]),
        users=names,
        test_users=[f"city{number % 7}" for number in range(tests)] if people else None,
        test_domains=["seen" if one else "unseen" for one in seen] if domains else None,
    )


def sentences(examples: int = 60, tests: int = 20) -> Dataset:
    """Sequences of 2 to 9 tokens of 12, padded with 0; the class, 0 to 2, has tokens of its own."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, size=examples + tests)
    tokens = generator.integers(1, 12, size=(len(labels), 9))
    own = generator.random(tokens.shape) < 0.5
    tokens = np.where(own, 2 + 3 * labels[:, None] + generator.integers(0, 3, size=tokens.shape), tokens)
    tokens[np.arange(9) >= generator.integers(2, 10, size=len(labels))[:, None]] = 0
    return make(
        "sentences", (tokens[:examples], labels[:examples]), (tokens[examples:], labels[examples:]), vocabulary=12
    )


class Segmenter(nn.Module):
    """Two smooth convolutions and a main head, and an auxiliary head in training mode."""

    def __init__(self, classes: int, channels: int, auxiliary: bool = True):
        super().__init__()
        self.stem = nn.Conv2d(channels, 3, 3, padding=1)
        self.auxiliary = nn.Conv2d(3, classes, 1) if auxiliary else None
        self.middle = nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Conv2d(3, classes, 1)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        early = torch.tanh(self.stem(images))
        main: Tensor = self.head(torch.tanh(self.middle(early)))
        if self.auxiliary is None or not self.training:
            return main
        return main, self.auxiliary(early)


class NormedSegmenter(nn.Sequential):
    """A segmenter with BatchNorm."""

    def __init__(self, classes: int, channels: int):
        super().__init__(nn.Conv2d(channels, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Tanh(), nn.Conv2d(3, classes, 1))


class TextNet(nn.Module):
    """The mean of embeddings, one hidden layer."""

    def __init__(self, classes: int, vocabulary: int, length: int):
        super().__init__()
        assert length == 9
        self.embedding = nn.Embedding(vocabulary, 3)
        self.hidden = nn.Linear(3, 4)
        self.head = nn.Linear(4, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.hidden(self.embedding(tokens).mean(dim=1))))
        return found


MODELS = {"maps": "Segmenter", "sentences": "TextNet"}


def recipe(task: str, name: str = "fedavg", **tables: Any) -> config.Recipe:
    """A recipe on tiny data.

    task: maps or sentences.
    """
    content: dict[str, Any] = {
        "seed": 3,
        "dtype": "float64",
        "data": {"name": f"{HERE}:{task}"},
        "partition": {"name": "iid", "clients": 5},
        "model": {"name": f"{HERE}:{MODELS[task]}"},
        "algorithm": {"name": name},
        "local": {"lr": 0.2, "batch_size": 3, "epochs": 1},
        "rounds": {"count": 3, "participants": 3},
        "checkpoints": {"every": 1, "keep_locals": "all"},
    }
    for key, table in tables.items():
        content[key] = {**content.get(key, {}), **table} if isinstance(table, dict) else table
    return config.validate(content)


def federation(task: str, name: str = "fedavg", **tables: Any) -> Federation:
    return Federation(recipe(task, name, **tables))


def read_all(data: Dataset, split: str, places: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """Inputs as a network sees them, by plain arithmetic, and targets."""
    inputs, targets = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_targets").long()
    chosen = torch.arange(len(targets)) if places is None else torch.as_tensor(places)
    if data.task.inputs == "tokens":
        return inputs[chosen].long(), targets[chosen]
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (data.mean, data.std))
    return (inputs[chosen].double() / 255 - mean) / std, targets[chosen]

"""A data set: inputs and targets for training and for testing, and what is known about them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from landscape.errors import positive
from training.data.checks import check_groups, check_inputs, check_targets, choose_task, count_targets, count_tokens
from training.data.stores import Examples, Groups, join, take_none, update_digest
from training.tasks.classification import CLASSIFICATION
from training.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets: tensors, or stores that are read when they are asked for.

    Inputs are images (N, C, H, W), as uint8 (0..255) or float32 in units of the user's choice, or token sequences
    (N, L) of whole numbers. Targets are labels 0..classes-1, one for each example (N,), or label maps (N, H, W).
    """

    name: str
    train_inputs: Examples
    train_targets: Examples
    test_inputs: Examples  # there may be none
    test_targets: Examples
    classes: int
    mean: tuple[float, ...]  # (C,) of pixels in 0..1, or of float32 images as they are; empty for tokens
    std: tuple[float, ...]  # (C,)
    coarse: tuple[int, ...] | None  # superclass of each class, where there are superclasses (CIFAR-100)
    digest: str  # SHA-256 of the examples, and of users and domains where there are any
    task: Task = CLASSIFICATION  # what is asked of a model: its loss and its metrics
    class_names: tuple[str, ...] | None = None
    users: Groups | None = None  # who each training example comes from: a writer, a city
    test_users: Groups | None = None  # likewise of the test examples, by the same names
    test_domains: Groups | None = None  # the named test sets that the test examples belong to
    vocabulary: int | None = None  # of token sequences: tokens are 0..vocabulary-1
    keys: tuple[str, ...] | None = None  # the file or name of each training example, as published splits cite it

    @property
    def channels(self) -> int:
        """Channels of an image; 0 for token sequences."""
        return int(self.train_inputs.shape[1]) if self.task.inputs == "images" else 0

    @property
    def labels(self) -> Tensor | None:
        """The label of every training example (N,); None where targets are label maps."""
        return self.train_targets if isinstance(self.train_targets, Tensor) and self.task.targets == "label" else None

    @property
    def test_labels(self) -> Tensor | None:
        """The label of every test example (M,); None where targets are label maps."""
        return self.test_targets if isinstance(self.test_targets, Tensor) and self.task.targets == "label" else None

    @property
    def facts(self) -> dict[str, int]:
        """What a model may need to know: classes, and the shape of an input (see `networks.FACTS`)."""
        shape = tuple(self.train_inputs.shape)
        if self.task.inputs == "tokens":
            return {"classes": self.classes, "vocabulary": self.vocabulary or 0, "length": shape[1]}
        facts = {"classes": self.classes, "channels": shape[1], "image_height": shape[2], "image_width": shape[3]}
        return facts | ({"size": shape[2]} if shape[2] == shape[3] else {})

    def read(self, split: Literal["train", "test"], positions: Tensor) -> tuple[Tensor, Tensor]:
        """Read examples as they are stored, and their targets as int64.

        split: train or test.
        positions: (n,) numbers of the examples.
        """
        both = {"train": (self.train_inputs, self.train_targets), "test": (self.test_inputs, self.test_targets)}
        inputs, targets = both[split]
        return _take(inputs, positions), _take(targets, positions).to(torch.int64)


def _take(examples: Examples, positions: Tensor) -> Tensor:
    return examples[positions.to(examples.device)] if isinstance(examples, Tensor) else examples[positions]


def place(dataset: Dataset, device: torch.device) -> Dataset:
    """The same data with its tensors on a device; stores stay what they are, and are read on the CPU."""

    def move(examples: Examples) -> Examples:
        return examples.to(device) if isinstance(examples, Tensor) else examples

    return dataclasses.replace(
        dataset,
        train_inputs=move(dataset.train_inputs),
        train_targets=move(dataset.train_targets),
        test_inputs=move(dataset.test_inputs),
        test_targets=move(dataset.test_targets),
    )


def make(
    name: str,
    train: tuple[object, object],
    test: tuple[object, object],
    *,
    task: str | None = None,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    coarse: Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
    users: Groups | Sequence[str] | None = None,
    test_users: Groups | Sequence[str] | None = None,
    test_domains: Groups | Sequence[str] | None = None,
    vocabulary: int | None = None,
    keys: Sequence[str] | None = None,
) -> Dataset:
    """Make a Dataset from (inputs, targets) pairs of tensors, arrays or stores, after checking them.

    name: of the data set, for messages.
    train, test: images (N, C, H, W) or token sequences (N, L), and labels (N,) or label maps (N, H, W).
    task: one of `tasks.catalog.TASKS`, or 'module:name'; by default what shapes and types of the training data say.
    classes: how many there are; by default the largest label plus one.
    mean, std: one number per channel; by default those of the training images.
    coarse: the superclass of each class, where there are superclasses.
    class_names: the names of the classes, in order.
    users, test_users: who each example comes from. test_domains: the named test set of each test example.
    vocabulary: number of tokens; by default the largest token plus one.
    keys: the file or name of each training example, by which a partition from a file finds it.
    """
    train_inputs, test_inputs = check_inputs(f"{name}: train", train[0]), check_inputs(f"{name}: test", test[0])
    chosen = choose_task(name, train_inputs, train[1], task)
    train_targets = check_targets(f"{name}: train", chosen, train[1], train_inputs)
    test_targets = check_targets(f"{name}: test", chosen, test[1], test_inputs)
    _require_alike(name, train_inputs, test_inputs)
    total = count_targets(name, chosen, (train_targets, test_targets), classes)
    if class_names is not None and len(class_names) != total:
        raise ValueError(f"{name}: there are {total} classes, but {len(class_names)} names of classes")
    tokens = count_tokens(name, (train_inputs, test_inputs), vocabulary) if chosen.inputs == "tokens" else None
    people = check_groups(f"{name}: users", users, len(train_inputs))
    test_people = check_groups(f"{name}: test_users", test_users, len(test_inputs))
    domains = check_groups(f"{name}: test_domains", test_domains, len(test_inputs))
    examples = (train_inputs, train_targets, test_inputs, test_targets)
    blank = Dataset(
        name,
        *examples,
        classes=total,
        mean=(),
        std=(),
        coarse=None if coarse is None else tuple(coarse),
        digest=_digest(examples, (people, test_people, domains)),
        task=chosen,
        class_names=None if class_names is None else tuple(class_names),
        users=people,
        test_users=test_people,
        test_domains=domains,
        vocabulary=tokens,
        keys=None if keys is None else tuple(keys),
    )
    return _normalise(blank, mean, std)


def _normalise(dataset: Dataset, mean: Sequence[float] | None, std: Sequence[float] | None) -> Dataset:
    """Give images their normalisation constants, by default those of the training part."""
    if dataset.task.inputs == "images" and (mean is None or std is None):
        own_mean, own_std = _compute_moments(dataset.name, dataset.train_inputs)
        mean, std = mean or own_mean, std or own_std
    return with_constants(dataset, mean=mean, std=std)


def _require_alike(name: str, train: Examples, test: Examples) -> None:
    """Refuse inputs without training examples, or whose two parts differ in shape or type."""
    if len(train) == 0:
        raise ValueError(f"{name}: there are no training examples")
    if tuple(test.shape[1:]) != tuple(train.shape[1:]) or test.dtype != train.dtype:
        raise ValueError(
            f"{name}: train and test inputs must agree, got {train.dtype} {tuple(train.shape[1:])} "
            f"and {test.dtype} {tuple(test.shape[1:])}"
        )


def with_constants(
    dataset: Dataset, *, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Dataset:
    """Return the same data with other normalisation constants.

    dataset: the data.
    mean, std: one number per channel; by default those of `dataset`.
    """
    if dataset.task.inputs == "tokens" and (mean is not None or std is not None):
        raise ValueError(f"{dataset.name}: token sequences are not normalised; leave out mean and std")
    chosen = {"mean": dataset.mean if mean is None else mean, "std": dataset.std if std is None else std}
    for key, values in chosen.items():
        if len(values) != dataset.channels:
            raise ValueError(f"{dataset.name}: {key} needs {dataset.channels} numbers, one per channel; got {values}")
    for value in chosen["std"]:
        positive(f"{dataset.name}: std", value)
    constants = {key: tuple(float(value) for value in values) for key, values in chosen.items()}
    return dataclasses.replace(dataset, mean=constants["mean"], std=constants["std"])


def _compute_moments(name: str, images: Examples) -> tuple[list[float], list[float]]:
    """Compute mean and standard deviation per channel; 1 for a constant channel, since images are divided by it."""
    if not isinstance(images, Tensor):
        raise ValueError(f"{name}: give mean and std; images that are read one by one are not averaged")
    mean, std = [], []
    for channel in images.unbind(1):
        if images.dtype == torch.uint8:  # from the histogram, without a float copy of all the pixels
            weights = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
            values = torch.arange(256).double() / 255
        else:
            values = channel.reshape(-1).double()
            weights = torch.full_like(values, 1 / len(values))
        centre = float(values @ weights)
        spread = float((values - centre).square() @ weights) ** 0.5
        mean.append(centre)
        std.append(spread if bool(channel.max() > channel.min()) else 1.0)
    return mean, std


def _digest(examples: Sequence[Examples], names: Sequence[Groups | None]) -> str:
    total = hashlib.sha256()
    for part in examples:
        update_digest(total, part)
    for place, one in enumerate(names):
        if one is not None:  # data without names keep the digests that they had before there were any
            total.update(f"{place}{one.names}".encode())
            total.update(one.index.astype("<i8").tobytes())
    return total.hexdigest()


def pool(dataset: Dataset) -> Dataset:
    """Put train and test examples into one training set and leave the test set empty (FedFSA splits every client).

    dataset: the data, which are not changed.
    """
    inputs, targets = (
        join(dataset.train_inputs, dataset.test_inputs),
        join(dataset.train_targets, dataset.test_targets),
    )
    examples = (inputs, targets, take_none(inputs), take_none(targets))
    users = None
    if dataset.users is not None and (dataset.test_users is not None or not len(dataset.test_inputs)):
        every = [one for one in (dataset.users, dataset.test_users) if one is not None]
        users = Groups.of([one.names[number] for one in every for number in one.index])
    return dataclasses.replace(
        dataset,
        train_inputs=inputs,
        train_targets=targets,
        test_inputs=examples[2],
        test_targets=examples[3],
        users=users,
        test_users=None,
        test_domains=None,
        keys=None,
        digest=_digest(examples, [users]),
    )


def normalise(inputs: Tensor, dataset: Dataset, dtype: torch.dtype = torch.float32) -> Tensor:
    """Make inputs as the network sees them; returns a new tensor.

    inputs: images (N, C, H, W), of which (pixels - mean) / std per channel is returned, with pixels of uint8 in 0..1;
        or token sequences (N, L), which are returned as int64.
    dataset: whose mean and std.
    dtype: of the result, for images.
    """
    if dataset.task.inputs == "tokens":
        return inputs.to(torch.int64, copy=True)
    mean, std = (
        torch.tensor(values, dtype=dtype, device=inputs.device)[:, None, None] for values in (dataset.mean, dataset.std)
    )
    pixels = inputs.to(dtype, copy=True)
    if inputs.dtype == torch.uint8:
        pixels /= 255
    return pixels.sub_(mean).div_(std)

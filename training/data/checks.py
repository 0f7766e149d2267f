"""Checks of what a data set is made from: inputs, targets, users and domains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from landscape.errors import finite, whole
from training.data.stores import Examples, Groups, Store
from training.tasks import segmentation
from training.tasks.catalog import KINDS
from training.tasks.classification import check_labels, count_classes
from training.tasks.task import Task

TOKENS = (torch.uint8, torch.int16, torch.int32, torch.int64)


def check_inputs(what: str, inputs: object) -> Examples:
    """Return images or token sequences as a tensor on the CPU, or a store as it is; ValueError for anything else.

    what: whose inputs, for messages.
    inputs: a tensor, an array or a store.
    """
    found = _as_examples(inputs)
    if found is not None and len(found.shape) == 2 and found.dtype in TOKENS:
        return found.detach().cpu().contiguous() if isinstance(found, Tensor) else found
    if found is None or found.dtype not in (torch.uint8, torch.float32):
        kind = type(inputs).__name__ if found is None else found.dtype
        raise ValueError(
            f"{what} images must be a tensor or array of uint8 or float32, got {kind} (token sequences: "
            "whole numbers of shape (N, L))"
        )
    if len(found.shape) != 4:
        hint = ": write images[:, None] to add the channel axis" if len(found.shape) == 3 else ""
        raise ValueError(f"{what} images must have shape (N, C, H, W), got {tuple(found.shape)}{hint}")
    if not isinstance(found, Tensor):
        return found
    if found.is_floating_point():
        finite(f"{what} images", found)
    return found.detach().cpu().contiguous()


def choose_task(name: str, inputs: Examples, targets: object, task: str | None) -> Task:
    """Choose the task by its name, or by the shapes of inputs and targets; ValueError if inputs do not fit it.

    name: of the data set, for messages.
    inputs, targets: for training.
    task: one of `tasks.catalog.TASKS`, a user's own 'module:name', or None.
    """
    tokens = len(inputs.shape) == 2
    maps = len(getattr(targets, "shape", ())) == 3
    if task is None:
        task = "text_classification" if tokens else "segmentation" if maps else "classification"
    chosen = KINDS.find(task)
    if (chosen.inputs == "tokens") != tokens:
        wanted = "token sequences (N, L)" if chosen.inputs == "tokens" else "images (N, C, H, W)"
        raise ValueError(f"{name}: {task} needs {wanted}, got inputs of shape {tuple(inputs.shape)}")
    return chosen


def check_targets(what: str, task: Task, targets: object, inputs: Examples) -> Examples:
    """Return labels (N,) as int64, or label maps (N, H, W) as bytes; a store of label maps as it is.

    what: whose targets, for messages.
    task: which says what targets are.
    targets: a tensor, an array or, for label maps, a store.
    inputs: of the same examples.
    """
    if task.targets == "label":
        return check_labels(what, targets, len(inputs))
    found = _as_examples(targets)
    if found is None:
        raise ValueError(f"{what} label maps must be a tensor, an array or a store, got {type(targets).__name__}")
    shape = (len(inputs), *tuple(inputs.shape)[2:])
    if isinstance(found, Tensor):
        return segmentation.check_maps(what, found, shape)
    if tuple(found.shape) != shape:
        raise ValueError(f"{what} label maps must have the size of their images, {shape}; got {tuple(found.shape)}")
    return found


def count_targets(name: str, task: Task, targets: tuple[Examples, Examples], classes: int | None) -> int:
    """Return the number of classes, or raise ValueError for a label beyond them; stores are not read.

    name: of the data set, for messages.
    task: which says what targets are.
    targets: for training and for testing.
    classes: how many there are; by default the largest label plus one.
    """
    known = tuple(one for one in targets if isinstance(one, Tensor))
    if len(known) < len(targets) and classes is None:
        raise ValueError(f"{name}: give the number of classes; label maps that are read one by one are not searched")
    if task.targets == "label":
        return count_classes(name, torch.cat(known), classes)
    return segmentation.count_classes(name, known, None if classes is None else whole("classes", classes))


def count_tokens(name: str, inputs: tuple[Examples, Examples], vocabulary: int | None) -> int:
    """Return the number of tokens, or raise ValueError for a token beyond them; stores are not read.

    name: of the data set, for messages.
    inputs: token sequences for training and for testing.
    vocabulary: how many tokens there are; by default the largest token plus one.
    """
    known = [one for one in inputs if isinstance(one, Tensor) and one.numel()]
    if vocabulary is None and len(known) == 0:
        raise ValueError(
            f"{name}: give the vocabulary, the number of tokens; sequences read one by one are not searched"
        )
    smallest, largest = (
        (min(int(one.min()) for one in known), max(int(one.max()) for one in known)) if known else (0, 0)
    )
    total = largest + 1 if vocabulary is None else whole("vocabulary", vocabulary)
    if smallest < 0 or largest >= total:
        raise ValueError(f"{name}: tokens must lie in 0..{total - 1}, got values from {smallest} to {largest}")
    return total


def check_groups(what: str, groups: Groups | Sequence[str] | None, examples: int) -> Groups | None:
    """Return a name for every example, or None; ValueError if there are more or fewer names than examples.

    what: users or domains, for messages.
    groups: as they were given.
    examples: how many there are.
    """
    if groups is None:
        return None
    found = groups if isinstance(groups, Groups) else Groups.of(groups)
    if len(found) != examples:
        raise ValueError(f"{what}: there must be one name for each of {examples} examples, got {len(found)}")
    return found


def _as_examples(given: object) -> Examples | None:
    """Return a tensor, an array as a tensor, or a store; None for anything else."""
    if isinstance(given, np.ndarray):
        return torch.from_numpy(np.require(given, requirements=["C", "W"]))
    return given if isinstance(given, Tensor | Store) else None

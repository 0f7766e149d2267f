"""Batches of examples: read once from what the user gives, cut, chosen from and put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from landscape.losses import nests
from landscape.losses.nests import Nest
from landscape.losses.sources import Source, SourceBatches

Batch = Nest  # (inputs, targets), a mapping with "labels", or anything that a batch_loss accepts
LABELS = "labels"  # the key of a mapping that holds the targets, as language models have it


def read(data: Nest, device: torch.device, dtype: torch.dtype) -> Sequence[Batch]:
    """Read data as a list of batches; those of a source are read when they are asked for.

    data: one batch, a list of batches, a loader, or a source.
    device: where their tensors are moved.
    dtype: precision of their floating-point tensors.
    """
    if isinstance(data, Source):
        if not len(data):
            raise ValueError("data is empty: there is nothing to average over")
        return SourceBatches(data, torch.arange(len(data)), device, dtype)
    if _is_one_batch(data):
        batches: list[Batch] = [data]
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        batches = list(_read_in_order(data))
    else:
        advice = ": write DataLoader(data, batch_size=256)" if isinstance(data, Dataset) else ""
        raise ValueError(
            f"data must be (inputs, targets), a list of batches or a loader, got {type(data).__name__}{advice}"
        )
    batches = [batch for batch in (move(batch, device, dtype) for batch in batches) if examples(batch) != 0]
    if not batches:
        raise ValueError("data is empty: there is nothing to average over")
    return batches


def _is_one_batch(data: object) -> bool:
    """A tensor, a mapping, a named tuple, or (inputs, targets) with a tensor for one of them.

    A pair of two tuples is two batches; to mean one batch of nested inputs and nested targets put it into a list.
    """
    if isinstance(data, (Tensor, Mapping)) or hasattr(data, "_fields"):
        return True
    return isinstance(data, tuple) and len(data) == 2 and any(isinstance(part, Tensor) for part in data)


def move(value: Nest, device: torch.device, dtype: torch.dtype) -> Nest:
    """The same nesting with every tensor on the device, floating-point ones in the given precision."""
    return nests.map_tensors(
        lambda tensor: tensor.detach().to(device=device, dtype=dtype if tensor.is_floating_point() else None), value
    )


def examples(batch: Batch) -> int:
    """Number of examples: the leading length of the first tensor that has one, else 1; -1 if there are no tensors."""
    if found := nests.lengths(batch):
        return found[0]
    return 1 if nests.tensors(batch) else -1


def list_sizes(batches: Sequence[Batch]) -> list[int]:
    """The number of examples of each batch, at least 1; a source is not read."""
    return batches.sizes if isinstance(batches, SourceBatches) else [max(examples(batch), 1) for batch in batches]


def choose_checked(batches: Sequence[Batch]) -> Sequence[Batch]:
    """The batches whose form is checked before any work: all of a list, and the first of a source."""
    return [batches[0]] if isinstance(batches, SourceBatches) else batches


def split_pair(batch: Batch) -> tuple[Nest, Nest]:
    """Inputs and targets of a batch: a pair, or a mapping whose "labels" are the targets and the rest the inputs."""
    if isinstance(batch, Mapping) and LABELS in batch:
        return {name: part for name, part in batch.items() if name != LABELS}, batch[LABELS]
    if not is_pair(batch):
        got = nests.describe(batch) if nests.tensors(batch) else type(batch).__name__
        raise ValueError(
            "each batch must be a pair (inputs, targets), or a mapping whose 'labels' are the targets; for anything "
            f"else give batch_loss=(model, batch) -> (sum, count). Got {got}{_advise_batch(batch)}"
        )
    return batch[0], batch[1]


def _advise_batch(batch: object) -> str:
    """What to write instead of a batch that is no pair."""
    if isinstance(batch, Tensor):
        return ": write data=(inputs, targets), a tuple of two; a list is taken for a list of batches"
    return ": write torch.from_numpy(array)" if isinstance(batch, np.ndarray) else ""


def check_pair(batch: Batch) -> None:
    """Refuse a batch whose inputs and targets are not of equal length."""
    inputs, targets = split_pair(batch)
    for name, part in (("inputs", inputs), ("targets", targets)):
        if not nests.lengths(part):
            raise ValueError(
                f"{name} must be tensors with the examples on their first axis, got {nests.describe(part)}"
            )
    if len(set(nests.lengths(batch))) > 1:
        first, second = (", ".join(str(n) for n in sorted(set(nests.lengths(part)))) for part in (inputs, targets))
        raise ValueError(f"inputs and targets must have equal length, got {first} and {second}")


def is_pair(batch: Batch) -> bool:
    """Whether a batch is a tuple or list of two."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def class_labels(batches: Sequence[Batch]) -> Tensor | None:
    """A class for every example: its label, or the most frequent of its labels (of pixels, of tokens).

    None where targets are not whole numbers, and where a source names no classes.
    """
    if isinstance(batches, SourceBatches):
        return batches.labels
    found = []
    for batch in batches:
        named = isinstance(batch, Mapping) and LABELS in batch
        targets = split_pair(batch)[1] if named or is_pair(batch) else None
        if not isinstance(targets, Tensor) or targets.ndim == 0 or targets.is_floating_point() or not targets.numel():
            return None
        each = targets.to(torch.int64)
        found.append(each if each.ndim == 1 else each.flatten(1).mode(dim=1).values)
    return torch.cat(found)


def cut(batches: Sequence[Batch], size: int) -> Sequence[Batch]:
    """Cut every batch into chunks of at most `size` examples, the last may be shorter; indivisible ones stay whole."""
    if isinstance(batches, SourceBatches):
        return replace(batches, size=size)
    chunks: list[Batch] = []
    for batch in batches:
        count = examples(batch)
        if not nests.can_be_cut(batch) or count <= size:
            chunks.append(batch)
        else:
            chunks.extend(nests.take(batch, slice(i, i + size)) for i in range(0, count, size))
    return chunks


def take(batches: Sequence[Batch], index: Tensor) -> Sequence[Batch]:
    """Choose examples by their numbers in all the data, in increasing order; neighbours of one form are joined."""
    if isinstance(batches, SourceBatches):
        return batches.take(index)
    if not all(nests.can_be_cut(batch) for batch in batches):
        raise ValueError(
            "choosing examples needs batches of tensors that share one leading length, the number of examples"
        )
    chosen = torch.sort(index).values
    parts: list[Batch] = []
    start = 0
    for batch in batches:
        stop = start + examples(batch)
        low, high = torch.searchsorted(chosen, torch.tensor([start, stop])).tolist()
        if high > low:
            parts.append(nests.take(batch, chosen[low:high] - start))
        start = stop
    return merge(parts)


def merge(batches: Sequence[Batch]) -> list[Batch]:
    """Join neighbouring batches of one form: fewer and longer batches."""
    groups: list[list[Batch]] = []
    last = None
    for batch in batches:
        own = nests.form(batch)
        if groups and own == last:
            groups[-1].append(batch)
        else:
            groups.append([batch])
        last = own
    return [nests.join(group) for group in groups]


def join(batches: Sequence[Batch]) -> tuple[Nest, Nest]:
    """Join all batches to one (inputs, targets); they must agree in shape."""
    merged = merge(batches)
    if len(merged) > 1:
        raise ValueError("the batches differ in shape: they cannot be joined")
    return split_pair(merged[0])


def _read_in_order(data: Iterable[Batch]) -> Iterable[Batch]:
    """The batches of a loader in data-set order, refusing one whose first batch changes between readings."""
    if not isinstance(data, DataLoader):
        return data
    if isinstance(data.sampler, RandomSampler) and data.batch_size is not None:
        # A shuffled loader means the same examples; reading them in order makes rounding reproducible too,
        # and keeps the examples that drop_last would leave out of this pass but not of the next.
        data = DataLoader(data.dataset, batch_size=data.batch_size, collate_fn=data.collate_fn)
    first, again = (next(iter(data), None) for _ in range(2))
    if not _are_same(first, again):
        transform = getattr(data.dataset, "transform", None)
        suspect = f"the data set's transform ({transform})" if transform is not None else "random augmentation"
        raise ValueError(
            "the loader's first batch differs between two readings, so there is no fixed loss to analyse. "
            f"Suspected: {suspect}, or a sampler that shuffles. Use unaugmented data in a fixed order."
        )
    return data


def _are_same(left: Nest, right: Nest) -> bool:
    pairs: Iterator[tuple[Nest, Nest]] = zip(nests.leaves(left), nests.leaves(right), strict=False)
    return nests.describe(left) == nests.describe(right) and all(
        bool(torch.equal(a, b)) if isinstance(a, Tensor) else bool(a == b) for a, b in pairs
    )


def choose_stratified(labels: Tensor | None, total: int, count: int, generator: np.random.Generator) -> Tensor:
    """Choose examples with each class in proportion (largest remainders first); return their sorted numbers.

    labels: of all examples; None: classes are not known.
    total: number of examples.
    count: how many to choose.
    generator: of the random order.

    For fixed choices; `sampling.draw` also gives the standard error of what is measured on the chosen ones.
    """
    if labels is None:
        return torch.from_numpy(np.sort(generator.permutation(total)[:count]))
    names = labels.cpu().numpy()
    order = generator.permutation(total)
    classes, sizes = np.unique(names, return_counts=True)
    shares = sizes * count / total
    quota = np.floor(shares).astype(int)
    for index in np.argsort(quota - shares, kind="stable")[: count - quota.sum()]:
        quota[index] += 1
    chosen = [order[names[order] == name][:wanted] for name, wanted in zip(classes, quota, strict=True)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))

"""Fixed data in fixed chunks: what an objective sums over, read once and never reshuffled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

Batch = Any  # (inputs, targets) for ordinary losses; anything the general form accepts


def read(data: Any, device: torch.device, dtype: torch.dtype) -> list[Batch]:
    """A list of batches on the device: from one (inputs, targets) pair, a list of batches, or a loader."""
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        inputs, targets = data
        if len(inputs) != len(targets):
            raise ValueError(f"inputs and targets must have equal length, got {len(inputs)} and {len(targets)}")
        batches: list[Batch] = [data]
    elif isinstance(data, Iterable):
        batches = list(_in_order(data))
    else:
        raise ValueError(f"data must be (inputs, targets), a list of batches or a loader, got {type(data).__name__}")
    batches = [batch for batch in (move(batch, device, dtype) for batch in batches) if examples(batch) != 0]
    if not batches:
        raise ValueError("data is empty: there is nothing to average over")
    return batches


def move(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Every tensor inside `value` on the device, floating ones in the given precision."""
    if isinstance(value, Tensor):
        return value.detach().to(device=device, dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {name: move(part, device, dtype) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(move(part, device, dtype) for part in value)
    return value


def examples(batch: Batch) -> int:
    """Number of examples in a batch: the leading length of its first tensor; -1 if it holds none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, dict) else batch
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        return -1
    counts = [examples(part) for part in parts]
    return next((count for count in counts if count >= 0), -1)


def split(batches: Sequence[Batch], size: int) -> list[Batch]:
    """Cut every (inputs, targets) batch into pieces of at most `size` examples; the last may be shorter."""
    pieces: list[Batch] = []
    for batch in batches:
        count = examples(batch)
        if not is_pair(batch) or count <= size:
            pieces.append(batch)
            continue
        inputs, targets = batch
        pieces.extend((inputs[i : i + size], targets[i : i + size]) for i in range(0, count, size))
    return pieces


def is_pair(batch: Batch) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)


def join(batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """All pairs as one (inputs, targets); they must agree in shape."""
    if not all(is_pair(batch) for batch in batches):
        raise ValueError("choosing examples needs data as (inputs, targets) tensors")
    return torch.cat([batch[0] for batch in batches]), torch.cat([batch[1] for batch in batches])


def _in_order(data: Iterable[Any]) -> Iterable[Any]:
    """The batches of a loader in data-set order, refusing one whose first batch changes between readings."""
    if not isinstance(data, DataLoader):
        return data
    if isinstance(data.sampler, RandomSampler) and data.batch_size is not None:
        # A shuffled loader means the same examples; reading them in order makes rounding reproducible too,
        # and keeps the examples that drop_last would leave out of this pass but not of the next.
        data = DataLoader(data.dataset, batch_size=data.batch_size, collate_fn=data.collate_fn)
    first, again = (next(iter(data), None) for _ in range(2))
    if not _same(first, again):
        transform = getattr(data.dataset, "transform", None)
        suspect = f"the data set's transform ({transform})" if transform is not None else "random augmentation"
        raise ValueError(
            "the loader's first batch differs between two readings, so there is no fixed loss to analyse. "
            f"Suspected: {suspect}, or a sampler that shuffles. Use unaugmented data in a fixed order."
        )
    return data


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and left.shape == right.shape and bool(torch.equal(left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def stratified(labels: Tensor | None, total: int, count: int, generator: np.random.Generator) -> Tensor:
    """Sorted indices of `count` of `total` examples, each class in proportion (largest remainders first)."""
    if labels is None:
        return torch.from_numpy(np.sort(generator.permutation(total)[:count]))
    names = labels.cpu().numpy()
    order = generator.permutation(total)
    classes, sizes = np.unique(names, return_counts=True)
    shares = sizes * count / total
    quota = np.floor(shares).astype(int)
    for place in np.argsort(quota - shares, kind="stable")[: count - quota.sum()]:
        quota[place] += 1
    chosen = [order[names[order] == name][:wanted] for name, wanted in zip(classes, quota, strict=True)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))

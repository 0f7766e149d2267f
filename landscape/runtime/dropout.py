"""Dropout whose masks are drawn on the CPU: a seed gives the same masks on every device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@contextmanager
def draw_dropout(seed: int, device: torch.device) -> Iterator[None]:
    """Draw dropout from torch's global generators, seeded anew; afterwards they are as they were.

    seed: of the block.
    device: where the model is. CUDA's own generator is seeded too, for whatever else a model draws there; those numbers
        are not the CPU's.
    """
    own = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=own), nullcontext() if device.type == "cpu" else CpuDropout():
        torch.default_generator.manual_seed(seed)
        for one in own:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        yield


class CpuDropout(TorchFunctionMode):
    """A context in which dropout draws on the CPU what a model on the CPU would draw."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        replacement = REPLACEMENTS.get(func)
        return (func if replacement is None else replacement)(*args, **(kwargs or {}))


def _drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return _apply(input, p, training, inplace, torch.empty_like(input, device="cpu"))


def _drop_channels(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    shape = [*input.shape[:2], *(1 for _ in input.shape[2:])]
    return _apply(input, p, training, inplace, torch.empty(shape, dtype=input.dtype))


def _apply(input: Tensor, p: float, training: bool, inplace: bool, mask: Tensor) -> Tensor:
    if not training or p == 0:
        return input
    mask = mask.bernoulli_(1 - p).div_(1 - p) if p < 1 else mask.zero_()
    return input.mul_(mask.to(input.device)) if inplace else input * mask.to(input.device)


REPLACEMENTS: dict[Callable[..., object], Callable[..., object]] = {
    functional.dropout: _drop,
    functional.dropout2d: _drop_channels,
    functional.dropout3d: _drop_channels,
}

"""From a batch's inputs to the part of the model's answer that the loss is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from landscape.objectives.nests import Nest, describe, tensors

Choice = str | int | Callable[[Any], Any] | None


def call(module: nn.Module, inputs: Nest) -> Any:
    """A mapping is passed as keyword arguments, a tuple or list as positional ones, anything else as the only one."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)


def make_chooser(outputs: Choice) -> Callable[[Any], Any]:
    """A function that picks the outputs from what the model returns."""
    if outputs is None:
        return lambda answer: answer
    if callable(outputs):
        return lambda answer: _apply(outputs, answer)
    if isinstance(outputs, bool) or not isinstance(outputs, (str, int)):
        raise ValueError(
            "outputs must be a key or an attribute ('logits'), an index (0) or a function of what the model returns, "
            f"got {type(outputs).__name__}"
        )
    return lambda answer: _pick(answer, outputs)


def _pick(answer: Any, name: str | int) -> Any:
    try:
        if isinstance(name, int) or isinstance(answer, Mapping):
            return answer[name]
        return getattr(answer, name)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"outputs={name!r}: the model returns {describe_answer(answer)}, which has none") from None


def _apply(function: Callable[[Any], Any], answer: Any) -> Any:
    try:
        return function(answer)
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"the function given as outputs= does not take what the model returns, {describe_answer(answer)}: {error}"
        ) from error


def describe_answer(answer: Any) -> str:
    """What a model returned and what can be picked from it, in words."""
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return f"a mapping with {', '.join(map(repr, answer))}"
    if isinstance(answer, (tuple, list)):
        return f"a {type(answer).__name__} of {len(answer)}: {describe(answer)}"
    names = _held(answer)
    return f"a {type(answer).__name__}" + (f" with tensors {', '.join(names)}" if names else "")


def advise(answer: Any) -> str:
    """What to write as outputs= for a model that returns this."""
    if isinstance(answer, (tuple, list)):
        return "outputs=0"
    names = list(answer) if isinstance(answer, Mapping) else _held(answer)
    name = "logits" if "logits" in names or not names else names[0]
    return f"outputs={name!r}"


def _held(answer: Any) -> list[str]:
    """The attributes that are tensors."""
    return [name for name, value in getattr(answer, "__dict__", {}).items() if isinstance(value, Tensor)]


@contextmanager
def explain_lookup_errors(inputs: Nest) -> Iterator[None]:
    """Say in words when a look-up in the model fails."""
    try:
        yield
    except IndexError as error:
        whole = [tensor for tensor in tensors(inputs) if not tensor.is_floating_point() and tensor.numel()]
        spans = ", ".join(f"{int(tensor.min())} to {int(tensor.max())}" for tensor in whole)
        raise ValueError(
            f"the model looked up an index that is out of range ({error})"
            + (f"; the inputs hold integers from {spans}: is an Embedding too small for them?" if spans else "")
        ) from error

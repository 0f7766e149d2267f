"""From a batch's inputs to the part of what the model returns that the loss takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from landscape.losses.nests import Nest, describe, tensors

Choice = str | int | Callable[[Nest], Nest] | None


def call(module: nn.Module, inputs: Nest) -> Nest:
    """Call a module with a mapping as keyword arguments, a tuple or list as positional ones, or one argument."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)


def make_chooser(outputs: Choice) -> Callable[[Nest], Nest]:
    """A function that picks the outputs from what the model returns.

    outputs: a key or an attribute, an index, or such a function; None: the model returns the outputs themselves.
    """
    if outputs is None:
        return lambda returned: returned
    if callable(outputs):
        return lambda returned: _apply(outputs, returned)
    if isinstance(outputs, bool) or not isinstance(outputs, (str, int)):
        raise ValueError(
            "outputs must be a key or an attribute ('logits'), an index (0) or a function of what the model returns, "
            f"got {type(outputs).__name__}"
        )
    return lambda returned: _pick(returned, outputs)


def _pick(returned: Nest, name: str | int) -> Nest:
    try:
        if isinstance(name, int) or isinstance(returned, Mapping):
            return returned[name]
        return getattr(returned, name)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"outputs={name!r}: the model returns {describe_returned(returned)}, which has none") from None


def _apply(function: Callable[[Nest], Nest], returned: Nest) -> Nest:
    try:
        return function(returned)
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            "the function given as outputs= does not take what the model returns, "
            f"{describe_returned(returned)}: {error}"
        ) from error


def describe_returned(returned: object) -> str:
    """What a model returned and what can be picked from it, for messages."""
    if isinstance(returned, Tensor):
        return f"a tensor of shape {tuple(returned.shape)}"
    if isinstance(returned, Mapping):
        return f"a mapping with {', '.join(map(repr, returned))}"
    if isinstance(returned, (tuple, list)):
        return f"a {type(returned).__name__} of {len(returned)}: {describe(returned)}"
    names = _list_tensors(returned)
    return f"a {type(returned).__name__}" + (f" with tensors {', '.join(names)}" if names else "")


def advise(returned: object) -> str:
    """What to write as outputs= for a model that returns this."""
    if isinstance(returned, (tuple, list)):
        return "outputs=0"
    names = list(returned) if isinstance(returned, Mapping) else _list_tensors(returned)
    name = "logits" if "logits" in names or not names else names[0]
    return f"outputs={name!r}"


def _list_tensors(returned: object) -> list[str]:
    """The attributes that are tensors."""
    return [name for name, value in getattr(returned, "__dict__", {}).items() if isinstance(value, Tensor)]


@contextmanager
def explain_lookup_errors(inputs: Nest) -> Iterator[None]:
    """Turn torch's error about an index that is out of range into advice about these inputs."""
    try:
        yield
    except IndexError as error:
        integers = [tensor for tensor in tensors(inputs) if not tensor.is_floating_point() and tensor.numel()]
        spans = ", ".join(f"{int(tensor.min())} to {int(tensor.max())}" for tensor in integers)
        raise ValueError(
            f"the model looked up an index that is out of range ({error})"
            + (f"; the inputs hold integers from {spans}: is an Embedding too small for them?" if spans else "")
        ) from error

"""Models of files as points of a run: weights, followed by running statistics where there are norm layers."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from landscape.errors import finite
from landscape.layout import Layout, running_statistics
from training.models.weights import find_state, load_weights, read_content

COUNTER = "num_batches_tracked"  # of norm layers; it has no effect on what a model computes
NARROWER = (torch.float16, torch.bfloat16)  # kept without rounding by any of our types


class PointReader:
    """Reads models of one architecture.

    model: of the run; it is copied.
    dtype: of the run's weights.
    say: called with what a user should know, each sentence once.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype, say: Callable[[str], object]) -> None:
        self.network = copy.deepcopy(model).cpu().to(dtype)
        self.dtype, self._say = dtype, say
        self._said: set[str] = set()
        self.layout = Layout.of(self.network, statistics=bool(running_statistics(self.network)))
        trained = {name for entry in self.layout.entries for name in entry.names}
        state = self.network.state_dict()
        self.fixed = {name: state[name].clone() for name in state if name not in trained and not name.endswith(COUNTER)}

    @property
    def size(self) -> int:
        """Number of parameters; the running statistics come after them."""
        return self.layout.parameter_count

    def read(self, path: Path, digest: str) -> Tensor:
        """Read the model of a file: (d + b,) its d weights and b running statistics.

        path: of safetensors or torch.save: named tensors, or one vector of all parameters in their order.
        digest: SHA-256 that the file must have.
        """
        content, raw = read_content(path)
        if hashlib.sha256(raw).hexdigest() != digest:
            raise ValueError(f"{path} has changed while it was read: adopt the folder when nothing writes into it")
        if isinstance(content, Tensor):
            return self._check_values(path, self._take_vector(path, content))
        given = find_state(content, path, lambda _: None)
        self._check_types(path, given)
        load_weights(self.network, given, str(path))
        for name, usual in self.fixed.items():
            if not torch.equal(self.network.state_dict()[name], usual):
                raise ValueError(
                    f"{path}: '{name}' is not trained (a buffer, or requires_grad is off) and differs from the model's "
                    "own: let the model's function create it with these values, so that no run has to store it"
                )
        return self._check_values(path, self.layout.flatten(self.network))

    def _take_vector(self, path: Path, vector: Tensor) -> Tensor:
        """A vector of all parameters, as FL-Simulator keeps them."""
        if running_statistics(self.network) or self.fixed:
            raise ValueError(f"{path} is one vector, and this model has buffers too: save its state_dict() instead")
        if vector.ndim != 1 or len(vector) != self.layout.size:
            raise ValueError(f"{path}: a tensor {tuple(vector.shape)}; the model has {self.layout.size} parameters")
        self._check_types(path, {"vector": vector})
        return vector.to(self.dtype)

    def _check_types(self, path: Path, given: Mapping[str, Tensor]) -> None:
        """Refuse numbers that the run's type would round."""
        state = self.network.state_dict()
        for name, tensor in given.items():
            if name in state and not state[name].is_floating_point():
                continue
            if tensor.dtype in NARROWER or (tensor.dtype, self.dtype) == (torch.float32, torch.float64):
                kinds = f"{_name(tensor.dtype)} are stored as {_name(self.dtype)}"
                self._say_once(f"weights of {kinds}, which changes none of them")
            elif tensor.dtype != self.dtype:
                wider = tensor.dtype == torch.float64
                advice = '; write dtype = "float64" in adopt.toml' if wider else ": save them as they were trained"
                raise ValueError(
                    f"{path}: '{name}' holds numbers of type {_name(tensor.dtype)}, the run has {_name(self.dtype)}"
                    f"{advice}"
                )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _check_values(self, path: Path, theta: Tensor) -> Tensor:
        finite(f"{path}: weights", theta)
        for entry in self.layout.entries:
            if entry.name.endswith("running_var") and bool((self.layout.view(theta, entry) < 0).any()):
                raise ValueError(f"{path}: '{entry.name}' has variances below zero")
        return theta.clone()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

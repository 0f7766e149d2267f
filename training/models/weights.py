"""Weights from files: safetensors, or torch.save without anything that could execute code."""

from __future__ import annotations

import difflib
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn

HOLDERS = ("state_dict", "model", "model_state_dict")  # keys under which training scripts keep the weights
PREFIXES = ("module.", "_orig_mod.")  # DataParallel's and torch.compile's


def read_weights(path: Path, say: Callable[[str], object]) -> tuple[dict[str, Tensor], bytes]:
    """Read the named tensors of a file, without the prefixes that wrappers add, and its bytes."""
    content, raw = read_content(path)
    return find_state(content, path, say), raw


def read_content(path: Path) -> tuple[object, bytes]:
    """Read the content of a safetensors or torch.save file, and its bytes; ValueError if it cannot be read safely."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix == ".safetensors":
        try:
            return parse_tensors(raw), raw
        except SafetensorError as error:
            raise ValueError(f"{path}: not a safetensors file ({error})") from None
    return _unpickled(path, raw), raw


def find_state(content: object, path: Path, say: Callable[[str], object]) -> dict[str, Tensor]:
    """Find the state dict in the content of a file, without the prefixes that wrappers add.

    path: of the file, for messages.
    """
    found = _state(content, path, say)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
            say(f"{path}: every name begins with '{prefix}', which is left out")
    return found


def _unpickled(path: Path, raw: bytes) -> object:
    """Unpickle a torch.save file of tensors, numbers and containers only: any other pickle could execute code."""
    try:
        return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises any of a dozen types; they all mean this
        reason = _find_code(raw) or str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{path}: not a file of tensors that can be read without executing code ({reason}). Write "
            "torch.save(model.state_dict(), FILE), or safetensors.torch.save_file(model.state_dict(), FILE)"
        ) from None


def _find_code(raw: bytes) -> str:
    """Say what a torch.save file would import, without executing it."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(raw))
    except Exception:  # it is no such file
        return ""
    return f"it asks for {', '.join(sorted(names)[:3])}" if names else ""


def _state(content: object, path: Path, say: Callable[[str], object]) -> dict[str, Tensor]:
    """Find the state dict in the content of a file."""
    if _is_state(content):
        return dict(content)
    if isinstance(content, Mapping):
        for holder in HOLDERS:
            if _is_state(content.get(holder)):
                say(f"{path}: weights taken from its entry '{holder}'")
                return dict(content[holder])
        there = ", ".join(str(name) for name in list(content)[:10]) or "nothing"
        raise ValueError(f"{path}: no weights found. It holds {there}; expected tensors, or {', '.join(HOLDERS)}")
    raise ValueError(f"{path}: expected a state dict (name -> tensor), got {type(content).__name__}")


def _is_state(content: object) -> TypeGuard[Mapping[str, Tensor]]:
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())


def load_weights(network: nn.Module, given: Mapping[str, Tensor], what: str) -> None:
    """Put named tensors into a network; the error names everything that is missing, unknown or of another shape."""
    wanted = network.state_dict()
    places = {name: tensor.data_ptr() for name, tensor in wanted.items() if tensor.numel()}
    filled = {places[name] for name in given if name in places}
    # files may hold tied tensors once, and old ones have no batch counter
    needed = [name for name in wanted if not name.endswith("num_batches_tracked") and places.get(name) not in filled]
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in wanted]
    shapes = [name for name in given if name in wanted and given[name].shape != wanted[name].shape]
    problems = [f"'{name}' is missing{_near(name, unknown)}" for name in missing]
    problems += [f"'{name}' is unknown to the model{_near(name, missing or list(wanted))}" for name in unknown]
    problems += [
        f"'{name}' has shape {tuple(given[name].shape)}, the model wants {tuple(wanted[name].shape)}" for name in shapes
    ]
    if problems:
        more = f"\n  ... and {len(problems) - 10} more" if len(problems) > 10 else ""
        lines = "".join(f"\n  {problem}" for problem in problems[:10])
        raise ValueError(f"{what}: these weights are not of this model:{lines}{more}")
    network.load_state_dict(dict(given), strict=False)


def _near(name: str, others: list[str]) -> str:
    near = difflib.get_close_matches(name, others, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


@dataclass(frozen=True)
class Start:
    """Where a network's initial weights come from, if from a file.

    file: its path. digest: SHA-256 of its bytes.
    loaded: names of the network's tensors that the file gave.
    kept: names of those that keep their initial values.
    unused: names in the file that fit nothing in the network, by name and shape.
    """

    file: str
    digest: str
    loaded: tuple[str, ...]
    kept: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self) -> str:
        """Say in one line what was loaded."""
        counted = f"{self.file}: {len(self.loaded)} of {len(self.loaded) + len(self.kept)} tensors loaded"
        beginning = f"; left as initialised: {_enumerate(self.kept)}" if self.kept else ""
        rest = f"; {len(self.unused)} in the file fit no tensor by name and shape" if self.unused else ""
        return counted + beginning + rest

    def record(self) -> dict[str, object]:
        """What the provenance of a run says about it."""
        return {"file": Path(self.file).name, "sha256": self.digest, "loaded": len(self.loaded), "kept": self.kept}


def _enumerate(names: tuple[str, ...], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def start_from(network: nn.Module, path: str | Path, digest: str) -> Start:
    """Begin with the weights of a file: entries that fit by name and shape are loaded, the rest is left as it is.

    network: whose tensors are replaced.
    path: of a .safetensors file, or of what torch.save wrote.
    digest: SHA-256 that the file must have. ValueError if it has another, or if nothing in it fits.
    """
    path = Path(path)
    given, raw = read_weights(path, _ignore)
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise ValueError(
            f"model.weights: {path} has changed (SHA-256 {found[:8]}, the recipe says {digest[:8]}): give the file "
            "that the recipe was written with, or omit model.weights_digest to start a new run"
        )
    wanted = {name: value for name, value in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    fitting = {name: value for name, value in given.items() if name in wanted and value.shape == wanted[name].shape}
    if not fitting:
        there, here = _enumerate(tuple(sorted(given))), _enumerate(tuple(wanted))
        raise ValueError(
            f"model.weights: nothing in {path} fits the network by name and shape; it holds {there}, "
            f"the network has {here}"
        )
    for name, value in fitting.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"model.weights: '{name}' in {path} has values that are not finite")
    network.load_state_dict(fitting, strict=False)
    kept = tuple(name for name in wanted if name not in fitting)
    unused = tuple(name for name in given if name not in fitting)
    return Start(str(path), digest, tuple(fitting), kept, unused)


def _ignore(_: str) -> None:
    """Print nothing: what was loaded is printed later."""


def compute_digest(path: str | Path) -> str:
    """Compute the SHA-256 of a file of weights; ValueError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(
            f"model.weights: {path} cannot be read ({error.strerror}); give a .safetensors file, or one of torch.save"
        ) from None

"""A model of one's own as a subject: any network, its weights, its data. Nothing but the module named is executed."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn

from analysis.subjects import SPLITS, Limits, Own
from landscape.errors import finite
from landscape.layout import Layout, running_statistics
from landscape.rng import key
from training.data import datasets
from training.models import networks
from training.plugins import call, import_function
from training.settings import MOST_CLASSES
from training.storage.npz import read_npz

Pair = tuple[Tensor, Tensor]
HOLDERS = ("state_dict", "model", "model_state_dict")  # keys under which training scripts keep the weights
PREFIXES = ("module.", "_orig_mod.")  # DataParallel's and torch.compile's
NPZ = ("x_train", "y_train", "x_test", "y_test")


def open_own(
    model: str,
    weights: str | Path,
    data: str | Path,
    *,
    out: Path,
    data_root: Path | None = None,
    limits: Limits | None = None,
    say: Callable[[str], object] = print,
) -> Own:
    """A subject from a network, a file of weights and data.

    model    'module:function', called with classes, channels and size if it takes them, or a name of `list models`.
    weights  .safetensors, or a torch.save file of tensors (read with weights_only).
    data     a data set's name, 'module:function' that returns ((train inputs, labels), (test inputs, labels)) or one
             pair, which then is the training data, or an .npz with x_train, y_train and x_test, y_test.
             Inputs of one's own are taken as they are: they must be as the network sees them.
    out      where results go.
    """
    limits = limits or Limits()
    splits = read_data(str(data), data_root, limits.dtype)
    inputs = next(iter(splits.values()))[0]
    classes = 1 + max(int(own.max()) for _, own in splits.values())
    network = build(model, classes=classes, inputs=inputs)
    path = Path(weights)
    given, raw = read_weights(path, say)
    load_weights(network, given, str(path))
    for name, statistic in running_statistics(network).items():
        if name.endswith("running_var") and bool((statistic < 0).any()):
            raise ValueError(f"{path}: '{name}' has variances below zero")
    layout = Layout.of(network, statistics=bool(running_statistics(network)))
    theta = finite(f"{path}: weights", layout.flatten(network))
    _try(network, model, inputs[:2], classes)
    return Own(path.stem, out, network, theta, splits, _fingerprint(model, network, raw, splits), limits)


def build(name: str, *, classes: int, inputs: Tensor) -> nn.Module:
    """The network that a name means; its initial weights do not matter, and no global random state is moved."""
    shape = dict(zip(("channels", "size"), inputs.shape[1:3], strict=False)) if inputs.ndim == 4 else {}
    if ":" not in name:
        if not shape:
            raise ValueError(f"model '{name}' is for images of shape (N, C, H, H), got inputs {tuple(inputs.shape)}")
        return networks.build(name, classes=classes, seed=0, **shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(0, "model"))
        found = call("model", name, import_function("model", name), {}, offered={"classes": classes, **shape})
    if not isinstance(found, nn.Module):
        raise ValueError(f"model '{name}' must return a torch.nn.Module, got {type(found).__name__}")
    return found


def read_weights(path: Path, say: Callable[[str], object]) -> tuple[dict[str, Tensor], bytes]:
    """The named tensors in a file, without the prefixes that wrappers add, and its bytes."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix == ".safetensors":
        try:
            content: Any = parse_tensors(raw)
        except SafetensorError as error:
            raise ValueError(f"{path}: not a safetensors file ({error})") from None
    else:
        content = _unpickled(path)
    found = _state(content, path, say)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
            say(f"{path}: every name begins with '{prefix}', which is left out")
    return found, raw


def _unpickled(path: Path) -> Any:
    """What torch.save wrote, if it is tensors, numbers and containers: a pickle could execute anything else."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises any of a dozen types; they all mean this
        reason = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{path}: not a file of tensors that can be read without executing code ({reason}). Write "
            "torch.save(model.state_dict(), FILE), or safetensors.torch.save_file(model.state_dict(), FILE)"
        ) from None


def _state(content: Any, path: Path, say: Callable[[str], object]) -> dict[str, Tensor]:
    """The state dict in what a file holds."""
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


def _is_state(content: Any) -> bool:
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


def read_data(data: str, root: Path | None, dtype: torch.dtype) -> dict[str, Pair]:
    """Inputs and labels by split.

    data, root: as `open_own` takes them.
    dtype: what the images of a data set are normalised to.
    """
    if data.endswith(".npz"):
        found: Any = _read_pairs(Path(data))
    elif ":" in data:
        found = call("data", data, import_function("data", data), {}, offered={"root": root})
    else:
        found = datasets.load(data, root=root)
    pairs = _list_pairs(data, found, dtype)
    return {split: _checked(f"{data}: {split}", pair, dtype) for split, pair in zip(SPLITS, pairs, strict=False)}


def _read_pairs(path: Path) -> list[Any]:
    try:
        arrays = read_npz(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    if not all(name in arrays for name in NPZ[:2]) or ("x_test" in arrays) != ("y_test" in arrays):
        raise ValueError(f"{path}: expected {', '.join(NPZ)} (the last two may be left out), got {', '.join(arrays)}")
    pairs: list[Any] = [(arrays[f"x_{split}"], arrays[f"y_{split}"]) for split in SPLITS if f"x_{split}" in arrays]
    return pairs if len(pairs) == 2 else pairs[0]


def _list_pairs(name: str, found: Any, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    """Inputs and labels of the training data, then of the test data if there are any."""
    if isinstance(found, datasets.Dataset):
        both = ((found.train_images, found.train_labels), (found.test_images, found.test_labels))
        return [(datasets.normalise(images, found, dtype), labels) for images, labels in both if len(labels)]
    if isinstance(found, (tuple, list)) and len(found) == 2:
        if all(isinstance(part, (Tensor, np.ndarray)) for part in found):
            return [(found[0], found[1])]
        if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in found):
            return [(part[0], part[1]) for part in found]
    raise ValueError(
        f"data '{name}' must return ((train inputs, labels), (test inputs, labels)) or one pair of tensors, "
        f"got {type(found).__name__}"
    )


def _checked(what: str, pair: tuple[Any, Any], dtype: torch.dtype) -> Pair:
    """Tensors on the CPU: inputs as the network sees them, labels as whole numbers from 0."""
    inputs, labels = (_tensor(f"{what} {name}", one) for name, one in zip(("inputs", "labels"), pair, strict=True))
    if inputs.dtype == torch.uint8:
        raise ValueError(f"{what} inputs are bytes; give them as the network sees them, normalised as in training")
    if inputs.ndim == 0 or inputs.is_complex() or inputs.dtype == torch.bool:
        raise ValueError(f"{what} inputs must be numbers, the examples on the first axis; got {_described(inputs)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.ndim != 1:
        raise ValueError(f"{what} labels must be whole numbers, one an example; got {_described(labels)}")
    if len(inputs) != len(labels) or len(labels) == 0:
        raise ValueError(f"{what} needs as many labels as inputs, and some; got {len(labels)} and {len(inputs)}")
    if int(labels.min()) < 0:
        raise ValueError(f"{what} labels must start at 0, got {int(labels.min())}")
    if int(labels.max()) >= MOST_CLASSES:
        raise ValueError(
            f"{what} labels must be class numbers from 0 on, below {MOST_CLASSES}; got {int(labels.max())}. "
            "Number the classes: numpy.unique(labels, return_inverse=True)[1]"
        )
    if inputs.is_floating_point():
        finite(f"{what} inputs", inputs)
    return inputs.detach().cpu().to(dtype if inputs.is_floating_point() else torch.int64), labels.cpu().long()


def _tensor(what: str, value: Any) -> Tensor:
    """A tensor from a tensor or from any array of numbers."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{what} must be a tensor or an array, got {type(value).__name__}")
    kinds = {"f": np.float64, "i": np.int64, "u": np.int64, "c": np.complex128, "b": np.bool_}
    if value.dtype.kind not in kinds:
        raise ValueError(f"{what} must be numbers, got {value.dtype} {value.shape}")
    if value.dtype.kind == "u" and value.size and int(value.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{what} must be numbers below 2**63, got {int(value.max())}")
    known = value.dtype.newbyteorder("=") in (np.float16, np.float32, np.float64, np.uint8, np.int64)
    wanted = value.dtype.newbyteorder("=") if known else kinds[value.dtype.kind]
    return torch.from_numpy(value.astype(wanted))  # a copy, in the order of bytes that torch takes


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _try(network: nn.Module, name: str, inputs: Tensor, classes: int) -> None:
    """Let the network see two examples: better now than after an hour."""
    training = network.training
    floating = next((one.dtype for one in network.parameters() if one.is_floating_point()), inputs.dtype)
    try:
        with torch.no_grad():
            outputs = network.eval()(inputs.to(floating) if inputs.is_floating_point() else inputs)
    except Exception as error:  # a user's network may fail in any way
        raise ValueError(
            f"model '{name}' cannot take inputs of shape {tuple(inputs.shape[1:])} ({type(error).__name__}: {error})"
        ) from error
    finally:
        network.train(training)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < classes:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"model '{name}' must give (examples, {classes} or more) logits for these labels, got {shape}")


def _fingerprint(model: str, network: nn.Module, raw: bytes, splits: Mapping[str, Pair]) -> str:
    """Names all that an answer depends on: the network as it prints, the weights' bytes, and the data."""
    digest = hashlib.sha256(f"{model}\n{network}\n".encode())
    digest.update(hashlib.sha256(raw).digest())
    for split, pair in splits.items():
        for tensor in pair:
            digest.update(f"{split} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()

"""Users' own models as subjects: any network, its weights and data. Only the named module is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from analysis.subjects import Limits, Own
from landscape.errors import finite
from landscape.layout import Layout, running_statistics
from training.data.own_data import Pair, read_data
from training.models import networks
from training.models.weights import load_weights, read_weights


def open_model(
    model: str,
    weights: str | Path,
    data: str | Path,
    *,
    out: Path,
    data_root: Path | None = None,
    limits: Limits | None = None,
    say: Callable[[str], object] = print,
) -> Own:
    """Open a network with its weights and data as a subject, which `analyze` measures.

    model: 'module:function', called with classes, channels and size if it takes them, or a name of `list models`.
    weights: .safetensors, or a torch.save file of tensors (read with weights_only).
    data: a data set's name; 'module:function' that returns ((train inputs, labels), (test inputs, labels)), or one
        pair, which is then the training data; or an .npz with x_train, y_train and x_test, y_test. Inputs are used
        unchanged, so they must be normalised as the network expects.
    out: folder for the answers.
    data_root: folder of the data sets.
    limits: memory, threads, precision and device; by default those of `Limits()`.
    say: called with each warning about the file of weights.
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
    _require_logits(network, model, inputs[:2], classes)
    return Own(path.stem, out, network, theta, splits, _fingerprint(model, network, raw, splits), limits)


def build(name: str, *, classes: int, inputs: Tensor) -> nn.Module:
    """Build the network of this name; the global random state is left as it was."""
    facts = {"classes": classes}
    if inputs.ndim == 4:
        facts |= dict(zip(("channels", "image_height", "image_width"), inputs.shape[1:], strict=True))
        facts |= {"size": inputs.shape[2]} if inputs.shape[2] == inputs.shape[3] else {}
    elif inputs.ndim == 2 and not inputs.is_floating_point():
        facts |= {"vocabulary": int(inputs.max()) + 1, "length": inputs.shape[1]}
    return networks.build(name, seed=0, **facts)


def _require_logits(network: nn.Module, name: str, inputs: Tensor, classes: int) -> None:
    """Try the network on two examples now, rather than fail after an hour; ValueError unless it returns logits."""
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
    """Compute a digest of all that an answer depends on: the printed network, the weights' bytes, and the data."""
    digest = hashlib.sha256(f"{model}\n{network}\n".encode())
    digest.update(hashlib.sha256(raw).digest())
    for split, pair in splits.items():
        for tensor in pair:
            digest.update(f"{split} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()

"""What the network makes of examples before its classifier, and how that looks in two dimensions (t-SNE and PCA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, rounds_setting, seed_setting, setting
from analysis.subjects import GLOBAL_MODELS, SPLITS, Subject
from landscape.layout import Layout
from landscape.objectives.batches import choose_stratified
from landscape.rng import key, numpy_generator
from landscape.runtime.replica import Replica, Replicas, prepare
from landscape.runtime.workers import ordered_map

Floats = NDArray[np.float64]
AXES = 2  # of the pictures


@dataclass(frozen=True)
class Seen:
    """What a model makes of examples."""

    outputs: Tensor  # (n, classes) logits
    features: Tensor  # (n, f) what enters the classifier


def look(subject: Subject, theta: Tensor, inputs: Tensor) -> Seen:
    """Logits and penultimate features at theta, in eval mode and with the subject's policy for norm layers.

    The classifier is the layer that owns the last parameters, as in local training.
    """
    limits = subject.limits
    layout = Layout.of(subject.model, statistics=subject.policy == "interpolated")
    path = layout.parameters[-1].layer
    point = layout.check(theta).to(limits.dtype)
    replicas = Replicas(prepare(subject.model, subject.policy, "eval"), layout, limits.dtype, torch.device("cpu"))

    def see(part: Tensor) -> Seen:
        with replicas.borrow() as replica, torch.inference_mode():
            replica.load(point)
            return _caught(replica, path, part)

    parts = torch.split(inputs.to(limits.dtype) if inputs.is_floating_point() else inputs, limits.chunk_size)
    found = list(ordered_map(see, parts, limits.workers or torch.get_num_threads()))
    return Seen(torch.cat([one.outputs for one in found]), torch.cat([one.features for one in found]))


def _caught(replica: Replica, path: str, inputs: Tensor) -> Seen:
    caught: list[Tensor] = []
    hook = replica.module.get_submodule(path).register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    try:
        outputs = replica.module(inputs)
    finally:
        hook.remove()
    if not caught:
        raise ValueError(f"the forward pass never called layer '{path}', so nothing is known of what enters it")
    return Seen(outputs, caught[-1].flatten(1))


def drawn(labels: Tensor, count: int | None, seed: int, *parts: str | int) -> Tensor:
    """Places of `count` examples, each class in proportion; all of them, in order, where there are no more."""
    if count is None or count >= len(labels):
        return torch.arange(len(labels))
    return choose_stratified(labels, len(labels), count, numpy_generator(seed, *parts))


@dataclass(frozen=True)
class Settings(Checked):
    """Which examples are looked at, and by which models."""

    rounds: str = rounds_setting("last")
    models: tuple[str, ...] = setting(("final",), "global models, each a picture", choices=GLOBAL_MODELS)
    split: str = setting("test", "data that examples are drawn from", choices=SPLITS)
    count: int = setting(1000, "examples in the picture, drawn by class", least=4)
    perplexity: float = setting(30.0, "of t-SNE: about how many neighbours an example has", positive=True)
    keep: bool = setting(True, "store the features too")
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise ValueError(f"models must name at least one of {', '.join(GLOBAL_MODELS)}")


def tsne(features: Floats, *, perplexity: float, seed: int) -> tuple[Floats, float]:
    """t-SNE (van der Maaten and Hinton 2008) from PCA's first plane, (n, 2), and its Kullback-Leibler divergence.

    One thread: sums in another order would end in another picture. NaN where all features are equal.
    """
    if np.ptp(features, axis=0).max() == 0:
        return np.full((len(features), AXES), np.nan), np.nan
    state = key(seed, "t-SNE") % 2**32  # scikit-learn takes 32 bits
    method = TSNE(AXES, perplexity=perplexity, init="pca", random_state=state, n_jobs=1)
    with threadpool_limits(1):
        embedded = method.fit_transform(features)
    return embedded.astype(np.float64), float(method.kl_divergence_)


def pca(features: Floats) -> tuple[Floats, Floats]:
    """Coordinates in the plane of largest variance, (n, 2), and the shares of variance (2,).

    The sign of an axis is free: its largest loading is made positive, so that equal features give equal pictures.
    """
    centred = features - features.mean(axis=0)
    with threadpool_limits(1):
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:AXES] * np.sign(axes[np.arange(AXES), np.abs(axes[:AXES]).argmax(axis=1)])[:, None]
    total = float(np.square(sizes).sum())
    shares = np.square(sizes[:AXES]) / total if total else np.full(AXES, np.nan)
    return np.stack([(centred * axis).sum(axis=1) for axis in axes], axis=1), shares


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    count = min(settings.count, len(subject.examples(settings.split)[1]))
    if settings.perplexity >= count:
        raise ValueError(f"perplexity must be below the number of examples, {count}; got {settings.perplexity:g}")
    rounds = subject.select(settings.rounds)
    for round in rounds:
        for model in settings.models:
            subject.point(round, model)
    return [Piece(f"{model} {round}", count / 3, round=round) for model in settings.models for round in rounds]


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    inputs, labels = subject.examples(settings.split)
    places = drawn(labels, settings.count, settings.seed, "features")
    seen = look(subject, subject.point(piece.round, piece.key.split()[0]), inputs[places])
    features = seen.features.double().numpy()
    if features.shape[1] < AXES:
        raise ValueError(f"{subject.name}: a picture needs {AXES} features or more, the classifier has one input")
    embedded, divergence = tsne(features, perplexity=settings.perplexity, seed=settings.seed)
    plane, shares = pca(features)
    arrays: Arrays = {
        "tsne": embedded,
        "divergence": np.asarray(divergence),
        "pca": plane,
        "variance_share": shares,
        "predicted": seen.outputs.argmax(dim=1).numpy(),
        "place": places.numpy(),
        "label": labels[places].numpy(),
    }
    return arrays | ({"feature": features.astype(np.float32)} if settings.keep else {})


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    rounds = subject.select(settings.rounds)
    first = next(iter(found.values()))

    def every(name: str, dims: tuple[str, ...], long_name: str) -> Variable:
        rows: Any = [[found[f"{model} {round}"][name] for round in rounds] for model in settings.models]
        return Variable(("model", "round", *dims), np.asarray(rows), long_name)

    variables = {
        "model": Variable(("model",), np.asarray(settings.models), "global model"),
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "axis": Variable(("axis",), np.arange(1, AXES + 1), "axis of the picture"),
        "place": Variable(("example",), first["place"], f"which example of the {settings.split} data"),
        "label": Variable(("example",), first["label"], "its class"),
        "predicted": every("predicted", ("example",), "class that the model gives it"),
        "tsne": every("tsne", ("example", "axis"), f"t-SNE of the features, perplexity {settings.perplexity:g}"),
        "divergence": every("divergence", (), "Kullback-Leibler divergence that t-SNE ended at"),
        "pca": every("pca", ("example", "axis"), "principal components of the features"),
        "variance_share": every("variance_share", ("axis",), "share of the features' variance along each of them"),
    }
    if settings.keep:
        variables["feature"] = every("feature", ("example", "unit"), "what enters the classifier")
    return {"features": Table(variables)}


STUDY = Study(
    name="features",
    about="what enters the classifier for a sample of examples, and its t-SNE and PCA in two dimensions",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="001 F6",
)

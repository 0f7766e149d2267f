"""Penultimate features of some examples, and their t-SNE and PCA in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import xarray as xr
from pydantic import Field
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from analysis.shared.outputs import compute_outputs
from analysis.study import Datasets, Floats, Piece, Rounds, Seed, Split, Study, require_names, scalar, variable
from analysis.subjects import GLOBAL_MODELS, Subject
from landscape.rng import key
from training.settings import Names, Positive, settings

Models = Annotated[Names, require_names(GLOBAL_MODELS)]
AXES = 2  # of a picture


@settings
class Settings:
    """Which examples are embedded, and by which models."""

    rounds: Rounds = "last"
    models: Models = Field(default=("final",), description="global models, each a picture: final, server, mean, swa")
    split: Split = Field(default="test", description="data that examples are drawn from")
    count: int = Field(default=1000, ge=4, description="examples in the picture, drawn by class")
    perplexity: Positive = Field(default=30.0, description="of t-SNE: about how many neighbours an example has")
    keep: bool = Field(default=True, description="store the features too")
    seed: Seed = 0


@dataclass(frozen=True)
class ModelPiece(Piece):
    """One global model of one round."""

    dims: ClassVar[tuple[str, ...]] = ("model", "round")
    model: str = "final"


def embed_tsne(features: Floats, *, perplexity: float, seed: int) -> tuple[Floats, float]:
    """t-SNE (van der Maaten and Hinton 2008) from PCA's first plane, (n, 2), and its Kullback-Leibler divergence.

    Runs in one thread, because sums in another order would end in another picture. NaN where all features are equal.

    features: (n, f).
    """
    if np.ptp(features, axis=0).max() == 0:
        return np.full((len(features), AXES), np.nan), np.nan
    state = key(seed, "t-SNE") % 2**32  # scikit-learn takes 32 bits
    method = TSNE(AXES, perplexity=perplexity, init="pca", random_state=state, n_jobs=1)
    with threadpool_limits(1):
        embedded = method.fit_transform(features)
    return embedded.astype(np.float64), float(method.kl_divergence_)


def project_pca(features: Floats) -> tuple[Floats, Floats]:
    """Coordinates in the plane of largest variance, (n, 2), and the shares of variance (2,).

    The sign of an axis is free: its largest loading is made positive, so that equal features give equal pictures.

    features: (n, f).
    """
    centred = features - features.mean(axis=0)
    with threadpool_limits(1):
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:AXES] * np.sign(axes[np.arange(AXES), np.abs(axes[:AXES]).argmax(axis=1)])[:, None]
    total = float(np.square(sizes).sum())
    shares = np.square(sizes[:AXES]) / total if total else np.full(AXES, np.nan)
    return np.stack([(centred * axis).sum(axis=1) for axis in axes], axis=1), shares


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for each model and round."""
    if subject.task.targets != "label":
        raise ValueError(f"{subject.name}: features are shown by the class of an example; {subject.task.name} has none")
    count = min(settings.count, subject.count(settings.split))
    if settings.perplexity >= count:
        raise ValueError(f"perplexity must be below the number of examples, {count}; got {settings.perplexity:g}")
    rounds = subject.select_with(settings.rounds, *settings.models)
    return [ModelPiece(round, model=model, passes=count / 3) for model in settings.models for round in rounds]


def measure(subject: Subject, settings: Settings, piece: ModelPiece, earlier: Datasets) -> xr.Dataset:
    """The features of one model, and their pictures."""
    inputs, labels, chosen = subject.draw_examples(settings.split, None, settings.count, settings.seed, "features")
    outputs = compute_outputs(subject, subject.point(piece.round, piece.model), inputs)
    features = outputs.features.double().numpy()
    if features.shape[1] < AXES:
        raise ValueError(f"{subject.name}: a picture needs {AXES} features or more, the classifier has one input")
    embedded, divergence = embed_tsne(features, perplexity=settings.perplexity, seed=settings.seed)
    plane, shares = project_pca(features)
    found = {
        "predicted": variable("example", outputs.predicted.numpy(), "class that the model gives it"),
        "tsne": variable(("example", "axis"), embedded, f"t-SNE of the features, perplexity {settings.perplexity:g}"),
        "divergence": scalar(divergence, "Kullback-Leibler divergence that t-SNE ended at"),
        "pca": variable(("example", "axis"), plane, "principal components of the features"),
        "variance_share": variable("axis", shares, "share of the features' variance along each of them"),
    }
    if settings.keep:
        found["feature"] = variable(("example", "unit"), features.astype(np.float32), "what enters the classifier")
    coords = {
        "axis": variable("axis", np.arange(1, AXES + 1), "axis of the picture"),
        "example_index": variable("example", chosen.numpy(), f"which example of the {settings.split} data"),
        "label": variable("example", labels.cpu().numpy(), "its class"),
    }
    return xr.Dataset(found, coords)


STUDY = Study("features", __doc__, Settings, pieces, measure, papers="001 F6")

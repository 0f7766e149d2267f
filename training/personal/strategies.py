"""Strategies that give each client a model: the global one, one derived from it, or its own.

Every strategy takes a subject, a run after one of its rounds, and returns a function that predicts for a client. Its
keyword arguments are its options, with ranges and meanings in the annotations; None means that the run decides (see
evaluation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from landscape.errors import positive
from training.engine.saving import restore_state
from training.personal.client_evaluation import (
    HeadOnly,
    Subject,
    load_round,
    make_plain_trainer,
    run_model,
    train_client,
)
from training.rules.corrections import BodyOnly, Plain
from training.settings import Count, Fraction, Positive, Share, Whole
from training.storage import run_directory

TRAINED = {"all": Plain(), "body": BodyOnly(), "head": HeadOnly()}  # part of the network -> what keeps the rest still
Epochs = Annotated[Count | None, Field(description="epochs; default: as the run")]
Rate = Annotated[Positive | None, Field(description="learning rate; default: the run's")]
Predict = Callable[[int, Tensor], Tensor | None]  # a client and its inputs -> (n, classes), None if it has no model


def use_global_model(subject: Subject) -> Predict:
    """Use the global model itself.

    subject: a run after one of its rounds.
    """
    trainer, statistics = subject.federation.trainer, subject.statistics
    return lambda client, inputs: run_model(trainer, subject.find_model(client), statistics, inputs).outputs


def finetune(
    subject: Subject,
    *,
    epochs: Annotated[Count, Field(description="epochs of plain SGD")] = 5,
    lr: Rate = None,
    part: Annotated[Literal["all", "body", "head"], Field(description="part of the network that is trained")] = "all",
) -> Predict:
    """Use the global model after some epochs of plain SGD on the client's data.

    subject: a run after one of its rounds.
    epochs: of plain SGD.
    lr: learning rate.
    part: of the network that is trained.

    FedAvg-FT, FedSoL-FT and FedBABU's last step; part "head" is FedFSA's. The batches are those of the next round.
    """
    correction = TRAINED[part]
    trainer, rate = (
        make_plain_trainer(subject.federation, epochs=epochs, correction=correction),
        positive("lr", lr or 0.0),
    )

    def predict(client: int, inputs: Tensor) -> Tensor:
        start, round = subject.find_model(client), subject.state.round
        tuned = train_client(trainer, client, start, subject.statistics, round=round, lr=rate)
        return run_model(trainer, *tuned, inputs).outputs

    return predict


def train_alone(
    subject: Subject,
    *,
    epochs: Epochs = None,
    lr: Rate = None,
    lr_decay: Annotated[Share, Field(description="factor of the rate per epoch")] = 0.99,
) -> Predict:
    """Use a model that the client trains alone from the run's initial weights; the rate decays every epoch (FedSoL).

    subject: a run after one of its rounds.
    epochs: of plain SGD.
    lr: learning rate.
    lr_decay: its factor per epoch.
    """
    trainer, rate = make_plain_trainer(subject.federation, epochs=epochs or 0), positive("lr", lr or 0.0)
    start = restore_state(load_round(subject.run, 0))

    def predict(client: int, inputs: Tensor) -> Tensor:
        trained = train_client(trainer, client, start.w, start.statistics, round=0, lr=rate, lr_decay=lr_decay)
        return run_model(trainer, *trained, inputs).outputs

    return predict


def use_last_own_model(subject: Subject) -> Predict:
    """Use the client's model from the last round it took part in: kept by the method (FedALA) or a checkpoint (FedFSA).

    subject: a run after one of its rounds.
    """
    run, state, trainer = subject.run, subject.state, subject.federation.trainer
    models: Mapping[int, Mapping[str, Tensor]]  # read from the disk where there are too many for the memory
    if "personal" in subject.federation.method.client_vectors:
        models, file, keep = state.clients, "clients", "keep_clients"
    else:
        found = _load_kept_models(run, state.round)
        models, file, keep = {k: {"personal": w} for k, w in found.items()}, "locals", "keep_locals"
    if not models:
        rounds = [round for round in run_directory.checkpoint_rounds(run) if _has(run, round, file)]
        raise ValueError(
            f"own: {run} holds no model of any client after round {state.round}; rounds that do: "
            f"{run_directory.list_rounds(rounds) or 'none'}. Train with checkpoints.{keep}=all to have them all"
        )

    def predict(client: int, inputs: Tensor) -> Tensor | None:
        if client not in models:
            return None
        kept = models[client]["personal"]
        w, statistics = kept[: trainer.layout.size], kept[trainer.layout.size :]
        # FedALA keeps weights only
        return run_model(trainer, w, statistics if statistics.numel() else state.statistics, inputs).outputs

    return predict


def _load_kept_models(run: Path, last: int) -> dict[int, Tensor]:
    """Return the newest local model of every client in the checkpoints up to a round."""
    models: dict[int, Tensor] = {}
    for round in reversed([round for round in run_directory.checkpoint_rounds(run) if round <= last]):
        if _has(run, round, "locals"):
            models = {**load_round(run, round).locals, **models}
    return models


def _has(run: Path, round: int, file: str) -> bool:
    return f"{file}.safetensors" in run_directory.read_meta(run_directory.checkpoint_path(run, round))["files"]


def ask_neighbours(
    subject: Subject,
    *,
    k: Annotated[Count, Field(description="nearest neighbours")] = 10,
    lam: Annotated[Fraction, Field(description="weight of the neighbours")] = 0.5,
    scale: Annotated[Positive, Field(description="scale of squared distances")] = 1.0,
    epochs: Annotated[Whole, Field(description="epochs of fine-tuning before")] = 0,
    lr: Rate = None,
) -> Predict:
    """kNN-Per: lam p_kNN + (1 - lam) softmax(logits), neighbours among the client's data (Marfoq et al. 2022).

    subject: a run after one of its rounds.
    k: number of neighbours.
    lam: weight of the neighbours.
    scale: of squared distances.
    epochs: of fine-tuning before (FedSoL's table), none in the paper.
    lr: learning rate of the fine-tuning.

    p_kNN weighs the k nearest by exp(-||f_i - f||^2 / (scale F)) in the F penultimate features, as the authors' code
    does; the paper writes exp(-distance).
    """
    federation, rate = subject.federation, positive("lr", lr or 0.0)
    if federation.dataset.task.targets != "label":
        raise ValueError(f"knn needs one label for each example; {federation.dataset.task.name} has label maps")
    trainer = make_plain_trainer(federation, epochs=epochs) if epochs else federation.trainer

    def predict(client: int, inputs: Tensor) -> Tensor:
        model = subject.find_model(client), subject.statistics
        if epochs:
            model = train_client(trainer, client, *model, round=subject.state.round, lr=rate)
        own, labels = trainer.read_examples(trainer.client_indices[client])
        tested, trained = (run_model(trainer, *model, images, features=True) for images in (inputs, own))
        assert tested.features is not None
        assert trained.features is not None
        near = vote(
            tested.features, trained.features, labels.cpu(), k=k, scale=scale, classes=federation.dataset.classes
        )
        return lam * near + (1 - lam) * functional.softmax(tested.outputs, dim=1)

    return predict


def vote(features: Tensor, own: Tensor, labels: Tensor, *, k: int, scale: float, classes: int) -> Tensor:
    """Compute p_kNN (n, classes); of equally near neighbours the first in order count.

    features: (n, F) of the examples to classify.
    own: (m, F) features of the client's training examples.
    labels: (m,) their classes.
    k: number of neighbours.
    scale: of squared distances.
    classes: how many there are.
    """
    # without matrix products, which cancel where features are nearly equal
    distances = torch.cdist(features, own, compute_mode="donot_use_mm_for_euclid_dist")
    near, neighbours = (columns[:, :k] for columns in distances.sort(dim=1, stable=True))
    weights = functional.softmax(-near.square() / (scale * features.shape[1]), dim=1)
    return features.new_zeros(len(features), classes).scatter_add_(1, labels[neighbours], weights)


STRATEGIES: dict[str, Callable[..., Predict]] = {
    "finetune": finetune,
    "global": use_global_model,
    "knn": ask_neighbours,
    "local": train_alone,
    "own": use_last_own_model,
}

"""The ways to serve a client: the global model, one made from it, one of its own. Each gives a predicting function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from landscape.errors import choose, positive, whole
from training.engine.saving import restore_state
from training.personal.client_tests import HeadOnly, Subject, local_sgd, look, plain_trainer, stored, training_examples
from training.personal.fedcr import Bound, FedCR, head_trainer
from training.rules.base import within
from training.rules.corrections import BodyOnly, Plain
from training.storage import run_directory

TRAINED = {"all": Plain(), "body": BodyOnly(), "head": HeadOnly()}  # part of the network -> what keeps the rest still
Predict = Callable[[int, Tensor], Tensor | None]  # a client and its inputs -> (n, classes), None if it has no model


def as_it_is(subject: Subject) -> Predict:
    """The global model itself."""
    return lambda client, inputs: look(subject.federation.trainer, subject.w, subject.statistics, inputs).outputs


def finetuned(subject: Subject, *, epochs: int = 5, lr: float | None = None, part: str = "all") -> Predict:
    """The global model after some epochs of plain SGD on the client's data: FedAvg-FT, FedSoL-FT, FedBABU's last step.

    part "head" is FedFSA's. The batches are those that a next round would have.
    """
    correction = TRAINED[choose("part", part, TRAINED)]
    trainer, rate = plain_trainer(subject.federation, epochs=epochs, correction=correction), positive("lr", lr or 0.0)

    def predict(client: int, inputs: Tensor) -> Tensor:
        tuned = local_sgd(trainer, client, subject.w, subject.statistics, round=subject.state.round, lr=rate)
        return look(trainer, *tuned, inputs).outputs

    return predict


def alone(subject: Subject, *, epochs: int | None = None, lr: float | None = None, lr_decay: float = 0.99) -> Predict:
    """A model that the client trains alone from the run's initial weights; the rate decays every epoch (FedSoL)."""
    trainer, rate = plain_trainer(subject.federation, epochs=epochs or 0), positive("lr", lr or 0.0)
    within("lr_decay", lr_decay, "(0, 1]")
    start = restore_state(stored(subject.run, 0))

    def predict(client: int, inputs: Tensor) -> Tensor:
        trained = local_sgd(trainer, client, start.w, start.statistics, round=0, lr=rate, lr_decay=lr_decay)
        return look(trainer, *trained, inputs).outputs

    return predict


def last_own(subject: Subject) -> Predict:
    """The client's model when it last took part: what the method keeps (FedALA), or a checkpoint (FedFSA)."""
    run, state, trainer = subject.run, subject.state, subject.federation.trainer
    if "personal" in subject.federation.method.client_vectors:
        models, file, keep = {k: own["personal"] for k, own in state.clients.items()}, "clients", "keep_clients"
    else:
        models, file, keep = _kept_models(run, state.round), "locals", "keep_locals"
    if not models:
        there = [round for round in run_directory.checkpoint_rounds(run) if _has(run, round, file)]
        raise ValueError(
            f"own: {run} holds no model of any client after round {state.round}; rounds that do: "
            f"{run_directory.list_rounds(there) or 'none'}. Train with checkpoints.{keep}=all to have them all"
        )

    def predict(client: int, inputs: Tensor) -> Tensor | None:
        if client not in models:
            return None
        w, statistics = models[client][: trainer.layout.size], models[client][trainer.layout.size :]
        # FedALA keeps weights only
        return look(trainer, w, statistics if statistics.numel() else state.statistics, inputs).outputs

    return predict


def _kept_models(run: Path, last: int) -> dict[int, Tensor]:
    """The newest local model of every client in the checkpoints up to a round."""
    found: dict[int, Tensor] = {}
    for round in reversed([round for round in run_directory.checkpoint_rounds(run) if round <= last]):
        if _has(run, round, "locals"):
            found = {**stored(run, round).locals, **found}
    return found


def _has(run: Path, round: int, file: str) -> bool:
    return f"{file}.safetensors" in run_directory.read_meta(run_directory.checkpoint_path(run, round))["files"]


def neighbours(
    subject: Subject, *, k: int = 10, lam: float = 0.5, scale: float = 1.0, epochs: int = 0, lr: float | None = None
) -> Predict:
    """kNN-Per: lam p_kNN + (1 - lam) softmax(logits), neighbours among the client's data (Marfoq et al. 2022).

    p_kNN weighs the k nearest by exp(-||f_i - f||^2 / (scale F)) in the F penultimate features, as the authors' code
    does; the paper writes exp(-distance). epochs: of fine-tuning before (FedSoL's table), none in the paper.
    """
    whole("k", k)
    within("lam", lam, "[0, 1]")
    positive("scale", scale)
    federation, rate = subject.federation, positive("lr", lr or 0.0)
    trainer = plain_trainer(federation, epochs=epochs) if whole("epochs", epochs, least=0) else federation.trainer

    def predict(client: int, inputs: Tensor) -> Tensor:
        model = subject.w, subject.statistics
        if epochs:
            model = local_sgd(trainer, client, *model, round=subject.state.round, lr=rate)
        own, labels = training_examples(federation, client)
        seen, known = (look(trainer, *model, images, features=True) for images in (inputs, own))
        assert seen.features is not None
        assert known.features is not None
        near = vote(seen.features, known.features, labels, k=k, scale=scale, classes=federation.dataset.classes)
        return lam * near + (1 - lam) * functional.softmax(seen.outputs, dim=1)

    return predict


def vote(features: Tensor, known: Tensor, labels: Tensor, *, k: int, scale: float, classes: int) -> Tensor:
    """p_kNN (n, classes) of features (n, F) from known ones (m, F); of equally near ones the first in order."""
    # without matrix products, which cancel where features are nearly equal
    apart = torch.cdist(features, known, compute_mode="donot_use_mm_for_euclid_dist")
    near, places = (part[:, :k] for part in apart.sort(dim=1, stable=True))
    weights = functional.softmax(-near.square() / (scale * features.shape[1]), dim=1)
    return features.new_zeros(len(features), classes).scatter_add_(1, labels[places], weights)


def common_representation(
    subject: Subject,
    *,
    rounds: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    dim: int = 256,
    beta: float = 1e-3,
    samples: int = 15,
    prior: str = "product",
    direction: str = "encoder_prior",
) -> Predict:
    """FedCR: a federation of its own on the run's clients, network and cohorts (Zhang et al. 2023; see fedcr.py)."""
    bound = Bound(beta, samples, prior, direction)
    trained = FedCR.begin(subject.federation, epochs=epochs or 0, lr=lr or 0.0, dim=dim, bound=bound)
    for _ in range(whole("rounds", rounds or 0)):
        trained.advance()
    trainer = head_trainer(trained, epochs or 0)
    return lambda client, inputs: trained.predict(client, trainer, inputs)


PERSONAL: dict[str, Callable[..., Predict]] = {
    "fedcr": common_representation,
    "finetune": finetuned,
    "global": as_it_is,
    "knn": neighbours,
    "local": alone,
    "own": last_own,
}

"""FedCR: a common encoder to a Gaussian, a head that every client keeps to itself (Zhang et al. 2023).

    loss = mean over noise of CE(head(mu + sigma noise), y) + beta KL(N(mu, sigma) || N(m_y, s_y))

The run's network is the encoder: its classifier makes way for a linear layer to (mu, softplus sigma). The encoder is
averaged over the run's own cohorts; the class priors (m_y, s_y) are the product of what the participants encode.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import positive, whole
from landscape.layout import running_statistics
from landscape.rng import key, normal
from training.clients.local_training import DivergenceError
from training.clients.trainer import LocalTrainer
from training.engine.federation import Federation
from training.personal.client_evaluation import (
    HeadOnly,
    make_plain_trainer,
    put_at_rest,
    read_training_examples,
    run_model,
    train_client,
)
from training.rules.base import LossTerm
from training.rules.context import ClientContext
from training.rules.vectors import Part, head
from training.settings import Count, NonNegative, settings

LEAST = 1e-6  # of sigma: softplus underflows to zero, and KL divides by it


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normal distributions."""

    mu: Tensor  # (..., dim)
    sigma: Tensor  # (..., dim) standard deviations

    def __getitem__(self, chosen: Tensor) -> Gaussian:
        return Gaussian(self.mu[chosen], self.sigma[chosen])


def divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) (...,), summed over the last axis: log s_p / s_q + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""
    ratio, gap = q.sigma / p.sigma, (q.mu - p.mu) / p.sigma
    return (0.5 * (ratio.square() + gap.square() - 1) - ratio.log()).sum(dim=-1)


def product(experts: Gaussian) -> Gaussian:
    """The normalised product of Gaussians along the first axis: precisions add up, means are weighted by them."""
    precision = experts.sigma.square().reciprocal()
    total = precision.sum(dim=0)
    return Gaussian((experts.mu * precision).sum(dim=0) / total, total.rsqrt())


class Bottleneck(nn.Module):
    """Images to a Gaussian of `dim` numbers, and a linear head on them."""

    def __init__(self, body: nn.Module, dim: int, classes: int):
        super().__init__()
        self.body, self.dim = body, dim
        self.head = nn.Linear(dim, classes)

    def encode(self, inputs: Tensor) -> Gaussian:
        mu, raw = self.body(inputs).split(self.dim, dim=1)
        return Gaussian(mu, functional.softplus(raw).clamp(min=LEAST))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits at mu: the head is linear, so this is their mean over the noise; the paper's code draws 18."""
        logits: Tensor = self.head(self.encode(inputs).mu)
        return logits


def network(federation: Federation, dim: int) -> Bottleneck:
    """The run's network before its first round, its classifier replaced by a layer to (mu, sigma)."""
    body, path = copy.deepcopy(federation.trainer.model), federation.trainer.layout.entries[-1].layer
    classifier = body.get_submodule(path)
    if not isinstance(classifier, nn.Linear) or not path:
        raise ValueError(
            f"fedcr needs a network whose last layer is torch.nn.Linear, got {type(classifier).__name__} '{path}'"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(federation.recipe.seed, "fedcr"))
        body.set_submodule(path, nn.Linear(classifier.in_features, 2 * whole("dim", dim)))
        return Bottleneck(body, dim, federation.dataset.classes)


@settings
class Bound:
    """The loss: cross-entropy of drawn encodings, and beta times their divergence from the class priors."""

    beta: NonNegative = Field(default=1e-3, description="weight of the divergence")
    samples: Count = Field(default=15, description="encodings drawn of each example")
    prior: Literal["product", "standard"] = Field(
        default="product",
        description="standard: N(0, 1) in every round, which is the default of the published code",
    )
    direction: Literal["encoder_prior", "prior_encoder"] = Field(
        default="encoder_prior",
        description="encoder_prior: the bound on I(Z; X | Y); prior_encoder: what the published code computes",
    )

    def __call__(self, model: Bottleneck, inputs: Tensor, labels: Tensor, priors: Gaussian, noise: Tensor) -> Tensor:
        """Mean over the batch; noise (samples, B, dim)."""
        found, prior = model.encode(inputs), priors[labels]
        logits = model.head(found.mu + found.sigma * noise)  # (samples, B, classes)
        plain = functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(noise)))
        pair = (found, prior) if self.direction == "encoder_prior" else (prior, found)
        return plain + self.beta * divergence(*pair).mean()


@dataclass
class BoundGradient:
    """The gradients of one local step."""

    trainer: LocalTrainer
    bound: Bound
    priors: Gaussian
    context: ClientContext
    inputs: Tensor
    labels: Tensor
    loss: float = math.nan

    def __call__(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        trainer, context, model = self.trainer, self.context, self.trainer.replica.module
        assert isinstance(model, Bottleneck)
        with torch.no_grad():
            trainer.replica.flat.copy_(point)
        shape = (self.bound.samples, len(self.labels), model.dim)
        noise = normal(shape, context.seed, "fedcr", context.round, context.clients[0], context.step).to(trainer.dtype)
        loss = self.bound(model, self.inputs, self.labels, self.priors, noise)
        self.loss = float(loss.detach())
        if not math.isfinite(self.loss):
            raise DivergenceError(context.round + 1, context.clients[0], context.step + 1, context.lr)
        parts = torch.autograd.grad(loss, trainer.replica.leaves, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])


@dataclass
class FedCR:
    """The federation between two rounds; only the body of `w` travels, its head is the one that clients begin with."""

    federation: Federation
    trainer: LocalTrainer
    bound: Bound
    lr: float
    w: Tensor  # (d,) body, then head
    statistics: Tensor  # (b,) running statistics of norm layers
    priors: Gaussian  # (classes, dim)
    heads: dict[int, Tensor]  # of those that ever took part
    round: int = 0

    @classmethod
    def begin(cls, federation: Federation, *, epochs: int, lr: float, dim: int, bound: Bound) -> FedCR:
        trainer = make_plain_trainer(
            federation, epochs=epochs, model=network(federation, dim), mixup=False
        )  # priors want labels
        w = trainer.layout.flatten(trainer.model).to(trainer.dtype)
        buffers = [buffer.reshape(-1).to(trainer.dtype) for buffer in running_statistics(trainer.model).values()]
        zeros = w.new_zeros(federation.dataset.classes, dim)
        standard = Gaussian(zeros, torch.ones_like(zeros))
        return cls(federation, trainer, bound, positive("lr", lr), w, torch.cat([w[:0], *buffers]), standard, {})

    def personal(self, client: int) -> Tensor:
        """The common body with the client's own head (d,)."""
        own = head(self.trainer.layout)
        return torch.cat([self.w[: own.start], self.heads.get(client, self.w[own])])

    def train(self, client: int, trainer: LocalTrainer) -> tuple[Tensor, Tensor]:
        """Where a client's training leads in this round, and its running statistics."""
        rate = self.lr * self.federation.recipe.local.lr_decay**self.round

        def gradient_on(context: ClientContext, inputs: Tensor, labels: Tensor) -> BoundGradient:
            return BoundGradient(trainer, self.bound, self.priors, context, inputs, labels)

        start = self.personal(client)
        return train_client(trainer, client, start, self.statistics, round=self.round, lr=rate, gradient_on=gradient_on)

    def advance(self) -> None:
        """One round: the cohort trains, bodies are averaged by size, heads stay, class priors are multiplied."""
        cohort, own = self.federation.draw_cohort(self.round), head(self.trainer.layout)
        sizes = {k: len(self.federation.client_indices[k]) for k in cohort}
        w, statistics = torch.zeros_like(self.w, dtype=torch.float64), torch.zeros_like(self.statistics).double()
        experts: list[dict[int, Gaussian]] = []
        for k in cohort:
            end, seen = self.train(k, self.trainer)
            self.heads[k] = end[own].clone()
            experts.append(self.encodings(k, end, seen))
            w += sizes[k] / sum(sizes.values()) * end
            statistics += sizes[k] / sum(sizes.values()) * seen
        self.w = torch.cat([w[: own.start].to(self.w.dtype), self.w[own]])
        self.statistics = statistics.to(self.w.dtype)
        if self.bound.prior == "product":
            self.priors = merge_priors(self.priors, experts)
        self.round += 1

    def encodings(self, client: int, w: Tensor, statistics: Tensor) -> dict[int, Gaussian]:
        """Mean encoding of every class that a client holds, after its training.

        The published code multiplies the encodings of single examples while the weights still move: its sigma shrinks
        with the number of examples.
        """
        inputs, labels = read_training_examples(self.federation, client)
        with put_at_rest(self.trainer, w, statistics) as model:
            assert isinstance(model, Bottleneck)
            found = model.encode(inputs)
        classes = ((y, labels == y) for y in sorted(set(labels.tolist())))
        return {y: Gaussian(found.mu[held].mean(dim=0), found.sigma[held].mean(dim=0)) for y, held in classes}

    def predict(self, client: int, trainer: LocalTrainer, inputs: Tensor) -> Tensor:
        """Logits (n, classes) after a last training of the client's head alone, for those too that never took part."""
        return run_model(trainer, *self.train(client, trainer), inputs).outputs


def merge_priors(priors: Gaussian, experts: Sequence[dict[int, Gaussian]]) -> Gaussian:
    """The class priors after a round: the prior of a class that no participant holds stays.

    The product of the participants alone; the published code multiplies N(0, 1) in as well.
    """
    mu, sigma = priors.mu.clone(), priors.sigma.clone()
    for y in sorted({y for own in experts for y in own}):
        held = [own[y] for own in experts if y in own]
        found = product(Gaussian(torch.stack([one.mu for one in held]), torch.stack([one.sigma for one in held])))
        mu[y], sigma[y] = found.mu, found.sigma
    return Gaussian(mu, sigma)


def make_head_trainer(trained: FedCR, epochs: int) -> LocalTrainer:
    """Make a trainer of the clients' heads; the body stays fixed."""
    return make_plain_trainer(
        trained.federation, epochs=epochs, correction=HeadOnly(), model=trained.trainer.model, mixup=False
    )

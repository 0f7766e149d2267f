"""FedCR (Zhang et al. 2023): a common encoder to a Gaussian, and a head that every client keeps to itself.

    loss = mean over noise of CE(head(mu + sigma noise), y) + beta KL(N(mu, sigma) || N(m_y, s_y))

The recipe's network is the encoder: its classifier makes way for a linear layer to (mu, sigma before softplus). The
encoder is averaged like any model. The class priors (m_y, s_y) are the product of what the participants encode.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from landscape.layout import Layout
from landscape.rng import key, normal
from training.rules.base import LocalLoss, Samples
from training.rules.context import ClientContext, RoundReport
from training.rules.corrections import Correction
from training.rules.vectors import Vectors, head
from training.settings import Count, NonNegative, settings

LEAST = 1e-6  # of sigma: softplus underflows to zero, and KL divides by it
CHUNK = 256  # examples that are encoded at once


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


class Bottleneck(nn.Module):
    """Images to a Gaussian of `dim` numbers, and a linear head on them."""

    def __init__(self, body: nn.Module, dim: int, classes: int):
        super().__init__()
        self.body, self.dim = body, dim
        self.head = nn.Linear(dim, classes)

    def encode(self, inputs: Tensor) -> Gaussian:
        """Encode images as a Gaussian each."""
        mu, raw = self.body(inputs).split(self.dim, dim=1)
        return Gaussian(mu, functional.softplus(raw).clamp(min=LEAST))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits at mu: the head is linear, so this is their mean over the noise; the paper's code draws 18."""
        logits: Tensor = self.head(self.encode(inputs).mu)
        return logits


@settings
class EncodingBound(LocalLoss):
    """Cross-entropy of drawn encodings, and beta times their divergence from the class priors (FedCR).

    After a round the prior of a class is the product of the mean encodings of those participants that hold it:
    precisions add up, means are weighted by them. The prior of a class that none of them holds stays; at first all are
    N(0, 1). The published code also multiplies N(0, 1) in, and takes encodings while the weights still move.
    """

    beta: NonNegative = Field(default=1e-3, description="weight of the divergence from the class priors")
    dim: Count = Field(default=256, description="size of the encoding")
    samples: Count = Field(default=15, description="encodings drawn of each example in a step")
    prior: Literal["product", "standard"] = Field(
        default="product",
        description="class priors; standard: N(0, 1) in every round, the default of the published code",
    )
    direction: Literal["encoder_prior", "prior_encoder"] = Field(
        default="encoder_prior",
        description="of the divergence; encoder_prior: the bound on I(Z; X | Y), prior_encoder: as the published code",
    )

    def adapt_network(self, model: nn.Module, *, classes: int, seed: int) -> nn.Module:
        body, path = copy.deepcopy(model), Layout.of(model).entries[-1].layer
        classifier = body.get_submodule(path)
        if not isinstance(classifier, nn.Linear) or not path:
            raise ValueError(
                f"fedcr needs a network whose last layer is torch.nn.Linear, got {type(classifier).__name__} '{path}'"
            )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(key(seed, "fedcr"))
            body.set_submodule(path, nn.Linear(classifier.in_features, 2 * self.dim))
            return Bottleneck(body, self.dim, classes)

    def __call__(
        self, network: nn.Module, inputs: Tensor, targets: Tensor, context: ClientContext, chosen: slice
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(network, Bottleneck)
        shape = (self.samples, len(targets), self.dim)
        noise = normal(shape, context.seed, "fedcr", context.round, context.clients[0], context.step)
        return self.compute(
            network, inputs[chosen], targets[chosen], read_priors(context.message), noise[:, chosen].to(inputs)
        )

    def compute(
        self, network: Bottleneck, inputs: Tensor, targets: Tensor, priors: Gaussian | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss, and its cross-entropy alone, as means over the batch.

        targets: labels (B,), or shares (B, classes) where labels are mixed.
        priors: (classes, dim), or None for N(0, 1).
        noise: (samples, B, dim).
        """
        found = network.encode(inputs)
        logits = network.head(found.mu + found.sigma * noise)  # (samples, B, classes)
        repeated = targets.repeat(len(noise), *(1 for _ in targets.shape[1:]))
        plain = functional.cross_entropy(logits.flatten(0, 1), repeated)
        if priors is None:
            apart = self._diverge(found, Gaussian(torch.zeros_like(found.mu), torch.ones_like(found.mu)))
        elif targets.dim() == 1:
            apart = self._diverge(found, priors[targets])
        else:
            each = self._diverge(Gaussian(found.mu[:, None], found.sigma[:, None]), priors)  # (B, classes)
            apart = (targets * each).sum(dim=1)
        return plain + self.beta * apart.mean(), plain

    def _diverge(self, found: Gaussian, prior: Gaussian) -> Tensor:
        return divergence(found, prior) if self.direction == "encoder_prior" else divergence(prior, found)

    def summarise(self, network: nn.Module, inputs: Tensor, labels: Tensor) -> Vectors:
        """The precision of a client's mean encoding of every class, and its mean times that; zero where it has none."""
        if self.prior == "standard":
            return {}
        assert isinstance(network, Bottleneck)
        parts = [network.encode(part) for part in torch.split(inputs, CHUNK)]
        mu, sigma = (torch.cat(some) for some in zip(*((one.mu, one.sigma) for one in parts), strict=True))
        precision = mu.new_zeros(network.head.out_features, self.dim)
        weighted = torch.zeros_like(precision)
        for y in sorted(set(labels.tolist())):
            held = labels == y
            precision[y] = sigma[held].mean(dim=0).square().reciprocal()
            weighted[y] = mu[held].mean(dim=0) * precision[y]
        return {"precision": precision, "weighted_mean": weighted}

    def make_message(self, w: Tensor, server: Vectors) -> Vectors:
        return {name: server[name] for name in ("prior_mean", "prior_deviation") if name in server}

    def update_server(self, server: Vectors, report: RoundReport) -> Vectors:
        if self.prior == "standard":
            return {}
        precision, weighted = report.totals["precision"], report.totals["weighted_mean"]
        before = read_priors(server) or Gaussian(torch.zeros_like(weighted), torch.ones_like(weighted))
        held = precision > 0
        return {
            "prior_mean": torch.where(held, weighted / precision, before.mu),
            "prior_deviation": torch.where(held, precision.rsqrt(), before.sigma),
        }

    def count_numbers(self, layout: Layout) -> tuple[int, int]:
        classes = layout.entries[-1].shape[0]  # of the head's bias
        sent = 0 if self.prior == "standard" else 2 * classes * self.dim
        return sent, sent


def read_priors(vectors: Vectors) -> Gaussian | None:
    """The class priors (classes, dim) among the server's vectors or in its message; None before the first round."""
    return Gaussian(vectors["prior_mean"], vectors["prior_deviation"]) if "prior_mean" in vectors else None


@settings
class OwnHead(Correction):
    """u = g~, from the body that was sent and the head that the client ended with when it last took part (FedCR).

    The head is never sent. The server's model keeps the head that every client begins with.
    """

    client_vectors: ClassVar[tuple[str, ...]] = ("head",)

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def find_private(self, layout: Layout) -> slice | None:
        return head(layout)

    def init_client(self, layout: Layout, start: Tensor) -> Vectors:
        return {"head": start[head(layout)]}

    def choose_start(self, context: ClientContext, samples: Samples) -> Tensor:
        w = context.start.clone()
        w[head(context.layout)] = context.state["head"]
        return w

    def update_client(self, context: ClientContext, w: Tensor) -> Vectors:
        return {"head": w[head(context.layout)].clone()}

"""FedCR once more, in plain loops: a method whose network is not the perceptron of the others (see papers.py)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from landscape.rng import normal
from tests.training.federations import CLASSES, HIDDEN, PIXELS, batches, derivative, examples
from training.engine.federation import Federation
from training.methods import catalog

Expert = tuple[Tensor, Tensor]  # mean and standard deviation (dim,)


class FedCRPaper:
    """One federation of FedCR, played by hand; perturbed by SAM or ASAM where the method's name says so."""

    def __init__(self, fed: Federation):
        self.fed, self.p = fed, catalog.read_settings(fed.method)
        self.perturbation = fed.method.name.partition("+")[2]
        self.lr, self.r, self.wd = fed.recipe.local.lr, fed.recipe.local.momentum, fed.recipe.local.weight_decay
        self.w, self.t, self.dim = fed.begin().w, 0, self.p["dim"]
        self.cut = len(self.w) - CLASSES * (self.dim + 1)  # where the head begins
        self.heads: dict[int, Tensor] = {}
        self.priors = [(torch.zeros(self.dim).double(), torch.ones(self.dim).double()) for _ in range(CLASSES)]

    def split(self, x: Tensor) -> list[Tensor]:
        """W1, b1, W2, b2 of the encoder, W3, b3 of the head."""
        shapes = [(HIDDEN, PIXELS), (HIDDEN,), (2 * self.dim, HIDDEN), (2 * self.dim,), (CLASSES, self.dim), (CLASSES,)]
        parts = x.split([torch.Size(shape).numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def encode(self, x: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        W1, b1, W2, b2, _, _ = self.split(x)
        code = (X @ W1.T + b1).clamp(min=0) @ W2.T + b2
        return code[:, : self.dim], (1 + code[:, self.dim :].exp()).log()

    def loss(self, x: Tensor, X: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        mu, sigma = self.encode(x, X)
        *_, W3, b3 = self.split(x)
        found = torch.zeros(()).double()
        for i, label in enumerate(y.tolist()):
            for one in noise[:, i]:
                logits = W3 @ (mu[i] + sigma[i] * one) + b3
                found = found + (logits.logsumexp(0) - logits[label]) / (len(noise) * len(y))
            pair = Normal(mu[i], sigma[i]), Normal(*self.priors[label])
            apart = kl_divergence(*(pair if self.p["direction"] == "encoder_prior" else pair[::-1])).sum()
            found = found + self.p["beta"] * apart / len(y)
        return found

    def descent(self, x: Tensor, X: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        def g(at: Tensor) -> Tensor:
            return derivative(lambda point: self.loss(point, X, y, noise), at)

        if not self.perturbation:
            return g(x)
        if self.perturbation == "sam":
            return g(x + self.p["rho"] * g(x) / g(x).norm())
        assert self.perturbation == "asam"
        T = torch.cat([(v.abs() + self.p["eta"] if v.dim() == 2 else 1 + 0 * v).reshape(-1) for v in self.split(x)])
        along = g(x)
        return g(x + self.p["rho"] * T**2 * along / (T * along).norm())

    def train(self, k: int) -> Tensor:
        """Where client k ends, from the common encoder and its own head."""
        x = torch.cat([self.w[: self.cut], self.heads.get(k, self.w[self.cut :])])
        velocity = torch.zeros_like(x)
        for b, (X, y) in enumerate(batches(self.fed, k, self.t)):
            noise = normal((self.p["samples"], len(y), self.dim), self.fed.recipe.seed, "fedcr", self.t, k, b)
            velocity = self.r * velocity + self.descent(x, X, y, noise) + self.wd * x
            x = x - self.lr * velocity
        return x

    def encode_classes(self, k: int, x: Tensor) -> dict[int, Expert]:
        X, y = examples(self.fed, self.fed.client_indices[k])
        mu, sigma = self.encode(x, X)
        return {c: (mu[y == c].mean(0), sigma[y == c].mean(0)) for c in range(CLASSES) if bool((y == c).any())}

    def play(self) -> Tensor:
        """One round: the next global model, whose head never moves."""
        cohort = self.fed.draw_cohort(self.t)
        sizes = {k: len(self.fed.client_indices[k]) for k in cohort}
        ends = {k: self.train(k) for k in cohort}
        experts = [self.encode_classes(k, x) for k, x in ends.items()]
        body = sum(sizes[k] * ends[k][: self.cut] for k in cohort) / sum(sizes.values())
        body = self.w[: self.cut] + self.p["eta_g"] * (body - self.w[: self.cut])
        self.w = torch.cat([body, self.w[self.cut :]])
        self.heads |= {k: x[self.cut :] for k, x in ends.items()}
        for c in range(CLASSES):
            held = [one[c] for one in experts if c in one]
            if held and self.p["prior"] == "product":
                precision = sum(1 / sigma**2 for _, sigma in held)
                self.priors[c] = sum(mu / sigma**2 for mu, sigma in held) / precision, 1 / precision.sqrt()
        self.t += 1
        return self.w


def global_models(fed: Federation) -> Iterator[Tensor]:
    """The global model after each round."""
    paper = FedCRPaper(fed)
    while True:
        yield paper.play()

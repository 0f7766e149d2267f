"""FedCR: closed forms of its loss and priors, who keeps what, saved and resumed, and what it is in the limit."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from landscape.rng import normal
from tests.training.federations import SIZES, close, federation, play, setup
from training.clients.local_training import OWN_STATISTICS
from training.engine.federation import Federation
from training.engine.run import train
from training.methods.fedcr import Bottleneck, EncodingBound, Gaussian, OwnHead, divergence, read_priors
from training.rules.context import RoundReport
from training.rules.vectors import head
from training.settings import build
from training.storage import checkpoint, metrics

SMALL = {"dim": 4, "samples": 3, "beta": 0.01}


def gaussian(shape: tuple[int, ...], seed: int) -> Gaussian:
    return Gaussian(normal(shape, seed, "mu"), normal(shape, seed, "sigma").exp())


def small(algorithm: dict[str, Any] | None = None, **tables: Any) -> Federation:
    return setup("fedcr", {**SMALL, **(algorithm or {})}, **tables)


def network(dim: int = 4) -> Bottleneck:
    found = EncodingBound(dim=dim).adapt_network(federation().trainer.model, classes=3, seed=3)
    assert isinstance(found, Bottleneck)
    return found.double().requires_grad_(False)


def test_the_divergence_is_the_closed_form():
    q, p = gaussian((7, 5), 0), gaussian((7, 5), 1)
    wanted = kl_divergence(Normal(q.mu, q.sigma), Normal(p.mu, p.sigma)).sum(1)
    torch.testing.assert_close(divergence(q, p), wanted, rtol=1e-12, atol=0)
    assert not torch.allclose(divergence(p, q), wanted)
    assert divergence(q, q).abs().max() < 1e-15


def report(totals: dict[str, torch.Tensor]) -> RoundReport:
    nothing = torch.zeros(1)
    return RoundReport(
        model=nothing,
        start=nothing,
        displacement=nothing,
        pseudo_gradient=nothing,
        effective_steps=1.0,
        uploads={},
        changes={},
        states={},
        drift=0.0,
        participants=2,
        clients=7,
        lr=0.1,
        round=0,
        totals=totals,
    )


def merge(*experts: Gaussian | None, before: Gaussian | None = None) -> Gaussian:
    """Priors of one class from the experts that participants send; None: this one does not hold the class."""
    zero = torch.zeros(1, 2, dtype=torch.float64)
    precision = sum((zero if one is None else one.sigma**-2 for one in experts), zero)
    weighted = sum((zero if one is None else one.mu * one.sigma**-2 for one in experts), zero)
    server = {} if before is None else {"prior_mean": before.mu, "prior_deviation": before.sigma}
    sent = report({"precision": precision, "weighted_mean": weighted})
    found = read_priors(EncodingBound().update_server(server, sent))
    assert found is not None
    return found


def test_a_product_of_gaussians_by_hand() -> None:
    # N(0, 1) and N(3, 2): precisions 1 and 1/4, so the mean is (0 + 3/4) / (5/4) and the variance 4/5
    one = Gaussian(torch.tensor([[0.0, 2.0]]).double(), torch.tensor([[1.0, 1.0]]).double())
    two = Gaussian(torch.tensor([[3.0, 2.0]]).double(), torch.tensor([[2.0, 1.0]]).double())
    found = merge(one, two)
    assert found.mu[0].tolist() == pytest.approx([0.6, 2.0])
    assert found.sigma[0].tolist() == pytest.approx([math.sqrt(0.8), math.sqrt(0.5)])
    alone = merge(None, two)
    torch.testing.assert_close(alone.mu, two.mu)
    torch.testing.assert_close(alone.sigma, two.sigma)


def test_a_product_of_many_is_the_product_of_their_densities() -> None:
    experts = [gaussian((1, 2), seed) for seed in range(5)]
    places = torch.linspace(-3, 3, 13, dtype=torch.float64)[:, None]
    found = merge(*experts)
    logs = sum(Normal(one.mu, one.sigma).log_prob(places) for one in experts)
    off = Normal(found.mu, found.sigma).log_prob(places) - logs
    torch.testing.assert_close(off, off[:1].expand(13, 2))  # equal but for the normalisation


def test_priors_of_classes_that_nobody_held_stay() -> None:
    before = gaussian((1, 2), 4)
    found = merge(None, None, before=before)
    assert torch.equal(found.mu, before.mu)
    assert torch.equal(found.sigma, before.sigma)
    first = merge(None)
    assert torch.equal(first.mu, torch.zeros(1, 2).double())
    assert torch.equal(first.sigma, torch.ones(1, 2).double())
    one = gaussian((1, 2), 5)
    torch.testing.assert_close(merge(one, before=before).mu, one.mu)  # the old prior is not multiplied in


@pytest.mark.parametrize("direction", ["encoder_prior", "prior_encoder"])
def test_the_loss_by_plain_loops(direction: Any) -> None:
    model, dim, samples = network(), 4, 3
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 1, 2, 2)))
    labels, priors = torch.tensor([2, 0, 1, 1, 2]), gaussian((3, dim), 7)
    noise = normal((samples, 5, dim), 8)
    bound = EncodingBound(beta=0.3, dim=dim, samples=samples, direction=direction)
    found, plain = bound.compute(model, images, labels, priors, noise)
    total = crossed = 0.0
    for i in range(5):
        raw = model.body(images[i : i + 1])[0]
        mu, sigma = raw[:dim], torch.log1p(raw[dim:].exp())
        for s in range(samples):
            logits = model.head.weight @ (mu + sigma * noise[s, i]) + model.head.bias
            crossed += -float(logits.log_softmax(0)[labels[i]]) / (5 * samples)
        own, prior = Normal(mu, sigma), Normal(priors.mu[labels[i]], priors.sigma[labels[i]])
        pair = (own, prior) if direction == "encoder_prior" else (prior, own)
        total += 0.3 * float(kl_divergence(*pair).sum()) / 5
    assert float(plain) == pytest.approx(crossed, rel=1e-12)
    assert float(found) == pytest.approx(total + crossed, rel=1e-12)
    shares = functional.one_hot(labels, 3).double()
    assert float(bound.compute(model, images, shares, priors, noise)[0]) == pytest.approx(float(found), rel=1e-12)
    mixed = 0.25 * shares + 0.75 * shares.roll(1, 0)
    halves = [bound.compute(model, images, some, priors, noise)[0] for some in (shares, shares.roll(1, 0))]
    wanted = 0.25 * float(halves[0]) + 0.75 * float(halves[1])
    assert float(bound.compute(model, images, mixed, priors, noise)[0]) == pytest.approx(wanted, rel=1e-12)
    standard = Gaussian(torch.zeros(3, dim).double(), torch.ones(3, dim).double())
    assert torch.equal(
        bound.compute(model, images, labels, None, noise)[0], bound.compute(model, images, labels, standard, noise)[0]
    )


def test_the_network_is_the_recipes_own_but_for_its_classifier() -> None:
    plain, fed = federation(), small({"dim": 7})
    found = fed.trainer.model
    assert isinstance(found, Bottleneck)
    assert torch.equal(found.body.fc1.weight, plain.trainer.model.fc1.weight)
    assert found.body.fc2.weight.shape == (14, 5)
    assert found.head.weight.shape == (3, 7)
    assert torch.equal(small({"dim": 7}).trainer.model.head.weight, found.head.weight)
    images = torch.zeros(2, 1, 2, 2)
    assert torch.equal(found(images), found.head(found.body(images)[:, :7]))


def test_bodies_are_common_and_heads_are_not() -> None:
    fed = small(rounds={"participants": 2})
    begun, own = fed.begin().w, head(fed.trainer.layout)
    known: dict[int, torch.Tensor] = {}
    for state, _, ends in play(fed, 4):
        known |= {client: end[own] for client, end in ends.items()}
        assert state.clients.keys() == known.keys()
        assert all(torch.equal(state.clients[client]["head"], mine) for client, mine in known.items())
        assert torch.equal(state.w[own], begun[own])
        assert not torch.equal(state.w[: own.start], begun[: own.start])
        first, second = list(known)[:2]
        assert not torch.equal(known[first], known[second])
    assert len(known) < len(SIZES)


def test_alone_an_own_head_is_fedavg() -> None:
    """With one client it makes no difference who keeps what: what the client ends with is FedAvg's model."""
    fed = federation(sizes=(11,), rounds={"participants": 1})
    wanted = [state.w for state, _, _ in play(fed, 4)]
    fed.method = fed.trainer.method = dataclasses.replace(fed.method, correction=OwnHead())
    played = play(fed, 4)
    assert all(close(ends[0], w) for (_, _, ends), w in zip(played, wanted, strict=True))
    assert not close(played[-1][0].w, wanted[-1], 1e-3)


def test_without_the_divergence_priors_do_not_matter() -> None:
    one, two = (play(small({"beta": 0.0, "prior": kind}), 3)[-1][0] for kind in ("product", "standard"))
    assert torch.equal(one.w, two.w)
    three, four = (play(small({"beta": 0.1, "prior": kind}), 3)[-1][0] for kind in ("product", "standard"))
    assert not torch.allclose(three.w, four.w)
    assert two.server == four.server == {}


def test_the_noise_is_that_of_the_step() -> None:
    """Both gradients of SAM see the same encodings; another seed, client or round sees others."""
    fed = small({"samples": 1}, local={"steps": 1})
    again = play(small({"samples": 1}, local={"steps": 1}), 1)[0][0]
    assert torch.equal(play(fed, 1)[0][0].w, again.w)
    none, sam = (
        play(setup(f"fedcr+{kind}", {**SMALL, "rho": 1e-9} if kind == "sam" else SMALL), 1)[0][0].w
        for kind in ("none", "sam")
    )
    torch.testing.assert_close(sam, none, rtol=0, atol=1e-7)


def test_statistics_of_norm_layers_may_stay_with_the_clients() -> None:
    model = {"name": "tests.training.federations:normed"}
    tables = {"sizes": (6, 7, 10), "model": model}
    own = play(small(rounds={"participants": 2, "statistics": "own"}, **tables), 3)[-1][0]
    averaged = play(small(rounds={"participants": 2}, **tables), 3)[-1][0]
    assert all(set(vectors) == {"head", OWN_STATISTICS} for vectors in own.clients.values())
    assert not torch.equal(own.statistics, averaged.statistics)


class StoppedError(Exception):
    """Stands for a kill."""


def test_a_resumed_run_is_the_same_to_the_bit(tmp_path: Path) -> None:
    recipe = small(
        rounds={"count": 5, "participants": 2}, evaluation={"personal": True, "draw": 12}, checkpoints={"every": 2}
    ).recipe

    def stop(record: metrics.Record) -> None:
        if record["round"] == 3:
            raise StoppedError

    whole = train(recipe, tmp_path / "whole", backend="serial")
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "parts", backend="serial", on_round=stop)
    parts = train(recipe, tmp_path / "parts", backend="auto", workers=1)
    found, wanted = ([one | {"seconds": 0} for one in metrics.read(run)] for run in (parts, whole))
    assert found == wanted
    left, right = (checkpoint.load_newest(run)[0] for run in (parts, whole))
    assert left is not None
    assert right is not None
    for one, two in ((left.models, right.models), (left.server, right.server)):
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], vector) for name, vector in two.items())
    assert all(torch.equal(left.clients[k]["head"], own["head"]) for k, own in right.clients.items())
    assert {"prior_mean", "prior_deviation"} == set(right.server)


def test_it_learns() -> None:
    fed = setup(
        "fedcr",
        {},
        sizes=(30, 41, 26, 35, 28, 37),
        data={"test_examples": 300},
        local={"epochs": 3},
        evaluation={"personal": True, "draw": 60},
    )
    found = [record["personal_accuracy"] for _, record, _ in play(fed, 8)]
    assert found[-1] > 0.6  # chance is a third; logistic regression on everyone's data gets 0.73


class Convolved(nn.Module):
    """A network whose classifier is a convolution."""

    def __init__(self, classes: int, channels: int, size: int):
        super().__init__()
        self.classifier = nn.Conv2d(channels, classes, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(x).flatten(1)


def test_a_network_without_a_linear_classifier_is_refused():
    with pytest.raises(ValueError, match=r"last layer is torch\.nn\.Linear, got Conv2d 'classifier'"):
        small(model={"name": "tests.training.methods.test_fedcr:Convolved"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": "produkt"}, "did you mean 'product'"),
        ({"direction": "encoder_pior"}, "did you mean 'encoder_prior'"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"beta": -1.0}, "beta must be at least 0, got -1.0"),
    ],
)
def test_settings_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        build(EncodingBound, change, "fedcr")


def test_sigma_never_vanishes():
    model = Bottleneck(nn.Identity(), 2, 3)
    found = model.encode(torch.tensor([[0.0, 0.0, -1e4, 0.0]]))
    assert found.sigma.tolist()[0] == pytest.approx([1e-6, math.log(2)])

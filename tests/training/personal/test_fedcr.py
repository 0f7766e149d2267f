"""FedCR against closed forms, plain loops and plain torch: divergence, products, loss, a round, who keeps what."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from landscape.rng import normal, numpy_generator
from tests.training.federations import SIZES, examples, federation
from training.personal.client_evaluation import draw_test_examples, read_test_examples
from training.personal.fedcr import (
    Bottleneck,
    Bound,
    FedCR,
    Gaussian,
    divergence,
    make_head_trainer,
    merge_priors,
    network,
    product,
)
from training.rules.vectors import head
from training.settings import build


def gaussian(shape, seed):
    return Gaussian(normal(shape, seed, "mu"), normal(shape, seed, "sigma").exp())


def begun(fed=None, *, dim=4, epochs=2, lr=0.2, bound=None):
    return FedCR.begin(fed or federation(), epochs=epochs, lr=lr, dim=dim, bound=bound or Bound(beta=0.01, samples=3))


def after(rounds, *arguments, **keywords):
    state = begun(*arguments, **keywords)
    for _ in range(rounds):
        state.advance()
    return state


def test_the_divergence_is_the_closed_form():
    q, p = gaussian((7, 5), 0), gaussian((7, 5), 1)
    wanted = kl_divergence(Normal(q.mu, q.sigma), Normal(p.mu, p.sigma)).sum(1)
    torch.testing.assert_close(divergence(q, p), wanted, rtol=1e-12, atol=0)
    assert not torch.allclose(divergence(p, q), wanted)
    assert divergence(q, q).abs().max() < 1e-15


def test_a_product_of_gaussians_by_hand():
    # N(0, 1) and N(3, 2): precisions 1 and 1/4, so the mean is (0 + 3/4) / (5/4) and the variance 4/5
    found = product(Gaussian(torch.tensor([[0.0, 2.0], [3.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 1.0]])))
    assert found.mu.tolist() == pytest.approx([0.6, 2.0])
    assert found.sigma.tolist() == pytest.approx([math.sqrt(0.8), math.sqrt(0.5)])
    alone = gaussian((1, 6), 2)
    torch.testing.assert_close(product(alone).mu, alone.mu[0])
    torch.testing.assert_close(product(alone).sigma, alone.sigma[0])


def test_a_product_of_many_is_the_product_of_their_densities():
    experts, places = gaussian((5, 1), 3), torch.linspace(-3, 3, 13, dtype=torch.float64)
    found = product(experts)
    logs = sum(Normal(experts.mu[i], experts.sigma[i]).log_prob(places) for i in range(5))
    off = Normal(found.mu, found.sigma).log_prob(places) - logs
    torch.testing.assert_close(off, off[:1].expand(13))  # equal but for the normalisation


def test_priors_of_classes_that_nobody_held_stay():
    before = gaussian((3, 2), 4)
    one, two = gaussian((2,), 5), gaussian((2,), 6)
    found = merge_priors(before, [{0: one, 2: one}, {2: two}])
    torch.testing.assert_close(found.mu[1], before.mu[1], rtol=0, atol=0)
    torch.testing.assert_close(found.sigma[0], one.sigma)
    both = product(Gaussian(torch.stack([one.mu, two.mu]), torch.stack([one.sigma, two.sigma])))
    torch.testing.assert_close(found.mu[2], both.mu)


@pytest.mark.parametrize("direction", ["encoder_prior", "prior_encoder"])
def test_the_loss_by_plain_loops(direction):
    fed = federation()
    model, dim, samples = network(fed, 4).double(), 4, 3
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 1, 2, 2)))
    labels, priors = torch.tensor([2, 0, 1, 1, 2]), gaussian((3, dim), 7)
    noise = normal((samples, 5, dim), 8)
    model.requires_grad_(False)
    found = Bound(0.3, samples, direction=direction)(model, images, labels, priors, noise)
    total = 0.0
    for i in range(5):
        raw = model.body(images[i : i + 1])[0]
        mu, sigma = raw[:dim], torch.log1p(raw[dim:].exp())
        for s in range(samples):
            logits = model.head.weight @ (mu + sigma * noise[s, i]) + model.head.bias
            total += -float(logits.log_softmax(0)[labels[i]]) / (5 * samples)
        own, prior = Normal(mu, sigma), Normal(priors.mu[labels[i]], priors.sigma[labels[i]])
        pair = (own, prior) if direction == "encoder_prior" else (prior, own)
        total += 0.3 * float(kl_divergence(*pair).sum()) / 5
    assert float(found) == pytest.approx(total, rel=1e-12)


def test_the_network_is_the_runs_own_but_for_its_classifier():
    fed = federation()
    found = network(fed, 7)
    assert torch.equal(found.body.fc1.weight, fed.trainer.model.fc1.weight)
    assert found.body.fc2.weight.shape == (14, 5)
    assert found.head.weight.shape == (3, 7)
    assert torch.equal(network(fed, 7).head.weight, found.head.weight)
    images = torch.zeros(2, 1, 2, 2)
    assert torch.equal(found(images), found.head(found.body(images)[:, :7]))


def by_torch(fed, model, client, round, priors, bound):
    """Local training with torch.optim on the batches of a round, the noise from its key."""
    model = copy.deepcopy(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5, weight_decay=0.01)
    own, step = fed.client_indices[client], 0
    for epoch in range(2):
        order = numpy_generator(3, "order", round, client, epoch).permutation(own)
        for start in range(0, len(own), 4):
            chosen = order[start : start + 4]
            inputs, labels = examples(fed, chosen)
            noise = normal((bound.samples, len(chosen), 4), 3, "fedcr", round, client, step)
            code = model.body(inputs.view(-1, 1, 2, 2))
            mu, sigma = code[:, :4], functional.softplus(code[:, 4:])
            losses = [functional.cross_entropy(model.head(mu + sigma * noise[s]), labels) for s in range(len(noise))]
            apart = kl_divergence(Normal(mu, sigma), Normal(priors.mu[labels], priors.sigma[labels])).sum(1).mean()
            optimiser.zero_grad()
            (sum(losses) / len(losses) + bound.beta * apart).backward()
            optimiser.step()
            step += 1
    return model


def test_two_rounds_by_plain_torch():
    fed = federation(local={"momentum": 0.5, "weight_decay": 0.01})
    state = begun(fed)
    server = network(fed, 4).double()
    heads, bound = {}, state.bound
    priors = Gaussian(torch.zeros(3, 4).double(), torch.ones(3, 4).double())
    for round in range(2):
        cohort = fed.draw_cohort(round)
        ends, experts = {}, []
        for client in cohort:
            start = copy.deepcopy(server)
            start.head.load_state_dict(heads.get(client, server.head.state_dict()))
            ends[client] = by_torch(fed, start, client, round, priors, bound)
            heads[client] = copy.deepcopy(ends[client].head.state_dict())
            inputs, labels = examples(fed, fed.client_indices[client])
            with torch.no_grad():
                code = ends[client].body(inputs.view(-1, 1, 2, 2))
            mu, sigma = code[:, :4], functional.softplus(code[:, 4:])
            experts.append(
                {int(y): (mu[labels == y].mean(0), sigma[labels == y].mean(0)) for y in set(labels.tolist())}
            )
        share = np.array([SIZES[client] for client in cohort]) / sum(SIZES[client] for client in cohort)
        for name, parameter in server.body.named_parameters():
            own = [dict(ends[client].body.named_parameters())[name] for client in cohort]
            parameter.data = sum(p * one.data for p, one in zip(share, own, strict=True))
        for y in range(3):
            held = [expert[y] for expert in experts if y in expert]
            if held:
                precision = sum(1 / sigma**2 for _, sigma in held)
                priors.mu[y] = sum(mu / sigma**2 for mu, sigma in held) / precision
                priors.sigma[y] = 1 / precision.sqrt()
        state.advance()
    body = torch.cat([parameter.data.reshape(-1) for parameter in server.body.parameters()])
    torch.testing.assert_close(state.w[: body.numel()], body, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(state.priors.mu, priors.mu, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(state.priors.sigma, priors.sigma, rtol=1e-11, atol=1e-13)
    assert state.heads.keys() == heads.keys()
    for client, found in state.heads.items():
        wanted = torch.cat([heads[client]["weight"].reshape(-1), heads[client]["bias"]])
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


def test_bodies_are_common_and_heads_are_not():
    state = after(2, federation(rounds={"participants": 2}))
    own = head(state.trainer.layout)
    clients = range(len(SIZES))
    models = [state.personal(client) for client in clients]
    assert all(torch.equal(model[: own.start], models[0][: own.start]) for model in models)
    seen = {client for round in range(2) for client in state.federation.draw_cohort(round)}
    first, second = sorted(seen)[:2]
    assert not torch.equal(models[first][own], models[second][own])
    initial = begun(state.federation).w
    assert {client for client in clients if torch.equal(models[client][own], initial[own])} == set(clients) - seen
    assert set(clients) - seen
    assert not torch.equal(state.w[: own.start], initial[: own.start])


def test_the_last_training_is_of_the_head_alone():
    state = after(1)
    own, trainer = head(state.trainer.layout), make_head_trainer(state, 2)
    for client in (0, 6):
        end, _ = state.train(client, trainer)
        assert torch.equal(end[: own.start], state.w[: own.start])
        assert not torch.equal(end[own], state.personal(client)[own])


def test_standard_priors_stay_standard():
    state = after(2, bound=Bound(0.01, 3, prior="standard"))
    assert torch.equal(state.priors.mu, torch.zeros(3, 4).double())
    assert torch.equal(state.priors.sigma, torch.ones(3, 4).double())
    assert not torch.equal(after(2).priors.sigma, state.priors.sigma)


def test_what_is_asked_for_first_changes_nothing():
    inputs = normal((9, 1, 2, 2), 0)
    one, two = after(2), after(2)
    assert torch.equal(one.w, two.w)
    found = {client: one.predict(client, make_head_trainer(one, 2), inputs) for client in (5, 0)}
    trainer = make_head_trainer(two, 2)
    again = {client: two.predict(client, trainer, inputs) for client in (0, 3, 5)}
    assert all(torch.equal(found[client], again[client]) for client in found)
    assert not torch.equal(again[0], again[5])


def test_it_learns():
    fed = federation(sizes=(30, 41, 26, 35, 28, 37), data={"test_examples": 300}, rounds={"participants": 3})
    state = after(8, fed, epochs=3, bound=Bound())
    trainer, right = make_head_trainer(state, 3), []
    for client in range(6):
        inputs, labels = read_test_examples(fed, draw_test_examples(fed, client, draw=60))
        right.append(float((state.predict(client, trainer, inputs).argmax(1) == labels).double().mean()))
    assert np.mean(right) > 0.6  # chance is a third; logistic regression on everyone's data gets 0.73


def test_running_statistics_travel_with_the_body():
    fed = federation(sizes=(6, 7, 10), model={"name": "tests.training.federations:normed"}, rounds={"participants": 3})
    state = begun(fed)
    initial = state.statistics
    assert initial.tolist() == [0.0] * 5 + [1.0] * 5
    ends = [state.train(client, state.trainer)[1] for client in range(3)]
    state.advance()
    wanted = sum(size / 23 * end for size, end in zip((6, 7, 10), ends, strict=True))
    torch.testing.assert_close(state.statistics, wanted, rtol=1e-13, atol=0)
    assert not torch.equal(wanted, initial)


class Convolved(nn.Module):
    """A network whose classifier is a convolution."""

    def __init__(self, classes: int, channels: int, size: int):
        super().__init__()
        self.classifier = nn.Conv2d(channels, classes, size)

    def forward(self, x):
        return self.classifier(x).flatten(1)


def test_a_network_without_a_linear_classifier_is_refused():
    fed = federation(model={"name": "tests.training.personal.test_fedcr:Convolved"})
    with pytest.raises(ValueError, match=r"last layer is torch\.nn\.Linear, got Conv2d 'classifier'"):
        network(fed, 4)


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
        build(Bound, change, "fedcr")


def test_sigma_never_vanishes():
    model = Bottleneck(nn.Identity(), 2, 3)
    found = model.encode(torch.tensor([[0.0, 0.0, -1e4, 0.0]]))
    assert found.sigma.tolist()[0] == pytest.approx([1e-6, math.log(2)])

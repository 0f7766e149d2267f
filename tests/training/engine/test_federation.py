"""What holds for every federation: gradient descent as the limit, who counts how much, what is counted."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.runtime import replica
from tests.training.federations import (
    COMPOSED,
    NAMES,
    SIZES,
    batches,
    close,
    examples,
    federation,
    gradient,
    loss,
    play,
)
from training.clients import local_training
from training.engine.federation import Federation
from training.executors.serial import Serial
from training.methods import catalog

EVERYONE = {"participants": 7}
FULL_BATCH = {"batch_size": 100, "epochs": 1}
TRAFFIC = {  # model-sized vectors per participant and round, down and up; gradients per local step
    "fedavg": (1, 1, 1),
    "fedprox": (1, 1, 1),
    "fedavgm": (1, 1, 1),
    "silobn": (1, 1, 1),
    "fedadam": (1, 1, 1),
    "fedadagrad": (1, 1, 1),
    "fednova": (1, 1, 1),
    "scaffold": (2, 2, 1),
    "feddyn": (1, 1, 1),
    "fedcm": (2, 1, 1),
    "fedsam": (1, 1, 2),
    "fedsam-previous": (1, 1, 1),
    "fedasam": (1, 1, 2),
    "mofedsam": (2, 1, 2),
    "fedacg": (1, 1, 1),
    "adabest": (1, 1, 1),
    "fedntd": (1, 1, 1),
    "moon": (1, 1, 1),
    "fedgamma": (2, 2, 2),
    "fedspeed": (1, 1, 2),
    "fedsmoo": (2, 2, 2),
    "fedlesam": (1, 1, 1),
    "fedlesam-s": (2, 2, 1),
    "fedlesam-d": (1, 1, 1),
    "fedgf": (2, 1, 2),
    "fedgmt": (2, 1, 1),
    "fedwmsam": (2, 1, 1),
    "fedgloss": (1, 1, 2),
    "naivefedgloss": (2, 2, 4),
    "fedfsa": (2, 1, 2),
    "fedvssam": (2, 1, 2),
    "fedsol": (1, 1, 2),
    "fedsol-nova": (1, 1, 2),
    "fedbabu": (1, 1, 1),
    "fedala": (1, 1, 1),
    "perfedavg": (1, 1, 2),
    "fedcr": (1, 1, 1),  # and the class priors, but not the head
}


def test_one_client_one_full_batch_is_gradient_descent() -> None:
    fed = federation(sizes=[11], local=FULL_BATCH)
    w = fed.begin().w
    for state, _, _ in play(fed, 3):
        w = w - 0.2 * gradient(w, *examples(fed))
        assert close(state.w, w)


def test_everyone_with_one_step_is_a_large_batch() -> None:
    fed = federation(local=FULL_BATCH, rounds=EVERYONE)
    w = fed.begin().w
    for state, _, _ in play(fed, 3):
        w = w - 0.2 * gradient(w, *examples(fed))
        assert close(state.w, w)


def torch_sgd(fed: Federation, rounds: int, **settings: float) -> Tensor:
    """One client trained by torch's own optimizer on the same batches; a new one every round."""
    model = copy.deepcopy(fed.trainer.model).double().train()
    for round in range(rounds):
        optimizer = torch.optim.SGD(model.parameters(), lr=fed.compute_lr(round), **settings)
        for X, y in batches(fed, 0, round):
            optimizer.zero_grad()
            functional.cross_entropy(model(X), y).backward()
            optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.1}]
)
def test_one_client_is_centralised_sgd(settings: dict[str, float]) -> None:
    """Momentum starts afresh every round, so torch's optimizer does as well."""
    fed = federation(sizes=[11], local={**settings, "lr_decay": 0.8})
    assert close(play(fed, 3)[-1][0].w, torch_sgd(fed, 3, **settings))


def test_weight_decay_acts_at_the_unperturbed_weights() -> None:
    fed = federation("fedsam", sizes=[11], algorithm={"rho": 0.5}, local={"weight_decay": 0.3})
    w = fed.begin().w
    for X, y in batches(fed, 0, 0):
        g = gradient(w, X, y)
        w = w - 0.2 * (gradient(w + 0.5 * g / g.norm(), X, y) + 0.3 * w)
    assert close(play(fed, 1)[0][0].w, w)


def test_clipping_comes_after_the_correction_and_before_weight_decay() -> None:
    limit = 1.0
    local = {"clip": limit, "weight_decay": 0.3, "momentum": 0.5}
    fed = federation("fedprox", sizes=[11], algorithm={"mu": 3.0}, local=local)
    w = start = fed.begin().w
    velocity, norms = torch.zeros_like(w), []
    for X, y in batches(fed, 0, 0):
        u = gradient(w, X, y) + 3.0 * (w - start)
        norms.append(float(u.norm()))
        velocity = 0.5 * velocity + u * min(1.0, limit / norms[-1]) + 0.3 * w
        w = w - 0.2 * velocity
    assert min(norms) < limit < max(norms), "both sides of the limit must be seen"
    assert close(play(fed, 1)[0][0].w, w)


def test_clients_weigh_by_their_examples() -> None:
    fed = federation()
    state, _, ends = play(fed, 1)[0]
    sizes = {k: SIZES[k] for k in fed.draw_cohort(0)}
    assert len(set(sizes.values())) == 3
    assert close(state.w, sum(n * ends[k] for k, n in sizes.items()) / sum(sizes.values()))
    uniform = federation(rounds={"aggregation": "uniform"})
    state, _, ends = play(uniform, 1)[0]
    assert close(state.w, sum(ends.values()) / 3)


@pytest.mark.parametrize("name", NAMES)
def test_equal_clients_weigh_the_same_either_way(name: str) -> None:
    by_size, uniform = (
        federation(name, sizes=[6] * 5, rounds={"aggregation": aggregation}) for aggregation in ("size", "uniform")
    )
    assert close(play(by_size, 3)[-1][0].w, play(uniform, 3)[-1][0].w)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_clients_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation(name, rounds={"participants": 5})
    forward = play(fed, 2)
    drawn = fed.draw_cohort
    monkeypatch.setattr(fed, "draw_cohort", lambda round: drawn(round)[::-1])
    backward = play(fed, 2)
    assert list(backward[0][2]) == list(forward[0][2])[::-1]
    for client, w in forward[0][2].items():
        # two exchanges: the second starts from a mean, whose rounding does depend on the order
        assert close(backward[0][2][client], w, 1e-12 if name == "naivefedgloss" else 0.0)
    assert close(backward[-1][0].w, forward[-1][0].w, 1e-11)


def test_both_passes_of_sam_see_the_same_augmented_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation("fedsam", augment={"padding": 1, "flip": True, "cutout": 1, "mixup": 0.4})
    seen: list[tuple[Tensor, Tensor, bool]] = []
    take = local_training.StepGradient.__call__

    def spy(gradient_at: local_training.StepGradient, point: Tensor, *rest: Any) -> Tensor:
        seen.append((gradient_at.inputs, gradient_at.targets, gradient_at.evaluations == 0))
        return take(gradient_at, point, *rest)

    monkeypatch.setattr(local_training.StepGradient, "__call__", spy)
    play(fed, 1)
    firsts, seconds = seen[0::2], seen[1::2]
    assert len(firsts) > 5
    for (X, y, first), (X2, y2, second) in zip(firsts, seconds, strict=True):
        assert first
        assert not second
        assert torch.equal(X, X2)
        assert torch.equal(y, y2)


def test_augmentation_is_drawn_for_every_client_round_and_step() -> None:
    fed = federation(data={"shape": [1, 8, 8]}, augment={"padding": 3, "flip": True, "mixup": 0.4})
    chosen = fed.client_indices[2][:4]

    def drawn(client: int, round: int, step: int) -> Tensor:
        return fed.trainer.load_batch(chosen, client, round, step)[0]

    keys = [(2, 0, 0), (2, 0, 1), (2, 1, 0), (3, 0, 0)]
    for key, other in itertools.product(keys, keys):
        assert torch.equal(drawn(*key), drawn(*other)) == (key == other)


def test_every_epoch_and_round_draws_its_own_order() -> None:
    fed = federation()
    orders = [list(fed.trainer.draw_batches(client, round)) for client in range(7) for round in range(3)]
    for client, listed in zip(np.repeat(np.arange(7), 3), orders, strict=True):
        steps = -(-SIZES[client] // 4)
        assert len(listed) == fed.trainer.count_steps(int(client)) == 2 * steps
        for epoch in (listed[:steps], listed[steps:]):  # every example once an epoch
            assert sorted(np.concatenate(epoch)) == sorted(fed.client_indices[int(client)])
    two = [np.concatenate(listed) for listed in orders[6:9]]  # the client with 12 examples
    assert not np.array_equal(two[0], two[1])
    assert not np.array_equal(two[0][:12], two[0][12:])


def test_a_number_of_steps_replaces_epochs() -> None:
    fed = federation(local={"steps": 5})
    listed = list(fed.trainer.draw_batches(1, 0))  # 7 examples: 4 + 3, 4 + 3, 4
    assert [len(batch) for batch in listed] == [4, 3, 4, 3, 4]
    assert {fed.trainer.count_steps(client) for client in range(7)} == {5}
    assert play(fed, 1)[0][1]["gradients"] == 3 * 5


def test_a_fixed_cohort_is_a_function_of_seed_and_round() -> None:
    fed, other = federation(), federation("fedsam", local={"lr": 0.9})
    cohorts = [fed.draw_cohort(round) for round in range(30)]
    assert [other.draw_cohort(round) for round in reversed(range(30))] == cohorts[::-1]
    assert [federation(seed=4).draw_cohort(round) for round in range(30)] != cohorts
    assert all(len(set(cohort)) == 3 and cohort == sorted(cohort) for cohort in cohorts)
    assert {client for cohort in cohorts for client in cohort} == set(range(7))


def test_a_bernoulli_cohort_is_a_function_of_seed_and_round() -> None:
    rounds = {"sampling": "bernoulli", "participants": 3}
    fed, other = federation(rounds=rounds), federation("scaffold", rounds=rounds)
    cohorts = [fed.draw_cohort(round) for round in range(400)]
    assert [other.draw_cohort(round) for round in reversed(range(400))] == cohorts[::-1]
    assert min(len(cohort) for cohort in cohorts) >= 1
    # Binomial(7, 3/7) without zero: mean 3 / (1 - (4/7)^7) = 3.06, standard error 0.064
    assert abs(np.mean([len(cohort) for cohort in cohorts]) - 3.06) < 0.25
    assert len({len(cohort) for cohort in cohorts}) > 4
    alone = federation(rounds={"sampling": "bernoulli", "participants": 1})
    assert all(alone.draw_cohort(round) for round in range(50))


def test_the_rate_decays_by_round() -> None:
    fed = federation(local={"lr": 0.5, "lr_decay": 0.9})
    assert [record["lr"] for _, record, _ in play(fed, 3)] == pytest.approx([0.5, 0.45, 0.405])
    state, later = play(fed, 2)[-1][0], federation(local={"lr": 0.405})
    assert close(play(fed, 1, state=state)[0][0].w, play(later, 1, state=state)[0][0].w)


@pytest.mark.parametrize("name", NAMES)
def test_traffic_and_gradients_are_counted(name: str) -> None:
    assert name in TRAFFIC, f"write down what {name} sends"
    down, up, gradients = TRAFFIC[name]
    fed = federation(name)
    steps = sum(fed.trainer.count_steps(client) for client in fed.draw_cohort(0))
    record = play(fed, 1)[0][1]
    d = 4 * 5 + 5 + 5 * 3 + 3
    if name == "fedcr":  # the encoder; mean and deviation of 256 numbers for each of three classes
        d = 4 * 5 + 5 + 5 * 512 + 512 + 2 * 256 * 3
    assert record["bytes_down"] == down * d * 8 * 3
    assert record["bytes_up"] == up * d * 8 * 3
    spared = 3 if name.startswith("fedsol") else 0  # where a client starts, the proximal loss is known to be flat
    assert record["gradients"] == gradients * steps - spared
    assert fed.method.gradients_per_step == gradients


@pytest.mark.parametrize("name", NAMES + COMPOSED)
def test_what_travels_is_what_is_counted(name: str) -> None:
    """The rules' own numbers against the vectors that they really send; a change of c_k goes up as well."""
    method = catalog.find_method(name)
    w = torch.ones(3)
    sent = [vector for vector in method.make_message(w, method.init_server(w)).values() if vector.shape == w.shape]
    both = 1 if name.startswith("naivefedgloss") else 0  # everything once more
    if name.startswith("fedwmsam"):
        sent.pop()  # Gbar and c go down as one vector, which the server makes for each client
    assert method.traffic[0] == 1 + len(sent) + both
    shared = "control" in method.client_vectors and not name.startswith("fedwmsam")
    assert method.traffic[1] == 1 + shared + (name == "fedsmoo") + both


def test_single_precision_halves_the_traffic() -> None:
    assert play(federation(dtype="float32"), 1)[0][1]["bytes_up"] == 43 * 4 * 3


def test_a_radius_of_zero_costs_one_gradient() -> None:
    fed = federation("fedsam", algorithm={"rho": 0})
    assert play(fed, 1)[0][1]["gradients"] == play(federation(), 1)[0][1]["gradients"]


def test_metrics_of_a_round() -> None:
    fed = federation("fedavgm", algorithm={"eta_g": 2})
    start = fed.begin().w
    state, record, ends = play(fed, 1)[0]
    D = {k: w - start for k, w in ends.items()}
    share = {k: SIZES[k] / sum(SIZES[j] for j in ends) for k in ends}
    pairs = [D[j] @ D[k] / D[j].norm() / D[k].norm() for j in D for k in D if j < k]
    assert record["round"] == 1
    assert record["participants"] == 3
    assert record["norm"] == pytest.approx(float(state.w.norm()))
    assert record["update"] == pytest.approx(float(sum(share[k] * D[k] for k in D).norm()))
    assert record["drift"] == pytest.approx(sum(float(d.norm()) for d in D.values()) / 3)
    assert record["cosine"] == pytest.approx(float(sum(pairs)) / 3)
    assert play(federation(rounds={"participants": 1}), 1)[0][1]["cosine"] is None
    fed = federation(local=FULL_BATCH)  # one step: the loss before it is that of the model that was sent
    lost = {k: float(loss(start, *examples(fed, fed.client_indices[k]))) for k in ends}
    assert play(fed, 1)[0][1]["train_loss"] == pytest.approx(sum(share[k] * lost[k] for k in ends))


@pytest.mark.parametrize("name", ["fedavg", "fedsam"])
def test_the_training_loss_is_that_before_each_step(name: str) -> None:
    fed = federation(name, sizes=[11])
    w, losses = fed.begin().w, []
    for X, y in batches(fed, 0, 0):
        losses.append(float(loss(w, X, y)))
        g = gradient(w, X, y)
        w = w - 0.2 * (gradient(w + 0.05 * g / g.norm(), X, y) if name == "fedsam" else g)
    assert play(fed, 1)[0][1]["train_loss"] == pytest.approx(np.mean(losses))


def test_training_leaves_the_caller_alone() -> None:
    fed = federation("fedsam")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    initial = fed.trainer.layout.flatten(fed.trainer.model).clone()
    threads = torch.get_num_threads()
    state = fed.begin()
    w = state.w.clone()
    fed.advance(state, Serial(fed.trainer))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(fed.trainer.layout.flatten(fed.trainer.model), initial)
    assert torch.equal(state.w, w)
    assert state.round == 0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", NAMES)
def test_networks_on_views_of_a_vector_or_on_copies_of_it_train_to_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large vectors are not copied into the network: none may change while the network computes at it."""
    copied = play(federation(name), 2)[-1][0]
    monkeypatch.setattr(replica, "BOUND", 0)
    placed: list[Tensor] = []
    own = replica.Replica.views

    def view(self: replica.Replica, vector: Tensor) -> list[Tensor]:
        placed.append(vector)
        return own(self, vector)

    monkeypatch.setattr(replica.Replica, "views", view)
    viewed = play(federation(name), 2)[-1][0]
    assert len(placed) > 2  # more than each trainer's own
    assert torch.equal(copied.w, viewed.w)
    for client, vectors in copied.clients.items():
        assert all(torch.equal(vector, viewed.clients[client][key]) for key, vector in vectors.items())

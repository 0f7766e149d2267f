"""The objective is a pure function of the vector: right value, right average, nothing touched, bad input refused."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from landscape import Objective
from landscape.losses.batches import join, list_sizes
from tests.landscape.cases import CASES, make


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk_size", [1, 4, None])
def test_loss_and_gradient_equal_one_pass_over_all_data(name, chunk_size):
    case = make(name)
    objective = Objective(case.model, case.data, case.loss, chunk_size=chunk_size)
    value = case.function()
    theta = case.theta()
    expected = torch.func.grad(value)(theta)
    assert torch.equal(objective.theta, theta)
    assert objective.loss(theta) == pytest.approx(value(theta).item(), abs=1e-13)
    torch.testing.assert_close(objective.gradient(theta), expected, rtol=0, atol=1e-13)


def test_other_vectors_and_error():
    case = make("mlp")
    objective = Objective(case.model, case.data, chunk_size=32)
    theta = torch.randn(objective.size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parts = objective.layout.unflatten(theta)
    outputs = torch.func.functional_call(case.model, parts, (case.inputs,))
    assert objective.loss(theta) == pytest.approx(functional.cross_entropy(outputs, case.targets).item(), abs=1e-13)
    assert objective.error(theta) == float((outputs.argmax(1) != case.targets).double().mean())


def test_batches_of_unequal_size_weigh_by_their_examples():
    case = make("mlp")
    X, y = case.data
    batches = [(X[:50], y[:50]), (X[50:53], y[50:53]), (X[53:], y[53:])]
    loader = DataLoader(TensorDataset(X, y), batch_size=32)
    shuffled = DataLoader(TensorDataset(X, y), batch_size=32, shuffle=True, drop_last=True)
    expected = functional.cross_entropy(case.model(X), y).item()
    for data in (batches, tuple(batches), loader, shuffled):
        assert Objective(case.model, data).loss(case.theta()) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(
    "loss",
    [
        functional.cross_entropy,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]).double()),
        partial(functional.cross_entropy, weight=torch.tensor([1.0, 2.0, 5.0]).double(), ignore_index=1),
        partial(functional.cross_entropy, label_smoothing=0.1),
        lambda outputs, targets: functional.cross_entropy(outputs, targets),  # a mean
        lambda outputs, targets: (outputs**2).sum(1) * targets,  # one value per example
    ],
)
def test_any_loss_is_averaged_as_if_in_one_batch(loss):
    case = make("mlp")
    whole = loss(case.model(case.inputs), case.targets).mean()
    objective = Objective(case.model, case.data, loss, chunk_size=32)
    assert objective.loss(objective.theta) == pytest.approx(whole.item(), abs=1e-13)


def test_tokens_count_where_they_are_valid():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6)).double()
    tokens, targets = torch.randint(0, 6, (10, 7)), torch.randint(0, 6, (10, 7))
    targets[3:, 2:] = -100

    def loss(outputs, targets):
        return functional.cross_entropy(outputs.transpose(1, 2), targets)

    wrapped = nn.Sequential(model, _Transposed())
    objective = Objective(wrapped, (tokens, targets), chunk_size=4)
    assert objective.loss(objective.theta) == pytest.approx(loss(model(tokens), targets).item(), abs=1e-13)
    wrong = (model(tokens).argmax(-1) != targets)[targets != -100].double().mean()
    assert objective.error(objective.theta) == pytest.approx(float(wrong), abs=1e-15)


class _Transposed(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def test_general_form_takes_any_batch():
    case = make("mlp")
    batches = [{"x": case.inputs[:30], "y": case.targets[:30]}, {"x": case.inputs[30:], "y": case.targets[30:]}]

    def batch_loss(model, batch):
        outputs = model(batch["x"])
        errors = (outputs.argmax(1) != batch["y"]).sum()
        return functional.cross_entropy(outputs, batch["y"], reduction="sum"), len(batch["y"]), errors

    general = Objective(case.model, batches, batch_loss=batch_loss)
    plain = Objective(case.model, case.data)
    theta = general.theta
    assert general.loss(theta) == pytest.approx(plain.loss(theta), abs=1e-13)
    assert general.error(theta) == plain.error(theta)
    torch.testing.assert_close(general.gradient(theta), plain.gradient(theta), rtol=0, atol=1e-13)
    torch.testing.assert_close(
        general.hessian(theta).matvec(theta), plain.hessian(theta).matvec(theta), rtol=0, atol=1e-12
    )
    with pytest.raises(ValueError, match="gauss_newton needs model outputs"):
        general.gauss_newton(theta)
    with pytest.raises(ValueError, match=r"must return \(sum of losses, count\)"):
        Objective(case.model, batches, batch_loss=lambda model, batch: torch.tensor(1.0))


def test_weight_decay_adds_half_its_square_norm():
    case = make("mlp")
    plain, decayed = (Objective(case.model, case.data, weight_decay=wd) for wd in (0.0, 0.3))
    theta = plain.theta
    assert decayed.loss(theta) == pytest.approx(plain.loss(theta) + 0.15 * float(theta @ theta), abs=1e-12)
    torch.testing.assert_close(decayed.gradient(theta), plain.gradient(theta) + 0.3 * theta, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["mlp", "convolution", "recurrent"])
def test_results_do_not_depend_on_the_number_of_workers(name):
    case = make(name)
    one, two = (Objective(case.model, case.data, chunk_size=4, workers=n) for n in (1, 2))
    theta = one.theta
    assert one.loss(theta) == two.loss(theta)
    assert torch.equal(one.gradient(theta), two.gradient(theta))
    assert torch.equal(one.hessian(theta).matvec(theta), two.hessian(theta).matvec(theta))


def test_the_callers_model_stays_bit_identical_even_after_an_exception():
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3)).double()
    model.train()
    model[1].eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[3].bias.requires_grad_(False)
    X, y = torch.randn(20, 5).double(), torch.randint(0, 3, (20,))
    before = copy.deepcopy(model)
    pointers = [p.data_ptr() for p in model.parameters()]
    random_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()

    objective = Objective(model, (X, y), chunk_size=8, batchnorm="recomputed")
    theta = objective.theta
    objective.evaluate(theta + 1)
    objective.gradient(theta)
    objective.hessian(theta).matvec(theta)
    with pytest.raises(ValueError, match="non-finite"):
        objective.loss(theta * float("nan"))
    with pytest.raises(ZeroDivisionError):
        Objective(model, (X, y), lambda outputs, targets: 1 / 0)

    assert pointers == [p.data_ptr() for p in model.parameters()]
    for (name, old), (_, new) in zip(before.state_dict().items(), model.state_dict().items(), strict=True):
        assert torch.equal(old, new), name
    assert [m.training for m in before.modules()] == [m.training for m in model.modules()]
    assert [p.requires_grad for p in before.parameters()] == [p.requires_grad for p in model.parameters()]
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[0].bias.grad is None
    assert torch.equal(random_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])


def test_theta_changed_in_place_is_seen():
    case = make("mlp")
    objective = Objective(case.model, case.data)
    theta = objective.theta.clone()
    first = objective.loss(theta)
    theta += 1
    assert objective.loss(theta) != first


def test_batchnorm_policies():
    """The running statistics are wrong on purpose: only re-estimation or the batch itself sees the data's own."""
    torch.manual_seed(0)
    X = 3 + 2 * torch.randn(60, 4).double()
    y = torch.randint(0, 2, (60,))
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    linear = model[1]
    loss = partial(functional.cross_entropy, target=y)

    def normalised(mean, var):
        return loss(linear((X - mean) / (var + 1e-5).sqrt())).item()

    frozen = Objective(model, (X, y), batchnorm="frozen")
    assert frozen.loss(frozen.theta) == pytest.approx(normalised(0.0, torch.ones(4).double()), abs=1e-12)
    batch = Objective(model, (X, y), batchnorm="batch", chunk_size=60)
    assert batch.loss(batch.theta) == pytest.approx(normalised(X.mean(0), X.var(0, unbiased=False)), abs=1e-12)
    recomputed = Objective(model, (X, y), batchnorm="recomputed", chunk_size=64)
    assert recomputed.loss(recomputed.theta) == pytest.approx(normalised(X.mean(0), X.var(0)), abs=1e-12)
    uneven = Objective(model, (X, y), batchnorm="recomputed", chunk_size=16)
    pieces = X.split(16)
    var = sum(len(piece) * piece.var(0) for piece in pieces) / 60
    assert uneven.loss(uneven.theta) == pytest.approx(normalised(X.mean(0), var), abs=1e-12)
    moving = Objective(model, (X, y), batchnorm="interpolated")
    assert moving.size == frozen.size + 8
    shifted = copy.deepcopy(model)
    shifted[0].running_mean += 2.0
    half = 0.5 * (moving.flatten(model) + moving.flatten(shifted))
    assert moving.loss(half) == pytest.approx(normalised(1.0, torch.ones(4).double()), abs=1e-12)
    assert moving.gradient(half)[-8:].abs().max() == 0
    with pytest.raises(ValueError, match="did you mean 'frozen'"):
        Objective(model, (X, y), batchnorm="frozn")
    without = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).double()
    with pytest.raises(ValueError, match="layer '0' keeps none"):
        Objective(without, (X, y))


def test_recomputed_statistics_forget_a_diverged_point_and_the_number_of_threads():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Linear(256, 3))
    X, y = torch.randn(500, 64), torch.randint(0, 3, (500,))
    objective = Objective(model, (X, y), batchnorm="recomputed", workers=2)
    theta = objective.theta
    once = objective.loss(theta)
    points = [lambda out: out.copy_(theta), lambda out: out.fill_(torch.nan), lambda out: out.copy_(theta)]
    first, diverged, again = (evaluation.loss for evaluation in objective.evaluate_each(points))
    assert np.isnan(diverged)
    assert (first, again, objective.loss(theta)) == (once, once, once)
    torch.set_num_threads(2)
    try:
        assert objective.loss(theta) == once
    finally:
        torch.set_num_threads(1)


def test_replicas_made_while_others_gather_statistics_are_clean():
    """A copy taken of a working replica would catch its norm layers in training mode."""
    case = make("convolution")
    objective = Objective(case.model, case.data, chunk_size=8, batchnorm="recomputed")
    with objective.replicas.borrow() as first:
        for norm in first.norms:
            norm.train()
        with objective.replicas.borrow() as second:
            assert second is not first
            assert not any(norm.training for norm in second.norms)


def test_statistics_may_come_from_other_data():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    X, y = 3 * torch.randn(64, 4).double() + 1, torch.randint(0, 3, (64,))
    train = Objective(model, (X[:48], y[:48]), batchnorm="recomputed", chunk_size=64)
    test = train.on(X[48:], y[48:])
    held_out = test.with_statistics_from(train)
    theta = train.theta
    normalised = (X[48:] - X[:48].mean(0)) / (X[:48].var(0) + 1e-5).sqrt()
    expected = float(functional.cross_entropy(model[1](normalised), y[48:]).detach())
    assert held_out.loss(theta) == pytest.approx(expected, abs=1e-12)
    assert next(held_out.evaluate_each([lambda out: out.copy_(theta)])).loss == held_out.loss(theta)
    assert held_out.subset(16).loss(theta) == pytest.approx(expected, abs=1e-12)
    assert test.loss(theta) != held_out.loss(theta)
    with pytest.raises(ValueError, match="only batchnorm='recomputed'"):
        Objective(model, (X, y)).with_statistics_from(train)


def test_an_objective_may_be_told_how_its_data_were_drawn():
    case = make("convolution")
    part = Objective(case.model, case.data).subset(7)
    again = Objective(case.model, join(part.chunks), drawn=part.drawn)
    assert again.evaluate(again.theta).standard_error == part.evaluate(part.theta).standard_error
    assert again.population == part.population == len(case.targets)


def test_the_number_of_workers_may_change():
    case = make("convolution")
    objective = Objective(case.model, case.data, chunk_size=4, workers=2)
    assert objective.with_workers(1).workers == 1
    assert objective.workers == 2
    assert objective.with_workers(1).loss(objective.theta) == objective.loss(objective.theta)


def test_a_huge_loss_of_a_subset_is_a_number():
    model = nn.Linear(2, 1, bias=False).double()
    X, y = torch.ones(10, 2).double(), torch.zeros(10, 1).double()
    part = Objective(model, (X, y), functional.mse_loss).subset(5)
    assert part.loss(torch.full((2,), 1e100, dtype=torch.float64)) == pytest.approx(4e200)


def test_subset_is_fixed_stratified_and_knows_its_error():
    torch.manual_seed(0)
    X, y = torch.randn(3000, 4).double(), torch.tensor([0, 0, 1]).repeat(1000)
    objective = Objective(nn.Linear(4, 2).double(), (X, y))
    theta = objective.theta
    assert objective.evaluate(theta).standard_error is None
    part = objective.subset(300, seed=3)
    labels = torch.cat([chunk[1] for chunk in part.chunks])
    assert (len(labels), int(labels.sum())) == (300, 100)
    assert part.loss(theta) == objective.subset(300, seed=3).loss(theta)
    truth = objective.loss(theta)
    scores = []
    for seed in range(40):
        evaluation = objective.subset(300, seed=seed).evaluate(theta)
        scores.append((evaluation.loss - truth) / evaluation.standard_error)
    # stratification only shrinks the real spread, so z-scores are standard or narrower; 40 draws
    assert 0.4 < np.std(scores) < 1.4
    whole = objective.subset(3000).evaluate(theta)
    assert whole.standard_error == 0
    assert whole.loss == pytest.approx(truth, abs=1e-13)


def test_other_examples_of_the_same_model_are_checked_too():
    case = make("mlp")
    objective = Objective(case.model, case.data, chunk_size=32)
    X, y = case.data
    some = objective.on(X[:7], y[:7])
    assert some.loss(some.theta) == pytest.approx(Objective(case.model, (X[:7], y[:7])).loss(some.theta), abs=1e-14)
    with pytest.raises(ValueError, match=r"labels must lie in 0..\d+"):
        objective.on(X[:7], y[:7] + 100)
    with pytest.raises(ValueError, match="equal length"):
        objective.on(X[:7], y[:6])


def test_split_is_disjoint_and_complete():
    case = make("mlp")
    objective = Objective(case.model, case.data)
    parts = objective.split(32)
    assert [part.count for part in parts] == [32, 32, 6]
    mean = sum(part.count * part.loss(objective.theta) for part in parts) / 70
    assert mean == pytest.approx(objective.loss(objective.theta), abs=1e-13)


class _AlwaysDropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        return functional.dropout(self.linear(x))


class _Noisy(TensorDataset):
    transform = "RandomCrop(32)"

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn_like(x), y


def test_what_is_not_a_fixed_function_is_refused_with_a_suspect():
    case = make("mlp")
    X, y = case.data
    with pytest.raises(ValueError, match=r"differs between two evaluations.*dropout called as a function"):
        Objective(_AlwaysDropping().double(), (X, y))
    dropping = nn.Sequential(nn.Linear(5, 3), nn.Dropout()).double()
    assert Objective(dropping, (X, y)).loss  # evaluated in eval mode by default
    with pytest.raises(ValueError, match="layers in training mode: 1"):
        Objective(dropping, (X, y), mode="caller")
    normed = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    with pytest.raises(ValueError, match=r"BatchNorm is in training mode \(0\)"):
        Objective(normed, (X, y), mode="caller")
    with pytest.raises(ValueError, match=r"first batch differs between two readings.*RandomCrop\(32\)"):
        Objective(case.model, DataLoader(_Noisy(X, y), batch_size=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": (torch.zeros(0, 5).double(), torch.zeros(0).long())}, "data is empty"),
        ({"data": []}, "data is empty"),
        ({"data": 3}, "data must be"),
        ({"data": (torch.zeros(4, 5).double(), torch.zeros(3).long())}, "equal length, got 4 and 3"),
        ({"data": (torch.zeros(4, 5).double(), torch.tensor([0, 1, 2, 3]))}, r"labels must lie in 0..2 .* 0 to 3"),
        ({"data": (torch.zeros(4, 5).double(), torch.tensor([0, 1, 2, -1]))}, r"labels must lie in 0..2"),
        ({"data": (torch.zeros(4, 5).double(), torch.zeros(4, 2).long())}, r"labels must have shape \(4,\)"),
        ({"data": (torch.zeros(4, 7).double(), torch.zeros(4).long())}, r"does not take inputs of shape \(4, 7\)"),
        ({"data": [torch.zeros(4, 5).double(), torch.zeros(4)]}, "each batch must be a pair"),
        ({"data": (torch.full((4, 5), torch.inf).double(), torch.zeros(4).long())}, "are the inputs finite"),
        ({"chunk_size": 0}, "chunk_size must be a whole number"),
        ({"workers": -1}, "workers must be a whole number"),
        ({"weight_decay": -1.0}, "weight_decay must be zero or positive"),
        ({"memory": "lots"}, "memory must look like 8G"),
        ({"parameters": "nothing*"}, "no trainable tensor matches"),
        ({"mode": "train"}, "mode: unknown 'train'"),
    ],
)
def test_bad_input_is_refused_in_words(change, message):
    case = make("mlp")
    arguments = {"model": case.model, "data": case.data, **change}
    with pytest.raises(ValueError, match=message):
        Objective(**arguments)


def test_bad_parameters_and_vectors():
    case = make("mlp")
    broken = copy.deepcopy(case.model)
    broken[0].weight.data[0, 0] = torch.inf
    with pytest.raises(ValueError, match="1 non-finite entries of 57"):
        Objective(broken, case.data)
    for parameter in broken.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameters"):
        Objective(broken, case.data)
    objective = Objective(case.model, case.data)
    with pytest.raises(ValueError, match="57 entries on its last axis"):
        objective.loss(torch.zeros(56).double())
    with pytest.raises(ValueError, match="one flat vector"):
        objective.loss(torch.zeros(2, 57).double())
    with pytest.raises(ValueError, match="the loss is inf"):
        objective.gradient(objective.theta * 1e308)
    regression = make("regression")
    with pytest.raises(ValueError, match="error needs integer class labels"):
        Objective(regression.model, regression.data, regression.loss).error(regression.theta())
    with pytest.raises(ValueError, match="every target ignored"):
        Objective(case.model, (case.inputs, torch.full((70,), -100))).loss(case.theta())


def test_losses_whose_sum_is_beyond_all_numbers():
    model = nn.Linear(1, 1, bias=False).double()
    X = torch.ones(4, 1).double()
    objective = Objective(model, (X, 0 * X), functional.mse_loss, chunk_size=1)
    assert objective.loss(torch.tensor([1.3e154], dtype=torch.float64)) == float("inf")


@pytest.mark.parametrize(
    ("count", "sizes"), [(1000, [250] * 4), (300, [128, 128, 44]), (20, [20]), (5000, [1024] * 4 + [904])]
)
def test_data_of_large_models_are_cut_so_that_several_cores_have_work(count, sizes):
    model = nn.Sequential(nn.Linear(300, 250), nn.Tanh(), nn.Linear(250, 3))
    objective = Objective(model, (torch.randn(count, 300), torch.arange(count) % 3), workers=1)
    assert [len(targets) for _, targets in objective.chunks] == sizes
    again = objective.on(torch.randn(256, 300), torch.arange(256) % 3)  # cut anew, not as the data before
    assert [len(targets) for _, targets in again.chunks] == [128, 128]
    assert len(Objective(model, (torch.randn(256, 300), torch.arange(256) % 3), batchnorm="batch").chunks) == 1


def test_more_examples_at_once_for_curvature_unless_little_memory_is_stated():
    model = nn.Sequential(nn.Conv2d(3, 256, 3), nn.Tanh(), nn.Flatten(), nn.Linear(256 * 14 * 14, 3))  # 200 kB an image
    data = torch.randn(4000, 3, 16, 16), torch.arange(4000) % 3

    def largest(**settings):
        objective = Objective(model, data, **settings)
        return max(list_sizes(objective.chunks)), max(list_sizes(objective.curvature_chunks))

    passes, curvature = largest()
    assert 128 <= passes < curvature == 4 * passes
    assert largest(memory="256M") == (passes, passes)
    assert largest(chunk_size=100) == (100, 100)

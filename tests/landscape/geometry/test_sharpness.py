"""Sharpness against closed forms on quadratics, against autograd loops, and under rescaling of ReLU networks."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor, nn

from landscape import Objective
from landscape.geometry.sharpness import KINDS, NORMED, adaptive_operator, sharpness
from landscape.results import Sharpness
from tests.landscape.geometry.problems import (
    Point,
    data,
    indefinite,
    loss_and_gradient,
    network,
    numbers,
    quadratic,
)

INF = math.inf


def test_one_step_on_a_quadratic() -> None:
    A, w, centre = indefinite(6, 0), numbers(6, seed=1), numbers(6, seed=2)
    answer = sharpness(quadratic(A, centre, w), w, radius=0.3)
    g = A @ (w - centre)
    step = 0.3 * g / g.norm()
    assert answer.value == pytest.approx(float(g @ step + 0.5 * step @ A @ step), rel=1e-10)
    assert answer.base == pytest.approx(float(0.5 * (w - centre) @ g), rel=1e-12)
    assert answer.gradient_norm == pytest.approx(float(g.norm()), rel=1e-12)
    torch.testing.assert_close(answer.perturbation, step, rtol=1e-10, atol=1e-12)
    assert (answer.kind, answer.radius, answer.evaluations, answer.m) == ("sam", 0.3, 2, None)
    assert math.isnan(answer.standard_error)


def test_maximum_at_a_critical_point_is_half_the_top_eigenvalue() -> None:
    A, w = indefinite(6, 3), numbers(6, seed=4)
    objective = quadratic(A, w, w)
    answer = sharpness(objective, w, radius=0.3, kind="sam_max", steps=300)
    assert answer.value == pytest.approx(0.5 * 0.3**2 * 4, rel=1e-9)
    assert answer.gradient_norm == pytest.approx(0, abs=1e-12)
    assert float(answer.perturbation.norm()) == pytest.approx(0.3, rel=1e-9)
    assert sharpness(objective, w, radius=0.3, kind="sam_max").value == pytest.approx(0.18, rel=0.05)


def test_maximum_of_an_indefinite_quadratic_on_a_ball() -> None:
    """The exact maximiser solves (mu - A) e = g with mu above every eigenvalue and ||e|| = radius."""
    A, w, centre, radius = indefinite(6, 5), numbers(6, seed=6), numbers(6, seed=7), 0.8
    g = A @ (w - centre)

    def solve(mu: float) -> Tensor:
        return torch.linalg.solve(mu * torch.eye(6, dtype=torch.float64) - A, g)

    e = solve(brentq(lambda mu: float(solve(mu).norm()) - radius, 4 + 1e-9, 1e4, xtol=1e-13))
    exact = float(g @ e + 0.5 * e @ A @ e)
    objective = quadratic(A, centre, w)
    best = sharpness(objective, w, radius, "sam_max", steps=300).value
    assert best == pytest.approx(exact, rel=1e-8)
    assert best <= exact * (1 + 1e-12)
    assert sharpness(objective, w, radius, "sam").value < 0.999 * exact


def test_maximum_inside_the_ball() -> None:
    """On a concave quadratic the top may lie within the radius; one step flies over it, the maximum must not."""
    A, w = -torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)), numbers(3, seed=8)
    away = quadratic(A, torch.zeros(3, dtype=torch.float64), w)
    answer = sharpness(away, w, radius=10.0, kind="sam_max", steps=200)
    assert answer.value == pytest.approx(float(-0.5 * w @ A @ w), rel=1e-3)  # steps of 20, halved 8 times
    assert sharpness(away, w, radius=10.0, kind="sam").value < 0
    for steps in range(1, 6):  # standing still is allowed, so a maximum is never negative
        assert sharpness(away, w, radius=10.0, kind="sam_max", steps=steps).value >= 0
    at_top = sharpness(quadratic(A, w, w), w, radius=10.0, kind="sam_max")
    assert 0 <= at_top.value < 1e-9


@pytest.mark.parametrize("radius", [0.01, 0.3, 3.0])
@pytest.mark.parametrize(
    ("one", "most", "p"), [("sam", "sam_max", 2), ("asam_all", "asam_max", 2), ("asam_all", "asam_max", INF)]
)
def test_maximum_is_never_below_one_step(radius: float, one: str, most: str, p: float) -> None:
    for seed in range(4):
        model = network(nn.ReLU, seed)
        objective = Objective(model, data(), chunk_size=4)
        small = sharpness(objective, objective.theta, radius, one, p=p)
        for steps in (1, 7, 20):
            large = sharpness(objective, objective.theta, radius, most, p=p, steps=steps, restarts=1)
            assert large.value >= small.value
            assert large.value >= 0
            limit = large.perturbation / (1 if one == "sam" else objective.theta.abs())
            assert float(torch.linalg.vector_norm(limit, ord=p)) <= radius * (1 + 1e-12)
            there = loss_and_gradient(model, objective.theta + large.perturbation, *data())[0]
            assert there - large.base == pytest.approx(large.value, abs=1e-12)


def test_adaptive_one_step_follows_both_conventions() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)).double()
    objective = Objective(model, data())
    w = objective.theta
    base, g = loss_and_gradient(model, w, *data())
    published = torch.cat(
        [(t.abs() + 0.01 if "weight" in n else torch.ones_like(t)).reshape(-1) for n, t in model.named_parameters()]
    ).detach()
    for kind, T in (("asam", published), ("asam_all", w.abs())):
        for p, e in ((2, 0.5 * T**2 * g / (T * g).norm()), (INF, 0.5 * T * g.sign())):
            answer = sharpness(objective, w, 0.5, kind, p=p)
            torch.testing.assert_close(answer.perturbation, e, rtol=1e-9, atol=1e-12)
            there, _ = loss_and_gradient(model, w + e, *data())
            assert answer.value == pytest.approx(there - base, rel=1e-9)
            assert answer.p == p


def test_adaptive_maximum_at_a_critical_point() -> None:
    """radius^2 / 2 times the top eigenvalue of diag|w| A diag|w|; a weight of zero stays where it is."""
    A, w = indefinite(6, 10), numbers(6, seed=11)
    w[2] = 0
    objective = quadratic(A, w, w)
    rescaled = w.abs()[:, None] * A * w.abs()
    answer = sharpness(objective, w, 0.4, "asam_max", steps=400)
    assert answer.value == pytest.approx(0.5 * 0.4**2 * float(torch.linalg.eigvalsh(rescaled)[-1]), rel=1e-8)
    assert answer.perturbation[2] == 0
    torch.testing.assert_close(adaptive_operator(objective, w).dense(), rescaled, rtol=1e-10, atol=1e-10)


def test_small_radii_of_a_network_see_its_curvature() -> None:
    """At a minimum of a smooth network: lambda_max, trace, and the top of diag|w| H diag|w|, to second order."""
    model = network()
    objective = Objective(model, data(), weight_decay=0.05)

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = objective.loss_and_gradient(torch.from_numpy(x))
        return loss, gradient.numpy()

    theta = torch.from_numpy(minimize(cost, objective.theta.numpy(), jac=True, tol=1e-9).x)
    assert float(objective.gradient(theta).norm()) < 1e-7
    H = objective.hessian(theta).dense()
    radius = 1e-3
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert sharpness(objective, theta, radius, "sam_max", steps=300).value == pytest.approx(
        0.5 * radius**2 * top, rel=5e-3
    )
    adaptive = float(torch.linalg.eigvalsh(adaptive_operator(objective, theta).dense())[-1])
    found = sharpness(objective, theta, radius, "asam_max", steps=300).value
    assert found == pytest.approx(0.5 * radius**2 * adaptive, rel=5e-3)
    for kind, exact in (("average", H.trace()), ("average_adaptive", theta**2 @ H.diagonal())):
        answer = sharpness(objective, theta, radius, kind, samples=200)
        assert abs(answer.value - 0.5 * radius**2 * float(exact)) < 4 * answer.standard_error
        assert answer.standard_error < 0.2 * answer.value


@pytest.mark.parametrize("kind", ["average", "average_adaptive"])
def test_average_on_a_quadratic_is_calibrated(kind: str) -> None:
    A, w, centre, radius = indefinite(5, 12), numbers(5, seed=13), numbers(5, seed=14), 0.7
    objective = quadratic(A, centre, w)
    scale = w**2 if kind == "average_adaptive" else torch.ones(5, dtype=torch.float64)
    exact = 0.5 * radius**2 * float(scale @ A.diagonal())
    answers = [sharpness(objective, w, radius, kind, samples=30, seed=seed) for seed in range(60)]
    scores = np.array([(answer.value - exact) / answer.standard_error for answer in answers])
    assert abs(scores.mean()) < 4 / np.sqrt(60)
    assert 0.75 < scores.std() < 1.35
    assert answers[0].perturbation is None
    assert answers[0].evaluations == 61


def test_antithetic_pairs_remove_the_gradient() -> None:
    """Far from the centre the gradient is a thousand times the curvature, and the answer does not change."""
    A, w = indefinite(5, 15), numbers(5, seed=16)
    near, far = (sharpness(quadratic(A, centre, w), w, 0.1, "average", samples=9) for centre in (w, w + 1e3))
    assert far.value == pytest.approx(near.value, rel=1e-5)
    assert math.isnan(sharpness(quadratic(A, w, w), w, 0.1, "average", samples=1).standard_error)


@pytest.mark.parametrize("away", [0.0, 0.3])
def test_keskar_on_a_separable_quadratic(away: float) -> None:
    curvature = torch.tensor([0.5, 2.0, 3.0, 10.0], dtype=torch.float64)
    w = torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64)
    centre = w - away
    objective = quadratic(torch.diag(curvature), centre, w)
    box = 0.05 * (w.abs() + 1)
    rise = float((curvature * (away * box + 0.5 * box**2)).sum())
    base = float((0.5 * curvature * away**2).sum())
    answer = sharpness(objective, w, 0.05, "keskar")
    assert answer.value == pytest.approx(100 * rise / (1 + base), rel=1e-10)
    assert answer.p == INF
    torch.testing.assert_close(answer.perturbation.abs(), box, rtol=1e-10, atol=1e-12)


def test_m_sharpness_is_the_mean_over_batches_of_their_own_rise() -> None:
    model, (inputs, targets) = network(), data(10)
    objective = Objective(model, (inputs, targets), chunk_size=3)
    theta = objective.theta
    rises, norms = [], []
    for start, stop in ((0, 4), (4, 8), (8, 10)):
        batch = inputs[start:stop], targets[start:stop]
        base, g = loss_and_gradient(model, theta, *batch)
        rises.append(loss_and_gradient(model, theta + 0.2 * g / g.norm(), *batch)[0] - base)
        norms.append(float(g.norm()))
    shares = np.array([0.4, 0.4, 0.2])
    answer = sharpness(objective, theta, 0.2, m=4)
    assert answer.value == pytest.approx(shares @ rises, rel=1e-10)
    assert answer.gradient_norm == pytest.approx(shares @ norms, rel=1e-10)
    assert answer.base == pytest.approx(objective.loss(theta), rel=1e-12)
    assert (answer.m, answer.evaluations, answer.perturbation) == (4, 6, None)
    deviation = np.array(rises) - shares @ rises
    assert answer.standard_error == pytest.approx(np.sqrt(1.5 * (shares**2 @ deviation**2)), rel=1e-9)
    even = sharpness(objective, theta, 0.2, m=5)
    halves = [sharpness(part, theta, 0.2).value for part in objective.split(5)]
    assert even.standard_error == pytest.approx(np.std(halves, ddof=1) / np.sqrt(2), rel=1e-9)


def test_every_batch_draws_its_own_noise() -> None:
    inputs, targets = data(5)
    twice = Objective(network(), (torch.cat([inputs, inputs]), torch.cat([targets, targets])))
    assert sharpness(twice, twice.theta, 0.1, "sam", m=5).standard_error == pytest.approx(0, abs=1e-12)
    assert sharpness(twice, twice.theta, 0.1, "average", m=5, samples=3).standard_error > 1e-6


@pytest.mark.parametrize("kind", ["average", "average_adaptive", "sam_max", "keskar"])
def test_running_statistics_stay(kind: str) -> None:
    """Noise of this size would turn running variances negative, and the loss into NaN."""
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 3)).double()
    objective = Objective(model, data(), batchnorm="interpolated")
    assert objective.size == 18
    assert math.isfinite(sharpness(objective, objective.theta, 5.0, kind, samples=20).value)


def test_smaller_batches_are_sharper() -> None:
    """A mean of maxima is at least the maximum of the mean."""
    objective = Objective(network(), data(12))
    full, four, one = (
        sharpness(objective, objective.theta, 0.3, "sam_max", m=m, steps=60, restarts=1).value for m in (None, 4, 1)
    )
    assert full < four < one


def test_one_batch_is_all_data() -> None:
    objective = Objective(network(), data())
    whole, batch = (sharpness(objective, objective.theta, m=m) for m in (None, 99))
    assert batch.value == pytest.approx(whole.value, rel=1e-12)
    assert math.isnan(batch.standard_error)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("m", [None, 4])
def test_every_kind_leaves_the_model_alone_and_repeats_itself(kind: str, m: int | None) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 3)).double()
    model.train()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    state, flags = copy.deepcopy(model.state_dict()), [part.training for part in model.modules()]
    objective = Objective(model, data(), batchnorm="interpolated")
    random_state, theta = torch.get_rng_state(), objective.theta.clone()
    options = {"steps": 4, "samples": 3, "m": m}
    answer = sharpness(objective, objective.theta, 0.1, kind, **options)
    with pytest.raises(ValueError, match="radius"):
        sharpness(objective, objective.theta, -0.1, kind, **options)
    with pytest.raises(ValueError, match="theta"):
        sharpness(objective, objective.theta[:-1], 0.1, kind, **options)
    assert isinstance(answer, Sharpness)
    assert math.isfinite(answer.value)
    assert answer.kind == kind
    assert torch.equal(theta, objective.theta)
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert flags == [part.training for part in model.modules()]
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    if answer.perturbation is not None:
        assert answer.perturbation[-8:].tolist() == [0.0] * 8  # running means and variances
        assert answer.perturbation[:-8].any()
    again = sharpness(objective, objective.theta, 0.1, kind, **options)
    assert (answer.value, answer.standard_error) == pytest.approx(
        (again.value, again.standard_error), rel=0, nan_ok=True
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_workers_do_not_change_a_bit(kind: str) -> None:
    one, two = (Objective(network(), data(), chunk_size=2, workers=workers) for workers in (1, 2))
    for m in (None, 3):
        options = {"steps": 3, "samples": 3, "m": m}
        assert (
            sharpness(one, one.theta, 0.1, kind, **options).value
            == sharpness(two, two.theta, 0.1, kind, **options).value
        )


def rescaled(model: nn.Sequential, factor: float) -> nn.Sequential:
    """The same function: everything into the hidden layer times `factor`, its outgoing weights divided."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight *= factor
        other[0].bias *= factor
        other[2].weight /= factor
    return other


ADAPTIVE = [("asam_all", 2), ("asam_all", INF), ("asam_max", 2), ("asam_max", INF), ("average_adaptive", 2)]


@pytest.mark.parametrize(("kind", "p"), ADAPTIVE)
def test_adaptive_kinds_do_not_see_a_rescaled_relu_network(kind: str, p: float) -> None:
    model = network(nn.ReLU)
    first, second = (Objective(each, data()) for each in (model, rescaled(model, 8.0)))
    assert first.loss(first.theta) == pytest.approx(second.loss(second.theta), rel=1e-13)
    left, right = (sharpness(each, each.theta, 0.3, kind, p=p, samples=5) for each in (first, second))
    assert left.value == pytest.approx(right.value, rel=1e-9)
    assert left.value > 1e-3


@pytest.mark.parametrize("kind", ["sam", "sam_max", "average", "keskar", "asam"])
def test_plain_kinds_do_see_it(kind: str) -> None:
    """ASAM as published too: its eta and its plain biases have a scale."""
    model = network(nn.ReLU)
    first, second = (Objective(each, data()) for each in (model, rescaled(model, 8.0)))
    left, right = (sharpness(each, each.theta, 0.3, kind).value for each in (first, second))
    assert abs(left - right) > 0.01 * abs(left)


def test_top_of_the_adaptive_operator_does_not_see_it_either() -> None:
    model = network(nn.ReLU)
    first, second = (Objective(each, data()) for each in (model, rescaled(model, 8.0)))
    adaptive = [
        float(torch.linalg.eigvalsh(adaptive_operator(each, each.theta).dense())[-1]) for each in (first, second)
    ]
    plain = [float(torch.linalg.eigvalsh(each.hessian(each.theta).dense())[-1]) for each in (first, second)]
    assert adaptive[0] == pytest.approx(adaptive[1], rel=1e-9)
    assert plain[1] > 2 * plain[0] or plain[0] > 2 * plain[1]


@pytest.mark.parametrize("kind", ["sam", "asam", "asam_all"])
@pytest.mark.parametrize("p", [2, INF])
def test_one_step_at_a_critical_point_is_zero(kind: str, p: float) -> None:
    if p != 2 and kind not in NORMED:
        return
    w = torch.zeros(4, dtype=torch.float64)
    answer = sharpness(quadratic(indefinite(4, 17), w, w), w, 0.1, kind, p=p)
    assert answer.value == 0
    assert answer.perturbation.tolist() == [0.0] * 4
    assert answer.evaluations == 1


def test_adaptive_maximum_where_every_weight_is_zero() -> None:
    w = torch.zeros(4, dtype=torch.float64)
    answer = sharpness(quadratic(indefinite(4, 17), w + 1, w), w, 0.1, "asam_max")
    assert answer.value == 0
    assert answer.perturbation.tolist() == [0.0] * 4


def test_a_loss_that_overflows_is_an_answer() -> None:
    objective = Objective(
        Point(numbers(3, seed=18)), (numbers(6, 3, seed=19), torch.zeros(6)), loss=lambda out, _: out.exp()
    )
    for kind in ("sam", "sam_max", "keskar"):
        assert sharpness(objective, objective.theta, 1e4, kind).value == INF
    assert math.isfinite(sharpness(objective, objective.theta, 0.1, "sam_max").value)


def test_a_loss_that_is_undefined_is_an_answer() -> None:
    objective = Objective(
        Point(torch.zeros(1)), (torch.ones(4, 1), torch.zeros(4)), loss=lambda out, _: -torch.log(1 - out)
    )
    for kind in ("sam", "sam_max"):
        assert math.isnan(sharpness(objective, objective.theta, 2.0, kind).value)
        assert sharpness(objective, objective.theta, 0.5, kind).value == pytest.approx(math.log(2), rel=1e-5)


def test_progress_is_reported() -> None:
    objective = Objective(network(), data())
    calls: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        calls.append((done, total))

    for kind, options, total in (
        ("sam_max", {"restarts": 2}, 4),
        ("sam_max", {"restarts": 0}, 1),
        ("average", {"samples": 4}, 4),
        ("sam", {"m": 3}, 4),
    ):
        calls.clear()
        sharpness(objective, objective.theta, kind=kind, progress=note, **options)
        assert calls == [(done, total) for done in range(1, total + 1)]


def test_single_precision() -> None:
    model = network()
    exact, single = Objective(model, data()), Objective(model, data(), dtype=torch.float32)
    for kind in KINDS:
        left, right = (sharpness(each, each.theta, 0.3, kind, samples=4).value for each in (exact, single))
        assert left == pytest.approx(right, rel=2e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -0.05}, "radius must be positive and finite, got -0.05"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"radius": math.nan}, "radius must be positive"),
        ({"kind": "asam_al"}, "kind: unknown 'asam_al'; did you mean 'asam_all'"),
        ({"kind": "sam_max", "steps": 0}, "steps must be a whole number"),
        ({"kind": "average", "samples": 0}, "samples must be a whole number"),
        ({"m": 0}, "m must be a whole number"),
        ({"p": INF}, "p is a choice of the kinds asam, asam_all, asam_max; kind 'sam' takes none, got p=inf"),
        ({"kind": "asam", "p": 3}, "p must be 2 or inf, got 3"),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    objective = Objective(network(), data())
    with pytest.raises(ValueError, match=message):
        sharpness(objective, objective.theta, **options)


def test_keskar_needs_a_loss_above_minus_one() -> None:
    objective = Objective(Point(numbers(3, seed=20)), data(), loss=lambda out, _: out - 1e3)
    with pytest.raises(ValueError, match="a loss above -1"):
        sharpness(objective, objective.theta, kind="keskar")

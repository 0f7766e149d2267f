"""Maximised sharpness against the true maximum: all corners of a box, all its faces, and the secular equation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective
from landscape.geometry.ascent import ascend, climb_corners, move_coordinates
from landscape.geometry.sharpness import sharpness
from tests.landscape.cases import Case
from tests.landscape.geometry.problems import Point, data, network, numbers, quadratic

INF = math.inf


def corners(size: int) -> Tensor:
    return torch.tensor(list(itertools.product((-1.0, 1.0), repeat=size)), dtype=torch.float64)


def random_quadratic(seed: int, most: int) -> tuple[Objective, Tensor, Tensor, float]:
    """Indefinite, at a critical point or beside one; Hessian, gradient at the model, and a radius."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(3, most + 1))
    rotation, _ = torch.linalg.qr(numbers(size, size, seed=seed))
    A = rotation @ torch.diag(torch.from_numpy(generator.normal(size=size) * 3)) @ rotation.T
    w = torch.from_numpy(generator.normal(size=size))
    centre = w + generator.choice([0, 0.05, 0.5]) * torch.from_numpy(generator.normal(size=size))
    objective = quadratic((A + A.T) / 2, centre, w)
    return objective, (A + A.T) / 2, A @ (w - centre), float(generator.choice([0.1, 0.5, 1.0]))


def rise(A: Tensor, g: Tensor, z: Tensor) -> Tensor:
    """Of a quadratic, for rows z."""
    return z @ g + 0.5 * ((z @ A) * z).sum(dim=1)


def highest_in_box(A: Tensor, g: Tensor) -> float:
    """Over |z_i| <= 1: the stationary points of all faces, corners among them."""
    best = 0.0
    for free in itertools.product((False, True), repeat=len(g)):
        inside, fixed = torch.tensor(free), ~torch.tensor(free)
        z = torch.zeros(2 ** int(fixed.sum()), len(g), dtype=torch.float64)
        z[:, fixed] = corners(int(fixed.sum()))
        if inside.any():
            slope = g[inside] + z[:, fixed] @ A[fixed][:, inside]
            z[:, inside] = -torch.linalg.solve(A[inside][:, inside], slope.T).T
            z = z[(z.abs() <= 1).all(dim=1)]
        if len(z):
            best = max(best, float(rise(A, g, z).max()))
    return best


def highest_in_ball(A: Tensor, g: Tensor, radius: float) -> float:
    """(mu - A) z = g with mu above all eigenvalues and 0; at a critical point half the largest eigenvalue."""
    values, vectors = torch.linalg.eigh(A)
    slope, lowest = vectors.T @ g, max(float(values[-1]), 0.0) + 1e-12

    def solve(mu: float) -> Tensor:
        return slope / (mu - values)

    if float(solve(lowest).norm()) > radius:
        z = solve(brentq(lambda mu: float(solve(mu).norm()) - radius, lowest, 1e6, xtol=1e-14))
    elif values[-1] < 0:
        z = solve(0.0)
    else:  # the rest of the radius goes along the top eigenvector
        z = solve(lowest)
        z[-1] += math.copysign(math.sqrt(max(radius**2 - float(z @ z), 0.0)), float(slope[-1]))
    return float(slope @ z + 0.5 * (values * z * z).sum())


def random_network(seed: int) -> tuple[Objective, Callable[[Tensor], Tensor], float]:
    """12 parameters; and the losses at rows of theta, by none of the code under test."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        activation = (nn.Tanh, nn.ReLU, nn.GELU)[seed % 3]
        model = nn.Sequential(nn.Linear(2, 2), activation(), nn.Linear(2, 2)).double()
        case = Case(model, 2 * torch.randn(20, 2).double(), torch.randint(0, 2, (20,)))
        descent = torch.optim.Adam(model.parameters(), 0.05)
        for _ in range((0, 30, 100)[seed % 4 % 3]):
            descent.zero_grad()
            functional.cross_entropy(model(case.inputs), case.targets).backward()
            descent.step()
    losses = torch.func.vmap(case.function())
    return Objective(model, case.data), lambda rows: losses(rows).detach(), (0.05, 0.3, 0.8)[seed // 3 % 3]


def reached(objective: Objective, radius: float, kind: str, p: float = INF) -> float:
    """The rise that a maximised kind finds at default settings."""
    answer = sharpness(objective, objective.theta, radius, kind, **({"p": p} if kind == "asam_max" else {}))
    return answer.value * (1 + answer.base) / 100 if kind == "keskar" else answer.value


def scale_of(kind: str, theta: Tensor) -> Tensor:
    return {"keskar": theta.abs() + 1, "asam_max": theta.abs(), "sam_max": torch.ones_like(theta)}[kind]


def test_the_box_of_a_quadratic_is_searched_to_its_highest_point() -> None:
    """30 problems of up to 7 coordinates: compared with all faces, so with tops inside the box too."""
    shares = []
    for seed in range(30):
        objective, A, g, radius = random_quadratic(seed, most=7)
        T = radius * scale_of("asam_max", objective.theta)
        best = highest_in_box(T[:, None] * A * T, T * g)
        found = reached(objective, radius, "asam_max")
        assert found <= best * (1 + 1e-9) + 1e-12
        shares.append(found / best if best > 1e-12 else 1.0)
    assert np.quantile(shares, 0.04) >= 0.99
    assert min(shares) >= 0.9


@pytest.mark.parametrize("kind", ["keskar", "asam_max"])
def test_a_box_is_searched_to_its_best_corner(kind: str) -> None:
    """40 problems of up to 12 coordinates, quadratics and networks in turn."""
    shares = []
    for seed in range(100, 120):
        objective, A, g, radius = random_quadratic(seed, most=12)
        if objective.loss(objective.theta) > -1:
            T = radius * scale_of(kind, objective.theta)
            best = float(rise(A, g, corners(len(g)) * T).max())
            shares.append(reached(objective, radius, kind) / best if best > 0 else 1.0)
        objective, losses, radius = random_network(seed)
        T = radius * scale_of(kind, objective.theta)
        best = float(losses(objective.theta + corners(12) * T).max()) - objective.loss(objective.theta)
        shares.append(reached(objective, radius, kind) / best)
    assert len(shares) > 30
    assert np.quantile(shares, 0.05) >= 0.99
    assert min(shares) >= 0.9


@pytest.mark.parametrize("kind", ["sam_max", "asam_max"])
def test_the_ball_of_a_quadratic_is_searched_to_its_highest_point(kind: str) -> None:
    shares = []
    for seed in range(200, 220):
        objective, A, g, radius = random_quadratic(seed, most=12)
        T = scale_of(kind, objective.theta)
        best = highest_in_ball(T[:, None] * A * T, T * g, radius)
        found = reached(objective, radius, kind, p=2)
        assert found <= best * (1 + 1e-9) + 1e-12
        shares.append(found / best if best > 1e-12 else 1.0)
    assert np.quantile(shares, 0.05) >= 0.99
    assert min(shares) >= 0.9


def two_ends(outputs: Tensor, targets: Tensor) -> Tensor:
    """0 at 0, 0.6 at 1, where the slope leads, and 1.4 at -1."""
    return 0.1 * outputs + outputs**2 - 0.5 * outputs**3


def test_restarts_find_the_higher_end_and_the_gap_tells() -> None:
    w = torch.zeros(1, dtype=torch.float64)
    objective = Objective(Point(w), (torch.ones(1, 1, dtype=torch.float64), torch.zeros(1)), loss=two_ends)
    one = sharpness(objective, w, 1.0, "sam_max", restarts=0)
    assert one.value == pytest.approx(0.6)
    assert math.isnan(one.gap)
    more = sharpness(objective, w, 1.0, "sam_max")
    assert (more.value, more.gap) == pytest.approx((1.4, 0.8))
    assert more.evaluations > one.evaluations
    assert math.isnan(more.ceiling)


def test_searches_that_agree_leave_no_gap() -> None:
    objective = Objective(network(), data())
    for kind in ("sam_max", "keskar"):
        answer = sharpness(objective, objective.theta, 1e-3, kind, restarts=2)
        assert 0 <= answer.gap < 1e-3 * answer.value
    assert math.isnan(sharpness(objective, objective.theta, 1e-3, "sam").gap)


def test_batches_have_the_mean_of_their_gaps() -> None:
    objective = Objective(network(), data(10))
    options = {"radius": 0.5, "kind": "sam_max", "steps": 3, "restarts": 1, "ceiling": True}
    halves = [sharpness(part, objective.theta, **options) for part in objective.split(5)]
    answer = sharpness(objective, objective.theta, m=5, **options)
    assert answer.ceiling == pytest.approx(np.mean([half.ceiling for half in halves]), rel=2e-3)
    assert answer.gap >= 0


def test_the_seed_decides_where_restarts_begin() -> None:
    objective = Objective(network(nn.ReLU), data())

    def found(seed: int) -> tuple[float, float]:
        answer = sharpness(objective, objective.theta, 3.0, "sam_max", steps=4, restarts=2, seed=seed)
        return answer.value, answer.gap

    assert found(1) == found(1)
    assert len({found(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize(("kind", "p"), [("sam_max", 2), ("asam_max", 2), ("asam_max", INF), ("keskar", INF)])
def test_the_ceiling_is_above_every_quadratic(kind: str, p: float) -> None:
    for seed in range(300, 306):
        objective, A, g, radius = random_quadratic(seed, most=7)
        T = scale_of(kind, objective.theta)
        scaled, slope = T[:, None] * A * T, T * g
        high = highest_in_ball if p == 2 else lambda A, g, r: highest_in_box(r * r * A, r * g)
        if kind == "keskar" and objective.loss(objective.theta) <= -1:
            continue
        options = {"p": p} if kind == "asam_max" else {}
        answer = sharpness(objective, objective.theta, radius, kind, restarts=0, ceiling=True, **options)
        unit = 100 / (1 + answer.base) if kind == "keskar" else 1
        assert answer.ceiling >= unit * high(scaled, slope, radius) * (1 - 1e-9)
        top = max(float(torch.linalg.eigvalsh(scaled)[-1]), 0.0) * (1 if p == 2 else len(g))
        norm = float(slope.norm() if p == 2 else slope.abs().sum())
        assert answer.ceiling == pytest.approx(unit * (radius * norm + radius**2 * top / 2), rel=1e-2, abs=1e-6)


def test_a_ceiling_belongs_to_a_maximum() -> None:
    objective = Objective(network(), data())
    with pytest.raises(ValueError, match="only the kinds sam_max, asam_max, keskar have a ceiling; got kind 'sam'"):
        sharpness(objective, objective.theta, ceiling=True)
    with pytest.raises(ValueError, match="restarts must be a whole number, at least 0; got -1"):
        sharpness(objective, objective.theta, kind="sam_max", restarts=-1)


def bent(A: Tensor, g: Tensor) -> tuple[Callable[[Tensor], tuple[float, Tensor]], list[Tensor]]:
    """Loss and gradient of a quadratic, and the points at which they were asked for."""
    seen: list[Tensor] = []

    def climb(z: Tensor) -> tuple[float, Tensor]:
        seen.append(z)
        return float(g @ z + 0.5 * z @ A @ z), g + A @ z

    return climb, seen


def test_a_slope_needs_one_corner() -> None:
    climb, seen = bent(torch.zeros(3, 3), torch.tensor([1.0, -2.0, 0.0]))
    point, spent = climb_corners(climb, torch.tensor([0.0, 0.0, 0.25]), 0.5)
    assert point.tolist() == [0.5, -0.5, 0.25]
    assert spent == len(seen) == 2


def test_corners_move_a_few_coordinates_where_all_would_fall() -> None:
    """Eight coordinates pull up, but all together cost more than they gain: the best two go first."""
    climb, seen = bent(torch.full((8, 8), -0.3), torch.linspace(0.5, 1, 8))
    point, _ = climb_corners(climb, torch.zeros(8), 1.0)
    assert seen[1].tolist() == [1.0] * 8
    assert climb(seen[1])[0] < 0
    assert seen[2].nonzero().flatten().tolist() == [6, 7]
    assert climb(point)[0] >= climb(seen[2])[0] > 0


def test_corners_end_within_their_steps_and_at_infinity() -> None:
    climb, seen = bent(torch.tensor([[0.0, 9.0], [9.0, 0.0]]), torch.tensor([1.0, -1.0]))
    for steps in (1, 2, 5):
        seen.clear()
        assert climb_corners(climb, torch.zeros(2), 1.0, steps=steps)[1] == len(seen) <= steps + 1
    losses = iter([0.0, INF])
    point, spent = climb_corners(lambda z: (next(losses), torch.ones(1)), torch.zeros(1), 1.0)
    assert (point.tolist(), spent) == ([1.0], 2)


def test_coordinates_reach_ends_and_tops() -> None:
    def height(z: Tensor) -> float:
        return float(z[0] - 3 * (z[1] - 0.25) ** 2)

    point, spent = move_coordinates(height, torch.tensor([0.0, 0.1, 0.3]), 0.5, [0, 1], most=100)
    assert point.tolist() == pytest.approx([0.5, 0.25, 0.3])
    assert spent < 20
    assert move_coordinates(height, torch.zeros(3), 0.5, [0, 1], most=1)[0].tolist() == [0, 0, 0]
    assert move_coordinates(lambda z: 0.0, torch.tensor([0.1]), 0.5, [0], most=9)[0].tolist() == pytest.approx([0.1])
    assert move_coordinates(lambda z: math.nan, torch.zeros(1), 0.5, [0], most=9)[1] == 1


def test_an_ascent_ends_in_a_corner_that_holds_it() -> None:
    climb, seen = bent(torch.zeros(2, 2), torch.tensor([1.0, -2.0]))
    point, spent = ascend(climb, torch.zeros(2), 0.5, p=INF, steps=50)
    assert point.tolist() == [0.5, -0.5]
    assert spent == len(seen) < 6

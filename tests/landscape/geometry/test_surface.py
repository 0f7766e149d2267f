"""Lines and planes against closed forms, cell-by-cell evaluation, and interrupted runs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import directions
from landscape.geometry.surface import coordinates, curvature_extent, line, plane
from landscape.objectives.objective import Objective
from landscape.results import Line, Plane
from landscape.rng import normal, torch_generator


def classifier(dtype: torch.dtype = torch.float64, **options: Any) -> Objective:
    """A small smooth classifier on a ragged number of examples."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    labels = torch.randint(0, 3, (37,), generator=torch_generator(0, "labels"))
    return Objective(model, (normal((37, 4), 0, "inputs").to(dtype), labels), chunk_size=8, **options)


def regression() -> tuple[Objective, Tensor, Tensor]:
    """Least squares: the minimum in closed form and the Hessian 2/N X'X."""
    X, y = normal((29, 6), 1), normal((29, 1), 2)
    objective = Objective(nn.Linear(6, 1, bias=False).double(), (X, y), functional.mse_loss, chunk_size=5)
    return objective, torch.linalg.lstsq(X, y).solution[:, 0], 2 / 29 * X.T @ X


def random_plane(objective: Objective, **options: Any) -> Plane:
    return plane(
        objective, objective.theta, *directions.filter_normalized(objective.layout, objective.theta), **options
    )


def assert_same(left: Line | Plane, right: Line | Plane) -> None:
    for part in fields(left):
        np.testing.assert_array_equal(getattr(left, part.name), getattr(right, part.name), err_msg=part.name)


def test_along_an_eigenvector_a_quadratic_rises_by_half_lambda_a_squared() -> None:
    objective, minimum, H = regression()
    values, vectors = torch.linalg.eigh(H)
    base = objective.loss(minimum)
    for k in (0, 5):
        reach = curvature_extent(float(values[k]), rise=0.7)
        found = line(objective, minimum, vectors[:, k], steps=11, extent=reach)
        np.testing.assert_allclose(found.loss, base + 0.5 * float(values[k]) * found.x**2, rtol=1e-12)
        assert found.loss[0] - base == pytest.approx(0.7, rel=1e-12)
    assert found.error is None
    both = plane(objective, minimum, vectors[:, 5], vectors[:, 2], steps=(5, 4), extent=((-1, 2), (0.5, 1)))
    bowl = values[5].item() * both.x[:, None] ** 2 + values[2].item() * both.y[None, :] ** 2
    np.testing.assert_allclose(both.loss, base + 0.5 * bowl, rtol=1e-12)


def test_the_second_difference_is_the_curvature_along_the_direction() -> None:
    objective = classifier()
    direction = normal((objective.size,), 3)
    H = objective.hessian(objective.theta).dense()
    h = 1e-3
    low, middle, high = line(objective, objective.theta, direction, steps=3, extent=h).loss
    assert (high - 2 * middle + low) / h**2 == pytest.approx(float(direction @ H @ direction), rel=1e-4)


@pytest.mark.parametrize("steps", [(4, 7), (7, 3), (1, 5)])
def test_every_cell_of_a_grid_that_is_not_square(steps: tuple[int, int]) -> None:
    objective = classifier()
    d1, d2 = directions.filter_normalized(objective.layout, objective.theta, seed=2)
    found = plane(objective, objective.theta, d1, d2, steps=steps, extent=((-0.5, 1.0), (0.2, 2.0)))
    assert found.loss.shape == steps
    assert found.done.all()
    assert found.cosine == directions.cosine(d1, d2)
    assert found.error is not None
    for i, x in enumerate(found.x):
        for j, y in enumerate(found.y):
            there = objective.theta + x * d1 + y * d2
            assert found.loss[i, j] == pytest.approx(objective.loss(there), rel=1e-12)
            assert found.error[i, j] == objective.error(there)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extent", [1.0, 0.3, ((-0.7, 0.7), (-0.1, 0.1))])
def test_the_centre_is_the_loss_of_theta_to_the_bit(dtype: torch.dtype, extent: Any) -> None:
    objective = classifier(dtype)
    found = random_plane(objective, steps=(5, 3), extent=extent)
    assert found.x[2] == 0.0
    assert found.y[1] == 0.0
    assert found.error is not None
    assert found.loss[2, 1] == objective.loss(objective.theta)
    assert found.error[2, 1] == objective.error(objective.theta)
    along = line(objective, objective.theta, torch.ones(objective.size), steps=7, extent=0.3)
    assert along.loss[3] == objective.loss(objective.theta)


def test_three_models_have_their_own_losses_on_their_plane() -> None:
    objective = classifier()
    models = objective.theta + 0.3 * normal((3, objective.size), 5)
    frame = directions.through_models(*models)
    (_, _), (xb, _), (xc, yc) = frame.coordinates
    base = plane(objective, frame.base, frame.u, frame.v, steps=2, extent=((0, xb), (0, yc)))
    assert base.loss[0, 0] == objective.loss(models[0])
    assert base.loss[1, 0] == pytest.approx(objective.loss(models[1]), rel=1e-12)
    third = plane(objective, frame.base, frame.u, frame.v, steps=2, extent=((xc, xc + 1), (0, yc)))
    assert third.loss[0, 1] == pytest.approx(objective.loss(models[2]), rel=1e-12)


@pytest.mark.parametrize("steps", [3, 7, 31, 51, 101])
@pytest.mark.parametrize("reach", [1.0, 0.1, 0.3, 7.3])
def test_symmetric_coordinates(steps: int, reach: float) -> None:
    x = coordinates(-reach, reach, steps)
    assert x[steps // 2] == 0.0
    assert x[0] == -reach
    assert x[-1] == reach
    np.testing.assert_array_equal(x, -x[::-1])
    np.testing.assert_allclose(x, np.linspace(-reach, reach, steps), atol=1e-14)


def test_coordinates_hold_zero_and_one_where_they_fall_on_the_grid() -> None:
    x = coordinates(-0.2, 1.2, 15)
    assert 0.0 in x
    assert 1.0 in x
    np.testing.assert_allclose(x, np.linspace(-0.2, 1.2, 15), atol=1e-15)
    assert 0.0 not in coordinates(-1.0, 1.0, 4)
    np.testing.assert_array_equal(coordinates(-1.0, 3.0, 1), [1.0])
    np.testing.assert_array_equal(coordinates(2.0, 3.0, 2), [2.0, 3.0])


def test_two_workers_give_the_bits_of_one() -> None:
    one, two = (random_plane(classifier(torch.float32, workers=workers), steps=(3, 5)) for workers in (1, 2))
    assert_same(one, two)
    alone, shared = (
        line(objective, objective.theta, torch.ones(objective.size), steps=6)
        for objective in (classifier(torch.float32, workers=workers) for workers in (1, 2))
    )
    assert_same(alone, shared)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_killed_plane_goes_on_to_the_same_arrays(workers: int, rows: int) -> None:
    objective = classifier(workers=workers)
    whole = random_plane(objective, steps=(5, 4))
    saved: list[Plane] = []

    def save(so_far: Plane) -> None:
        saved.append(so_far)
        if len(saved) == rows:
            raise KilledError

    with pytest.raises(KilledError):
        random_plane(objective, steps=(5, 4), on_row=save)
    half = saved[-1]
    np.testing.assert_array_equal(half.done.all(axis=1), np.arange(5) < rows)
    np.testing.assert_array_equal(np.isnan(half.loss), ~half.done)
    counts: list[tuple[int, int]] = []
    kept: list[Plane] = []
    again = random_plane(
        objective,
        steps=(5, 4),
        resume=half,
        on_row=kept.append,
        progress=lambda done, total: counts.append((done, total)),
    )
    assert_same(again, whole)
    assert counts == [(cell, 20) for cell in range(4 * rows + 1, 21)]
    for row, so_far in enumerate(kept, start=rows + 1):  # each as it was then, not written to afterwards
        np.testing.assert_array_equal(so_far.done, np.broadcast_to(np.arange(5)[:, None] < row, (5, 4)))
        np.testing.assert_array_equal(so_far.loss, np.where(so_far.done, whole.loss, np.nan))
    assert len(kept) == 5 - rows
    assert_same(random_plane(objective, steps=(5, 4), resume=again, progress=lambda *_: pytest.fail("computed")), whole)


def test_an_error_leaves_no_worker_and_no_thread_setting_behind() -> None:
    objective = classifier(workers=1)
    torch.set_num_threads(2)
    try:
        with pytest.raises(KilledError) as caught:  # `caught` keeps the frames alive, as a debugger would
            random_plane(objective, steps=3, on_row=lambda _: (_ for _ in ()).throw(KilledError()))
        assert torch.get_num_threads() == 2
        assert caught.value is not None
    finally:
        torch.set_num_threads(1)


def test_resuming_computes_only_what_is_missing() -> None:
    objective = classifier()
    whole = random_plane(objective, steps=(3, 4))
    done = np.array([[True] * 4, [True, False, True, True], [True] * 4])
    marked = np.where(done, -1.0, np.nan)  # a value that no evaluation gives
    again = random_plane(objective, steps=(3, 4), resume=replace(whole, loss=marked, done=done))
    np.testing.assert_array_equal(again.loss[[0, 2]], -1.0)
    np.testing.assert_array_equal(again.loss[1], whole.loss[1])
    direction = torch.ones(objective.size)
    full = line(objective, objective.theta, direction, steps=5)
    kept = np.array([True, False, True, True, False])
    part = replace(full, loss=np.where(kept, -1.0, np.nan), done=kept)
    counts: list[int] = []
    rest = line(
        objective, objective.theta, direction, steps=5, resume=part, progress=lambda done, _: counts.append(done)
    )
    np.testing.assert_array_equal(rest.loss, np.where(kept, -1.0, full.loss))
    assert counts == [4, 5]
    assert rest.done.all()


def test_resuming_something_else_is_refused() -> None:
    objective = classifier()
    half = random_plane(objective, steps=(3, 4))
    half = replace(half, done=half.done & (np.arange(3) < 1)[:, None])
    with pytest.raises(ValueError, match=r"its x differs: -1 \.\. 1 \(3 points\) before, -1 \.\. 1 \(5 points\) now"):
        random_plane(objective, steps=(5, 4), resume=half)
    with pytest.raises(ValueError, match="its y differs"):
        random_plane(objective, steps=(3, 4), extent=((-1, 1), (-1, 1.001)), resume=half)
    others = directions.filter_normalized(objective.layout, objective.theta, seed=1)
    with pytest.raises(ValueError, match="cosine of the directions differs"):
        plane(objective, objective.theta, *others, steps=(3, 4), resume=half)
    with pytest.raises(ValueError, match=r"resume holds error, loss but this objective gives .*standard_error"):
        random_plane(objective.subset(20), steps=(3, 4), resume=half)
    direction = torch.ones(objective.size)
    with pytest.raises(ValueError, match="its x differs"):
        line(objective, objective.theta, direction, resume=line(objective, objective.theta, direction, steps=3))


def test_losses_that_are_not_finite_are_kept() -> None:
    objective = classifier(torch.float32)
    direction = torch.ones(objective.size)
    found = line(objective, objective.theta, direction * 1e30, steps=5, extent=1e9)  # beyond float32 at both ends
    assert not np.isfinite(found.loss[[0, 4]]).any()
    assert found.loss[2] == objective.loss(objective.theta)
    assert found.done.all()
    other = torch.arange(objective.size, dtype=torch.float32)
    both = plane(objective, objective.theta, direction * 1e30, other, steps=3, extent=((-1e9, 1e9), (-1, 1)))
    assert both.done.all()
    assert not np.isfinite(both.loss[[0, 2]]).any()
    assert np.isfinite(both.loss[1]).all()
    assert_same(
        plane(objective, objective.theta, direction * 1e30, other, steps=3, extent=((-1e9, 1e9), (-1, 1)), resume=both),
        both,
    )


def test_a_subset_has_a_standard_error_in_every_cell() -> None:
    objective = classifier()
    assert random_plane(objective, steps=2).standard_error is None
    part = objective.subset(20, seed=4)
    found = random_plane(part, steps=(3, 2))
    assert found.standard_error is not None
    expected = part.evaluate(objective.theta).standard_error
    assert found.standard_error.shape == (3, 2)
    assert (found.standard_error > 0).all()
    at_centre = line(part, objective.theta, torch.ones(objective.size), steps=1)
    assert at_centre.standard_error is not None
    assert at_centre.standard_error[0] == expected


def test_bad_input_is_refused() -> None:
    objective = classifier()
    theta, size = objective.theta, objective.size
    good, other = normal((2, size), 1)
    with pytest.raises(ValueError, match=f"d2 must have {size} entries"):
        plane(objective, theta, good, other[:-1])
    with pytest.raises(ValueError, match="d1 has 1 non-finite"):
        plane(objective, theta, torch.cat([good[1:], good.new_tensor([torch.nan])]), other)
    with pytest.raises(ValueError, match="d1 is zero"):
        plane(objective, theta, 0 * good, other)
    with pytest.raises(ValueError, match="direction is zero"):
        line(objective, theta, directions.between(theta, theta))
    with pytest.raises(ValueError, match="theta must be one flat vector"):
        line(objective, theta[None], good)
    with pytest.raises(ValueError, match="collinear"):
        plane(objective, theta, good, -2 * good + 1e-5 * other)
    for steps in (0, 2.5, (3, 0)):
        with pytest.raises(ValueError, match="steps must be a whole number, at least 1"):
            plane(objective, theta, good, other, steps=steps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a number or \(nx, ny\)"):
        plane(objective, theta, good, other, steps=(3, 3, 3))  # type: ignore[arg-type]
    for extent in (0.0, -1.0, (1.0, 1.0), (2.0, -2.0), float("inf"), ((-1, 1), (1, 0)), (1, 2, 3), "wide", ((1, 2), 3)):
        with pytest.raises(ValueError, match="extent must be a positive number"):
            plane(objective, theta, good, other, extent=extent)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="extent must be"):
        line(objective, theta, good, extent=((-1, 1), (-1, 1)))  # type: ignore[arg-type]


def test_curvature_extent() -> None:
    assert curvature_extent(-8.0, 4.0) == 1.0
    with pytest.raises(ValueError, match="flat direction"):
        curvature_extent(0.0, 1.0)
    with pytest.raises(ValueError, match="rise must be positive"):
        curvature_extent(1.0, 0.0)

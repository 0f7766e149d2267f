"""Directions against per-filter loops, dense least squares and singular value decompositions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape import directions
from landscape.layout import Layout
from landscape.results import Eigenpairs, Outcome
from landscape.rng import normal


class Zoo(nn.Module):
    """One of each layer whose filters are stored differently."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3, padding_idx=0)
        self.conv = nn.Conv2d(4, 6, (3, 2), groups=2)
        self.up = nn.ConvTranspose2d(6, 4, 3, groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.layer_norm = nn.LayerNorm((2, 3))
        self.linear = nn.Linear(7, 5)


def zoo(seed: int = 0) -> tuple[Zoo, Layout, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Zoo()
    layout = Layout.of(model, statistics=True)
    return model, layout, layout.flatten(model)


def filters(name: str, weight: Tensor) -> list[Tensor]:
    """Every filter of a weight, one by one, as its layer's documentation lays it out."""
    if name.startswith("up"):  # (in, out / groups, ...) with two groups: three inputs feed each output
        return [weight[3 * group : 3 * group + 3, out] for group in range(2) for out in range(weight.shape[1])]
    return list(weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_filter_has_the_norm_of_the_models_filter(dtype: torch.dtype) -> None:
    _, layout, theta = zoo()
    theta = theta.to(dtype)
    found = directions.filter_normalized(layout, theta, seed=3, count=3)
    assert len(found) == 3
    for direction in found:
        assert direction.dtype == dtype
        own, named = layout.unflatten(theta), layout.unflatten(direction)
        weights = {"embedding.weight", "conv.weight", "up.weight", "linear.weight"}
        for name, tensor in named.items():
            if name not in weights:
                assert not tensor.any(), name
                continue
            pairs = list(zip(filters(name, tensor), filters(name, own[name]), strict=True))
            assert sum(part.numel() for part, _ in pairs) == tensor.numel()
            for part, reference in pairs:
                torch.testing.assert_close(part.norm(), reference.norm(), rtol=1e-5, atol=0)
    assert not layout.segment(found[0], "embedding.weight")[0].any()  # the padding row is a zero filter
    assert all(torch.isfinite(direction).all() for direction in found)


def test_one_seed_is_one_set_of_gaussians_for_every_model() -> None:
    _, layout, theta = zoo(0)
    _, _, other = zoo(1)
    first, second = directions.filter_normalized(layout, theta, seed=5)
    again, _ = directions.filter_normalized(layout, other, seed=5)
    for mine, theirs in zip(
        filters("up", layout.segment(first, "up.weight")),
        filters("up", layout.segment(again, "up.weight")),
        strict=True,
    ):
        torch.testing.assert_close(mine / mine.norm(), theirs / theirs.norm())
    assert abs(directions.cosine(first, second)) < 0.3
    assert not torch.equal(first, directions.filter_normalized(layout, theta, seed=6)[0])


def test_layers_of_one_shape_get_different_gaussians() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    layout = Layout.of(model)
    direction, _ = directions.filter_normalized(layout, torch.ones(layout.size))
    assert abs(directions.cosine(*(layout.segment(direction, f"{k}.weight").flatten() for k in range(2)))) < 0.9


def test_statistics_in_the_vector_do_not_change_the_weights_part() -> None:
    model, layout, theta = zoo()
    plain = Layout.of(model)
    short = directions.filter_normalized(plain, plain.flatten(model), seed=1)[1]
    long = directions.filter_normalized(layout, theta, seed=1)[1]
    assert torch.equal(long[: plain.size], short)
    assert not long[plain.size :].any()


def test_bad_theta_is_refused() -> None:
    _, layout, theta = zoo()
    with pytest.raises(ValueError, match=f"{layout.size} entries"):
        directions.filter_normalized(layout, theta[1:])
    with pytest.raises(ValueError, match="did training diverge"):
        directions.filter_normalized(layout, theta * float("nan"))
    with pytest.raises(ValueError, match="one flat vector"):
        directions.filter_normalized(layout, torch.stack([theta, theta]))
    with pytest.raises(ValueError, match="count"):
        directions.filter_normalized(layout, theta, count=0)


def test_eigenvectors_come_as_they_are() -> None:
    vectors = torch.linalg.qr(normal((6, 3), 0))[0].T.contiguous()
    values = np.array([3.0, 2.0, 1.0])
    pairs = Eigenpairs(values, vectors, values * 0, values > 0, 9, np.array([1, 2, 3]), Outcome.CONVERGED)
    first, second = directions.eigenvectors(pairs, 2, 0)
    assert torch.equal(first, vectors[2])
    assert torch.equal(second, vectors[0])
    with pytest.raises(ValueError, match="two different eigenvectors"):
        directions.eigenvectors(pairs, 1, 1)
    with pytest.raises(ValueError, match="second must be a whole number, between 0 and 2"):
        directions.eigenvectors(pairs, 0, 3)


def test_between_and_sizes() -> None:
    a, b = normal((7,), 1), normal((7,), 2)
    torch.testing.assert_close(a + directions.between(a, b), b)
    with pytest.raises(ValueError, match="one architecture"):
        directions.between(a, b[:-1])


def test_three_models_by_hand() -> None:
    a, b, c = torch.tensor([[1.0, 1.0, 1.0], [4.0, 5.0, 1.0], [1.0, 1.0, 3.0]])
    frame = directions.through_models(a, b, c + (b - a) / 5)  # 1 along u, 2 along the third axis
    np.testing.assert_allclose(frame.coordinates, [[0, 0], [5, 0], [1, 2]], atol=1e-6)
    torch.testing.assert_close(frame.u, torch.tensor([0.6, 0.8, 0.0]))
    torch.testing.assert_close(frame.v, torch.tensor([0.0, 0.0, 1.0]))
    (x_low, x_high), (y_low, y_high) = directions.extent(frame.coordinates)
    np.testing.assert_allclose([x_low, x_high, y_low, y_high], [-1, 6, -0.4, 2.4], atol=1e-6)


@pytest.mark.parametrize("lean", [1.0, 1e-5])
def test_three_models_land_on_their_coordinates(lean: float) -> None:
    a, b, aside = normal((3, 101), 4)
    models = torch.stack([a, b, a - 0.3 * (b - a) + lean * aside])  # the third lies left of the first
    frame = directions.through_models(*models)
    coordinates = torch.from_numpy(frame.coordinates)
    built = frame.base + coordinates @ torch.stack([frame.u, frame.v])
    torch.testing.assert_close(built, models, rtol=0, atol=1e-12)
    axes = torch.stack([frame.u, frame.v])
    torch.testing.assert_close(axes @ axes.T, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-14)
    assert coordinates[2, 0] < 0 < coordinates[2, 1]
    assert directions.extent(frame.coordinates)[0][0] < coordinates[2, 0]


def test_models_without_a_plane_are_refused() -> None:
    a, b, c = normal((3, 50), 7)
    with pytest.raises(ValueError, match="models a and b are equal"):
        directions.through_models(a, a, c)
    with pytest.raises(ValueError, match="models a and c are equal"):
        directions.through_models(a, b, a.clone())
    for third in (b, 0.5 * (a + b), a + 3 * (b - a)):
        with pytest.raises(ValueError, match="lie on one line"):
            directions.through_models(a, b, third)
    near = (a + 1e-4 * b).float()  # their midpoint is off the line only by the rounding of float32
    with pytest.raises(ValueError, match="lie on one line"):
        directions.through_models(a.float(), near, 0.5 * (a.float() + near))
    with pytest.raises(ValueError, match="b has 1 non-finite"):
        directions.through_models(a, torch.cat([b[:-1], b.new_tensor([torch.inf])]), c)
    with pytest.raises(ValueError, match="'c': 49"):
        directions.through_models(a, b, c[1:])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_trajectory_is_the_pca_through_the_last_checkpoint(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "BLOCK", 10)  # a ragged last block
    scale = torch.tensor([5.0, 3.0, 1.0, 0.5], dtype=torch.float64)
    thetas = (normal((9, 4), 1) * scale @ normal((4, 47), 2) + 10 * normal((47,), 3)).to(dtype)
    found = directions.trajectory(thetas)
    differences = (thetas.double() - thetas[-1].double()).numpy()
    left, values, right = np.linalg.svd(differences, full_matrices=False)
    np.testing.assert_allclose(found.explained, values[:2] ** 2 / (values**2).sum(), rtol=1e-6)
    for k, axis in enumerate((found.u, found.v)):
        sign = np.sign(right[k] @ axis.double().numpy())
        np.testing.assert_allclose(axis.numpy(), sign * right[k], atol=tolerance)
        np.testing.assert_allclose(found.coordinates[:, k], sign * left[:, k] * values[k], atol=100 * tolerance)
        assert axis[axis.abs().argmax()] > 0
    off = np.linalg.norm(differences - differences @ right[:2].T @ right[:2], axis=1)
    np.testing.assert_allclose(found.distance, off, atol=100 * tolerance)
    assert torch.equal(found.base, thetas[-1])
    np.testing.assert_allclose(found.coordinates[-1], 0, atol=1e-12)
    assert found.u.dtype == dtype


def test_trajectory_in_a_plane_leaves_nothing_outside_and_needs_no_square_matrix() -> None:
    axes = normal((2, 300_001), 5)
    turns = torch.linspace(0, 2, 5, dtype=torch.float64)
    thetas = torch.stack([turns.cos(), turns.sin()], dim=1) @ axes
    found = directions.trajectory(thetas)
    assert found.explained.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.distance.max() < 1e-9
    torch.testing.assert_close(
        found.base + torch.from_numpy(found.coordinates) @ torch.stack([found.u, found.v]), thetas, rtol=0, atol=1e-9
    )


def test_trajectories_without_a_plane_are_refused() -> None:
    a, b = normal((2, 30), 6)
    with pytest.raises(ValueError, match="at least 3 checkpoints"):
        directions.trajectory(torch.stack([a, b]))
    with pytest.raises(ValueError, match="equal to rounding"):
        directions.trajectory(torch.stack([a, a, a, a]))
    steps = torch.tensor([[0.0], [0.3], [0.9], [1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="lie on one line"):
        directions.trajectory(a + steps * (b - a))
    with pytest.raises(ValueError, match="thetas has 30 non-finite"):
        directions.trajectory(torch.stack([a, b, a * torch.nan]))


def test_projection_is_least_squares_for_skew_directions() -> None:
    thetas, (base, d1, d2) = normal((5, 23), 8), normal((3, 23), 9)
    d2 = 3 * d1 + 0.1 * d2  # far from orthogonal and from unit length
    coordinates, distance = directions.project(thetas, base, d1, d2)
    A = torch.stack([d1, d2], dim=1).numpy()
    expected, *_ = np.linalg.lstsq(A, (thetas - base).T.numpy(), rcond=None)
    np.testing.assert_allclose(coordinates, expected.T, rtol=1e-9)
    off = np.linalg.norm((thetas - base).T.numpy() - A @ expected, axis=0)
    np.testing.assert_allclose(distance, off, rtol=1e-9)
    one, far = directions.project(thetas[3].clone().requires_grad_(), base, d1, d2)
    assert one.shape == (2,)
    np.testing.assert_allclose(one, coordinates[3])
    assert float(far) == pytest.approx(distance[3])
    with pytest.raises(ValueError, match="collinear"):
        directions.project(thetas, base, d1, -2 * d1)
    with pytest.raises(ValueError, match="d2 must have 23 entries"):
        directions.project(thetas, base, d1, d2[1:])


def test_cosine() -> None:
    a = torch.tensor([3.0, 0.0])
    assert directions.cosine(a, torch.tensor([1.0, 1.0])) == pytest.approx(0.5**0.5, abs=1e-15)
    assert directions.cosine(a, -a) == -1.0
    with pytest.raises(ValueError, match="zero direction"):
        directions.cosine(a, 0 * a)


def test_extent_needs_points_that_spread() -> None:
    with pytest.raises(ValueError, match="differ along both axes"):
        directions.extent(np.array([[0.0, 1.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        directions.extent(np.zeros(4))


def test_statistics_behind_the_weights_are_each_models_own() -> None:
    a, b, c = normal((3, 7), 0, "models")
    frame, plain = directions.through_models(a, b, c, weights=5), directions.through_models(a[:5], b[:5], c[:5])
    assert torch.equal(frame.u[:5], plain.u)
    assert torch.equal(frame.v[:5], plain.v)
    for model, (x, y) in zip((a, b, c), frame.coordinates.tolist(), strict=True):
        torch.testing.assert_close(frame.base + x * frame.u + y * frame.v, model)

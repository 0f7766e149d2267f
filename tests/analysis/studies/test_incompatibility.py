"""Incompatibility on quadratic federations, where all of it is known, and on trained ones against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from analysis.shared import dispersion, search
from analysis.studies import incompatibility as study
from analysis.subjects import Limits, Own, Run, Subject
from landscape import Objective
from landscape.losses.batches import join
from landscape.objectives.subsample_errors import gradient_error, rise_error
from landscape.rng import numpy_generator
from tests.analysis.helpers import ask, check_interruption, check_reading, gradient_at, loss_at, plan
from training.rules.context import ClientContext


class Quadratic(Subject):
    """F_k(w) = mean of (x . w - y)^2 / 2: gradient X'(X w - y) / n, Hessian X'X / n."""

    def __init__(self, data: Sequence[tuple[Tensor, Tensor]], w: Tensor, path: Path):
        self.data, self.w, self.name, self.path = list(data), w, "quadratic", path
        self.model = torch.nn.Linear(len(w), 1, bias=False).double()
        self.rounds, self.limits = [0], Limits(workers=1, dtype=torch.float64)
        self.policy, self.classes = "frozen", 1

    @property
    def clients(self) -> list[int]:
        return list(range(len(self.data)))

    def examples(self, split: str, client: int | None = None) -> tuple[Tensor, Tensor]:
        if client is not None:
            return self.data[client]
        return torch.cat([X for X, _ in self.data]), torch.cat([y for _, y in self.data])

    def objective(self, split: str = "train", client: int | None = None, limit: int | None = None) -> Objective:
        loss = lambda outputs, targets: 0.5 * (outputs[:, 0] - targets).square()  # noqa: E731
        objective = Objective(self.model, self.examples(split, client), loss=loss, workers=1, chunk_size=4)
        return objective.subset(limit) if limit is not None and limit < objective.count else objective

    def point(self, round: int, model: str = "server") -> Tensor:
        return self.w

    def local_points(self, round: int) -> dict[int, Tensor]:
        raise ValueError("none")

    def inputs(self, rounds: Sequence[int]) -> dict[str, Any]:
        return {"quadratic": [X.tolist() for X, _ in self.data]}


def drawn(*sizes: int, d: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return [(make(n, d) + make(d), 2 * make(n)) for n in sizes]


def parts(X: Tensor, y: Tensor, w: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Gradient and Hessian."""
    return (X.T @ (X @ w - y) / len(y)).numpy(), (X.T @ X / len(y)).numpy()


def rise(g: NDArray[Any], H: NDArray[Any], e: NDArray[Any]) -> float:
    return float(g @ e + 0.5 * e @ H @ e)


def best(g: NDArray[Any], H: NDArray[Any], rho: float) -> float:
    """max of g.e + e'He/2 over ||e|| = rho: (mu - H) e = g with mu above the spectrum."""
    at = lambda mu: np.linalg.solve(mu * np.eye(len(g)) - H, g)  # noqa: E731
    top = float(np.linalg.eigvalsh(H)[-1])
    mu = brentq(lambda mu: np.linalg.norm(at(mu)) - rho, top + 1e-9, top + 10 * np.linalg.norm(g) / rho, xtol=1e-13)
    return rise(g, H, at(mu))


def unit(v: NDArray[Any]) -> NDArray[Any]:
    return v / np.linalg.norm(v)


def test_a_quadratic_federation_is_known_exactly(tmp_path: Path) -> None:
    sizes, w, rho = (7, 12, 5, 9), torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64), 0.4
    subject = Quadratic(drawn(*sizes), w, tmp_path)
    found = ask("incompatibility", [subject], tmp_path, radius=rho, batch=3, batches=3, steps=50)
    p = np.asarray(sizes) / sum(sizes)
    local = [parts(*data, w) for data in subject.data]
    g = sum(p[k] * local[k][0] for k in range(4))
    H = sum(p[k] * local[k][1] for k in range(4))
    es, e = [rho * unit(own) for own, _ in local], rho * unit(g)
    R = np.asarray([rise(*local[k], es[k]) for k in range(4)])
    hetero = np.asarray([np.sum((own - g) ** 2) for own, _ in local])
    np.testing.assert_allclose(found["share"].values, p)
    np.testing.assert_allclose(found["rise"].values[0], R, rtol=1e-10)
    matrix = [[rise(*local[j], es[k]) for j in range(4)] for k in range(4)]
    np.testing.assert_allclose(found["other_rise"].values[0], matrix, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(found["client_global_rise"].values[0], [rise(g, H, one) for one in es], rtol=1e-9)
    np.testing.assert_allclose(found["maximised"].values[0], [best(*local[k], rho) for k in range(4)], rtol=1e-4)
    assert (found["maximised"].values[0] >= R).all()
    np.testing.assert_allclose(found["client_gradient_norm"].values[0], [np.linalg.norm(own) for own, _ in local])
    np.testing.assert_allclose(found["client_heterogeneity"].values[0], hetero)
    np.testing.assert_allclose(found["perturbation_distance"].values[0], [np.linalg.norm(one - e) for one in es])
    np.testing.assert_allclose(found["perturbation_cosine"].values[0], [unit(own) @ unit(g) for own, _ in local])
    np.testing.assert_allclose(found["rise_error"].values, 0)
    expected = {
        "loss": subject.objective().loss(w),
        "gradient_norm": np.linalg.norm(g),
        "radius": rho,
        "global_rise": rise(g, H, e),
        "rise_mean": R.mean(),
        "rise_mean_weighted": p @ R,
        "rise_dispersion": R.var(),
        "rise_dispersion_weighted": p @ (R - p @ R) ** 2,
        "rise_dispersion_corrected": R.var(),
        "heterogeneity": hetero.mean(),
        "heterogeneity_weighted": p @ hetero,
        "heterogeneity_noise": 0.0,
    }
    for name, value in expected.items():
        assert found[name].values[0] == pytest.approx(value, rel=1e-10), name
    assert found["maximised_dispersion"].values[0] == pytest.approx(found["maximised"].values[0].var(), rel=1e-10)
    assert "tracking_error" not in found
    assert "delta_epsilon" not in found

    assert found["batches"].values[0].tolist() == [2, 3, 1, 3]
    for k, (X, y) in enumerate(subject.data):
        order = numpy_generator(0, "batches", k).permutation(len(y))
        cut = [order[start : start + 3] for start in range(0, len(y) - 2, 3)][:3]
        batches = [parts(X[one], y[one], w) for one in cut]
        spread = [np.sum((own - local[k][0]) ** 2) for own, _ in batches]
        assert found["client_batch_variance"].values[0, k] == pytest.approx(np.mean(spread))
        if len(batches) < 2:
            assert np.isnan(found["client_friendly_batches"].values[0, k])
            continue
        error = np.std(spread, ddof=1) / math.sqrt(len(batches))
        assert found["client_batch_variance_error"].values[0, k] == pytest.approx(error)
        pairs = [(b, c) for b in range(len(batches)) for c in range(len(batches)) if b != c]
        rises = [rise(*batches[c], rho * unit(batches[b][0])) for b, c in pairs]
        slopes = [batches[c][0] @ batches[b][0] for b, c in pairs]
        assert found["client_friendly_batches"].values[0, k] == pytest.approx(np.mean(np.asarray(rises) < 0))
        assert found["friendly_batches_linear"].values[0, k] == pytest.approx(np.mean(np.asarray(slopes) < 0))
        assert found["other_batch_rise"].values[0, k] == pytest.approx(np.mean(rises))
    known = found["client_friendly_batches"].values[0][[0, 1, 3]]
    assert found["friendly_batches"].values[0] == pytest.approx(known.mean())


def test_friends_and_strangers(tmp_path: Path) -> None:
    """Gradients (2, 0), (-2, 0) and (0, 2): each of the first two helps the other, the third touches nobody."""
    one = lambda x, y: (torch.tensor([x] * 2, dtype=torch.float64), torch.tensor([y] * 2, dtype=torch.float64))  # noqa: E731
    subject = Quadratic(
        [one([1.0, 0.0], -2.0), one([1.0, 0.0], 2.0), one([0.0, 1.0], -2.0)], torch.zeros(2).double(), tmp_path
    )
    found = ask("incompatibility", [subject], tmp_path, radius=1.0, steps=0, batches=0)
    up, down = 2.5, -1.5  # 2 rho + rho^2 / 2 and -2 rho + rho^2 / 2
    expected = [[up, down, 0], [down, up, 0], [0, 0, up]]
    np.testing.assert_allclose(found["other_rise"].values[0], expected, atol=1e-14)
    assert found["friendly_clients"].values[0] == pytest.approx(2 / 6)
    assert found["rise_dispersion"].values[0] == pytest.approx(0, abs=1e-28)  # all see the same sharpness
    g = np.asarray([0, 2 / 3])
    hetero = np.mean([np.sum((np.asarray(own) - g) ** 2) for own in ([2, 0], [-2, 0], [0, 2])])
    assert found["heterogeneity"].values[0] == pytest.approx(hetero)
    assert "maximised_mean" not in found
    assert "batch_variance" not in found


def test_what_counts_as_friendly() -> None:
    # batch 0 fails to raise its own loss, so what it lowers is no friendly adversary; zero is not lower
    rises = np.asarray([[-1.0, -1.0, -1.0], [-1.0, 2.0, 0.0], [3.0, -1e-9, 1.0]])
    assert dispersion.compute_friendly_rate(rises) == pytest.approx(2 / 6)
    assert np.isnan(dispersion.compute_friendly_rate(np.asarray([[1.0]])))


def test_gap_between_perturbations() -> None:
    x, y = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 0.2])
    assert search.measure_perturbation_gap(0.5, x, 7 * x) == pytest.approx(0, abs=1e-12)
    assert search.measure_perturbation_gap(0.5, x, y) == pytest.approx(0.5 * math.sqrt(2))
    assert search.measure_perturbation_gap(0.5, x, -y + 0 * x) == pytest.approx(0.5 * math.sqrt(2))
    assert search.measure_perturbation_gap(0.5, x, -x) == pytest.approx(1.0)
    assert search.measure_perturbation_gap(0.5, 0 * x, y) == pytest.approx(
        0.5
    )  # before the first round there is none to go by


def test_noise_of_subsamples_is_taken_out_of_the_dispersion() -> None:
    """On average over many draws of noisy R_k, the corrected variance is that of the true ones."""
    truth, errors = np.asarray([1.0, 2.0, 2.5, 0.5]), np.asarray([0.5, 0.1, 1.0, 0.3])
    p = np.asarray([0.1, 0.2, 0.3, 0.4])
    noisy = truth + errors * numpy_generator(0, "noise").standard_normal((40_000, 4))
    zeros = np.zeros_like(noisy)
    values = {"rise": noisy, "rise_error": zeros + errors, "client_heterogeneity": zeros}
    found = dispersion.describe_dispersions(values, dispersion.ClientSample(p, p, p))
    for end, weights in (("", np.full(4, 0.25)), ("_weighted", p)):
        exact = weights @ (truth - weights @ truth) ** 2
        assert found[f"rise_dispersion_corrected{end}"].values.mean() == pytest.approx(exact, rel=0.02)
        assert found[f"rise_dispersion{end}"].values.mean() > 1.2 * exact


def test_standard_errors_of_subsamples(tmp_path: Path) -> None:
    """On average their squares are the variances of a mean of n out of N: S^2 / n (1 - n / N)."""
    w, e = (torch.tensor(v, dtype=torch.float64) for v in ([0.3, -1.0, 0.5], [0.2, 0.1, -0.4]))
    subject = Quadratic(drawn(60), w, tmp_path)
    full, (X, y) = subject.objective("train", 0), subject.data[0]
    own_rises = 0.5 * ((X @ (w + e) - y).square() - (X @ w - y).square())
    own_gradients = (X @ w - y)[:, None] * X
    rises, gradients = [], []
    for seed in range(100):
        # shuffled, as the study does: the examples of a subset come in the order of the data
        inputs, targets = join(full.subset(24, seed=seed).chunks)
        order = numpy_generator(seed, "order").permutation(24)
        part = full.on(inputs[order], targets[order], population=60)
        rises.append(rise_error(part, w, e, part.split(math.ceil(part.count / study.GROUPS))) ** 2)
        found = dispersion.compare_batches(part.split(8), w, part.gradient(w), search.Search(0.1))
        gradients.append(gradient_error(part, float(found["client_batch_variance"].values), 8) ** 2)
    for squares, values in ((rises, own_rises), (gradients, own_gradients)):
        exact = float(values.var(dim=0).sum()) / 24 * (1 - 24 / 60)
        assert np.std(squares) / math.sqrt(100) < 0.1 * exact
        assert abs(np.mean(squares) - exact) < 4 * np.std(squares) / math.sqrt(100)
    assert rise_error(full, w, e) == 0


def test_limits(tmp_path: Path) -> None:
    w = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    subject = Quadratic(drawn(7, 30, 5), w, tmp_path)
    found = ask("incompatibility", [subject], tmp_path, limit=6, radius=0.2, batch=3)
    assert found["examples"].values[0].tolist() == [6, 6, 5]
    for k in range(3):
        part = subject.objective("train", k, limit=6)
        g = part.gradient(w)
        assert found["rise"].values[0, k] == pytest.approx(part.loss(w + 0.2 * g / g.norm()) - part.loss(w))
    errors = found["rise_error"].values[0]
    assert (errors[:2] > 0).all()
    assert errors[2] == 0  # all of its data were seen
    noise = np.sum(errors**2) / 3 * (1 - 1 / 3)
    assert found["rise_dispersion_noise"].values[0] == pytest.approx(noise)
    assert found["rise_dispersion_corrected"].values[0] == pytest.approx(found["rise"].values[0].var() - noise)
    s, p = found["gradient_error"].values[0] ** 2, found["share"].values
    assert (s[:2] > 0).all()
    # g_k - g = (1 - p_k) g_k - the others' shares
    expected = [(1 - p[k]) ** 2 * s[k] + sum(p[j] ** 2 * s[j] for j in range(3) if j != k) for k in range(3)]
    assert found["heterogeneity_noise"].values[0] == pytest.approx(np.mean(expected))
    assert found["heterogeneity_noise_weighted"].values[0] == pytest.approx(p @ expected)


def test_the_mean_gradient_is_that_of_all_clients_also_for_some_of_them(tmp_path: Path) -> None:
    """Eq. 6: ||g_k - g||^2 with g over all N; the mean over a drawn E comes with its standard error."""
    w = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    subject = Quadratic(drawn(7, 12, 5, 9, 20, 6), w, tmp_path)
    gradients = np.stack([parts(X, y, w)[0] for X, y in subject.data])
    p = np.asarray([len(y) for _, y in subject.data]) / 59
    exact = np.square(gradients - p @ gradients).sum(axis=1)
    estimates = []
    for seed in range(15):
        settings = {"clients": 3, "steps": 0, "batches": 0, "radius": 0.1, "seed": seed}
        found = ask("incompatibility", [subject], tmp_path / str(seed), **settings)
        assert (found.attrs["clients"], found.attrs["all_clients"]) == (3, 6)
        own = found["client"].values.tolist()
        np.testing.assert_allclose(found["client_heterogeneity"].values[0], exact[own])
        mean, error = found["heterogeneity"].values[0], found["heterogeneity_standard_error"].values[0]
        assert mean == pytest.approx(exact[own].mean())
        assert error == pytest.approx(exact[own].std(ddof=1) / math.sqrt(3) * math.sqrt(1 - 3 / 6))
        weights = p[own] / p[own].sum()
        ratio = weights @ exact[own]
        by_size = 0.5 * 3 / 2 * np.sum((weights * (exact[own] - ratio)) ** 2)
        assert found["heterogeneity_weighted_standard_error"].values[0] == pytest.approx(math.sqrt(by_size))
        assert found["gradient_norm"].values[0] == pytest.approx(np.linalg.norm(p @ gradients))
        estimates.append(mean)
    assert abs(np.mean(estimates) - exact.mean()) < 3 * np.std(estimates) / math.sqrt(15)
    limited = ask("incompatibility", [subject], tmp_path / "limited", **{**settings, "limit": 4})
    total = sum(p[k] * subject.objective("train", k, limit=4).gradient(w) for k in range(6))
    assert limited["gradient_norm"].values[0] == pytest.approx(float(total.norm()))
    whole = ask("incompatibility", [subject], tmp_path / "whole", **{**settings, "clients": 6})
    assert whole["heterogeneity_standard_error"].values[0] == 0
    assert whole["heterogeneity"].values[0] == pytest.approx(exact.mean())


def test_a_fixed_set_of_clients(run: Run, tmp_path: Path) -> None:
    settings = {"clients": 2, "steps": 0, "batches": 0}
    found = ask("incompatibility", [run], tmp_path, **settings)
    clients = found["client"].values.tolist()
    assert len(clients) == 2
    assert clients == sorted(set(clients))
    assert clients == ask("incompatibility", [run], tmp_path / "last", rounds="4", **settings)["client"].values.tolist()
    sets = {tuple(study.choose_clients(run, study.Settings(clients=2, seed=seed))) for seed in range(20)}
    assert len(sets) > 3
    g = gradient_at(run, run.point(4))  # of all clients
    assert found["gradient_norm"].values[-1] == pytest.approx(float(g.norm()))


def test_fedavg_against_plain_loops(run: Run, tmp_path: Path) -> None:
    found = ask("incompatibility", [run], tmp_path, rounds="2,4", steps=3, batches=2)
    assert found["client"].values.tolist() == run.clients
    for row, round in enumerate((2, 4)):
        w = run.point(round)
        g = gradient_at(run, w)  # of everyone's data at once
        assert found["gradient_norm"].values[row] == pytest.approx(float(g.norm()), rel=1e-9)
        assert found["loss"].values[row] == pytest.approx(float(loss_at(run, w)), rel=1e-10)
        R = []
        for k in run.clients:
            own = gradient_at(run, w, k)
            e = 0.05 * own / own.norm()
            R.append(float(loss_at(run, w + e, k) - loss_at(run, w, k)))
            assert found["client_global_rise"].values[row, k] == pytest.approx(
                float(loss_at(run, w + e) - loss_at(run, w))
            )
            assert found["client_heterogeneity"].values[row, k] == pytest.approx(float((own - g).square().sum()))
            assert found["gradient_cosine"].values[row, k] == pytest.approx(float(own @ g / own.norm() / g.norm()))
        assert found["rise"].values[row].tolist() == pytest.approx(R, rel=1e-9)
        assert found["rise_dispersion"].values[row] == pytest.approx(np.var(R), rel=1e-8)
        assert (found["maximised"].values[row] >= found["rise"].values[row]).all()


def test_fedvssam_searches_along_its_mixed_direction(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(algorithm={"name": "fedvssam", "a": 0.3, "rho": 0.1, "gamma": 0.7})
    found = ask("incompatibility", [run], tmp_path, rounds="0,4", steps=0, batches=2)
    assert found["radius"].values.tolist() == [0.1, 0.1]
    assert found.attrs["search"] == "(1 - a) d + a g"
    w, d = run.point(4), run.checkpoint(4).server["direction"]
    assert float(d.norm()) > 0
    rule = run.federation.method.perturbation
    context = ClientContext(
        run.federation.trainer.layout, w, {"direction": d}, {}, lr=0.1, momentum=0.0, steps=1, round=4
    )
    shares = run.shares(run.clients)
    g = sum(shares[k] * gradient_at(run, w, k) for k in run.clients)
    v = 0.7 * d + 0.3 * g
    for k in run.clients:
        own = gradient_at(run, w, k)
        mixed = 0.7 * d + 0.3 * own
        e = 0.1 * mixed / mixed.norm()
        torch.testing.assert_close(rule(w, own, context), e)  # what the training does
        assert found["rise"].values[1, k] == pytest.approx(float(loss_at(run, w + e, k) - loss_at(run, w, k)), rel=1e-9)
        gap = float((e - 0.1 * v / v.norm()).norm())
        assert found["perturbation_distance"].values[1, k] == pytest.approx(gap)
    # before the first round d is zero, and any a follows the gradient
    start, own = run.point(0), gradient_at(run, run.point(0), 0)
    plain = float(loss_at(run, start + 0.1 * own / own.norm(), 0) - loss_at(run, start, 0))
    assert found["rise"].values[0, 0] == pytest.approx(plain, rel=1e-9)
    base = make_run(algorithm={"name": "fedvssam", "lf": False}, rounds={"count": 1, "participants": 3})
    assert search.find_search(base, 1).direction is None


def test_tracking_of_the_global_gradient(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(algorithm={"name": "fedvssam"})
    found = ask("incompatibility", [run], tmp_path, rounds="4", clients=1, steps=0, batches=0)
    w, d = run.point(4), run.checkpoint(4).server["direction"]
    inputs, labels = run.examples("train")
    places = torch.from_numpy(numpy_generator(0, "iid").integers(len(labels), size=(10, 512)))
    gradients = torch.stack([run.objective().on(inputs[one], labels[one]).gradient(w) for one in places])
    mean = gradients.mean(dim=0)
    assert found["tracking_error"].values[0] == pytest.approx(float((d - mean).square().sum()), rel=1e-9)
    assert found["tracking_noise"].values[0] == pytest.approx(float(gradients.var(dim=0).sum()) / 10, rel=1e-9)
    assert found["tracking_cosine"].values[0] == pytest.approx(float(d @ mean / d.norm() / mean.norm()))
    exact = float((d - gradient_at(run, w)).square().sum())
    assert abs(found["tracking_error"].values[0] - exact) < 4 * math.sqrt(found["tracking_noise"].values[0] * exact)


@pytest.mark.parametrize("name", ["fedgloss", "naivefedgloss"])
def test_delta_epsilon_of_single_steps(make_run: Callable[..., Run], tmp_path: Path, name: str) -> None:
    """With one full-batch step without local SAM, w^t - w_k = lr (g_k - l_k): the true pseudo-gradient in one line."""
    run = make_run(
        algorithm={"name": name, "rho": 0.0, "rho_s": 0.1, "beta": 5.0},
        local={"lr": 0.1, "batch_size": 2000, "epochs": 1},
        checkpoints={"every": 1, "keep_locals": "none"},
    )
    found = ask("incompatibility", [run], tmp_path, clients=1, steps=0, batches=0)
    assert found["round"].values.tolist() == [0, 1, 2, 3, 4]
    assert found["radius"].values.tolist() == [0.05] * 5  # clients that do not perturb have no radius
    assert found["delta_epsilon"].values[0] == pytest.approx(0.1)
    assert np.isnan(found["delta_epsilon"].values[[1, 2]]).all()  # the clients' duals are not kept that long
    for round in (3, 4):
        w, kept = run.point(round), run.checkpoint(round)
        cohort = run.federation.draw_cohort(round)
        shares, true = run.shares(cohort), torch.zeros_like(w)
        for k in cohort:
            dual = kept.clients[k]["dual"] if k in kept.clients else torch.zeros_like(w)
            true += shares[k] * 0.1 * (gradient_at(run, w, k) - dual)
        last = kept.server["ascent"]
        expected = 0.1 * float((last / last.norm() - true / true.norm()).norm())
        assert expected > 0.01
        assert found["delta_epsilon"].values[round] == pytest.approx(expected, rel=1e-8)


def test_delta_epsilon_leaves_the_run_as_it_was(make_run: Callable[..., Run]) -> None:
    run = make_run(algorithm={"name": "fedgloss"}, rounds={"count": 2, "participants": 3})
    method, before = run.federation.method, run.checkpoint(2)
    w, ascent = before.models["server"].clone(), before.server["ascent"].clone()
    first = search.measure_delta_epsilon(run, 2)
    assert first == search.measure_delta_epsilon(run, 2) > 0
    assert run.federation.method is method
    assert torch.equal(run.checkpoint(2).models["server"], w)
    assert torch.equal(run.checkpoint(2).server["ascent"], ascent)


@pytest.mark.parametrize(
    ("algorithm", "radius"),
    [
        ({"name": "fedavg"}, 0.05),
        ({"name": "fedsam", "rho": 0.2}, 0.2),
        ({"name": "fedsam", "rho": 0.2, "warmup": 4, "rho_start": 0.1}, 0.15),  # that of the second round, t = 2
        ({"name": "fedlesam", "rho": 0.02}, 0.02),
        ({"name": "fedasam", "rho": 0.7}, 0.05),  # not a Euclidean radius
    ],
)
def test_the_radius_of_the_method(make_run: Callable[..., Run], algorithm: dict[str, Any], radius: float) -> None:
    run = make_run(algorithm=algorithm, rounds={"count": 1, "participants": 2})
    assert search.find_search(run, 1).radius == pytest.approx(radius)
    assert search.find_search(run, 1, 0.3).radius == 0.3


def test_bad_input(run: Run, tmp_path: Path) -> None:
    own = Own("mine", tmp_path, run.model, run.point(4), {"train": run.examples("train")}, "x")
    with pytest.raises(ValueError, match="mine: a single model has no clients; this study needs a run"):
        ask("incompatibility", [own], tmp_path)
    for settings, message in (
        ({"radius": 0.0}, "radius must be above 0, got 0"),
        ({"clients": 0}, "clients must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"study incompatibility: {message}"):
            plan("incompatibility", [run], tmp_path, **settings)


def test_norm_layers_are_not_perturbed(make_run: Callable[..., Run], tmp_path: Path) -> None:
    """Running statistics follow the weights in a point, also where the server's direction is mixed in."""
    run = make_run(
        algorithm={"name": "fedvssam"},
        model={"name": "tests.analysis.studies.test_sensitivity:normed"},
        rounds={"count": 1, "participants": 2},
    )
    size = len(run.checkpoint(1).server["direction"])
    theta = run.point(1)
    assert len(theta) > size
    gradient = run.objective("train", 0).gradient(theta)
    e = search.find_search(run, 1).perturb(gradient)
    assert not e[size:].any()
    assert float(e.norm()) == pytest.approx(0.05)
    found = ask("incompatibility", [run], tmp_path, rounds="1", steps=0, batches=2)
    assert np.isfinite(found["rise_dispersion"].values).all()


def test_read_again(run: Run, tmp_path: Path) -> None:
    check_reading("incompatibility", run, tmp_path, rounds="4", steps=2, batches=2)


def test_interrupted(run: Run, tmp_path: Path) -> None:
    check_interruption("incompatibility", run, tmp_path, rounds="4", steps=2, batches=2, limit=60)

"""Local models against the point that was sent, by dense float64 computation, where it is not the global model.

FedGloSS sends a perturbed model, and every second round has a checkpoint: neither w^t nor w^(t-1) is what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from analysis.subjects import Run
from tests.analysis.helpers import ask, dense, gradient_at, loss_at, outputs

RHO_S = 0.1
RADIUS = 0.2


@pytest.fixture(scope="module")
def run(make_run: Callable[..., Run]) -> Run:
    return make_run(algorithm={"name": "fedgloss", "rho_s": RHO_S}, checkpoints={"every": 2, "keep_locals": "all"})


@pytest.fixture(scope="module")
def start(make_run: Callable[..., Run]) -> Tensor:
    """What FedGloSS sent in round 4, from the state after round 3 of the same run with more checkpoints."""
    every = make_run(algorithm={"name": "fedgloss", "rho_s": RHO_S}, checkpoints={"every": 1, "keep_locals": "all"})
    ascent = every.checkpoint(3).server["ascent"]
    return every.point(3) + RHO_S * ascent / ascent.norm()


def test_the_sent_point_is_on_record_and_is_no_other(run: Run, start: Tensor) -> None:
    found = run.sent_point(4)
    assert found is not None
    torch.testing.assert_close(found, start, rtol=1e-12, atol=1e-13)
    assert float((found - run.point(4)).norm()) > 1e-2
    assert run.sent_point(0) is None


def test_drift(run: Run, start: Tensor, tmp_path: Path) -> None:
    found = ask("drift", [run], tmp_path, rounds="4", tau=2.0)
    models = run.local_points(4)
    assert found.attrs["reference"] == "sent"
    assert found["client"].values.tolist() == sorted(models)
    shares = run.shares(sorted(models))
    mean = sum((shares[k] * (models[k] - start) for k in shares), torch.zeros_like(start))
    assert float(found["moved_global"].sel(round=4)) == pytest.approx(float((run.point(4) - start).norm()))
    for k, model in models.items():
        away, client = model - start, found.sel(round=4, client=k)
        assert float(client["distance"]) == pytest.approx(float((models[k] - run.point(4)).norm()))
        assert float(client["update_norm"]) == pytest.approx(float(away.norm()))
        assert float(client["update_cosine"]) == pytest.approx(float(away @ mean / away.norm() / mean.norm()))
        inputs, w = run.examples("train", k)[0], models[k].clone().requires_grad_()
        p = torch.softmax(outputs(run, start, inputs) / 2, dim=1)
        log_q = torch.log_softmax(outputs(run, w, inputs) / 2, dim=1)
        loss = (p * (p.log() - log_q)).sum(dim=1).mean()
        slope = torch.autograd.grad(loss, w)[0]
        assert float(client["proximal_loss"]) == pytest.approx(float(loss.detach()), rel=1e-9)
        assert float(client["half_square"]) == pytest.approx(float(away @ away) / 2)
        assert float(client["endpoint_cosine"]) == pytest.approx(float(-away @ slope / away.norm() / slope.norm()))


def test_sensitivity(run: Run, start: Tensor, tmp_path: Path) -> None:
    table = ask("sensitivity", [run], tmp_path, radius=RADIUS)
    assert table.attrs["reference"] == "sent"
    names = [name for name, _ in run.model.named_parameters()]
    edges = np.cumsum([0, *(parameter.numel() for parameter in run.model.parameters())])
    assert table["client"].values.tolist() == sorted(run.local_points(4))
    for k, w in run.local_points(4).items():
        client = table.sel(round=4, client=k)
        g, far, base = gradient_at(run, w, k), gradient_at(run, start, k), float(loss_at(run, w, k))
        e = RADIUS * g / g.norm()
        top, slope = float(loss_at(run, w + e, k)), gradient_at(run, w + e, k)
        assert float(client["global_sensitivity"]) == pytest.approx(abs(float(loss_at(run, start, k)) - base), rel=1e-9)
        for layer, name in enumerate(names):
            measured = client.sel(layer=name)
            here = slice(int(edges[layer]), int(edges[layer + 1]))
            moved, without = w[here] - start[here], w + e
            without[here] = w[here]
            assert float(measured["moved"]) == pytest.approx(float(moved @ moved))  # eq. 11
            assert float(measured["global_first_order"]) == pytest.approx(abs(float(far[here] @ moved)))  # eq. 10
            assert float(measured["removal"]) == pytest.approx(abs(top - float(loss_at(run, without, k))), rel=1e-8)
            assert float(measured["first_order"]) == pytest.approx(abs(float(slope[here] @ e[here])), rel=1e-9)


def test_local_global(run: Run, tmp_path: Path) -> None:
    found = ask("local_global", [run], tmp_path, top=2, tol=1e-8)
    for k, w in run.local_points(4).items():
        local = found.sel(round=4, client=k)
        for name, data in (("local", run.examples("train", k)), ("global", run.examples("train"))):
            exact = torch.linalg.eigvalsh(dense(run, w, *data)).flip(0)[:2]
            np.testing.assert_allclose(local[f"{name}_eigenvalue"], exact, rtol=1e-9)

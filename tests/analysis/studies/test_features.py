"""Penultimate features against plain matrix products, and pictures that come out the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from analysis.shared.outputs import compute_outputs
from analysis.studies import features
from analysis.subjects import Limits, Own
from tests.analysis.helpers import ask, ask_all, assert_same, check_interruption, plan


def layers(run, round, model="server"):
    """The perceptron's weights, cut out of the checkpoint by hand: 64 inputs, 4 hidden, 10 classes."""
    w = run.checkpoint(round).models[model]
    cuts = torch.split(w, [64 * 4, 4, 4 * 10, 10])
    return cuts[0].view(4, 64), cuts[1], cuts[2].view(10, 4), cuts[3]


def test_features_are_what_enters_the_classifier(run):
    inputs, _ = run.examples("test")
    A, a, B, b = layers(run, 4)
    seen = compute_outputs(run, run.point(4), inputs)
    hidden = torch.relu(inputs.flatten(1) @ A.T + a)
    torch.testing.assert_close(seen.features, hidden, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen.logits, hidden @ B.T + b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "workers"), [(7, 1), (7, 2), (360, 2)])
def test_chunks_and_workers_change_nothing(run, monkeypatch, size, workers):
    inputs, _ = run.examples("test")
    whole = compute_outputs(run, run.point(4), inputs)
    monkeypatch.setattr(run, "limits", Limits(workers=workers, chunk_size=size, dtype=torch.float64))
    parts = compute_outputs(run, run.point(4), inputs)
    torch.testing.assert_close(parts.features, whole.features, rtol=1e-13, atol=1e-13)


def test_running_statistics_travel_with_the_point(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).double()
    X, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0, 1])
    mean, variance = torch.tensor([1.0, -2.0]).double(), torch.tensor([4.0, 0.25]).double()
    theta = torch.cat([*(p.detach().reshape(-1) for p in model.parameters()), mean, variance])
    own = Own("own", tmp_path, model, theta, {"train": (X, y)}, "print", Limits(workers=1, dtype=torch.float64))
    seen = compute_outputs(own, theta, X)
    expected = (model[0](X) - mean) / torch.sqrt(variance + model[1].eps)
    torch.testing.assert_close(seen.features, expected.detach(), rtol=1e-12, atol=1e-12)
    assert model.training  # the caller's model is left alone


def test_stored_with_named_axes(run, tmp_path):
    found = ask("features", [run], tmp_path, rounds="all", models=("server",), count=60, perplexity=5.0)
    assert dict(found.sizes) == {"model": 1, "round": 3, "axis": 2, "example": 60, "unit": 4}
    inputs, labels = run.examples("test")
    chosen = found["example_index"].values
    assert len(set(chosen)) == 60
    np.testing.assert_array_equal(found["label"].values, labels.numpy()[chosen])
    counts, whole = np.bincount(found["label"].values, minlength=10), np.bincount(labels.numpy(), minlength=10)
    assert np.all(np.abs(counts - whole / 6) < 1)  # every class in proportion
    A, a, B, b = layers(run, 2)
    hidden = torch.relu(inputs[chosen].flatten(1) @ A.T + a)
    np.testing.assert_allclose(found["feature"].sel(model="server", round=2), hidden, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found["predicted"].sel(model="server", round=2), (hidden @ B.T + b).argmax(1))
    assert np.isfinite(found["tsne"].values).all()
    assert (found["divergence"].values > 0).all()


def test_the_same_picture_every_time(run, tmp_path):
    one, two = (ask_all("features", [run], tmp_path / name, count=50, perplexity=4.0, keep=False) for name in "ab")
    assert_same(one, two)
    assert "feature" not in one.data


def test_pca_against_the_covariance():
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 5)) @ np.diag([5, 3, 1, 0.5, 0.1]) + 7
    plane, shares = features.project_pca(X)
    values, vectors = np.linalg.eigh(np.cov(X.T, ddof=0))
    np.testing.assert_allclose(shares, values[::-1][:2] / values.sum(), rtol=1e-10)
    np.testing.assert_allclose(np.abs(plane), np.abs((X - X.mean(0)) @ vectors[:, ::-1][:, :2]), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        features.project_pca(X[:, ::-1])[0], plane, rtol=1e-8, atol=1e-9
    )  # signs are not left to chance


def test_tsne_keeps_clusters_apart():
    random = np.random.default_rng(1)
    X = np.concatenate([random.normal(size=(20, 6)), random.normal(size=(20, 6)) + 50])
    embedded, _ = features.embed_tsne(X, perplexity=5.0, seed=0)
    apart = np.linalg.norm(embedded[:, None] - embedded[None], axis=2) + np.diag(np.full(40, np.inf))
    assert all((apart[i].argmin() < 20) == (i < 20) for i in range(40))


def test_a_dead_network_gives_no_picture():
    embedded, divergence = features.embed_tsne(np.ones((8, 3)), perplexity=2.0, seed=0)
    assert np.isnan(embedded).all()
    assert np.isnan(divergence)
    assert np.isnan(features.project_pca(np.ones((8, 3)))[1]).all()


def test_interrupted_and_run_again(run, tmp_path):
    check_interruption("features", run, tmp_path, rounds="all", count=40, perplexity=4.0)


def test_bad_settings(run, tmp_path):
    with pytest.raises(ValueError, match="models: unknown 'sever'; did you mean 'server'"):
        plan("features", [run], tmp_path, models=("sever",))
    with pytest.raises(ValueError, match="models must be a list of some of final, server, mean, swa"):
        plan("features", [run], tmp_path, models=())
    with pytest.raises(ValueError, match="perplexity must be below the number of examples, 20; got 30"):
        plan("features", [run], tmp_path, count=20)
    with pytest.raises(ValueError, match="round 4 has no swa model, only server, mean"):
        plan("features", [run], tmp_path, models=("swa",))


def test_one_feature_is_no_picture(tmp_path):
    model = nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 2)).double()
    X, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(8) % 2
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    own = Own("own", tmp_path, model, theta, {"test": (X, y)}, "print", Limits(workers=1, dtype=torch.float64))
    with pytest.raises(ValueError, match="own: a picture needs 2 features or more"):
        ask("features", [own], tmp_path, count=8, perplexity=2.0)

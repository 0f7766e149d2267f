"""Counts per class and per client against plain loops; the forgetting measure against its formula by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from analysis.studies import forgetting
from analysis.subjects import Limits, Own
from tests.analysis.helpers import ask, check_interruption, plan
from training.tasks.task import count_confusion


def forward(w, inputs):
    """Hidden features and logits of the fixture's perceptron: 64 inputs, 4 hidden, 10 classes."""
    A, a, B, b = torch.split(w, [64 * 4, 4, 4 * 10, 10])
    hidden = torch.relu(inputs.flatten(1) @ A.view(4, 64).T + a)
    return hidden, hidden @ B.view(10, 4).T + b


@pytest.fixture(scope="module")
def found(run, tmp_path_factory):
    return ask("forgetting", [run], tmp_path_factory.mktemp("forgetting"))


def test_classes_by_plain_loops(run, found):
    assert dict(found.sizes) == {"round": 3, "class": 10, "predicted": 10, "client": 5}
    inputs, labels = run.examples("test")
    for round in (0, 2, 4):
        hidden, logits = forward(run.point(round), inputs)
        table = np.zeros((10, 10), dtype=int)
        for label, guess in zip(labels.tolist(), logits.argmax(1).tolist(), strict=True):
            table[label, guess] += 1
        here = found.sel(round=round)
        np.testing.assert_array_equal(here["confusion"], table)
        np.testing.assert_array_equal(here["correct"], np.diag(table))
        np.testing.assert_array_equal(here["total"], table.sum(1))
        np.testing.assert_allclose(here["accuracy"], np.diag(table) / table.sum(1), rtol=1e-15)
        assert float(here["accuracy_all"]) == np.trace(table) / 360
        for c in range(10):
            own = labels == c
            assert float(here["feature_norm"][c]) == pytest.approx(hidden[own].norm(dim=1).mean().item(), rel=1e-12)
            assert float(here["output_norm"][c]) == pytest.approx(logits[own].norm(dim=1).mean().item(), rel=1e-12)
    assert np.issubdtype(found["confusion"].dtype, np.integer)


def test_it_agrees_with_the_runs_own_evaluation(run, found):
    objective = run.objective("test")
    for round in (2, 4):
        accuracy = float(found["accuracy_all"].sel(round=round))
        assert accuracy == pytest.approx(1 - objective.error(run.point(round)), abs=1e-12)


def test_clients_by_plain_loops(run, found):
    for round in (0, 2, 4):
        for client in range(5):
            inputs, labels = run.examples("train", client)
            hidden, logits = forward(run.point(round), inputs)
            here = found.sel(round=round, client=client)
            right = int((logits.argmax(1) == labels).sum())
            assert (int(here["client_correct"]), int(here["client_total"])) == (right, len(labels))
            assert float(here["client_accuracy"]) == right / len(labels)
            assert float(here["client_feature_norm"]) == pytest.approx(hidden.norm(dim=1).mean().item(), rel=1e-12)
            assert float(here["client_output_norm"]) == pytest.approx(logits.norm(dim=1).mean().item(), rel=1e-12)


def test_local_models_on_everyones_data_and_on_their_own(run, found):
    expected = [(round, client) for round in (2, 4) for client in sorted(run.local_points(round))]
    measured = [(round, client) for round in (0, 2, 4) for client in range(5)]
    known = found["local_accuracy_all"].notnull()
    assert [one for one in measured if known.sel(round=one[0], client=one[1])] == expected
    inputs, labels = run.examples("test")
    for round, client in expected:
        here, point = found.sel(round=round, client=client), run.local_points(round)[client]
        right = forward(point, inputs)[1].argmax(1) == labels
        np.testing.assert_array_equal(here["local_correct"], [int(right[labels == c].sum()) for c in range(10)])
        assert float(here["local_accuracy_all"]) == int(right.sum()) / 360
        own, theirs = run.examples("train", client)
        hit = forward(point, own)[1].argmax(1) == theirs
        assert float(here["own_accuracy"]) == int(hit.sum()) / len(theirs)
        np.testing.assert_array_equal(here["own_total"], np.bincount(theirs.numpy(), minlength=10))


def test_the_measure_by_hand():
    accuracy = np.array([[1.0, 0.0], [0.5, 0.25], [0.75, 0.0], [0.25, 0.5]])
    lost = forgetting.measure_forgetting(xr.DataArray(accuracy, {"round": [0, 1, 2, 3]}, ("round", "class")))
    # the untrained model's 1.0 does not count; 0.75 - 0.25 and 0.25 - 0.5 in the last round
    assert np.isnan(lost[:2]).all()
    np.testing.assert_array_equal(lost[2:], [[-0.25, 0.25], [0.5, -0.25]])


def test_the_measure_is_stored(found):
    two, four = (found["accuracy"].sel(round=round).values for round in (2, 4))
    assert np.isnan(found["forgetting"].sel(round=[0, 2])).all()
    assert float(found["forgetting"].sel(round=4)) == pytest.approx(np.mean(two - four), abs=1e-15)
    np.testing.assert_allclose(found["forgotten_class"].sel(round=4), two - four, atol=1e-15)
    two, four = (found["client_accuracy"].sel(round=round).values for round in (2, 4))
    assert float(found["client_forgetting"].sel(round=4)) == pytest.approx(np.mean(two - four), abs=1e-15)


def test_a_class_without_examples_is_unknown_not_zero():
    assert count_confusion(torch.tensor([0, 2, 0]), torch.tensor([0, 2, 2]), 3).tolist() == [
        [1, 0, 0],
        [0, 0, 0],
        [1, 0, 1],
    ]
    np.testing.assert_array_equal(forgetting.divide(np.array([1, 0, 1]), np.array([1, 0, 2])), [1, np.nan, 0.5])
    means = forgetting.average_groups(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 2, 2]), 3)
    np.testing.assert_array_equal(means, [1, np.nan, 4])


def test_limits_are_kept(run, tmp_path):
    found = ask("forgetting", [run], tmp_path, rounds="last", limit=25, clients=2, local=False)
    assert int(found["total"].sum()) == 25
    assert list(found["client"].values) == [0, 1]
    assert set(found["client_total"].values) == {25}
    assert "local_accuracy" not in found


def test_interrupted_and_run_again(run, tmp_path):
    check_interruption("forgetting", run, tmp_path)


def test_a_single_model(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)).double()
    X, y = torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 3
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    own = Own("own", tmp_path, model, theta, {"train": (X, y)}, "print", Limits(workers=1, dtype=torch.float64))
    with pytest.raises(ValueError, match="own: there is no test data, only train"):
        plan("forgetting", [own], tmp_path)
    found = ask("forgetting", [own], tmp_path, split="train")
    assert "client" not in found
    assert int(found["correct"].sum()) == int((model(X).argmax(1) == y).sum())


def test_bad_settings(run, tmp_path):
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got \"tests\""):
        plan("forgetting", [run], tmp_path, split="tests")
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        plan("forgetting", [run], tmp_path, limit=0)


def test_clients_without_tests_of_their_own(run, tmp_path):
    with pytest.raises(ValueError, match="clients have no test data in this run"):
        plan("forgetting", [run], tmp_path, client_split="test")

"""Accuracy under corruptions against counts by hand."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch

from analysis.studies import robustness
from analysis.subjects import Limits, Own, Run
from tests.analysis.helpers import ask, check_interruption
from training.data.corruptions import CORRUPTIONS, corrupt
from training.settings import build


def test_the_study_by_hand(run, tmp_path):
    kinds, severities = ("contrast", "gaussian_noise"), (2, 5)
    found = ask("robustness", [run], tmp_path, corruptions=kinds, severities=severities, rounds="2,4")
    assert dict(found.sizes) == {"round": 2, "corruption": 2, "severity": 2}
    data = run.federation.dataset
    bytes_ = data.test_inputs.numpy().astype(float)
    for round in (2, 4):
        A, a, B, b = torch.split(run.point(round), [256, 4, 40, 10])

        def right(pixels, weights=(A, a, B, b)):
            A, a, B, b = weights
            x = (torch.from_numpy(pixels) / 255 - data.mean[0]) / data.std[0]
            logits = torch.relu(x.flatten(1) @ A.view(4, 64).T + a) @ B.view(10, 4).T + b
            return int((logits.argmax(1) == data.test_targets).sum())

        here = found.sel(round=round)
        clean = right(bytes_)
        assert float(here["clean_accuracy"]) == clean / 360
        for kind, severity in itertools.product(kinds, severities):
            one, correct = here.sel(corruption=kind, severity=severity), right(corrupt(bytes_, kind, severity))
            assert int(one["correct"]) == correct
            assert float(one["accuracy"]) == correct / 360
            assert float(one["relative_drop"]) == pytest.approx(1 - correct / clean, abs=1e-12)
            p = correct / 360
            assert float(one["standard_error"]) == pytest.approx(np.sqrt(p * (1 - p) / 360), abs=1e-15)
        assert float(here["mean_accuracy"]) == pytest.approx(here["accuracy"].values.mean(), abs=1e-15)
        np.testing.assert_allclose(here["mean_by_severity"], here["accuracy"].values.mean(0), atol=1e-15)
        np.testing.assert_allclose(here["mean_by_corruption"], here["accuracy"].values.mean(1), atol=1e-15)


def test_all_kinds_by_default_and_what_is_left_out_is_named(run, tmp_path):
    found = ask("robustness", [run], tmp_path, severities=(3,), limit=40)
    assert set(found["corruption"].values) == set(CORRUPTIONS) - {"saturate"}
    assert found.attrs["left_out"] == "saturate"
    assert int(found.attrs["total"]) == 40
    assert found["extra"].dtype == bool
    assert str(found["departure"].sel(corruption="frost").values).startswith("stand-in")


def test_pixels_come_back_as_the_bytes_they_were(run):
    inputs, _ = run.examples("test")
    black, white = robustness.find_greys(run, robustness.Settings(), 1)
    pixels = robustness.to_pixels(inputs.float(), black, white)
    np.testing.assert_array_equal(pixels, run.federation.dataset.test_inputs.numpy())
    torch.testing.assert_close(robustness.to_inputs(pixels, black, white, torch.float64), inputs)


def test_a_model_of_ones_own_says_what_is_black(tmp_path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * 9, 2)).double()
    X, y = torch.rand(6, 2, 3, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(6) % 2
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    own = Own("own", tmp_path, model, theta, {"test": (X, y)}, "print", Limits(workers=1, dtype=torch.float64))
    with pytest.raises(ValueError, match="it is unknown what black is"):
        ask("robustness", [own], tmp_path)
    with pytest.raises(ValueError, match="black and white need 2 numbers, one per channel; got 1"):
        ask("robustness", [own], tmp_path, black=(0.0,), white=(1.0,))
    with pytest.raises(ValueError, match="saturate cannot be applied to images of 2 channels"):
        ask("robustness", [own], tmp_path, black=(0.0, 0.0), white=(1.0, 1.0), corruptions=("saturate",))
    found = ask(
        "robustness", [own], tmp_path, black=(0.0, 0.0), white=(1.0, 1.0), corruptions=("fog",), severities=(1,)
    )
    assert float(found["clean_accuracy"][0]) == int((model(X).argmax(1) == y).sum()) / 6


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """A run on four made-up images of CIFAR-10, and published corrupted images of them."""
    from tests.training.data.readers import fakes
    from training import config
    from training.engine.run import train

    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    labels = [3, 1, 4, 1]
    for part in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        content = {"data": fakes.draw(len(part), 4, 3072), "labels": labels}
        (folder / part).write_bytes(pickle.dumps(content, protocol=4))
    fakes.write_corrupted_cifar(tmp_path / "data", np.array(labels))
    monkeypatch.setenv("LANDSCAPE_DATA", str(tmp_path / "data"))
    settings = {"data": {"name": "cifar10"}, "model": {"name": "mlp", "hidden": [3]}, "partition": {"clients": 2}}
    recipe = config.validate({**settings, "rounds": {"count": 1, "participants": 2}})
    return Run(train(recipe, tmp_path / "runs"), limits=Limits(workers=1))


def test_published_images_are_preferred(cifar, tmp_path):
    from tests.training.data.readers import fakes

    settings = {"corruptions": ("fog", "contrast", "snow"), "severities": (2,)}
    found = ask("robustness", [cifar], tmp_path / "a", **settings)
    assert found.attrs["published"] == "fog, contrast"  # there is no file for snow
    data = cifar.federation.dataset
    clean = data.test_inputs.numpy().astype(float)
    for key, kind in enumerate(("fog", "contrast")):
        images = fakes.draw(key, 20, 32, 32, 3)[4:8].transpose(0, 3, 1, 2)
        change = np.sqrt(np.mean((images - clean) ** 2))
        assert float(found["change"].sel(corruption=kind)[0]) == pytest.approx(change, rel=1e-12)
    made = ask("robustness", [cifar], tmp_path / "b", images="made", **settings)
    assert "published" not in made.attrs
    assert float(made["change"].sel(corruption="snow")[0]) == float(found["change"].sel(corruption="snow")[0])
    assert float(made["change"].sel(corruption="fog")[0]) != float(found["change"].sel(corruption="fog")[0])
    with pytest.raises(ValueError, match=r"no .*snow\.npy"):
        ask("robustness", [cifar], tmp_path / "c", images="published", **settings)


def test_published_images_that_are_not_there(run, tmp_path):
    with pytest.raises(ValueError, match="there are no published corrupted images of the test data"):
        ask("robustness", [run], tmp_path, images="published")


def test_interrupted_and_run_again(run, tmp_path):
    settings = {"corruptions": ("fog", "snow", "contrast"), "severities": (1, 5), "limit": 50}
    check_interruption("robustness", run, tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corruptions": ("blur",)}, "corruptions: unknown 'blur'"),
        ({"severities": (0,)}, "severities.0 must be at least 1, got 0"),
        ({"severities": (6,)}, "severities.0 must be at most 5, got 6"),
        ({"severities": ()}, "severities must be a list of at least 1"),
        ({"black": (0.0,)}, "black and white need one number a channel each"),
        ({"black": (0.5,), "white": (0.5,)}, "black and white must differ"),
        ({"limit": 0}, "limit must be at least 1"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        build(robustness.Settings, settings, "study robustness")

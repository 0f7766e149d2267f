"""Studies of an adopted run: the bits of the same weights as a model of one's own, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import analysis
import training
from analysis.own_models import open_model
from analysis.subjects import Limits, Run
from tests.analysis.helpers import ask
from tests.training.adoption import foreign
from tests.training.adoption.foreign import TOML, write_run

MODULE = foreign.__name__
LIMITS = Limits(workers=1, device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("adopted") / "foreign")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return training.adopt(folder, folder.parent / "runs").path


def test_eigenvalues_are_those_of_the_same_weights_as_an_own_model_to_the_bit(
    run: Path, folder: Path, tmp_path: Path
) -> None:
    weights = folder / "global_3.safetensors"
    own = open_model(f"{MODULE}:make_net", weights, f"{MODULE}:load_data", out=tmp_path, limits=LIMITS)
    asked = {"rounds": "last", "top": 3}
    one, other = (
        ask("curvature", [subject], tmp_path / subject.name, **asked) for subject in (Run(run, limits=LIMITS), own)
    )
    for name in ("eigenvalue", "residual", "loss", "gradient_norm", "norm"):
        np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name)


def test_every_client_has_its_own_examples(run: Path) -> None:
    subject = Run(run, limits=LIMITS)
    images = foreign.load_data()[0][0]
    for client, dealt in enumerate(foreign.DEALT):
        assert (subject.examples("train", client)[0] == images[dealt]).all()
    assert (subject.examples("train")[0] == images).all()  # in the order of the data


def test_metrics_without_traffic_are_summarised(run: Path, tmp_path: Path) -> None:
    found = ask("training", [Run(run, limits=LIMITS)], tmp_path)
    assert found["final_accuracy"].item() == pytest.approx(found["accuracy"].mean().item())
    assert np.isnan(found["bytes_to_target"]).all()
    assert "bytes_down" not in found


def test_what_is_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    nothing = TOML.replace("client_models", "# client_models").replace("sent_models", "# sent_models")
    unsent = TOML.replace("sent_models", "# sent_models")
    expected = {
        (
            "local_global",
            nothing,
        ): r"no local models; rounds that do: none. Adopt the run again with adopt.client_models",
        ("drift", unsent): r"does not keep the point that was sent; .* Adopt the run again with adopt.sent_models",
        ("incompatibility", TOML + "[algorithm]\nname = 'fedvssam'\n"): r"does not keep the server's direction",
    }
    for number, ((study, toml), message) in enumerate(expected.items()):
        run = training.adopt(write_run(tmp_path / str(number), toml), tmp_path / "runs")
        with pytest.raises(ValueError, match=message) as error:
            analysis.analyze(run, study, rounds="last", workers=1)
        assert "\n" not in str(error.value)

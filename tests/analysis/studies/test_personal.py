"""The study stores what training.personal finds, client by client."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from analysis.studies import personal
from analysis.subjects import Limits, Own
from tests.analysis.helpers import ask, ask_all, assert_same, plan
from training.personal.client_evaluation import draw_test_examples, open_subject, read_test_examples, run_model

SETTINGS = {"strategies": ("global", "finetune"), "options": ("epochs=1", "draw=100")}


@pytest.fixture(scope="module")
def answer(run, tmp_path_factory):
    return ask_all("personal", [run], tmp_path_factory.mktemp("personal"), **SETTINGS)


@pytest.fixture
def found(answer):
    return answer.data


def test_before_is_the_global_model_on_each_clients_test_data(run, found):
    assert dict(found.sizes) == {"strategy": 2, "round": 1, "client": 5}
    fed = run.federation
    for client in range(5):
        inputs, labels = read_test_examples(fed, draw_test_examples(fed, client, draw=100))
        logits = run_model(fed.trainer, run.checkpoint(4).models["server"], torch.zeros(0), inputs).outputs
        right = float((logits.argmax(1) == labels).double().mean())
        for name in ("global", "finetune"):
            here = found.sel(strategy=name, round=4, client=client)
            assert float(here["before"]) == pytest.approx(right, abs=1e-15)
            assert int(here["examples"]) == len(labels)
        assert float(found["after"].sel(strategy="global", round=4, client=client)) == pytest.approx(right, abs=1e-15)


def test_means_spreads_and_worst(found):
    for name in ("global", "finetune"):
        here, after = found.sel(strategy=name, round=4), found["after"].sel(strategy=name, round=4).values
        assert float(here["mean"]) == pytest.approx(after.mean(), abs=1e-15)
        assert float(here["spread"]) == pytest.approx(after.std(), abs=1e-15)
        assert float(here["standard_error"]) == pytest.approx(after.std() / np.sqrt(5), abs=1e-15)
        assert float(here["worst_tenth"]) == after.min()  # a tenth of five is one
        assert float(here["mean_before"]) == pytest.approx(here["before"].values.mean(), abs=1e-15)
    assert json.loads(str(found["options"].sel(strategy="finetune", round=4).values))["epochs"] == 1
    assert (found["after"].sel(strategy="finetune") > found["before"].sel(strategy="finetune")).any()


def test_it_agrees_with_training_personal(run, found):
    from training.personal.evaluation import evaluate

    subject = open_subject(run.path, round=4)
    result = evaluate(subject, "finetune", {"epochs": 1, "draw": 100})
    np.testing.assert_array_equal(
        found["after"].sel(strategy="finetune", round=4), [one.after for one in result.clients]
    )


def test_clients_that_never_took_part_are_left_out(run, tmp_path):
    found = ask("personal", [run], tmp_path, strategies=("own",), rounds="2")
    cohort = sorted(run.local_points(2))
    assert np.flatnonzero(~np.isnan(found["after"].values[0, 0])).tolist() == cohort
    assert int(found["left_out"].values[0, 0]) == 5 - len(cohort)


def test_a_sample_of_clients(run, tmp_path):
    assert ask("personal", [run], tmp_path, strategies=("global",), clients=2).sizes["client"] == 2


def test_interrupted_and_run_again(run, answer, tmp_path, monkeypatch):
    real, calls = personal.open_subject, []

    def once(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(personal, "open_subject", once)
    with pytest.raises(KeyboardInterrupt):
        ask("personal", [run], tmp_path, **SETTINGS)
    again = ask_all("personal", [run], tmp_path, **SETTINGS)
    assert len(calls) == 3
    assert_same(again, answer)


def test_bad_settings(run, tmp_path):
    with pytest.raises(ValueError, match="strategies: unknown 'finetun'; did you mean 'finetune'"):
        plan("personal", [run], tmp_path, strategies=("finetun",))
    with pytest.raises(ValueError, match="unknown 'epoch'; did you mean 'epochs'"):
        plan("personal", [run], tmp_path, options=("epoch=1",))
    with pytest.raises(ValueError, match="strategies must be a list of some of"):
        plan("personal", [run], tmp_path, strategies=())
    own = Own(
        "own", tmp_path, nn.Linear(1, 2), torch.zeros(4), {"train": (torch.zeros(2, 1), torch.tensor([0, 1]))}, ""
    )
    own.limits = Limits(workers=1)
    with pytest.raises(ValueError, match="own: a single model has no clients"):
        plan("personal", [own], tmp_path)

"""Accuracies of clients: their own latest models and the server's, on their own test examples, recomputed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.federations import federation, play, scores
from training import config
from training.console.summaries import find_scores
from training.console.sweep import describe_round
from training.data import datasets
from training.engine.client_tests import average, collect_latest, draw_by_class_shares, find_largest_draw
from training.engine.federation import Federation
from training.engine.run import train
from training.engine.state import State
from training.executors.base import Executor
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.personal.client_evaluation import draw_test_examples
from training.storage import metrics
from training.storage.metrics import Record

pytestmark = pytest.mark.usefixtures("forked_workers")

ASKED = {"personal": True, "clients": True, "draw": 12}


def own_tests(fed: Federation, client: int) -> tuple[Tensor, Tensor]:
    """A client's test examples as the perceptron sees them."""
    data = fed.dataset
    places = draw_test_examples(fed, client, draw=fed.recipe.evaluation.draw)
    pooled = fed.tests is not None
    images, labels = (data.train_inputs, data.train_targets) if pooled else (data.test_inputs, data.test_targets)
    inputs = (images[places].double() / 255 - data.mean[0]) / data.std[0]
    return inputs.flatten(1), labels[places]


def right(fed: Federation, client: int, w: Tensor) -> float:
    """The accuracy of a perceptron on a client's test examples, with the logits of tests/training/federations.py."""
    inputs, labels = own_tests(fed, client)
    return sum(int(scores(w, x[None]).argmax()) == int(y) for x, y in zip(inputs, labels, strict=True)) / len(labels)


def pooled() -> Federation:
    """Seven clients whose data are split into training and test parts."""
    content = {
        "seed": 3,
        "dtype": "float64",
        "data": {
            "name": "synthetic",
            "examples": 90,
            "test_examples": 20,
            "classes": 3,
            "shape": [1, 2, 2],
            "pooled": True,
        },
        "partition": {"name": "dirichlet_total", "clients": 7, "alpha": 1.0},
        "model": {"name": "mlp", "hidden": [5]},
        "local": {"lr": 0.2, "batch_size": 4, "epochs": 2},
        "rounds": {"count": 10, "participants": 2},
        "evaluation": ASKED,
    }
    return Federation(config.validate(content))


def drawn(**tables: Any) -> Federation:
    return federation(**{"rounds": {"participants": 2}, "evaluation": ASKED, **tables})


@pytest.mark.parametrize("build", [drawn, pooled])
def test_the_mean_is_over_every_clients_latest_model(build: Any) -> None:
    fed = build()
    initial = fed.begin().w
    latest = dict.fromkeys(range(7), initial)
    means = []
    for round, (state, record, ends) in enumerate(play(fed, 5)):
        latest |= ends
        wanted = [right(fed, client, w) for client, w in latest.items()]
        assert record["personal_accuracy"] == pytest.approx(np.mean(wanted), rel=1e-12)
        assert list(record["own_accuracies"]) == [str(client) for client in fed.draw_cohort(round)]
        for client, found in record["own_accuracies"].items():
            assert found == pytest.approx(right(fed, int(client), ends[int(client)]), rel=1e-12)
        assert record["client_accuracies"] == pytest.approx([right(fed, k, state.w) for k in range(7)], rel=1e-12)
        means.append(record["personal_accuracy"])
    assert len(set(means)) > 2
    assert any(latest[client] is initial for client in latest), "somebody should never have taken part"


def test_only_evaluated_rounds_test_the_server_but_every_round_its_participants() -> None:
    fed = drawn(evaluation={**ASKED, "every": 3, "last": 1})
    records = [record for _, record, _ in play(fed, 4)]
    assert [("client_accuracies" in one, "personal_accuracy" in one) for one in records] == [
        (False, True),
        (False, True),
        (True, True),
        (False, True),
    ]


def test_nothing_is_measured_unasked() -> None:
    fed = federation()
    assert fed.client_tests is None
    record = play(fed, 1)[0][1]
    assert not {"personal_accuracy", "own_accuracies", "client_accuracies"} & set(record)
    alone = play(federation(evaluation={"clients": True}), 1)[0]
    assert "client_accuracies" in alone[1]
    assert "personal_accuracy" not in alone[1]
    assert alone[0].own_accuracies == {}


def test_asking_changes_no_bit_of_training() -> None:
    asked, plain = play(drawn(), 3), play(federation(rounds={"participants": 2}), 3)
    for (one, record, _), (two, other, _) in zip(asked, plain, strict=True):
        assert torch.equal(one.w, two.w)
        assert {key: record[key] for key in other if key != "seconds"} == {
            key: value for key, value in other.items() if key != "seconds"
        }
    before, after = federation().recipe, federation(evaluation={"personal": False, "clients": False}).recipe
    assert before.digest == after.digest


def with_norms() -> Federation:
    return federation(
        sizes=(6, 7, 10, 8, 11),
        model={"name": "tests.training.federations:normed"},
        rounds={"participants": 2},
        evaluation=ASKED,
    )


def test_norm_layers_have_the_clients_own_statistics() -> None:
    fed = with_norms()
    model, d = fed.trainer.model.double().eval(), fed.trainer.layout.size
    for _, record, ends in play(fed, 3):
        for client, end in ends.items():
            inputs, labels = own_tests(fed, client)
            buffers = {"2.running_mean": end[d : d + 5], "2.running_var": end[d + 5 :]}
            own = {**fed.trainer.layout.unflatten(end[:d]), **buffers}
            found = torch.func.functional_call(model, own, inputs.view(-1, 1, 2, 2)).argmax(1)
            assert record["own_accuracies"][str(client)] == pytest.approx(float((found == labels).double().mean()))


def test_layers_without_statistics_are_tested_client_by_client() -> None:
    """Their predictions depend on the other examples of a batch."""
    fed = federation(sizes=(6, 7, 10), model={"name": "tests.training.federations:unremembering"}, evaluation=ASKED)
    state, record, _ = play(fed, 1)[0]
    assert fed.client_tests is not None
    alone = [fed.client_tests.score(client, state.w, state.statistics) for client in range(3)]
    assert record["client_accuracies"] == alone


@pytest.fixture(scope="module")
def workers() -> Iterator[Processes]:
    executor = Processes(federation().trainer, workers=2)
    yield executor
    executor.close()


def measured(fed: Federation, executor: Executor) -> list[Record]:
    keys = ("personal_accuracy", "own_accuracies", "client_accuracies")
    return [{key: record[key] for key in keys} for _, record, _ in play(fed, 4, executor)]


def test_every_backend_finds_the_same(workers: Processes) -> None:
    for fed in (drawn(), with_norms()):
        workers.assign(fed.trainer)
        assert measured(fed, workers) == measured(fed, Serial(fed.trainer))
    fed = drawn()
    assert measured(fed, Stacked(fed.trainer)) == measured(fed, Serial(fed.trainer))


def recipe(**tables: Any) -> config.Recipe:
    content: dict[str, Any] = {
        "data": {"name": "synthetic", "examples": 90, "test_examples": 30, "shape": [1, 2, 2], "classes": 3},
        "partition": {"name": "dirichlet_total", "clients": 9, "alpha": 1.0},
        "model": {"name": "mlp", "hidden": [4]},
        "local": {"lr": 0.1, "batch_size": 8},
        "rounds": {"count": 7, "participants": 2},
        "evaluation": ASKED,
        "checkpoints": {"every": 3},
    }
    return config.validate({**content, **tables})


class StoppedError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("last", [2, 3, 5])
def test_a_resumed_run_has_the_same_metrics(tmp_path: Path, last: int) -> None:
    """StoppedErrorped after a checkpoint, and after rounds that no checkpoint holds."""

    def stop(record: Record) -> None:
        if record["round"] == last:
            raise StoppedError

    whole = train(recipe(), tmp_path / "whole", backend="serial")
    with pytest.raises(StoppedError):
        train(recipe(), tmp_path / "parts", backend="serial", on_round=stop)
    parts = train(recipe(), tmp_path / "parts", backend="serial")
    found, wanted = ([one | {"seconds": 0} for one in metrics.read(run)] for run in (parts, whole))
    assert found == wanted
    score = next(score for score in find_scores(parts, last=3) if score.model == "clients' own models")
    assert score.mean == pytest.approx(np.mean([one["personal_accuracy"] for one in wanted[-3:]]))
    assert len({one["personal_accuracy"] for one in wanted}) > 2
    assert len(collect_latest(wanted[:3])) < len(collect_latest(wanted)) < 9


def test_a_state_without_its_history_gives_another_mean() -> None:
    """The comparison above has teeth."""
    fed = drawn()
    state = play(fed, 3)[-1][0]
    forgetful = State(3, state.w, state.statistics, state.server)
    known, unknown = (play(fed, 1, state=one)[0][1]["personal_accuracy"] for one in (state, forgetful))
    assert known != unknown


def test_the_line_of_a_round_tells_of_own_models() -> None:
    record = {"round": 3, "train_loss": 1.0, "accuracy": 0.5, "personal_accuracy": 0.625, "seconds": 1.0}
    assert "own models 62.50 %" in describe_round(record, 10)
    assert "own models" not in describe_round({**record, "personal_accuracy": None}, 10)


def test_clients_without_test_examples_are_left_out() -> None:
    fed = drawn(evaluation={**ASKED, "draw": 2}, data={"test_examples": 23})
    records = [record for _, record, _ in play(fed, 3)]
    empty = [client for client in range(7) if not len(draw_test_examples(fed, client, draw=2))]
    assert empty
    assert len(empty) < 7
    for record in records:
        assert [client for client, found in enumerate(record["client_accuracies"]) if found is None] == empty
        assert record["personal_accuracy"] is not None
    assert average([None, None]) is None
    assert average([None, 0.5, 1.0]) == 0.75


def test_drawn_examples_have_the_classes_of_the_client() -> None:
    data = datasets.load("synthetic", examples=60, test_examples=300, classes=3, shape=[1, 2, 2])
    labels = data.train_targets.numpy()
    own = np.concatenate([np.flatnonzero(labels == 0)[:6], np.flatnonzero(labels == 2)[:2]])
    found = draw_by_class_shares(data, own, client=4, seed=1, draw=40)
    assert np.bincount(data.test_targets.numpy()[found], minlength=3).tolist() == [30, 0, 10]
    assert len(set(found)) == 40
    assert found.tolist() == draw_by_class_shares(data, own, client=4, seed=1, draw=40).tolist()
    assert found.tolist() != draw_by_class_shares(data, own, client=5, seed=1, draw=40).tolist()


def test_a_draw_that_classes_cannot_give_is_told(tmp_path: Path) -> None:
    fed = drawn(evaluation={**ASKED, "draw": 1000})
    assert fed.client_tests is not None
    largest = find_largest_draw(fed.dataset, [fed.client_indices[client] for client in range(7)])
    assert f"Up to evaluation.draw={largest} they follow them" in fed.client_tests.describe_shortage()
    for draw, enough in ((largest, True), (largest + 1, False)):
        short = drawn(evaluation={**ASKED, "draw": draw}).client_tests
        assert short is not None
        assert (short.describe_shortage() == "") == enough
    assert pooled().client_tests.describe_shortage() == ""  # type: ignore[union-attr]
    said: list[str] = []
    train(recipe(evaluation={**ASKED, "draw": 1000}), tmp_path, backend="serial", on_message=said.append)
    assert [line for line in said if "evaluation.draw=1000 exceeds the test examples of some classes" in line]


def test_what_cannot_be_asked_for() -> None:
    for key in ("personal", "clients"):
        with pytest.raises(ValueError, match=f"evaluation.{key}: data set 'synthetic' has no test examples"):
            federation(data={"test_examples": 0}, evaluation={key: True})
    many = {"name": "iid", "clients": 200_000}
    with pytest.raises(ValueError, match=r"evaluation\.clients is for 100,000 clients at most"):
        recipe(partition=many, evaluation={"clients": True})
    assert recipe(partition=many, evaluation={"personal": True}).evaluation.personal

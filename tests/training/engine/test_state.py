"""What a federation remembers, saves, evaluates, and what it does when training runs away."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.training.federations import NAMES, close, federation, made_up, play
from training import config, testing, verification
from training.clients.local_training import ClientResult, DivergenceError
from training.data import partition
from training.data.dataset import normalise
from training.engine.federation import Federation
from training.engine.run import train
from training.engine.saving import restore_state, save_state
from training.engine.state import State
from training.executors.base import Broadcast, Participant
from training.executors.serial import Serial
from training.storage import checkpoint, metrics, run_directory


def build(name: str, **tables: Any) -> Federation:
    return made_up(**tables) if name == "made up" else federation(name, **tables)


@pytest.mark.parametrize("name", [*NAMES, "made up"])
def test_clients_are_remembered_from_their_first_visit_on(name: str) -> None:
    testing.check_memory(build(name, rounds={"participants": 2}))


@pytest.mark.parametrize("name", [*NAMES, "made up"])
def test_a_saved_state_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    testing.check_resuming(build(name), tmp_path)


AHEAD = {"fedacg", "fedgloss", "naivefedgloss", "made up"}  # their servers send another point than their model


@pytest.mark.parametrize("name", [*NAMES, "made up"])
def test_local_models_are_saved_with_the_point_that_was_sent(name: str, tmp_path: Path) -> None:
    fed = build(name)
    before, _, _ = play(fed, 2)[-1]
    heard: list[Broadcast] = []

    class Listening(Serial):
        def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
            heard.append(broadcast)
            return super().run(broadcast, participants)

    state, _, ends = fed.advance(before, Listening(fed.trainer))
    (tmp_path / "metrics.jsonl").touch()
    save_state(tmp_path, fed, state, ends, list(ends))
    models = checkpoint.load(run_directory.checkpoint_path(tmp_path, 3)).models
    assert torch.equal(models["sent"], heard[-1].start)  # of two exchanges the one whose models were kept
    assert torch.equal(models["sent"], before.w) == (name not in AHEAD)
    moved = sum(share * (ends[client] - models["sent"]) for client, share in shares(fed, list(ends)).items())
    private = fed.method.correction.find_private(fed.trainer.layout)
    if private is not None:
        moved[private] = 0.0
    assert close(models["mean"], models["sent"] + moved)


def shares(fed: Federation, cohort: list[int]) -> dict[int, float]:
    total = sum(len(fed.client_indices[client]) for client in cohort)
    return {client: len(fed.client_indices[client]) / total for client in cohort}


def test_the_sent_point_has_the_statistics_that_were_sent_and_goes_only_with_local_models(tmp_path: Path) -> None:
    fed = federation("fedgloss", model={"name": "tests.training.federations:normed"}, sizes=[8] * 7)
    before, after = (state for state, _, _ in play(fed, 2))
    (tmp_path / "metrics.jsonl").touch()
    save_state(tmp_path, fed, before, {}, fed.draw_cohort(0))
    save_state(tmp_path, fed, after, {0: after.w}, fed.draw_cohort(1))
    without, found = (checkpoint.load(run_directory.checkpoint_path(tmp_path, round)).models for round in (1, 2))
    assert not {"sent", "sent_statistics"} & set(without)
    assert torch.equal(found["sent_statistics"], without["statistics"])
    assert not torch.equal(found["sent_statistics"], found["statistics"])


def test_uploads_weigh_as_models_do() -> None:
    fed = made_up()
    state = play(fed, 1)[0][0]
    total = sum(len(fed.client_indices[client]) for client in state.clients)
    share = {client: len(fed.client_indices[client]) / total for client in state.clients}
    sent = {client: own["swirl"] * fed.trainer.count_steps(client) for client, own in state.clients.items()}
    assert close(state.server["tide"], sum(share[client] * sent[client] for client in sent))


def test_forgetting_what_was_saved_would_show(tmp_path: Path) -> None:
    """The comparison above has teeth: without the memory the next round is another."""
    for name, part in (("scaffold", "clients"), ("fedavgm", "server"), ("fedcm", "server")):
        fed = federation(name)
        played = play(fed, 3)
        state = played[1][0]
        fresh = State(2, state.w, state.statistics, fed.method.init_server(state.w), state.clients)
        if part == "clients":
            fresh = State(2, state.w, state.statistics, state.server)
        assert not close(play(fed, 1, state=fresh)[0][0].w, played[2][0].w, 1e-4)


def test_a_hundred_times_the_clients_are_not_a_hundred_times_the_memory() -> None:
    """All that grows with the number of clients is where their examples begin."""
    fed = federation("scaffold", sizes=[2] * 700, rounds={"participants": 3})
    state = play(fed, 2)[-1][0]
    assert len(state.clients) <= 6
    held = [state.w, state.mean, *state.server.values(), *(v for own in state.clients.values() for v in own.values())]
    assert sum(vector.untyped_storage().nbytes() for vector in held) <= (3 + 6) * 43 * 8
    assert fed.client_indices.bounds.nbytes == 701 * 8
    assert fed.client_indices.flat.nbytes == 1400 * 8
    np.testing.assert_array_equal(fed.client_indices[699], fed.partition.indices[699])


def recipe(out: str = "fedavg", **tables: Any) -> config.Recipe:
    content: dict[str, Any] = {
        "data": {"name": "synthetic", "examples": 90, "test_examples": 30, "classes": 3, "shape": [1, 3, 3]},
        "partition": {"name": "dirichlet_by_class", "alpha": 1.0, "min_size": 2, "clients": 5},
        "model": {"name": "mlp", "hidden": [6]},
        "algorithm": {"name": out},
        "local": {"lr": 0.1, "batch_size": 8},
        "rounds": {"count": 4, "participants": 3},
        "checkpoints": {"every": 3, "keep_locals": "all"},
    }
    for key, table in tables.items():
        content[key] = {**content.get(key, {}), **table} if isinstance(table, dict) else table
    return config.validate(content)


def status(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "status.json").read_text())
    return found


def test_a_run_from_begin_to_end(tmp_path: Path) -> None:
    wanted = recipe("scaffold+sam")
    seen: list[dict[str, Any]] = []
    run = train(wanted, tmp_path, backend="serial", on_round=seen.append, on_message=pytest.fail)
    assert status(run)["state"] == "finished"
    assert run_directory.checkpoint_rounds(run) == [0, 3, 4]
    assert verification.check_run(run) == []
    assert metrics.read(run) == seen
    assert [record["round"] for record in seen] == [1, 2, 3, 4]
    fed = Federation(wanted, partition.load(run / "partition.npz"))
    state = play(fed, 4)[-1][0]
    found = checkpoint.load_newest(run)[0]
    assert found is not None
    assert testing.identical(restore_state(found), state)
    assert train(wanted, tmp_path, backend="serial", on_message=pytest.fail) == run  # done: nothing to do, or to say


# lr 1e6 with decay of the weights: they grow a millionfold at every step, out of float32 in half a dozen
RUNAWAY = {"lr": 1e6, "weight_decay": 1.0, "steps": 12}


def test_a_diverging_run_stops_with_its_last_good_checkpoint(tmp_path: Path) -> None:
    said: list[str] = []
    wanted = recipe(local=RUNAWAY)
    run = train(wanted, tmp_path, backend="serial", on_message=said.append)
    found = status(run)
    assert found["state"] == "diverged"
    assert found["round"] == 0
    assert said == [f"diverged: {found['message']}"]
    first = Federation(wanted).draw_cohort(0)[0]
    assert f"client {first} diverged in round 1, local step " in found["message"]
    assert "Try a smaller local.lr" in found["message"]
    assert verification.check_run(run) == []
    assert run_directory.checkpoint_rounds(run) == [0]
    assert metrics.read(run) == []


def test_a_run_that_diverges_later_keeps_the_round_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Diverging in the sixth round, with checkpoints after the third, the last good state is that of the fifth."""
    wanted = recipe("scaffold", rounds={"count": 9})
    fed = Federation(wanted)
    good = play(fed, 5)
    usual = Federation.compute_lr
    monkeypatch.setattr(Federation, "compute_lr", lambda self, round: 1e30 if round == 5 else usual(self, round))
    said: list[str] = []
    run = train(wanted, tmp_path, backend="serial", on_message=said.append)
    assert status(run)["state"] == "diverged"
    assert status(run)["round"] == 5
    assert "diverged in round 6" in said[0]
    assert run_directory.checkpoint_rounds(run) == [0, 3, 5]
    assert verification.check_run(run) == []
    assert [record["round"] for record in metrics.read(run)] == [1, 2, 3, 4, 5]
    found = checkpoint.load_newest(run)[0]
    assert found is not None
    assert testing.identical(restore_state(found), good[-1][0])
    assert found.extra["cohort"] == fed.draw_cohort(4)


def test_diverging_right_after_a_checkpoint_keeps_its_local_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Federation.compute_lr
    monkeypatch.setattr(Federation, "compute_lr", lambda self, round: 1e30 if round == 3 else usual(self, round))
    run = train(recipe(), tmp_path, backend="serial")
    assert status(run)["round"] == 3
    found = checkpoint.load_newest(run)[0]
    assert found is not None
    assert len(found.locals) == 3


def test_a_diverged_server_is_called_by_its_name() -> None:
    fed = Federation(recipe(algorithm={"eta_g": 1e39}))  # times a float32 vector: infinite
    with pytest.raises(DivergenceError, match=r"the server's model diverged in round 1 .*smaller steps of the server"):
        fed.advance(fed.begin(), Serial(fed.trainer))
    fed = Federation(recipe(algorithm={"eta_g": 1e30}))  # finite weights of an infinite loss
    with pytest.raises(DivergenceError, match="the server's model diverged in round 1") as caught:
        fed.advance(fed.begin(), Serial(fed.trainer))
    assert caught.value.client is None
    assert caught.value.round == 1


def accuracy(fed: Federation, w: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Loss and accuracy with torch's own functions."""
    scores = torch.func.functional_call(fed.trainer.model.double(), fed.trainer.layout.unflatten(w), inputs)
    return float(functional.cross_entropy(scores, labels)), float((scores.argmax(1) == labels).double().mean())


def test_evaluation_of_server_point_mean_and_average() -> None:
    fed = federation("feddyn", swa={"start": 0.0, "cycle": 2, "lr_end": 0.1}, rounds={"count": 4})
    state, record, _ = play(fed, 4)[-1]
    data = fed.dataset
    inputs = (data.test_inputs.double() / 255 - data.mean[0]) / data.std[0]
    points = {"": state.w, "mean_": state.mean, "swa_": state.swa}
    for name, w in points.items():
        loss, right = accuracy(fed, w, inputs, data.test_targets)
        assert record[f"{name}test_loss"] == pytest.approx(loss, rel=1e-12)
        assert record[f"{name}accuracy"] == pytest.approx(right, rel=1e-12)
    assert len({record["test_loss"], record["mean_test_loss"], record["swa_test_loss"]}) == 3


def test_fedavg_evaluates_its_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the participants is the server's model; looking twice would double the time."""
    fed = federation()
    assert fed.objective is not None
    calls: list[int] = []
    evaluate = fed.objective.evaluate
    monkeypatch.setattr(fed.objective, "evaluate", lambda theta: calls.append(1) or evaluate(theta))
    record = play(fed, 1)[0][1]
    assert len(calls) == 1
    assert record["mean_accuracy"] == record["accuracy"]
    assert record["mean_test_loss"] == record["test_loss"]


def test_evaluation_keeps_to_its_rounds() -> None:
    """Every third, and each of those whose mean is the result: the mean of the last n rounds has n rounds."""
    for last, wanted in ((1, [3, 6, 9, 10]), (4, [3, 6, 7, 8, 9, 10]), (50, list(range(1, 11)))):
        fed = federation(evaluation={"every": 3, "last": last}, rounds={"count": 10})
        assert [record["round"] for _, record, _ in play(fed, 10) if "accuracy" in record] == wanted


def test_without_test_images_there_is_no_evaluation() -> None:
    fed = federation(data={"test_examples": 0})
    assert fed.objective is None
    assert "accuracy" not in play(fed, 1)[0][1]


def test_pooled_data_are_split_on_every_client() -> None:
    """FedFSA: train and test pooled, dealt out, then 70/30 on each client; everyone's test parts are the test set."""
    fed = Federation(recipe(data={"pooled": True}, dtype="float64", partition={"min_size": 10}))
    assert fed.tests is not None
    assert len(fed.dataset.train_targets) == 120
    for client, own in enumerate(fed.partition.indices):
        train, test = fed.client_indices[client], fed.tests[client]
        assert sorted([*train, *test]) == list(own)
        assert len(train) == round(0.7 * len(own))
    state, record, _ = play(fed, 1)[0]
    places = np.concatenate(fed.tests)
    inputs = normalise(fed.dataset.train_inputs[places], fed.dataset, torch.float64)
    loss, right = accuracy(fed, state.w, inputs, fed.dataset.train_targets[places])
    assert record["test_loss"] == pytest.approx(loss, rel=1e-12)
    assert record["accuracy"] == pytest.approx(right, rel=1e-12)


def policy(model: str) -> str:
    fed = federation(sizes=(6, 7, 10), model={"name": f"tests.training.federations:{model}"})
    assert fed.objective is not None
    return fed.objective.batchnorm


def test_evaluation_says_how_it_treats_norm_layers() -> None:
    assert federation().objective.batchnorm == "frozen"  # type: ignore[union-attr]
    assert policy("normed") == "interpolated"
    assert policy("unremembering") == "batch"

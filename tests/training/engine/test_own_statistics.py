"""Running statistics that clients keep to themselves: against BatchNorm of torch, saved, resumed, on every backend."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.federations import batches, close, federation, play
from training.clients.local_training import OWN_STATISTICS
from training.engine.federation import Federation
from training.engine.run import train
from training.engine.saving import restore_state, save_state
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.storage import checkpoint, metrics, run_directory

pytestmark = pytest.mark.usefixtures("forked_workers")

SIZES = (6, 7, 10, 8, 11)  # no batch of one example, of which BatchNorm cannot learn
OWN = {"participants": 3, "statistics": "own"}


def with_norms(name: str = "fedavg", **tables: Any) -> Federation:
    model = {"name": "tests.training.federations:normed"}
    return federation(name, **{"sizes": SIZES, "model": model, "rounds": OWN, **tables})


def read(model: nn.Sequential) -> Tensor:
    norm = model[2]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return torch.cat([norm.running_mean, norm.running_var])


def test_each_client_goes_on_with_its_own_by_plain_torch() -> None:
    fed = with_norms(evaluation={"personal": True, "draw": 12})
    server = copy.deepcopy(fed.trainer.model).double().train()
    kept = {client: copy.deepcopy(server[2].state_dict()) for client in range(5)}
    visits: dict[int, int] = {}
    for round, (state, record, ends) in enumerate(play(fed, 4)):
        models = {}
        for client in fed.draw_cohort(round):
            model = copy.deepcopy(server)
            own = {name: kept[client][name] for name in ("running_mean", "running_var")}
            model[2].load_state_dict({**model[2].state_dict(), **own})
            optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
            for X, y in batches(fed, client, round):
                optimiser.zero_grad()
                functional.cross_entropy(model(X), y).backward()
                optimiser.step()
            models[client], kept[client] = model, copy.deepcopy(model[2].state_dict())
            visits[client] = visits.get(client, 0) + 1
            assert close(state.clients[client][OWN_STATISTICS], read(model))
            assert close(ends[client][-10:], read(model))
        share = {client: SIZES[client] / sum(SIZES[other] for other in models) for client in models}
        for name, parameter in server.named_parameters():
            parameter.data = sum(share[k] * dict(models[k].named_parameters())[name].data for k in models)
        assert close(state.w, nn.utils.parameters_to_vector(server.parameters()).detach())
        assert close(state.statistics, sum(share[k] * read(models[k]) for k in models))
        assert record["bytes_up"] == record["bytes_down"] == fed.trainer.layout.size * 8 * 3
    assert max(visits.values()) > 1, "nobody came back, so nothing was remembered"


def test_what_is_kept_is_not_what_was_sent() -> None:
    """The weights are the same, for training normalises by the batch; the statistics are not."""
    own, averaged = (play(with_norms(rounds={**OWN, "statistics": kind}), 3)[-1] for kind in ("own", "averaged"))
    assert torch.equal(own[0].w, averaged[0].w)
    assert not close(own[0].statistics, averaged[0].statistics, 1e-3)
    assert own[1]["test_loss"] != averaged[1]["test_loss"]
    assert averaged[0].clients == {}


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedgloss", "naivefedgloss", "fedfsa"])
def test_a_saved_state_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    fed = with_norms(name)
    played = play(fed, 4)
    (tmp_path / "metrics.jsonl").touch()
    save_state(tmp_path, fed, played[1][0], {}, fed.draw_cohort(1))
    restored = restore_state(checkpoint.load(run_directory.checkpoint_path(tmp_path, 2)))
    again = play(fed, 2, state=restored)[-1][0]
    assert torch.equal(again.w, played[-1][0].w)
    assert torch.equal(again.statistics, played[-1][0].statistics)
    for client, vectors in played[-1][0].clients.items():
        assert set(vectors) == {*fed.method.client_vectors, OWN_STATISTICS}
        assert all(torch.equal(again.clients[client][key], value) for key, value in vectors.items())


class StoppedError(Exception):
    """Stands for a kill."""


def test_a_resumed_run_has_the_same_metrics(tmp_path: Path) -> None:
    recipe = with_norms(
        sizes=(8,) * 5,
        evaluation={"personal": True, "draw": 12},
        checkpoints={"every": 2},
        rounds={**OWN, "count": 6},
    ).recipe

    def stop(record: metrics.Record) -> None:
        if record["round"] == 3:
            raise StoppedError

    whole = train(recipe, tmp_path / "whole", backend="serial")
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "parts", backend="serial", on_round=stop)
    parts = train(recipe, tmp_path / "parts", backend="serial")
    found, wanted = ([one | {"seconds": 0} for one in metrics.read(run)] for run in (parts, whole))
    assert found == wanted
    left, right = (checkpoint.load_newest(run)[0] for run in (parts, whole))
    assert left is not None
    assert right is not None
    assert left.clients.keys() == right.clients.keys()
    assert all(torch.equal(left.clients[k][OWN_STATISTICS], right.clients[k][OWN_STATISTICS]) for k in left.clients)


def test_processes_agree_to_the_bit() -> None:
    fed = with_norms("scaffold")
    executor = Processes(fed.trainer, workers=2)
    try:
        left, right = play(fed, 3, executor), play(fed, 3, Serial(fed.trainer))
    finally:
        executor.close()
    for (one, _, _), (two, _, _) in zip(left, right, strict=True):
        assert torch.equal(one.statistics, two.statistics)
        for client, vectors in two.clients.items():
            assert all(torch.equal(one.clients[client][key], value) for key, value in vectors.items())


def test_without_running_statistics_there_is_nothing_to_keep() -> None:
    fed, plain = federation(rounds=OWN), federation(rounds={"participants": 3})
    assert not fed.keeps_statistics
    stacked = play(fed, 2, Stacked(fed.trainer))[-1][0]
    assert stacked.clients == {}
    assert torch.equal(play(fed, 2)[-1][0].w, play(plain, 2)[-1][0].w)


@pytest.mark.parametrize("perturbation", ["", "+sam", "+asam"])
def test_silobn_is_fedavg_with_statistics_of_ones_own(perturbation: str, tmp_path: Path) -> None:
    fed, other = with_norms(f"silobn{perturbation}", rounds={"participants": 3}), with_norms(f"fedavg{perturbation}")
    left, right = play(fed, 4), play(other, 4)
    for (one, record, _), (two, same, _) in zip(left, right, strict=True):
        assert torch.equal(one.w, two.w)
        assert torch.equal(one.statistics, two.statistics)
        assert all(torch.equal(one.clients[k][OWN_STATISTICS], two.clients[k][OWN_STATISTICS]) for k in two.clients)
        assert record["bytes_up"] == same["bytes_up"] == fed.trainer.layout.size * 8 * 3
    (tmp_path / "metrics.jsonl").touch()
    save_state(tmp_path, fed, left[1][0], {}, fed.draw_cohort(1))
    restored = restore_state(checkpoint.load(run_directory.checkpoint_path(tmp_path, 2)))
    again = play(fed, 2, state=restored)[-1][0]
    assert torch.equal(again.statistics, left[-1][0].statistics)
    assert all(
        torch.equal(again.clients[k][OWN_STATISTICS], left[-1][0].clients[k][OWN_STATISTICS]) for k in again.clients
    )


def two_norms(classes: int, channels: int, size: int) -> nn.Module:
    """A perceptron whose first norm is called bn."""
    layers = {
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(channels * size * size, 5),
        "bn": nn.BatchNorm1d(5),
        "relu": nn.ReLU(),
        "fc2": nn.Linear(5, 4),
        "second": nn.BatchNorm1d(4),
        "fc3": nn.Linear(4, classes),
    }
    return nn.Sequential(OrderedDict(layers))


def test_silobn_of_feddrive_keeps_some_statistics_and_averages_the_others() -> None:
    """By plain torch: norms named bn stay with their clients, the other one goes on with the mean of the cohort."""
    model = {"name": f"{__name__}:two_norms"}
    fed = with_norms("silobn", model=model, algorithm={"names": "bn.running"}, rounds={"participants": 3})
    server = copy.deepcopy(fed.trainer.model).double().train()
    kept = {client: copy.deepcopy(server.bn.state_dict()) for client in range(5)}
    visits: dict[int, int] = {}
    for round, (state, record, _) in enumerate(play(fed, 4)):
        models = {}
        for client in fed.draw_cohort(round):
            model = copy.deepcopy(server)  # with the averaged statistics of the second norm
            own = {name: kept[client][name] for name in ("running_mean", "running_var")}
            model.bn.load_state_dict({**model.bn.state_dict(), **own})
            optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
            for X, y in batches(fed, client, round):
                optimiser.zero_grad()
                functional.cross_entropy(model(X), y).backward()
                optimiser.step()
            models[client], kept[client] = model, copy.deepcopy(model.bn.state_dict())
            visits[client] = visits.get(client, 0) + 1
            mine = [
                getattr(getattr(model, layer), f"running_{one}")
                for layer in ("bn", "second")
                for one in ("mean", "var")
            ]
            assert close(state.clients[client][OWN_STATISTICS], torch.cat(mine), 1e-9)
        share = {client: SIZES[client] / sum(SIZES[other] for other in models) for client in models}
        mean = {
            name: sum(share[k] * models[k].state_dict()[name] for k in models)
            for name in server.state_dict()
            if not name.endswith("num_batches_tracked")
        }
        server.load_state_dict(mean, strict=False)
        assert close(state.w, nn.utils.parameters_to_vector(server.parameters()).detach(), 1e-9)
        assert record["bytes_up"] == (fed.trainer.layout.size + 8) * 8 * 3
    assert max(visits.values()) > 1

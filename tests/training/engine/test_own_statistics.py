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
from tests.training.tasks import small_tasks
from training.clients.local_training import OWN_STATISTICS
from training.engine.federation import Federation
from training.engine.run import train
from training.engine.saving import restore_state, save_state
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.storage import checkpoint, metrics, run_directory
from training.tasks.segmentation import compute_ious

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


def seen_and_unseen(domains: bool, **tables: Any) -> Federation:
    """Five clients, a user each; two further users have test images only."""
    content = {
        "data": {"domains": domains, "people": True},
        "model": {"name": f"{small_tasks.HERE}:NormedSegmenter"},
        "partition": {"name": "natural"},
        "rounds": {"count": 3, "participants": 2, "statistics": "own"},
        "evaluation": {"own_statistics": True, "batch_statistics": 2},
        **tables,
    }
    return small_tasks.federation("maps", **content)


@pytest.mark.parametrize("domains", [True, False])
def test_seen_domains_are_tested_with_their_clients_statistics_by_plain_torch(domains: bool) -> None:
    """FedDrive's rule; unseen domains have the statistics of the test batch, here of two images."""
    fed = seen_and_unseen(domains)
    state, record, _ = play(fed, 2)[-1]
    assert 0 < len(state.clients) < 5, "nobody is without statistics of its own"
    model = copy.deepcopy(fed.trainer.model).double()
    nn.utils.vector_to_parameters(state.w, model.parameters())
    model[1].momentum = 1.0
    users, beginning = fed.dataset.test_users, fed.begin().statistics
    assert users is not None

    def score(places: list[int], statistics: Tensor | None) -> Tensor:
        inputs, truth = small_tasks.read_all(fed.dataset, "test", places)
        if statistics is not None:
            model[1].running_mean, model[1].running_var = statistics[:3].clone(), statistics[3:].clone()
        model.train(statistics is None)
        predicted, valid = model(inputs).argmax(1), truth != 255
        return torch.bincount(3 * truth[valid] + predicted[valid], minlength=9).view(3, 3)

    found = {"seen": torch.zeros(3, 3, dtype=torch.int64), "unseen": torch.zeros(3, 3, dtype=torch.int64)}
    for client in range(5):
        own = state.clients[client][OWN_STATISTICS] if client in state.clients else beginning
        found["seen"] += score(users.find(client).tolist(), own)
    unseen = sorted([*users.find(5), *users.find(6)])
    for start in range(0, len(unseen), 2):
        found["unseen"] += score([int(one) for one in unseen[start : start + 2]], None)
    total = found["seen"] + found["unseen"]
    assert record["miou"] == pytest.approx(float(compute_ious(total).mean()), abs=1e-12)
    assert record["accuracy"] == pytest.approx(int(total.diagonal().sum()) / int(total.sum()), abs=1e-12)
    assert ("miou_seen" in record) == domains
    for name, confusion in found.items() if domains else ():
        assert record[f"miou_{name}"] == pytest.approx(float(compute_ious(confusion).mean()), abs=1e-12)
    averaged = play(seen_and_unseen(domains, evaluation={"own_statistics": False}), 2)[-1][1]
    assert record["miou"] != averaged["miou"]


def test_statistics_that_cannot_be_anyones_own_are_refused() -> None:
    with pytest.raises(ValueError, match=r'no client keeps any; write rounds\.statistics = "own"'):
        seen_and_unseen(True, rounds={"participants": 2})
    with pytest.raises(ValueError, match="data set 'maps' with partition iid has none"):
        seen_and_unseen(True, partition={"name": "iid"})

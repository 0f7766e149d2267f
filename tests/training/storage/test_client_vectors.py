"""Vectors of clients beyond a memory budget: the same bits from a file, and nothing of it is left behind."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest
import torch

from tests.training.storage.test_checkpoint import Stop, content, recipe, run, stop_after
from training import interface
from training.executors.processes import Processes
from training.storage import checkpoint, client_vectors, run_directory
from training.storage.client_vectors import ClientVectors, Shelf

pytestmark = pytest.mark.usefixtures("forked_workers")

STATEFUL = ["scaffold+sam", "feddyn", "fedsmoo", "fedala", "adabest", "fedwmsam"]


@pytest.mark.parametrize("algorithm", STATEFUL)
def test_checkpoints_are_the_same_with_vectors_in_a_file(tmp_path, algorithm):
    given = recipe(algorithm={"name": algorithm})
    whole, said = run(tmp_path / "memory", given)
    assert said == []
    with pytest.raises(Stop):
        run(tmp_path / "file", given, memory=100, on_round=stop_after(3))
    spilled, said = run(tmp_path / "file", given, memory=100)
    assert any("--memory" in line and str(spilled) in line for line in said)
    assert content(spilled) == content(whole)  # also: no other file is left


def test_worker_processes_read_vectors_from_the_file(tmp_path, monkeypatch):
    used = []
    monkeypatch.setattr(Processes, "__init__", note(Processes.__init__, used))
    whole, _ = run(tmp_path / "memory")
    spilled, said = run(tmp_path / "file", backend="processes", workers=2, memory=0)
    assert used
    assert len(said) == 1
    same, other = content(whole), content(spilled)
    # provenance.json names the backend, and the status has its hash
    assert [name for name in same if same[name] != other[name]] == ["provenance.json", "status"]


def note(function, calls):
    def wrapped(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return wrapped


def test_the_budget_is_kept_and_room_is_used_again(tmp_path):
    told = []
    shelf = Shelf(tmp_path, budget=1000, on_message=told.append)
    clients = ClientVectors(shelf)
    for round in range(30):
        before, clients = clients, clients.copy()
        for client in (round % 10, (3 * round + 1) % 10):
            clients[client] = {"a": torch.full((60,), float(round)), "b": torch.tensor(float(client)).double()}
            assert shelf.held <= 1000
        assert all(len(before[client]["a"]) == 60 for client in before)  # the state before the round is still there
    assert len(told) == 1
    assert shelf.written > 1000
    del before
    assert shelf.held + shelf.written == sum(248 for _ in clients)
    assert shelf._end <= 13 * 248  # gaps are filled: ten clients, and two that change in a round
    for client in clients:
        last = max(round for round in range(30) if client in (round % 10, (3 * round + 1) % 10))
        assert clients[client]["a"].tolist() == [last] * 60
        assert clients[client]["b"].item() == client
    assert os.listdir(tmp_path) == []  # the file has no name
    del clients
    gc.collect()
    assert shelf.held == shelf.written == 0


def test_a_checkpoint_is_written_and_read_one_vector_at_a_time(tmp_path, monkeypatch):
    clients = ClientVectors(Shelf(tmp_path, budget=0))
    for client in range(20):
        clients[client] = {"dual": torch.full((1000,), float(client)), "count": torch.tensor(1.0)}
    alive: list[np.ndarray] = []
    most = []

    class Counted(np.ndarray):
        def __array_finalize__(self, parent):
            if parent is None:
                alive.append(self.nbytes)

        def __del__(self):
            if self.base is None and alive:
                alive.pop()

    def empty(shape, dtype):
        array = Counted(shape, dtype)
        most.append(len(alive))
        return array

    monkeypatch.setattr(client_vectors.np, "empty", empty)
    w = {"server": torch.zeros(3), "statistics": torch.zeros(0)}
    (tmp_path / "metrics.jsonl").touch()
    checkpoint.save(tmp_path, checkpoint.Checkpoint(3, w, {}, {}, clients, {"captured": 0}))
    assert len(most) == 40
    shelf = Shelf(tmp_path, budget=0)
    found = checkpoint.load(run_directory.checkpoint_path(tmp_path, 3), shelf=shelf)
    assert max(most) <= 4  # of forty: those that loops still name
    monkeypatch.undo()
    assert shelf.held == 0
    assert [int(found.clients[client]["dual"][-1]) for client in found.clients] == list(range(20))
    without = checkpoint.load(run_directory.checkpoint_path(tmp_path, 3), with_clients=False)
    assert len(without.clients) == 0


def test_without_a_budget_free_memory_decides(monkeypatch):
    monkeypatch.setattr(client_vectors, "allowance", lambda held: max(500 - held, 0))
    shelf = Shelf()
    records = [shelf.put(np.zeros(25)) for _ in range(4)]
    assert (shelf.held, shelf.written, len(records)) == (400, 400, 4)


def test_a_full_disk_is_explained(tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(client_vectors.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=r"beyond the memory budget .*No space left"):
        run(tmp_path, memory=0)


def test_a_limit_that_is_no_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must look like 8G"):
        interface.train(recipe(), tmp_path, memory="much")

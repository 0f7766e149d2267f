"""Ray on three nodes of one machine: the same checkpoints as a serial run, also when an actor and a node are lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from torch import Tensor, nn

from landscape.runtime.termination import keep_handler
from tests.training.executors.test_processes import RECIPE, Failing, fingerprints, wait_until
from tests.training.federations import federation, play
from training import config
from training.clients.local_training import DivergenceError
from training.engine.run import train
from training.executors import choice, ray_pool
from training.executors import pool as pool_module
from training.executors.ray_executor import Ray
from training.executors.ray_pool import Cluster, RayPool
from training.executors.serial import Serial
from training.storage.metrics import Record


class Nodes:
    """A cluster of three nodes with one core each, and a pool with an actor on every node."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as LocalCluster

        size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        with keep_handler():
            self.cluster = LocalCluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
            self.others = [self.cluster.add_node(**size) for _ in range(2)]
        self.pool = RayPool(Cluster(address=self.cluster.address))

    def take(self, workers: int) -> RayPool:
        """A pool of some of the actors; it can be closed without ending them."""
        pool = RayPool.__new__(RayPool)
        pool.__dict__.update(vars(self.pool), workers=self.pool.workers[:workers], close=lambda: None)
        return pool

    def count(self) -> int:
        """Count the nodes that are alive."""
        return len(ray_pool.list_nodes())

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Ray for the whole module: starting it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONWARNINGS", "ignore")
        ray_pool.set_environment(local=True)
        found = Nodes()
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """SHA-256 of the checkpoints of RECIPE, trained serially."""
    folder = tmp_path_factory.mktemp("serial")
    return fingerprints(train(read_recipe(folder), folder, backend="serial"))


def read_recipe(folder: Path) -> config.Recipe:
    (folder / "recipe.toml").write_text(RECIPE)
    return config.load(folder / "recipe.toml")[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_checkpoints_are_those_of_a_serial_run(
    nodes: Nodes, serial: dict[str, str], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "RayPool", lambda cluster, count: nodes.take(workers))
    run = train(read_recipe(tmp_path), tmp_path, backend="ray")
    assert len(serial) > 18
    assert fingerprints(run) == serial


def test_ray_binds_to_this_machine_alone(nodes: Nodes) -> None:
    mine = {process.pid for process in psutil.Process().children(recursive=True)}
    listening = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.pid in mine]
    assert len(listening) > 3
    assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_ray_leaves_the_handler_of_sigterm_alone(nodes: Nodes) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # so that `termination.listen` stores a terminated run


def test_of_several_divergent_clients_the_first_is_named(nodes: Nodes) -> None:
    fed = federation("scaffold", rounds={"participants": 7})
    executor = Ray(fed.trainer, nodes.take(2))
    state = play(fed, 1)[0][0]
    for client in (2, 3, 5, 6):
        state.clients[client]["control"][:] = float("inf")
    for one in (executor, Serial(fed.trainer)):
        with pytest.raises(DivergenceError, match="client 2 diverged"):
            fed.advance(state, one)


def test_a_mistake_in_the_users_model_comes_back_with_its_place(nodes: Nodes) -> None:
    fed = federation()
    state = fed.begin()
    fed.trainer.model = Failing()
    with pytest.raises(RuntimeError, match=r"(?s)client \d failed in a worker process.*in forward.*no such layer"):
        fed.advance(state, Ray(fed.trainer, nodes.take(2)))


def test_more_gpus_than_there_are_is_refused(nodes: Nodes) -> None:
    with pytest.raises(ValueError, match=r"no node of the Ray cluster has a core and 0\.5 GPUs for a worker"):
        RayPool(Cluster(gpus=0.5))


def list_actors() -> list[psutil.Process]:
    """The processes of this test's actors."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::_Server"):
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


def test_a_lost_actor_and_a_lost_node_change_no_checkpoint(
    nodes: Nodes, serial: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = nodes.take(3)
    wait_until(lambda: nodes.count() == 3)
    monkeypatch.setattr(choice, "RayPool", lambda cluster, count: pool)
    first = list(pool.workers)

    threads: list[threading.Thread] = []

    def lose_actor() -> None:
        wait_until(lambda: any(worker.index is not None for worker in list(pool.workers)))
        os.kill(list_actors()[0].pid, signal.SIGKILL)

    def lose_node() -> None:
        wait_until(lambda: any(worker.index is not None for worker in list(pool.workers)))
        nodes.cluster.remove_node(nodes.others.pop())

    def begin_round(record: Record) -> None:
        """In the middle of the second round an actor is killed, in that of the fourth a whole node."""
        loss = {1: lose_actor, 3: lose_node}.get(record["round"])
        if loss is not None:
            threads.append(threading.Thread(target=loss))
            threads[-1].start()

    run = train(read_recipe(tmp_path), tmp_path, backend="ray", on_round=begin_round)
    for thread in threads:
        thread.join()
    assert fingerprints(run) == serial
    assert len(set(first) - set(pool.workers)) >= 1
    assert nodes.count() == 2
    pool.workers[:] = [worker for worker in pool.workers if worker.ready]
    nodes.pool.workers = pool.workers


class Deadly(nn.Module):
    """A perceptron that ends every process but its own, as the kernel does when memory runs out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.home = nn.Linear(4, 3), os.getpid()

    def forward(self, inputs: Tensor) -> Tensor:
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        found: Tensor = self.layer(inputs.flatten(1))
        return found


def deadly(classes: int, channels: int, size: int) -> nn.Module:
    return Deadly()


def test_deaths_over_and_over_of_one_client_end_in_one_line(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "ATTEMPTS", 1)
    fed = federation(model={"name": "tests.training.executors.test_ray:deadly"})
    message = r"1 worker processes died while training client \d \(.*\): out of memory\? Use fewer --workers on each"
    with pytest.raises(ConnectionError, match=message):
        fed.advance(fed.begin(), Ray(fed.trainer, nodes.take(1)))


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ray_pool.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"Ray is not installed; write: pip install 'fl-landscape\[cluster\]'"):
        train(read_recipe(tmp_path), tmp_path, backend="ray")

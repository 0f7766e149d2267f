"""A pool of Ray actors, on this machine or on all nodes of a cluster. Ray is imported only when it is asked for.

An actor is a process that keeps what it was sent from task to task. If it dies, or its node is lost, its task is given
to another actor; a new actor starts as soon as the cluster has room for it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from landscape.runtime.termination import keep_handler
from training.executors.pool import Memory, Pool, Task, Worker, WorkerDiedError, answer_task, prepare_worker
from training.settings import NonNegative, build, settings

STORE = 2**30  # bytes of the object store of a Ray that we start, at most; a quarter of the free memory if that is less
PATIENCE = 600.0  # seconds to wait for a cluster that has no room for a single worker
LOCAL = {  # environment of a Ray that we start; what the user has set stays
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # despite its name what binds Ray to 127.0.0.1, on Linux too
    "RAY_AUTH_MODE": "token",
}
QUIET = {  # environment of every process that uses Ray
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a warning otherwise
}


@settings
class Cluster:
    """Where Ray's workers are, and what each of them is given."""

    address: Annotated[
        str, Field(description="of a running cluster, as ray.init takes it; empty: $RAY_ADDRESS, else this machine")
    ] = ""
    gpus: Annotated[NonNegative, Field(description="GPUs for each worker; 0.25 lets four workers share one")] = 0.0


def make_cluster(address: str, gpus: float) -> Cluster:
    """Make the settings of a cluster from those of a command; ValueError names what is wrong with them."""
    return build(Cluster, {"address": address, "gpus": gpus}, "ray")


def connect(cluster: Cluster, workers: int | None) -> None:
    """Connect this process to a cluster, or start Ray on this machine; the connection lasts until the process ends.

    cluster: where. workers: how many a Ray that is started here is meant for; None: one for each core.
    Raises ValueError if Ray is not installed, ConnectionError if the cluster does not answer.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError("backend ray: Ray is not installed; write: pip install 'fl-landscape[cluster]'")
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    set_environment(address == "local")
    import ray

    if ray.is_initialized():
        return
    quiet: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    try:
        with keep_handler():
            ray.init(address, **(_choose_resources(workers) if address == "local" else {}), **quiet)
    except Exception as error:  # of several kinds, a bare Exception among them when a busy machine starts too slowly
        text = " ".join(str(error).split())
        what = "Ray could not be started here" if address == "local" else f"no Ray cluster answers at {address}"
        raise ConnectionError(f"{what}: {text}") from None


def _choose_resources(workers: int | None) -> dict[str, object]:
    """Choose the resources of a Ray that is started here."""
    from landscape.runtime.memory import allowance

    store = max(min(STORE, allowance()), 80 * 2**20)  # Ray refuses less than 75 MB
    return {"num_cpus": workers, "include_dashboard": False, "object_store_memory": store}


def set_environment(local: bool) -> None:
    """Set the variables that Ray reads when it is imported, unless the user has set them.

    local: whether Ray will be started here.
    Does nothing if the program has imported Ray before: half of it would come too late.
    """
    if "ray" in sys.modules:
        return
    for name, value in {**QUIET, **(LOCAL if local else {})}.items():
        os.environ.setdefault(name, value)
    if local and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        # of this process alone, instead of one that Ray would write into the home folder
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


class _Server:
    """The process of an actor."""

    def __init__(self) -> None:
        prepare_worker()
        self.memory: Memory = {}

    def start(self) -> str:
        """Return the node that the actor runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def compute(self, task: Task) -> object:
        """Compute a task."""
        return answer_task(task, self.memory)


class RayWorker(Worker):
    """An actor as the process that gives it tasks sees it.

    actor: its handle.
    """

    def __init__(self, actor: Any):
        self.actor = actor
        self.node = ""  # on which it runs
        self.pending: Any = actor.start.remote()  # the reference of what it sends next

    def give(self, index: int, task: Task) -> None:
        self.index, self.pending = index, self.actor.compute.remote(task)

    def receive(self) -> object:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            answer: object = ray.get(self.pending)
        except RayTaskError as error:
            answer = RuntimeError(f"a worker process cannot load the model or the data:\n{error}")
        except RayError as error:  # the actor or its node has died, or a result was lost with a node
            self.end()
            lost = self.node != "" and self.node not in list_nodes()
            reason = f"the node {self.node[:8]} was lost" if lost else str(error).strip().partition("\n")[0]
            raise WorkerDiedError(reason, blameless=lost) from None
        self.pending, self.index = None, None
        if not self.ready:
            self.ready, self.node = True, str(answer)
            return None
        return answer

    def end(self) -> None:
        import ray

        ray.kill(self.actor)


class RayPool(Pool):
    """Ray actors of one thread each.

    cluster: where they are.
    workers: how many, at most; None: as many as the cluster has room for.
    """

    workers: list[RayWorker]  # type: ignore[assignment]
    advice = "out of memory? Use fewer --workers on each node"

    def __init__(self, cluster: Cluster, workers: int | None = None):
        connect(cluster, workers)
        import ray

        self._actors = ray.remote(num_cpus=1, num_gpus=cluster.gpus, max_restarts=0)(_Server)
        room = count_workers(cluster)
        super().__init__(room if workers is None else min(workers, room))

    def _start(self) -> Worker:
        return RayWorker(self._actors.remote())

    def _wait(self, seconds: float | None) -> Sequence[Worker]:
        import ray

        pending = {worker.pending: worker for worker in self.workers if worker.pending is not None}
        waiting = not any(worker.ready for worker in self.workers)  # for room in the cluster, not for results
        limit = min(seconds or PATIENCE, PATIENCE) if waiting else seconds
        done, _ = ray.wait(list(pending), num_returns=1, timeout=limit)
        if not done and waiting and (seconds is None or seconds >= PATIENCE):
            raise ConnectionError(f"for {PATIENCE:.0f} seconds the Ray cluster had no room for a single worker")
        return [pending[one] for one in done]


def count_workers(cluster: Cluster) -> int:
    """Count the workers that a cluster has room for, if nobody else uses it.

    cluster: whose settings say what each worker takes. ValueError if there is no room for one.
    """
    import ray

    room = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        fits = int(has.get("CPU", 0))
        room += min(fits, int(has.get("GPU", 0) / cluster.gpus)) if cluster.gpus else fits
    if not room:
        raise ValueError(
            f"no node of the Ray cluster has a core and {cluster.gpus:g} GPUs for a worker; give --gpus 0, or add nodes"
        )
    return room


def list_nodes() -> list[str]:
    """List the ids of the nodes that are alive."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]

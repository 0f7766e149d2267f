"""How the backend of a run is chosen: by name, or by timing one local step. The choice is stored with the run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from landscape.errors import choose, whole
from landscape.runtime.device import CPU
from training.clients.local_training import DivergenceError
from training.clients.trainer import LocalTrainer
from training.config import Recipe
from training.executors.base import Broadcast, Executor, Participant
from training.executors.processes import Processes
from training.executors.ray_pool import Cluster, RayPool
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.storage import run_directory
from training.storage.atomic_files import write_atomically

BACKENDS = ("auto", "serial", "processes", "vmap", "ray")
SPAWNING = 8.0  # seconds that starting processes and importing torch in them may take


def open_executor(
    backend: str,
    trainer: LocalTrainer,
    recipe: Recipe,
    workers: int | None,
    run: Path,
    say: Callable[[str], object],
    cluster: Cluster | None = None,
) -> Executor:
    """Open the executor of a run and store its name, so that a resumed run keeps the backend that was chosen for it.

    backend: auto, serial, processes, vmap or ray.
    trainer: trains one client of the run.
    recipe: the run's settings.
    workers: processes, at most; None stands for the number of torch's threads, or for all that a cluster has room for.
    run: the run's directory.
    say: called with a warning if the run was started with a backend that rounds differently.
    cluster: of the backend ray.
    """
    choose("backend", backend, BACKENDS)
    cores = whole("workers", workers) if workers is not None else torch.get_num_threads()
    facts = run_directory.read_provenance(run)
    if backend == "auto":
        backend = facts.get("backend") or find_fastest(trainer, recipe, cores)
    elif facts.get("backend", backend) != backend and "vmap" in (backend, facts["backend"]):
        say(f"this run was started with {facts['backend']}; results of {backend} agree with it only up to rounding")
    write_atomically(run / "provenance.json", json.dumps({**facts, "backend": backend}, indent=2).encode())
    if backend == "vmap":
        return Stacked(trainer)
    if backend == "ray":
        from training.executors.ray_executor import Ray

        return Ray(trainer, RayPool(cluster or Cluster(), min(workers or sys.maxsize, recipe.rounds.participants)))
    workers = min(cores, recipe.rounds.participants)
    return Processes(trainer, workers) if backend == "processes" and workers > 1 else Serial(trainer)


def find_fastest(trainer: LocalTrainer, recipe: Recipe, cores: int) -> str:
    """Time one local step of one client and of a stacked cohort, extrapolate to the whole run, and name the fastest.

    trainer: trains one client of the run; it is not changed.
    recipe: the run's settings.
    cores: processes that may run side by side.
    Returns serial, processes or vmap.
    """
    cohort = list(range(min(recipe.rounds.participants, len(trainer.client_indices))))
    steps = [recipe.rounds.count * trainer.count_steps(client) for client in cohort]
    short = recipe.model_copy(update={"local": recipe.local.model_copy(update={"steps": 1})})
    probe = LocalTrainer(short, trainer.dataset, trainer.client_indices, trainer.method, trainer.model, trainer.device)
    try:
        alone = _time_step(Serial(probe), probe, cohort[:1])
    except DivergenceError:
        return "serial"  # the first round raises it again
    parallel = min(cores, len(cohort))
    estimates = {"serial": alone * sum(steps)}
    if parallel > 1 and trainer.device == CPU:  # processes share a GPU: how well, no formula tells
        estimates["processes"] = alone * sum(steps) / parallel + SPAWNING
    try:
        together = _time_step(Stacked(probe), probe, cohort)
        estimates["vmap"] = together * max(steps)  # clients that finish early wait for the others
    except (ValueError, RuntimeError, NotImplementedError):
        pass  # a model that cannot be stacked
    return min(estimates, key=lambda name: estimates[name])


def _time_step(executor: Executor, trainer: LocalTrainer, clients: list[int]) -> float:
    """Measure the seconds that these clients take for one local step, after one to warm up."""
    w = trainer.layout.flatten(trainer.model).to(trainer.dtype)
    message = trainer.method.make_message(w, trainer.method.init_server(w))
    fresh = trainer.method.init_client(trainer.layout, w)
    broadcast = Broadcast(w, message, trainer.read_statistics(), lr=trainer.recipe.local.lr, round=0)
    for _ in range(2):
        began = time.perf_counter()
        list(executor.run(broadcast, [Participant(client, fresh) for client in clients]))
        elapsed = time.perf_counter() - began
    return elapsed

"""Train a recipe from start to end: rounds, checkpoints on the way, resuming after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from landscape.runtime import termination
from landscape.runtime.device import describe_device, find_device
from landscape.runtime.termination import Terminated
from training.clients.local_training import DivergenceError
from training.config import Recipe
from training.data import partition
from training.engine import opening
from training.engine.client_tests import collect_latest
from training.engine.federation import Federation
from training.engine.flops import count_trainer_flops
from training.engine.saving import check_fit, restore_state, save_state
from training.engine.state import State
from training.executors.base import Executor
from training.executors.choice import open_executor
from training.executors.ray_pool import Cluster
from training.storage import checkpoint, lock, metrics, run_directory
from training.storage.client_vectors import ClientVectors, Shelf
from training.storage.metrics import Record
from training.storage.run_directory import CONFIG, PROVENANCE, read_provenance

RoundCallback = Callable[[Record], object]  # called with the metrics of each finished round
MessageCallback = Callable[[str], object]  # called with a sentence for the user


def ignore(_: object) -> None:
    """Do nothing: the default callback."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    name: str = "",
    backend: str = "auto",
    workers: int | None = None,
    device: str | None = None,
    cluster: Cluster | None = None,
    memory: int | None = None,
    on_round: RoundCallback = ignore,
    on_message: MessageCallback = ignore,
) -> Path:
    """Train a recipe to its end; a partial run is resumed from its newest intact checkpoint.

    recipe: what to train.
    out: the folder of the run's directory.
    name: of the directory if it is new, as `recipe.name` gives it; by default the recipe's slug.
    backend: auto, serial, processes, vmap or ray.
    workers: processes, at most; by default one for each core.
    device: auto, cpu, cuda, cuda:1 or mps; by default as the recipe says. On auto a run goes on where it was begun.
    cluster: of the backend ray.
    memory: bytes of clients' vectors in memory at most, the others are kept in a temporary file; by default a quarter
        of what is free. It changes no bit.
    on_round: called with the metrics of each round once it is stored.
    on_message: called with what the user should know: damaged checkpoints, resuming, divergence.
    Returns the run's directory, also where training diverged (its status says so). Raises BusyError if another process
    writes into that directory. SIGTERM ends training in the middle of a round: the round before is stored, and the
    process exits with the code 75 (`landscape.runtime.termination`).
    """
    if recipe.adopted is not None:
        raise ValueError("this recipe is of an adopted run, which cannot be trained here: remove its table [adopted]")
    path = opening.find_run(out, recipe, name)
    with termination.listen(), lock.hold(path, "train"):
        place = _choose_device(path, device or recipe.device, on_message)
        federation, state = _open(recipe, path, place, Shelf(path, memory, on_message), on_message)
        if state.round >= recipe.rounds.count:
            run_directory.write_status(path, "finished", state.round)
            return path
        shortage = federation.client_tests.describe_shortage() if federation.client_tests is not None else ""
        if shortage:
            on_message(shortage)
        if state.round:
            on_message(f"resuming from round {state.round}")
        executor = open_executor(backend, federation.trainer, recipe, workers, path, on_message, cluster)
        run_directory.write_status(path, "running", state.round)
        try:
            _train_rounds(path, federation, state, executor, on_round)
        except DivergenceError as error:
            on_message(f"diverged: {error}")
        finally:
            executor.close()
    return path


def _train_rounds(
    path: Path, federation: Federation, state: State, executor: Executor, on_round: RoundCallback
) -> None:
    """Train the remaining rounds. The last good state is saved before an error or a request to end is raised."""
    recipe = federation.recipe
    interim = state.round if state.round % recipe.checkpoints.every else None  # saved because training was ended there
    try:
        while state.round < recipe.rounds.count:
            saved, keep = _choose_saved(recipe, state.round + 1)
            following, record, local_models = federation.advance(state, executor, keep)
            with termination.postpone():  # metrics and checkpoint of a round belong together
                cohort, state = federation.draw_cohort(state.round), following
                metrics.append(path, record)
                if saved:
                    save_state(path, federation, state, local_models, cohort)
            if saved and interim is not None:
                checkpoint.discard(path, interim)  # the same checkpoints as without the interruption
                interim = None
            on_round(record)
    except DivergenceError as error:
        _save_interim(path, federation, state)
        run_directory.write_status(path, "diverged", state.round, str(error))
        raise
    except Terminated:
        _save_interim(path, federation, state)
        raise
    run_directory.write_status(path, "finished", state.round)


def _choose_saved(recipe: Recipe, round: int) -> tuple[bool, bool]:
    """Decide whether a round, counted from one, has a checkpoint, and whether it keeps the participants' models."""
    final = round == recipe.rounds.count
    saved = final or round % recipe.checkpoints.every == 0
    wanted = recipe.checkpoints.keep_locals
    return saved, saved and (wanted == "all" or (wanted == "last" and final))


def _save_interim(path: Path, federation: Federation, state: State) -> None:
    """Save a state that may lie between two checkpoints."""
    if not run_directory.checkpoint_path(path, state.round).exists():
        save_state(path, federation, state, {}, federation.draw_cohort(state.round - 1))


def _describe(federation: Federation) -> dict[str, object]:
    """Collect what provenance.json says: device, file of initial weights, cost of a step, names of classes."""
    names, start = federation.dataset.class_names, federation.started_from
    found: dict[str, object] = {"device": describe_device(federation.device)}
    found |= {} if start is None else {"weights": start.record()}
    return {**found, **_count_flops(federation), **({"class_names": list(names)} if names is not None else {})}


def _count_flops(federation: Federation) -> dict[str, object]:
    """Count the cost of a local step for provenance.json; nothing if it cannot be counted."""
    try:
        return {"flops": asdict(count_trainer_flops(federation.trainer))}
    except (ValueError, RuntimeError, NotImplementedError):
        return {}  # a model that the counter cannot follow is trained all the same


def _choose_device(path: Path, wanted: str, on_message: MessageCallback) -> torch.device:
    """Choose the device of a run; warns if the run was begun on another kind, whose results differ by rounding."""
    begun_before = (path / CONFIG).exists()  # which is written last: what else there is may be half a file
    known = read_provenance(path).get("device") if begun_before and (path / PROVENANCE).exists() else None
    begun = known.get("type") if isinstance(known, dict) else None
    if wanted == "auto" and isinstance(begun, str):
        with suppress(ValueError):  # a machine without such a device
            return find_device(begun)
    found = find_device(wanted)
    if begun not in (None, found.type):
        on_message(f"this run was begun on {begun}; results on {found.type} agree with it only up to rounding")
    return found


def _open(
    recipe: Recipe, path: Path, device: torch.device, shelf: Shelf, on_message: MessageCallback
) -> tuple[Federation, State]:
    """Open the federation of a run, and the state of its newest intact checkpoint, or the initial state."""
    stored = partition.load(path / "partition.npz") if (path / CONFIG).exists() else None
    federation = Federation(recipe, stored, device)
    facts = {"data_digest": federation.dataset.digest, "partition_digest": federation.partition.digest}
    task = federation.dataset.task.reference
    opening.open_run(path, recipe, federation.partition, facts, lambda: _describe(federation), task)
    found, problems = checkpoint.load_newest(path, shelf=shelf)
    for problem in problems:
        on_message(f"damaged, skipped: {problem}")
    if found is None:
        if federation.started_from is not None:
            on_message(federation.started_from.describe())
        state = replace(federation.begin(), clients=ClientVectors(shelf))
        save_state(path, federation, state, {}, [])
    else:
        state = restore_state(found)
        check_fit(path, federation, state)
    metrics.rewind(path, state.round)
    if recipe.evaluation.personal:
        state = replace(state, own_accuracies=collect_latest(metrics.read(path)))
    if recipe.checkpoints.keep_clients == "last":
        checkpoint.forget_clients(path)  # an interrupted run may have kept some
    return federation, state

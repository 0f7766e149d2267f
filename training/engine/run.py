"""Train a recipe from start to end: rounds, checkpoints on the way, resuming after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

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
from training.storage import checkpoint, lock, metrics, run_directory
from training.storage.metrics import Record

RoundCallback = Callable[[Record], object]  # called with the metrics of each finished round
MessageCallback = Callable[[str], object]  # called with a sentence for the user


def ignore(_: object) -> None:
    """The callback of a caller who does not want to know."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    name: str = "",
    backend: str = "auto",
    workers: int | None = None,
    on_round: RoundCallback = ignore,
    on_message: MessageCallback = ignore,
) -> Path:
    """Train a recipe to its end; a partial run is resumed from its newest intact checkpoint.

    recipe: what to train.
    out: the folder of the run's directory.
    name: of the directory if it is new, as `recipe.name` gives it; by default the recipe's slug.
    backend: auto, serial, processes or vmap.
    workers: processes, at most; by default one for each core.
    on_round: called with the metrics of each round once it is stored.
    on_message: called with what the user should know: damaged checkpoints, resuming, divergence.
    Returns the run's directory, also where training diverged (its status says so). Raises BusyError if another process
    writes into that directory.
    """
    path = opening.find_run(out, recipe, name)
    with lock.hold(path, "train"):
        federation, state = _open(recipe, path, on_message)
        if state.round >= recipe.rounds.count:
            run_directory.write_status(path, "finished", state.round)
            return path
        shortage = federation.client_tests.describe_shortage() if federation.client_tests is not None else ""
        if shortage:
            on_message(shortage)
        if state.round:
            on_message(f"resuming from round {state.round}")
        executor = open_executor(backend, federation.trainer, recipe, workers, path, on_message)
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
    """Train the remaining rounds. On divergence the last good state is saved before the error is raised."""
    recipe = federation.recipe
    while state.round < recipe.rounds.count:
        final = state.round + 1 == recipe.rounds.count
        saved = final or (state.round + 1) % recipe.checkpoints.every == 0
        wanted = recipe.checkpoints.keep_locals
        keep = saved and (wanted == "all" or (wanted == "last" and final))
        try:
            following, record, local_models = federation.advance(state, executor, keep)
        except DivergenceError as error:
            if not run_directory.checkpoint_path(path, state.round).exists():
                save_state(path, federation, state, {}, federation.draw_cohort(state.round - 1))
            run_directory.write_status(path, "diverged", state.round, str(error))
            raise
        cohort, state = federation.draw_cohort(state.round), following
        metrics.append(path, record)
        if saved:
            save_state(path, federation, state, local_models, cohort)
        on_round(record)
    run_directory.write_status(path, "finished", state.round)


def _count_flops(federation: Federation) -> dict[str, object]:
    """What a local step costs, for provenance.json; nothing where it cannot be counted."""
    try:
        return {"flops": asdict(count_trainer_flops(federation.trainer))}
    except (ValueError, RuntimeError, NotImplementedError):
        return {}  # a model that the counter cannot follow is trained all the same


def _open(recipe: Recipe, path: Path, on_message: MessageCallback) -> tuple[Federation, State]:
    """The federation of a run, and the state to resume from: of the newest intact checkpoint, or the initial one."""
    stored = partition.load(path / "partition.npz") if (path / "config.toml").exists() else None
    federation = Federation(recipe, stored)
    facts = {"data_digest": federation.dataset.digest, "partition_digest": federation.partition.digest}
    opening.open_run(path, recipe, federation.partition, facts, lambda: _count_flops(federation))
    found, problems = checkpoint.load_newest(path)
    for problem in problems:
        on_message(f"damaged, passed over: {problem}")
    if found is None:
        state = federation.begin()
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

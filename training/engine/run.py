"""Train a recipe to its end: round after round, saved on the way, and going on after whatever stopped it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from training.config import Recipe
from training.data import partition
from training.engine.federation import Federation as Federation  # part of what this file offers
from training.engine.federation import Record as Record
from training.engine.federation import State as State
from training.engine.local_training import DivergenceError
from training.executors.choice import open_executor
from training.storage import checkpoint, lease, metrics
from training.storage.checkpoint import Checkpoint

Watch = Callable[[Record], object]  # called with the metrics of each finished round


def train(
    recipe: Recipe,
    out: Path,
    *,
    name: str = "",
    backend: str = "auto",
    workers: int | None = None,
    watch: Watch | None = None,
    say: Callable[[str], object] = print,
) -> Path:
    """Train a recipe to its end in its directory under `out`, going on from the newest intact checkpoint.

    Nobody else may write into that directory in the meantime: BusyError.
    name: of the directory, if it is new, from `recipe.name`; by default the recipe's slug.
    """
    path = checkpoint.find(out, recipe, name)
    with lease.hold(path, "train"):
        return _train(recipe, path, backend, workers, watch, say)


def _train(
    recipe: Recipe,
    path: Path,
    backend: str,
    workers: int | None,
    watch: Watch | None,
    say: Callable[[str], object],
) -> Path:
    federation, state = _open(recipe, path, say)
    if state.round >= recipe.rounds.count:
        checkpoint.write_status(path, "finished", state.round)
        return path
    if state.round:
        say(f"going on from round {state.round}")
    executor = open_executor(backend, federation.trainer, recipe, workers, path, say)
    checkpoint.write_status(path, "running", state.round)
    try:
        while state.round < recipe.rounds.count:
            final = state.round + 1 == recipe.rounds.count
            saved = final or (state.round + 1) % recipe.checkpoints.every == 0
            wanted = recipe.checkpoints.keep_locals
            keep = saved and (wanted == "all" or (wanted == "last" and final))
            try:
                following, record, local_models = federation.advance(state, executor, keep)
            except DivergenceError as error:
                if not checkpoint.at(path, state.round).exists():
                    save(path, federation, state, {}, federation.draw_cohort(state.round - 1))
                checkpoint.write_status(path, "diverged", state.round, str(error))
                say(f"diverged: {error}")
                return path
            cohort, state = federation.draw_cohort(state.round), following
            metrics.append(path, record)
            if saved:
                save(path, federation, state, local_models, cohort)
            if watch is not None:
                watch(record)
    finally:
        executor.close()
    checkpoint.write_status(path, "finished", state.round)
    return path


def _open(recipe: Recipe, path: Path, say: Callable[[str], object]) -> tuple[Federation, State]:
    """The federation of a run, and the state to go on from: of the newest intact checkpoint, or the first."""
    stored = partition.load(path / "partition.npz") if (path / "config.toml").exists() else None
    federation = Federation(recipe, stored)
    facts = {"data_digest": federation.dataset.digest, "partition_digest": federation.partition.digest}
    checkpoint.open_run(path, recipe, federation.partition, facts)
    found, problems = checkpoint.newest(path)
    for problem in problems:
        say(f"damaged, passed over: {problem}")
    if found is None:
        state = federation.begin()
        save(path, federation, state, {}, [])
    else:
        state = restore(found)
        _require_fit(path, federation, state)
    metrics.rewind(path, state.round)
    if recipe.checkpoints.keep_clients == "last":
        checkpoint.forget_clients(path)  # killed before it could
    return federation, state


def _require_fit(path: Path, federation: Federation, state: State) -> None:
    """Raise unless the vectors of a state are as long as the model needs them."""
    size, buffers = federation.trainer.layout.size, federation.trainer.read_statistics().numel()
    vectors = {"server": (state.w, size), "mean": (state.mean, size), "swa": (state.swa, size)}
    vectors |= {"statistics": (state.statistics, buffers), "swa_statistics": (state.swa_statistics, buffers)}
    for name, (vector, wanted) in vectors.items():
        if vector is not None and vector.shape != (wanted,):
            place = checkpoint.at(path, state.round)
            raise checkpoint.DamagedError(
                f"{place}: '{name}' has shape {tuple(vector.shape)}, the model of this recipe needs ({wanted},). "
                "Remove this checkpoint, and training goes on from the one before"
            )


def save(path: Path, federation: Federation, state: State, local_models: dict[int, Tensor], cohort: list[int]) -> None:
    """Checkpoint a state; local models come with the point that was sent, which their updates are measured from."""
    points = {
        "server": state.w,
        "mean": state.mean,
        "swa": state.swa,
        "statistics": state.statistics,
        "swa_statistics": state.swa_statistics,
    }
    if local_models:
        points |= {"sent": state.sent, "sent_statistics": state.sent_statistics}
    found = Checkpoint(
        round=state.round,
        models={name: vector for name, vector in points.items() if vector is not None},
        locals=local_models,
        server=state.server,
        clients=state.clients,
        extra={
            "cohort": cohort,
            "sizes": [len(federation.client_indices[client]) for client in cohort],
            "captured": state.captured,
        },
    )
    checkpoint.save(path, found)
    if federation.recipe.checkpoints.keep_clients == "last":
        checkpoint.forget_clients(path)


def restore(found: Checkpoint) -> State:
    """The state that a checkpoint holds."""
    missing = [name for name in ("server", "statistics") if name not in found.models]
    missing += [] if "captured" in found.extra else ["captured"]
    if missing:
        raise checkpoint.DamagedError(f"the checkpoint of round {found.round} holds no '{missing[0]}': remove it")
    return State(
        round=found.round,
        w=found.models["server"],
        statistics=found.models["statistics"],
        server=found.server,
        clients=found.clients,
        mean=found.models.get("mean"),
        sent=found.models.get("sent"),
        sent_statistics=found.models.get("sent_statistics"),
        swa=found.models.get("swa"),
        swa_statistics=found.models.get("swa_statistics"),
        captured=found.extra["captured"],
    )

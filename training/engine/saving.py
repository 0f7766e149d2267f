"""Checkpoints of a federation: what is saved of its state, and the state that a checkpoint holds."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from training.engine.federation import Federation
from training.engine.state import State
from training.storage import checkpoint, run_directory
from training.storage.atomic_files import DamagedError
from training.storage.checkpoint import Checkpoint
from training.storage.client_vectors import ClientVectors


def check_fit(path: Path, federation: Federation, state: State) -> None:
    """Raise DamagedError unless the vectors of a restored state are as long as the model needs them.

    path: of the run, for the message.
    """
    size, buffers = federation.trainer.layout.size, federation.trainer.read_statistics().numel()
    vectors = {"server": (state.w, size), "mean": (state.mean, size), "swa": (state.swa, size)}
    vectors |= {"statistics": (state.statistics, buffers), "swa_statistics": (state.swa_statistics, buffers)}
    for name, (vector, wanted) in vectors.items():
        if vector is not None and vector.shape != (wanted,):
            damaged = run_directory.checkpoint_path(path, state.round)
            raise DamagedError(
                f"{damaged}: '{name}' has shape {tuple(vector.shape)}, the model of this recipe needs ({wanted},). "
                "Remove this checkpoint to resume from the one before"
            )


def save_state(
    path: Path, federation: Federation, state: State, local_models: dict[int, Tensor], cohort: list[int]
) -> None:
    """Write the checkpoint of a state.

    path: of the run.
    local_models: participants' models by client; the point that was sent to them is then saved too, because their
    updates are measured from it.
    cohort: the participants of the last round.
    """
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


def restore_state(found: Checkpoint) -> State:
    """Read the state from a checkpoint; DamagedError if it lacks something."""
    missing = [name for name in ("server", "statistics") if name not in found.models]
    missing += [] if "captured" in found.extra else ["captured"]
    if missing:
        raise DamagedError(f"the checkpoint of round {found.round} holds no '{missing[0]}': remove it")
    return State(
        round=found.round,
        w=found.models["server"],
        statistics=found.models["statistics"],
        server=found.server,
        clients=ClientVectors.of(found.clients),
        mean=found.models.get("mean"),
        sent=found.models.get("sent"),
        sent_statistics=found.models.get("sent_statistics"),
        swa=found.models.get("swa"),
        swa_statistics=found.models.get("swa_statistics"),
        captured=found.extra["captured"],
    )

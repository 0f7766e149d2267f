"""The trackers by name, and whether the packages that they need are there. Imports no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from training.plugins import ExtensionPoint, accept_function
from training.tracking.mlflow_runs import MLflow
from training.tracking.tensorboard_files import TensorBoard
from training.tracking.tracker import Subject, Tracker
from training.tracking.wandb_runs import WeightsAndBiases

Opener = Callable[[Subject], Tracker]

TRACKERS: dict[str, Opener] = {  # each named as the package that it needs
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
CATALOG: ExtensionPoint[Opener] = ExtensionPoint(
    "tracker",
    TRACKERS,
    lambda name, found: accept_function("tracker", name, found),  # type: ignore[arg-type,return-value]
)


def list_trackers(names: str | Sequence[str]) -> list[str]:
    """Check the names of trackers before any work is done; ValueError that says what to write or to install.

    names: keys of TRACKERS, or 'module:name' of a function that opens a tracker for a `Subject`; one or several.
    Returns each name once.
    """
    wanted = list(dict.fromkeys([names] if isinstance(names, str) else names))
    for name in filter(None, wanted):
        CATALOG.find(name)
        if name in TRACKERS and importlib.util.find_spec(name) is None:
            raise ValueError(
                f"tracker {name}: the package {name} is not installed; write: pip install 'fl-landscape[tracking]'"
            )
    return [name for name in wanted if name]

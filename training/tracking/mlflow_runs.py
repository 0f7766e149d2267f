"""MLflow: one run there for each of ours. Needs the package mlflow-skinny, or mlflow.

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME mean what they mean for MLflow. Without an address MLflow keeps a data
base mlflow.db in the current folder; where the packages for that are missing, as they are beside mlflow-skinny, files
in mlruns/. The id of the run there is kept in tracking/mlflow.json: a resumed run goes on under the same id.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from training.storage import toml
from training.tracking.tracker import PROJECT, Exhibit, Row, Subject, read_memory, write_memory

Item = TypeVar("Item")
NAME = "mlflow"
MOST = 1000  # metrics that MLflow takes at a time
MOST_SETTINGS = 100
LONGEST = 6000  # characters of a setting
STATES = {"finished": "FINISHED", "diverged": "FAILED"}  # as MLflow calls them; KILLED for what was interrupted
PATIENCE = {  # how long a server is waited for: by default it would be minutes, in which nothing is trained
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


class MLflow:
    """One run of MLflow."""

    def __init__(self, subject: Subject):
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self.uri = _choose_uri()
        self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
        memory = read_memory(subject.folder, NAME)
        self.last, self.id = 0, str(memory.get("id", "")) if memory.get("uri") == self.uri else ""
        if not self._reopen():
            self.id = self.client.create_run(self._find_experiment(), run_name=subject.name).info.run_id
            settings = [Param(key, str(value)[:LONGEST]) for key, value in toml.flatten(subject.settings)]
            for some in _split(settings, MOST_SETTINGS):
                self.client.log_batch(self.id, params=some)
            write_memory(subject.folder, NAME, {"id": self.id, "uri": self.uri})

    @property
    def place(self) -> str:
        return f"{self.uri}, run {self.id}"

    def _reopen(self) -> bool:
        """Go on with the run that was begun before; False if there is none, or it was deleted."""
        from mlflow.exceptions import MlflowException

        if not self.id:
            return False
        try:
            found = self.client.get_run(self.id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        if found.info.lifecycle_stage != "active":
            return False
        self.last = int(found.data.metrics.get("round", 0))
        self.client.update_run(self.id, status="RUNNING")
        return True

    def _find_experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        found = self.client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self.client.create_experiment(name))

    def find_last_round(self) -> int:
        return self.last

    def log_rounds(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        values = [
            (row.round, {**row.values, "round": row.round}) for row in rows
        ]  # "round" last: it tells what is there
        found = [Metric(name, value, now, round) for round, some in values for name, value in some.items()]
        for some in _split(found, MOST):
            self.client.log_batch(self.id, metrics=some)

    def log_figure(self, figure: Exhibit, round: int) -> None:
        self._log_files("figures", figure)

    def log_table(self, table: Exhibit, round: int) -> None:
        self._log_files("tables", table)

    def _log_files(self, kind: str, exhibit: Exhibit) -> None:
        folder = Path(kind, exhibit.name).parent
        for path in exhibit.files.values():
            self.client.log_artifact(self.id, str(path), folder.as_posix())

    def close(self, state: str) -> None:
        self.client.set_terminated(self.id, STATES.get(state, "KILLED"))


def _choose_uri() -> str:
    """The address that MLflow would use; files instead of a data base where the packages for one are missing."""
    import mlflow

    uri = str(mlflow.get_tracking_uri())
    if not mlflow.is_tracking_uri_set() and importlib.util.find_spec("sqlalchemy") is None:
        uri = Path("mlruns").absolute().as_uri()
    if uri.startswith("file:") or "://" not in uri:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow refuses to write files
    return uri


def _split(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Split a sequence into parts of at most so many items."""
    return (items[start : start + most] for start in range(0, len(items), most))

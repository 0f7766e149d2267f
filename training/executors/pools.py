"""Where independent work runs: pieces of studies, whole runs. This file imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from landscape.errors import choose, whole
from training.executors.pool import Pool
from training.executors.process_pool import ProcessPool
from training.executors.ray_pool import Cluster, RayPool

BACKENDS = ("processes", "ray")


@dataclass(frozen=True)
class Placement:
    """Where independent work runs.

    backend: processes (of this machine) or ray.
    workers: how many work at a time; by default one for each core, or as many as the cluster has room for.
    cluster: of the backend ray.
    """

    backend: str = "processes"
    workers: int | None = None
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        choose("backend", self.backend, BACKENDS)
        if self.workers is not None:
            whole("workers", self.workers)

    def open(self, most: int) -> Pool:
        """Open a pool of workers; the caller closes it.

        most: number of tasks; more workers than that would be idle.
        """
        if self.backend == "ray":
            return RayPool(self.cluster, min(self.workers or most, most))
        return ProcessPool(min(self.workers or os.cpu_count() or 1, most))

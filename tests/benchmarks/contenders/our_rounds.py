"""This package: python -m tests.benchmarks.contenders.our_rounds WORK ROUNDS, printing the seconds of each round.

The backend is the one that `landscape train` chooses by itself.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

import torch

from tests.benchmarks.contenders.rounds import RATE, WORK
from tests.benchmarks.processes import CORES
from training import config
from training.engine.federation import Federation
from training.executors.base import Executor
from training.executors.choice import find_fastest
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked


def measure(work: str, rounds: int) -> list[float]:
    """Seconds of each round but the first, in which workers start."""
    given = WORK[work]
    recipe = config.validate(
        {
            "data": {
                "name": "synthetic",
                "examples": given.clients * given.examples,
                "test_examples": 0,
                "shape": list(given.shape),
            },
            "model": {"name": given.model},
            "partition": {"clients": given.clients},
            "algorithm": {"name": "fedavg"},
            "local": {"batch_size": given.batch, "lr": RATE},
            "rounds": {"count": 1000, "participants": given.clients},
            "evaluation": {"every": 1000},
        }
    )
    federation = Federation(recipe)
    trainer = federation.trainer
    assert trainer.layout.size == sum(own.numel() for own in given.make().parameters())
    backend = find_fastest(trainer, recipe, CORES)
    print(f"{work}: {backend}")
    executor: Executor = Processes(trainer, CORES) if backend == "processes" else Serial(trainer)
    executor = Stacked(trainer) if backend == "vmap" else executor
    state, ended = federation.begin(), list[float]()
    for _ in range(rounds + 2):
        state, _, _ = federation.advance(state, executor, keep_locals=False)
        ended.append(time.perf_counter())
    executor.close()
    return [after - before for before, after in itertools.pairwise(ended)][1:]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))

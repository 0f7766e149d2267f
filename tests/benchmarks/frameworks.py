"""The same rounds by this package, by Flower's simulation and by pfl-research, each in an environment of its own.

Every look starts each framework once, in turns, and takes the median of its rounds; the first round is left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import CORES, OURS, ROOT, prepare, python_of
from tests.benchmarks.tables import Table, Target

FLOWER, PFL = "Flower 1.40.0", "pfl-research 0.6.0"
FACTORS = {  # work -> framework -> how many times as fast the design wants us
    "LeNet64": {FLOWER: 1.65, PFL: 1.35},
    "digits CNN": {FLOWER: 15.0, PFL: 2.0},
}
ROUNDS = {"LeNet64": 5, "digits CNN": 30}  # of a look
ENVIRONMENTS = {FLOWER: (".venv-flower", "flower.txt"), PFL: (".venv-pfl", "pfl.txt")}
MODULES = {
    "ours": "tests.benchmarks.contenders.our_rounds",
    FLOWER: "tests.benchmarks.contenders.flower",
    PFL: "tests.benchmarks.contenders.pfl_research",
}
Found = dict[str, dict[str, float]]  # work -> way -> seconds of a round


def measure(looks: int, quick: bool) -> Found:
    """Seconds of a round of each work, by every framework.

    looks: how often each is started. quick: whether one or two rounds must do.
    """
    for environment, requirements in ENVIRONMENTS.values():
        prepare(environment, Path(__file__).with_name(requirements))
    found: Found = {}
    for work in FACTORS:
        rounds = 1 if quick else ROUNDS[work]
        seconds: dict[str, list[float]] = {}
        for _ in range(looks):
            for way, command in list_commands(work, rounds).items():
                seconds.setdefault(way, []).append(statistics.median(run(command)))
        found[work] = {way: statistics.median(some) for way, some in seconds.items()}
    return found


def list_commands(work: str, rounds: int) -> dict[str, list[str]]:
    """What to start for each way of computing the rounds. pfl-research is taken with one process and with several."""
    several = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(CORES), "-m"]
    ways = {
        "ours": ("ours", []),
        FLOWER: (FLOWER, []),
        f"{PFL}, 1 process": (PFL, []),
        f"{PFL}, {CORES} processes": (PFL, several),
    }
    return {
        way: [_python(name), "-m", *before, MODULES[name], work, str(rounds)] for way, (name, before) in ways.items()
    }


def run(command: list[str]) -> list[float]:
    """Run one framework and return the seconds of its rounds: the last line that it prints."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[") and line.endswith("]")]
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    seconds: list[float] = json.loads(lines[-1])
    return seconds


def judge(found: Found) -> tuple[Table, list[Target]]:
    """The table of all ways, and the design's lines. Of pfl-research the faster way counts."""
    rows: list[list[Any]] = []
    targets = []
    for work, ways in found.items():
        ours = ways["ours"]
        rows += [[work, way, f"{1000 * seconds:.1f}", f"{seconds / ours:.2f}x"] for way, seconds in ways.items()]
        for name, factor in FACTORS[work].items():
            ratio = min(seconds for way, seconds in ways.items() if way.startswith(name)) / ours
            targets.append(Target(f"rounds, {work}", f"{factor:g}x {name}", f"{ratio:.2f}x", ratio >= factor))
    return Table("The same rounds by other frameworks", ["", "", "ms a round", "time of ours"], rows), targets


def _python(name: str) -> str:
    return str(python_of(OURS if name == "ours" else ENVIRONMENTS[name][0]))

"""Every piece of work runs in a fresh process of the environment it belongs to: caches and peak memory are its own.

The parent never imports torch, so it takes nothing away from what it measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
OURS, PEERS = ".venv", ".venv-peers"

# name -> (environment, module:function). A contender is a function (problem, **setting) -> work, where work()
# does what is timed and returns numbers and tensors; any other task is a function (folder, **arguments) -> numbers.
CONTENDERS: dict[str, tuple[str, str]] = {
    "ours": (OURS, "tests.benchmarks.contenders.ours:top"),
    "ours, stated memory": (OURS, "tests.benchmarks.contenders.ours:top"),
    "ours, many": (OURS, "tests.benchmarks.contenders.ours:top_of_many"),
    "PyHessian": (PEERS, "tests.benchmarks.contenders.pyhessian:top"),
    "hessian-eigenthings": (PEERS, "tests.benchmarks.contenders.hessian_eigenthings:top"),
    "curvlinops + eigsh": (PEERS, "tests.benchmarks.contenders.curvlinops:top"),
    "ours, surface": (OURS, "tests.benchmarks.contenders.ours:surface"),
    "loss-landscapes": (PEERS, "tests.benchmarks.contenders.loss_landscapes:surface"),
}
TASKS: dict[str, tuple[str, str]] = {
    "create": (OURS, "tests.benchmarks.tasks:create"),
    "spectrum": (OURS, "tests.benchmarks.tasks:spectrum"),
    "verify": (OURS, "tests.benchmarks.tasks:check_pairs"),
    "losses": (OURS, "tests.benchmarks.tasks:losses"),
    "raw": (OURS, "tests.benchmarks.raw:throughput"),
}


def call(name: str, folder: Path, **arguments: Any) -> dict[str, Any]:
    """Run a contender or a task on the problem in `folder` and return its numbers.

    A contender's tensors are left in folder/answer.safetensors.
    """
    environment = (CONTENDERS | TASKS)[name][0]
    command = [str(python_of(environment)), "-m", "tests.benchmarks.worker", name, str(folder), json.dumps(arguments)]
    threads = {f"{library}_NUM_THREADS": str(CORES) for library in ("OMP", "MKL", "OPENBLAS")}
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{name} {arguments} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    numbers: dict[str, Any] = json.loads(answer.read_text())
    return numbers


def fresh(module: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one of a module's TASKS in a process of its own; its last line is its answer."""
    command = [sys.executable, "-m", module, name, json.dumps(arguments)]
    threads = {f"{library}_NUM_THREADS": str(CORES) for library in ("OMP", "MKL", "OPENBLAS")}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} {arguments} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def prepare_peers() -> None:
    """Make the environment of the tools that eigenvalues and surfaces are compared with."""
    prepare(PEERS, Path(__file__).with_name("peers.txt"))


def prepare(environment: str, requirements: Path) -> None:
    """Make a virtual environment, or keep it if the requirements it was made from are unchanged.

    environment: its folder in the project. requirements: a file of pins, torch among them.
    """
    wanted = requirements.read_text()
    ready = ROOT / environment / "ready"
    if ready.exists() and ready.read_text() == wanted:
        return
    print(f"installing {requirements.stem} into {environment}, once ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ROOT / environment)], check=True)
    pins = [line for line in wanted.splitlines() if line and not line.startswith("#")]
    install = [str(python_of(environment)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # torch first and alone, then held: asked for in any other way pip may take gigabytes of CUDA packages
    subprocess.run([*install, *(pin for pin in pins if pin.startswith("torch=="))], check=True)
    subprocess.run([*install, *pins], check=True)
    ready.write_text(wanted)


def python_of(environment: str) -> Path:
    """The interpreter of a virtual environment of the project."""
    return ROOT / environment / "bin" / "python"

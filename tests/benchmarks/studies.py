"""Studies of a run: what warm starts save over ten rounds, and local against global sharpness for ten clients.

PyHessian is given every client's model and data in turn, the way its users do it: on the client's own images, then on
everyone's. The residual that its answer has, not its tolerance, is made equal to ours.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import CORES, call, fresh
from tests.benchmarks.session import Session
from tests.benchmarks.tables import Section, Table, Target

CLIENTS, IMAGES, ROUNDS = 10, 64, 10  # images of each client, one batch of PyHessian's
ASKED = 3  # clients that PyHessian is asked about: it takes minutes for each
TOLERANCE = 1e-6  # of PyHessian: what it needs for a residual of 1e-3 in the other benchmark
Numbers = dict[str, Any]


def measure(session: Session) -> Section:
    folder = session.folder / "studies"
    folder.mkdir()
    clients, rounds = (2, 2) if session.quick else (CLIENTS, ROUNDS)
    session.say(f"training LeNet64 for {rounds} rounds of {clients} clients")
    task("prepare", folder=str(folder), clients=clients, rounds=rounds)
    session.say("top-5 over rounds, with and without warm start")
    warm = task("warm", folder=str(folder))
    session.say("local and global sharpness of every client")
    ours = task("local_global", folder=str(folder))
    theirs, worst = 0.0, 0.0
    asked = min(ASKED, clients)
    for client in range(asked):
        for name, count in (("own", IMAGES), ("everyone", clients * IMAGES)):
            place = folder / f"client_{client}_{name}"
            found = call("PyHessian", place, count=count, k=1, tol=TOLERANCE, most=400, fed="batch")
            theirs += found["seconds"]
            truth = ours["values"][client][name == "everyone"]
            worst = max(worst, abs(found["values"][0] - truth) / abs(truth))
            session.say(f"PyHessian, client {client}, {name}: {found['seconds']:.1f} s, {found['products']} products")
    saved = 1 - sum(warm["warm"][1:]) / sum(warm["cold"][1:])
    mine = sum(ours["each"][:asked])
    faster = theirs / mine
    tables = [
        Table(
            "Top-5 over rounds, residual 1e-3: Hessian products",
            ["", *(str(round) for round in warm["rounds"]), "seconds"],
            [
                ["cold", *(str(n) for n in warm["cold"]), f"{warm['cold_seconds']:.1f}"],
                ["warm", *(str(n) for n in warm["warm"]), f"{warm['warm_seconds']:.1f}"],
            ],
        ),
        Table(
            f"lambda_1 of {asked} local models on their own {IMAGES} images and on all {clients * IMAGES}",
            ["", "seconds", "largest disagreement"],
            [["ours", f"{mine:.1f}", ""], ["PyHessian", f"{theirs:.1f}", f"{worst:.0e}"]],
        ),
    ]
    targets = [
        Target("warm start", "fewer products", f"{saved:.0%} saved after the first round", saved > 0),
        Target("local_global", "faster than PyHessian client by client", f"{faster:.1f}x", faster > 1),
    ]
    notes = [session.conditions, f"LeNet64, {clients} clients of {IMAGES} images of 32 x 32, {rounds} rounds of FedAvg"]
    return Section("Studies", notes, tables, targets)


def task(name: str, **arguments: Any) -> Numbers:
    """Run one of TASKS in a fresh process."""
    return fresh("tests.benchmarks.studies", name, arguments)


def prepare(*, folder: str, clients: int, rounds: int) -> Numbers:
    """Train a run, and lay out every participant's model and data as the other benchmarks' problems are."""
    import torch
    from safetensors.torch import save_file

    from analysis.subjects import Run
    from training import config
    from training.engine.run import train

    settings = {
        "data": {
            "name": "synthetic",
            "examples": clients * IMAGES,
            "test_examples": 64,
            "shape": [3, 32, 32],
            "classes": 10,
        },
        "model": {"name": "lenet64"},
        "partition": {"name": "iid", "clients": clients},
        "local": {"batch_size": 32, "epochs": 2, "lr": 0.02, "momentum": 0.9},
        "rounds": {"count": rounds, "participants": clients},
        "evaluation": {"every": rounds},
        "checkpoints": {"every": 1, "keep_locals": "last"},
    }
    path = train(config.validate(settings), Path(folder) / "runs")
    run = Run(path)
    names = _names()
    for client, w in run.local_points(rounds).items():
        for name, data in (("own", run.examples("train", client)), ("everyone", run.examples("train"))):
            place = Path(folder) / f"client_{client}_{name}"
            place.mkdir()
            pieces = torch.split(w, [parameter.numel() for parameter in run.model.parameters()])
            shapes = [parameter.shape for parameter in run.model.parameters()]
            tensors = {key: piece.view(shape).clone() for key, piece, shape in zip(names, pieces, shapes, strict=True)}
            save_file(tensors, place / "model.safetensors")
            save_file({"inputs": data[0].contiguous(), "targets": data[1]}, place / "images.safetensors")
    return {"run": str(path)}


def _names() -> list[str]:
    """The names that the problem's own LeNet64 gives its tensors; the layers are the same, in the same order."""
    from tests.benchmarks.networks import lenet64

    return [name for name, _ in lenet64().named_parameters()]


def _run(folder: str) -> Any:
    from analysis.subjects import Run

    return Run(next((Path(folder) / "runs").iterdir()))


def warm_start(*, folder: str) -> Numbers:
    """Products of every round, warm and cold."""
    from analysis import runner, store
    from analysis.studies import curvature

    run = _run(folder)
    found: Numbers = {}
    for name in ("cold", "warm"):
        settings = curvature.Settings(rounds=",".join(map(str, run.rounds[1:])), warm=name == "warm")
        start = time.perf_counter()
        path = runner.carry_out(runner.plan(curvature.STUDY, settings, [run], Path(folder) / name))
        found[f"{name}_seconds"] = time.perf_counter() - start
        table = store.read(path).data
        assert table["converged"].values.all()
        found[name] = table["products"].values.tolist()
        found["rounds"] = table["round"].values.tolist()
    return found


def local_global(*, folder: str) -> Numbers:
    """Seconds for lambda_1 of every local model, on its own data and on everyone's, and the values."""
    from landscape import eigenpairs

    run = _run(folder)
    points = dict(sorted(run.local_points(run.rounds[-1]).items()))
    objectives = {client: run.objective("train", client) for client in points}
    everyone = run.objective()
    first = next(iter(points))
    eigenpairs(objectives[first].hessian(points[first]), 1)  # kernels are chosen at the first call
    values, each = [], []
    for client, w in points.items():
        start = time.perf_counter()
        own = eigenpairs(objectives[client].hessian(w), 1).values[0]
        values.append([float(own), float(eigenpairs(everyone.hessian(w), 1).values[0])])
        each.append(time.perf_counter() - start)
    return {"each": each, "values": values}


TASKS: dict[str, Callable[..., Numbers]] = {"prepare": prepare, "warm": warm_start, "local_global": local_global}

if __name__ == "__main__":
    import torch

    torch.set_num_threads(CORES)
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))

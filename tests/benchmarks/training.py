"""Federated rounds against the bare network, stacked against one by one, SAM against plain, many clients against few.

What is compared is measured in turns within one process, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks import frameworks
from tests.benchmarks.processes import CORES, fresh
from tests.benchmarks.session import Session
from tests.benchmarks.tables import Section, Table, Target

CLIENTS, STEPS, BATCH = 5, 8, 64  # of a round in the seeds' CIFAR settings: 500 images a client, batches of 64
EVEN = -(-CLIENTS // CORES) * CORES  # clients that keep every core busy to the end
MANY = 10  # participants of small networks that stacking has to speed up; fewer are shown, too
IMAGE = [3, 32, 32]
Numbers = dict[str, Any]


def measure(session: Session) -> Section:
    """All comparisons, each in processes of its own."""
    quick = session.quick
    session.say("rounds of LeNet64 and the bare network, in turns")
    rounds = task("rounds", looks=1 if quick else 9, steps=2 if quick else STEPS)
    session.say("rounds of LeNet64 on Ray and in processes, in turns")
    placed = task("placed", looks=1 if quick else 9, steps=2 if quick else STEPS)
    session.say("rounds of Flower, pfl-research and ours, in turns")
    others = frameworks.measure(looks=1 if quick else 5, quick=quick)
    session.say("clients stacked and one by one")
    stacked = task("stacked", looks=2 if quick else 15)
    session.say("FedSAM and FedAvg")
    sam = task("sam", looks=2 if quick else 9)
    crowds = {}
    for clients in (100, 10_000) if quick else (100, 100_000, 1_000_000):
        session.say(f"{clients:,} clients")
        crowds[clients] = task("crowd", clients=clients, examples=10_000 if quick else 1_000_000)
    parts = [_rounds(rounds, 2 if quick else STEPS), _placed(placed), frameworks.judge(others)]
    parts += [_stacked(stacked), _sam(sam), _crowds(crowds)]
    notes = [
        session.conditions,
        "medians; everything that is compared was measured in turns, so a busy machine slows both sides alike",
        "bare network: forward and backward on the same batches, nothing else",
    ]
    return Section("Training", notes, [table for table, _ in parts], [one for _, some in parts for one in some])


def _rounds(found: Numbers, steps: int) -> tuple[Table, list[Target]]:
    raw = {name: rate for name, rate in found.items() if name.startswith("bare")}
    best = max(raw.values())
    rows = [[name, f"{rate:.0f}", f"{rate / best:.0%}"] for name, rate in found.items()]
    share = found[f"{EVEN} clients"] / best
    target = Target(
        "rounds, LeNet64",
        f"90 % of the raw forward+backward throughput, {EVEN} clients",
        f"{share:.0%}; {found[f'{CLIENTS} clients'] / best:.0%} with {CLIENTS} "
        f"({CLIENTS} whole clients on {CORES} cores cannot exceed {CLIENTS / EVEN:.0%})",
        share >= 0.9,
    )
    return Table(f"Rounds of {steps} steps of {BATCH} images", ["", "images/s", "of raw"], rows), [target]


def _placed(found: Numbers) -> tuple[Table, list[Target]]:
    ratio = found["ray"] / found["processes"]
    rows = [[name, f"{1000 * seconds:.0f}"] for name, seconds in found.items()]
    target = Target("Ray on one machine, LeNet64", "at most 1.10x processes", f"{ratio:.2f}x", ratio <= 1.1)
    return Table(f"Rounds of {EVEN} clients, {CORES} workers", ["", "ms a round"], rows), [target]


def _stacked(found: Numbers) -> tuple[Table, list[Target]]:
    rows, targets = [], []
    for name, one in found.items():
        ratio = one["serial"] / one["vmap"]
        rows.append([name, f"{1000 * one['serial']:.1f}", f"{1000 * one['vmap']:.1f}", f"{ratio:.2f}x"])
        if one["participants"] >= MANY:
            targets.append(Target(f"stacked, {name}", "2x the serial loop", f"{ratio:.2f}x", ratio >= 2))
    return Table("Stacked clients, digits CNN, one thread", ["", "serial ms", "vmap ms", "faster"], rows), targets


def _sam(found: Numbers) -> tuple[Table, list[Target]]:
    rows, targets = [], []
    for name, one in found.items():
        ratio = one["fedsam"] / one["fedavg"]
        rows.append([name, f"{1000 * one['fedavg']:.1f}", f"{1000 * one['fedsam']:.1f}", f"{ratio:.2f}x"])
        targets.append(Target(f"FedSAM, {name}", "at most 2.1x FedAvg", f"{ratio:.2f}x", ratio <= 2.1))
    return Table("FedSAM and FedAvg, one process", ["", "FedAvg ms", "FedSAM ms", "ratio"], rows), targets


def _crowds(found: dict[int, Numbers]) -> tuple[Table, list[Target]]:
    rows = [
        [f"{clients:,}", f"{1000 * one['seconds']:.1f}", f"{one['peak'] / 2**20:.0f}", f"{one['setup']:.1f}"]
        for clients, one in found.items()
    ]
    few, *many = found.values()
    targets = []
    for clients, one in zip(list(found)[1:], many, strict=True):
        times, room = one["seconds"] / few["seconds"], one["peak"] / few["peak"]
        wanted = "time and memory of 100, within a quarter"
        targets.append(Target(f"{clients:,} clients", wanted, f"{times:.2f}x, {room:.2f}x", max(times, room) <= 1.25))
    title = "10 of many clients a round, SCAFFOLD, digits CNN, the same data"
    return Table(title, ["clients", "ms a round", "peak MB", "set-up s"], rows), targets


def task(name: str, **arguments: Any) -> Numbers:
    """Run one of TASKS in a fresh process."""
    return fresh("tests.benchmarks.training", name, arguments)


def in_turns(
    looks: int, ways: dict[str, Callable[[], object]], clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median seconds of each way, all of them once in every look; the first look warms up and is left out.

    Where one thread of this process does all the work, processor time says the same as a watch, but others on the
    machine disturb it less.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(looks + 1):
        for name, way in ways.items():
            start = clock()
            way()
            seconds[name].append(clock() - start)
    return {name: statistics.median(some[1:]) for name, some in seconds.items()}


def lenet64(clients: int, steps: int, algorithm: str = "fedavg") -> Numbers:
    """Settings of rounds in which every client takes `steps` steps of BATCH images and nothing is evaluated."""
    return {
        "data": {"name": "synthetic", "examples": clients * steps * BATCH, "test_examples": 0, "shape": IMAGE},
        "model": {"name": "lenet64"},
        "partition": {"clients": clients},
        "algorithm": {"name": algorithm},
        "local": {"batch_size": BATCH},
        "rounds": {"count": 1000, "participants": clients},
        "evaluation": {"every": 1000},
    }


def measure_rounds(*, looks: int, steps: int) -> Numbers:
    """Images per second of rounds in worker processes, and of the bare network in every way of using the cores."""
    import torch

    from training import config
    from training.engine.federation import Federation
    from training.executors.processes import Processes

    ways: dict[str, Callable[[], object]] = {}
    images: dict[str, int] = {}
    executors = []
    for clients in sorted({CLIENTS, EVEN}):
        federation = Federation(config.validate(lenet64(clients, steps)))
        executors.append(Processes(federation.trainer, CORES))
        state = federation.begin()
        name = f"{clients} clients"
        ways[name] = lambda f=federation, s=state, e=executors[-1]: f.advance(s, e)  # type: ignore[misc]
        images[name] = clients * steps * BATCH
    crew = Crew(CORES, lenet64(CLIENTS, steps))
    alone = Bare(lenet64(CLIENTS, steps))
    torch.set_num_threads(CORES)
    for layout in ("NCHW", "channels_last"):
        ways[f"bare, {CORES} processes, {layout}"] = lambda layout=layout: crew.work(layout)  # type: ignore[misc]
        ways[f"bare, {CORES} threads, {layout}"] = lambda layout=layout: alone.work(layout, 0, 1)  # type: ignore[misc]
    seconds = in_turns(looks, ways, time.perf_counter)
    for executor in executors:
        executor.close()
    crew.close()
    return {name: images.get(name, CLIENTS * steps * BATCH) / one for name, one in seconds.items()}


def measure_placed(*, looks: int, steps: int) -> Numbers:
    """Seconds of a round in worker processes and on Ray actors, both of this machine."""
    from training import config
    from training.engine.federation import Federation
    from training.executors.processes import Processes
    from training.executors.ray_executor import Ray
    from training.executors.ray_pool import Cluster, RayPool

    federation = Federation(config.validate(lenet64(EVEN, steps)))
    state = federation.begin()
    executors = [Processes(federation.trainer, CORES), Ray(federation.trainer, RayPool(Cluster(), CORES))]
    ways = {one.name: lambda one=one: federation.advance(state, one) for one in executors}
    for way in ways.values():
        way()  # until all workers have started
    seconds = in_turns(looks, ways, time.perf_counter)
    for executor in executors:
        executor.close()
    return seconds


class Bare:
    """The network alone: forward and backward on the batches of a round, made beforehand."""

    def __init__(self, settings: Numbers):
        from tests.benchmarks.problem import FORMATS
        from training import config
        from training.engine.federation import Federation

        trainer = Federation(config.validate(settings)).trainer
        batches = [
            trainer.load_batch(chosen, client, 0, step)
            for client in range(len(trainer.client_indices))
            for step, chosen in enumerate(trainer.draw_batches(client, 0))
        ]
        self.model, self.formats = trainer.model.train(), FORMATS
        self.batches = {
            name: [(inputs.contiguous(memory_format=layout), targets) for inputs, targets in batches]
            for name, layout in FORMATS.items()
        }

    def work(self, layout: str, first: int, stride: int) -> None:
        """Every stride-th batch from the first on."""
        import torch

        self.model.to(memory_format=self.formats[layout])  # type: ignore[call-overload]
        weights = list(self.model.parameters())
        for inputs, targets in self.batches[layout][first::stride]:
            torch.autograd.grad(torch.nn.functional.cross_entropy(self.model(inputs), targets), weights)


class Crew:
    """Bare networks in processes of one thread each, which share the batches of a round."""

    def __init__(self, size: int, settings: Numbers):
        from multiprocessing import get_context

        context = get_context("spawn")
        self.pipes = []
        for place in range(size):
            ours, theirs = context.Pipe()
            context.Process(target=_labour, args=(theirs, settings, place, size), daemon=True).start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            pipe.recv()

    def work(self, layout: str) -> None:
        for pipe in self.pipes:
            pipe.send(layout)
        for pipe in self.pipes:
            pipe.recv()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def _labour(pipe: Any, settings: Numbers, place: int, size: int) -> None:
    import torch

    torch.set_num_threads(1)
    bare = Bare(settings)
    pipe.send("ready")
    while (layout := pipe.recv()) is not None:
        bare.work(layout, place, size)
        pipe.send("done")


def measure_stacked(*, looks: int) -> Numbers:
    """Seconds of a round with clients one by one and stacked, in this process."""
    from training import config
    from training.engine.federation import Federation
    from training.executors.serial import Serial
    from training.executors.stacked import Stacked

    quiet = ("rounds.count=1000", "evaluation.every=1000")
    small = ("partition.clients=100", "local.batch_size=10", "local.epochs=5")
    found: Numbers = {}
    for name, overrides in {
        "5 of 10 clients, batches of 32": (),  # the recipe as it is shipped
        "10 of 100 clients, batches of 10": (*small, "rounds.participants=10"),  # as in McMahan et al. 2017
        "50 of 100 clients, batches of 10": (*small, "rounds.participants=50"),
    }.items():
        federation = Federation(config.load("digits_fedavg", (*quiet, *overrides))[0])
        state, serial, vmap = federation.begin(), Serial(federation.trainer), Stacked(federation.trainer)
        seconds = in_turns(
            looks,
            {
                "serial": lambda f=federation, s=state, e=serial: f.advance(s, e),  # type: ignore[misc]
                "vmap": lambda f=federation, s=state, e=vmap: f.advance(s, e),  # type: ignore[misc]
            },
        )
        found[name] = {**seconds, "participants": federation.recipe.rounds.participants}
    return found


def measure_sam(*, looks: int) -> Numbers:
    """Seconds of a round of FedAvg and FedSAM, in this process."""
    from training import config
    from training.engine.federation import Federation
    from training.executors.serial import Serial

    found: Numbers = {}
    digits = {**lenet64(2, 4), "data": {"name": "digits"}, "model": {"name": "digits_cnn"}, "partition": {"clients": 5}}
    for name, settings in {"LeNet64": lenet64(2, 2), "digits CNN": digits}.items():
        ways: dict[str, Callable[[], object]] = {}
        for algorithm in ("fedavg", "fedsam"):
            federation = Federation(config.validate({**settings, "algorithm": {"name": algorithm}}))
            state, executor = federation.begin(), Serial(federation.trainer)
            ways[algorithm] = lambda f=federation, s=state, e=executor: f.advance(s, e)  # type: ignore[misc]
        found[name] = in_turns(looks, ways)
    return found


def measure_crowd(*, clients: int, examples: int) -> Numbers:
    """Seconds of a round and peak memory with so many clients, of which ten take part."""
    from tests.benchmarks.worker import peak_bytes
    from training import config
    from training.engine.federation import Federation
    from training.executors.serial import Serial

    settings = {
        "data": {"name": "synthetic", "examples": max(examples, clients), "test_examples": 0},
        "partition": {"clients": clients},
        "algorithm": {"name": "scaffold"},
        "local": {"batch_size": 1, "steps": 5},  # the same work with any number of clients
        "rounds": {"count": 1000, "participants": 10},
        "evaluation": {"every": 1000},
    }
    start = time.perf_counter()
    federation = Federation(config.validate(settings))
    setup = time.perf_counter() - start
    state, executor, seconds = federation.begin(), Serial(federation.trainer), []
    for _ in range(31):
        start = time.process_time()
        state, _, _ = federation.advance(state, executor)
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds[1:]), "setup": setup, "peak": peak_bytes()}


TASKS: dict[str, Callable[..., Numbers]] = {
    "rounds": measure_rounds,
    "placed": measure_placed,
    "stacked": measure_stacked,
    "sam": measure_sam,
    "crowd": measure_crowd,
}

if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))

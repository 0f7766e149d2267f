"""The limit: images per second through the bare network, over chunk sizes, memory formats and ways to use the cores."""

from __future__ import annotations

import statistics
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks import problem
from tests.benchmarks.processes import CORES

WAYS = {f"{layout}, chunks of {size}": (layout, size) for layout in problem.FORMATS for size in (32, 64, 128, 256)}
ROUNDS = 3


def throughput(folder: Path, *, count: int, seconds: float, only: str | None = None) -> dict[str, Any]:
    """The best way found, and the rate of each (or `only` of the one named): medians of looks of `seconds` each."""
    rates: dict[str, float] = {}
    for processes, threads in sorted({(1, CORES), (CORES, 1)}):
        names = {f"{processes} x {threads} threads, {way}": way for way in WAYS}
        ways = [way for name, way in names.items() if only in (None, name)]
        if not ways:
            continue
        context = get_context("spawn")  # a forked child would inherit a thread pool that does not work there
        barrier, queue = context.Barrier(processes), context.Queue()
        children = [
            context.Process(target=_measure, args=(folder, count, threads, seconds, ways, barrier, queue))
            for _ in range(processes)
        ]
        for child in children:
            child.start()
        parts: list[dict[str, list[float]]] = [queue.get() for _ in children]
        for child in children:
            child.join()
        for name, way in names.items():
            if way in ways:
                looks = [sum(look) for look in zip(*(part[way] for part in parts), strict=True)]
                rates[name] = statistics.median(looks)
    best = max(rates, key=rates.__getitem__)
    return {"rate": rates[best], "way": best, "rates": rates}


def _measure(folder: Path, count: int, threads: int, seconds: float, ways: list[str], barrier: Any, queue: Any) -> None:
    torch.set_num_threads(threads)
    given = problem.load(folder).first(count)
    looks: dict[str, list[float]] = {way: [] for way in ways}
    with torch.inference_mode():
        for _ in range(3):
            # glibc returns a block to the system until it has seen a larger one freed; without this a look at small
            # chunks alone pays page faults for every layer and shows half of the rate
            given.model(given.inputs[:128])
        for _ in range(ROUNDS):
            for way in ways:
                layout, size = WAYS[way]
                chunks = torch.split(given.inputs.contiguous(memory_format=problem.FORMATS[layout]), size)
                given.model(chunks[0])
                barrier.wait()
                start, images, index = time.perf_counter(), 0, 0
                while time.perf_counter() - start < seconds:
                    chunk = chunks[index % len(chunks)]
                    given.model(chunk)
                    index, images = index + 1, images + len(chunk)
                looks[way].append(images / (time.perf_counter() - start))
    queue.put(looks)

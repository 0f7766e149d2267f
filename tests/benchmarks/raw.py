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

CHUNKS = (32, 64, 128, 256)
ROUNDS = 3


def throughput(folder: Path, *, count: int, seconds: float) -> dict[str, Any]:
    """The best way found, and the rate of each: medians of `ROUNDS` looks of `seconds` each."""
    rates: dict[str, float] = {}
    for processes, threads in sorted({(1, CORES), (CORES, 1)}):
        context = get_context("spawn")  # a forked child would inherit a thread pool that does not work there
        barrier, queue = context.Barrier(processes), context.Queue()
        children = [
            context.Process(target=_measure, args=(folder, count, threads, seconds, barrier, queue))
            for _ in range(processes)
        ]
        for child in children:
            child.start()
        parts: list[dict[str, list[float]]] = [queue.get() for _ in children]
        for child in children:
            child.join()
        for way in parts[0]:
            looks = [sum(look) for look in zip(*(part[way] for part in parts), strict=True)]
            rates[f"{processes} x {threads} threads, {way}"] = statistics.median(looks)
    best = max(rates, key=rates.__getitem__)
    return {"rate": rates[best], "way": best, "rates": rates}


def _measure(folder: Path, count: int, threads: int, seconds: float, barrier: Any, queue: Any) -> None:
    torch.set_num_threads(threads)
    given = problem.load(folder).first(count)
    looks: dict[str, list[float]] = {}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, layout in problem.FORMATS.items():
                for size in CHUNKS:
                    chunks = torch.split(given.inputs.contiguous(memory_format=layout), size)
                    given.model(chunks[0])
                    barrier.wait()
                    start, images = time.perf_counter(), 0
                    while time.perf_counter() - start < seconds:
                        chunk = chunks[images // size % len(chunks)]
                        given.model(chunk)
                        images += len(chunk)
                    looks.setdefault(f"{name}, chunks of {size}", []).append(images / (time.perf_counter() - start))
    queue.put(looks)

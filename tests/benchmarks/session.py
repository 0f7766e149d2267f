"""One run of the benchmarks: where its problem lives, and under which conditions it measures."""

from __future__ import annotations

import datetime
import platform
import time
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import CORES, call


@dataclass(frozen=True)
class Session:
    folder: Path
    quick: bool
    started: float
    networks: tuple[str, ...] = ()  # those that the group eigen measures

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.started:6.0f} s] {line}", flush=True)

    def task(self, name: str, **arguments: Any) -> dict[str, Any]:
        return call(name, self.folder, **arguments)

    def on(self, network: str, count: int) -> Session:
        """The same session with another network, trained now, in a folder of its own."""
        folder = self.folder / network
        folder.mkdir(exist_ok=True)
        other = replace(self, folder=folder)
        made = other.task("create", count=count, network=network)
        self.say(f"{network}: {made['parameters']:,} parameters, loss {made['loss']:.4f}, error {made['error']:.1%}")
        return other

    @property
    def conditions(self) -> str:
        """Date, machine and versions, for whoever reads the numbers later."""
        quick = "QUICK RUN, NOT A MEASUREMENT; " if self.quick else ""
        return (
            f"{quick}{datetime.date.today()}, {CORES} cores ({_processor()}), {CORES} threads each, "
            f"torch {version('torch')}, Python {platform.python_version()}"
        )

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The bare network's forward throughput on this machine, now."""
        self.say("raw forward throughput")
        return self.task("raw", count=512, seconds=0.2 if self.quick else 1.0)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()

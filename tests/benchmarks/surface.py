"""A loss surface around the model: ours against loss-landscapes and against the bare network."""

from __future__ import annotations

import statistics
from typing import Any

from tests.benchmarks.processes import call
from tests.benchmarks.session import Session
from tests.benchmarks.tables import Section, Table, Target

RUNS: tuple[tuple[str, dict[str, str]], ...] = (
    ("ours, surface", {}),
    ("loss-landscapes", {"layout": "NCHW"}),
    ("loss-landscapes", {"layout": "channels_last"}),
)
COLUMNS = ["", "seconds", "images/s", "of raw", "ours is", "set-up s", "peak MB", "error", "setting"]


def measure(session: Session) -> Section:
    # a point costs the same in any grid, so a small one gives the throughput of 51 x 51
    count, steps = (128, 5) if session.quick else (512, 11)
    images = steps * steps * count
    way = session.raw["way"]
    looks: list[list[dict[str, Any]]] = [[] for _ in RUNS]
    raws: list[float] = []
    errors: list[float] = []
    for _ in range(1 if session.quick else 5):  # in turns, so that a change of the machine's mood meets everyone alike
        raws.append(session.task("raw", count=count, seconds=0.2 if session.quick else 2.0, only=way)["rate"])
        for (name, setting), seen in zip(RUNS, looks, strict=True):
            numbers = call(name, session.folder, count=count, steps=steps, **setting)
            if not seen:  # every look gives the same answer
                errors.append(_error(numbers, session.task("losses", count=count)))
            seen.append(numbers)
            session.say(f"{name} {setting}: {images / numbers['seconds']:.0f} images/s, bare network {raws[-1]:.0f}")
    rate = statistics.median(raws)
    runs = [
        (name, setting, sorted(seen, key=lambda numbers: float(numbers["seconds"]))[len(seen) // 2])
        for (name, setting), seen in zip(RUNS, looks, strict=True)
    ]
    ours = runs[0][2]["seconds"]
    rows = [
        [
            name,
            f"{numbers['seconds']:.2f}",
            f"{images / numbers['seconds']:.0f}",
            f"{images / numbers['seconds'] / rate:.0%}",
            "" if name.startswith("ours") else f"{numbers['seconds'] / ours:.1f}x faster",
            f"{numbers['setup']:.2f}",
            f"{numbers['peak'] / 2**20:.0f}",
            f"{error:.0e}",
            ", ".join(setting.values()),
        ]
        for (name, setting, numbers), error in zip(runs, errors, strict=True)
    ]
    rows.append(["bare network", "", f"{rate:.0f}", "100%", "", "", "", "", way])
    share = images / ours / rate
    fastest = min(numbers["seconds"] for _, _, numbers in runs[1:]) / ours
    notes = [
        session.conditions,
        f"{steps} x {steps} points of filter-normalised random directions, {count} images at each",
        "error: relative, against float64, of the centre (ours: and the four corners); "
        "loss-landscapes never evaluates the centre",
    ]
    targets = [
        Target("surface", "90 % of the raw forward throughput", f"{share:.0%}", share >= 0.9),
        Target("surface", "2x loss-landscapes", f"{fastest:.2f}x", fastest >= 2),
    ]
    return Section("Surface", notes, [Table(f"{steps} x {steps} surface", COLUMNS, rows)], targets)


def _error(numbers: dict[str, Any], truth: dict[str, Any]) -> float:
    found, true = [numbers["centre"], *numbers["points"]], [truth["centre"], *truth["points"]]
    return max(abs(float(a) - b) / abs(b) for a, b in zip(found, map(float, true), strict=True))

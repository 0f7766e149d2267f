"""A loss surface around the model: ours against loss-landscapes and against the bare network."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.processes import call
from tests.benchmarks.session import Session
from tests.benchmarks.tables import Section, Table, Target

COLUMNS = ["", "seconds", "images/s", "of raw", "ours is", "set-up s", "peak MB", "error", "setting"]


def measure(session: Session) -> Section:
    # a point costs the same in any grid, so a small one gives the throughput of 51 x 51
    count, steps = (128, 5) if session.quick else (512, 11)
    images = steps * steps * count
    runs: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for name, setting in (
        ("ours, surface", {}),
        ("loss-landscapes", {"layout": "NCHW"}),
        ("loss-landscapes", {"layout": "channels_last"}),
    ):
        numbers = call(name, session.folder, count=count, steps=steps, repeats=1 if session.quick else 3, **setting)
        numbers["error"] = _error(numbers, session.task("losses", count=count))
        runs.append((name, setting, numbers))
        session.say(f"{name} {setting}: {images / numbers['seconds']:.0f} images/s")
    raw = session.raw
    ours = runs[0][2]["seconds"]
    rows = [
        [
            name,
            f"{numbers['seconds']:.2f}",
            f"{images / numbers['seconds']:.0f}",
            f"{images / numbers['seconds'] / raw['rate']:.0%}",
            "" if name.startswith("ours") else f"{numbers['seconds'] / ours:.1f}x faster",
            f"{numbers['setup']:.2f}",
            f"{numbers['peak'] / 2**20:.0f}",
            f"{numbers['error']:.0e}",
            ", ".join(setting.values()),
        ]
        for name, setting, numbers in runs
    ]
    rows.append(["bare network", "", f"{raw['rate']:.0f}", "100%", "", "", "", "", raw["way"]])
    share = images / ours / raw["rate"]
    fastest = min(numbers["seconds"] for name, _, numbers in runs[1:]) / ours
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

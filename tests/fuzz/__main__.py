"""python -m tests.fuzz: give every reader thousands of hostile files; print what became of them, keep what failed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.runner import Fault, Task, fuzz

KEPT = 20  # failing inputs of a format that are written to disk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="for every format")
    parser.add_argument("--format", action="append", metavar="NAME", help="one format; may be repeated (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to make one again")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--failures", type=Path, default=Path("runs/fuzz"), help="folder for inputs that failed")
    options = parser.parse_args()
    from tests.fuzz.formats import FORMATS

    unknown = [name for name in options.format or [] if name not in FORMATS]
    if unknown:
        parser.error(f"unknown format {', '.join(unknown)}; choose from {', '.join(FORMATS)}")
    faults: list[Fault] = []
    for name in options.format or FORMATS:
        start = time.perf_counter()
        task = Task(name, options.seed, options.first, options.first + options.inputs)
        tally = fuzz([task], options.workers)[name]
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.counts.items()))
        print(f"{name}: {options.inputs} inputs in {time.perf_counter() - start:.0f} s: {counts}", flush=True)
        for fault in tally.faults:
            print(f"  {fault}", flush=True)
        faults += tally.faults[:KEPT]
    if faults:
        keep(faults, options.failures)
        print(f"{len(faults)} inputs that failed are in {options.failures}")
    return 1 if faults else 0


def keep(faults: list[Fault], folder: Path) -> None:
    """Write failing inputs to disk, one folder each, with what was wrong."""
    from tests.fuzz.child import make_bench, make_case

    with tempfile.TemporaryDirectory(prefix="fuzz-") as aside:
        benches = {name: make_bench(name, Path(aside)) for name in {fault.format for fault in faults}}
        for fault in faults:
            case = make_case(fault.format, fault.seed, fault.index, benches[fault.format])
            place = folder / f"{fault.format}-{fault.seed}-{fault.index}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "about.txt").write_text(f"{fault}\nwords: {case.words!a}\nforged: {case.forged}\n")
            for name, data in case.files.items():
                (place / name.replace("/", "__")).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.benchmarks [GROUP ...] [--quick] [--network NAME ...]: measure, print, and write results.md."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from tests.benchmarks import eigen, studies, surface, tables, training
from tests.benchmarks.processes import prepare_peers
from tests.benchmarks.session import Session

IMAGES = 512  # the most that any group looks at
GROUPS: dict[str, Callable[[Session], Iterable[tables.Section]]] = {
    "eigen": eigen.measure,
    "surface": lambda session: [surface.measure(session)],
    "training": lambda session: [training.measure(session)],
    "studies": lambda session: [studies.measure(session)],
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; all unless named")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check the harness; writes no results")
    parser.add_argument(
        "--network",
        action="append",
        choices=eigen.NETWORKS,
        help="of the group eigen; may be given again; all unless named",
    )
    options = parser.parse_args()
    unknown = [name for name in options.groups if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    prepare_peers()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        networks = tuple(options.network or eigen.NETWORKS)
        session = Session(Path(folder), options.quick, time.monotonic(), networks)
        session = session.on("LeNet64", IMAGES)
        console = Console(width=150)
        for name in options.groups or GROUPS:
            for section in GROUPS[name](session):
                tables.show(section, console)
                if not options.quick:
                    tables.record(section)  # at once: what comes later may be interrupted


if __name__ == "__main__":
    main()

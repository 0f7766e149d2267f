"""Pack the answers of finished runs, or unpack them again.

python -m reports.findings pack papers docs/findings
python -m reports.findings unpack docs/findings
"""

from __future__ import annotations

import sys
from pathlib import Path

from reports.findings.sharing import ARCHIVE, pack_runs, unpack_runs


def main() -> None:
    """Pack the runs of every scale of a folder of `landscape reproduce` into another, or unpack what a folder holds."""
    match sys.argv[1:]:
        case ["pack", source, target]:
            for runs in sorted(Path(source).glob("*/runs")):
                names = pack_runs(runs, Path(target) / runs.parent.name / ARCHIVE)
                print(f"{runs}: {len(names)} finished runs packed")
        case ["unpack", folder]:
            for archive in sorted(Path(folder).glob(f"*/{ARCHIVE}")):
                unpack_runs(archive, archive.parent / "runs")
        case _:
            raise SystemExit("write: python -m reports.findings pack FROM TO, or unpack FOLDER")


if __name__ == "__main__":
    main()

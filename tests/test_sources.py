"""The source distribution holds what tests and documentation are made from."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools._distutils.filelist import FileList

ROOT = Path(__file__).parent.parent
MADE = (
    "docs/generated/",
    "docs/gallery/",
    "docs/findings/digits/runs/",
    "docs/findings/small/runs/",
    "docs/sg_execution",
)


def list_sources() -> set[str]:
    """The files that the lines of MANIFEST.in select."""
    files = FileList()
    files.set_allfiles([path.relative_to(ROOT).as_posix() for path in _walk(ROOT)])
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    return set(files.files)


def _walk(folder: Path) -> list[Path]:
    skipped = {"__pycache__", "build", "dist", "runs"}
    found = []
    for top, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and (one not in skipped or Path(top) != ROOT)]
        found += [Path(top) / name for name in names if not name.endswith((".pyc", ".pyo"))]
    return found


def test_documentation_tests_and_pictures_are_in_it() -> None:
    listed = list_sources()
    folders = ("docs", "tests", "reports/gallery")
    wanted = {path.relative_to(ROOT).as_posix() for name in folders for path in _walk(ROOT / name)}
    wanted = {name for name in wanted if not name.startswith(MADE)}
    assert {"docs/conf.py", "docs/examples/pinn.py", "docs/flower/run/adopt.toml", "tests/test_sources.py"} <= wanted
    assert wanted <= listed
    assert not any(name.startswith(MADE) for name in listed)
    assert {"CHANGELOG.md", "CITATION.cff", "SECURITY.md", "Makefile", "constraints.txt"} <= listed

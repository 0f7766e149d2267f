"""The conformance suite on a device without a GPU: each of its files in a process that has the test device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device import testdevice
from tests.device.build import ROOT, NoCompilerError, build

FOLDER = Path(__file__).parent
FILES = sorted(path.name for path in (FOLDER / "conformance").glob("test_*.py"))


@pytest.fixture(scope="session")
def library() -> Path:
    """The compiled test device."""
    try:
        return build()
    except NoCompilerError as error:
        pytest.skip(str(error))


def run_suite(library: Path, name: str, *options: str, float64: bool = True) -> None:
    path = os.pathsep.join([str(FOLDER / "preload"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {testdevice.LIBRARY: str(library), testdevice.FLOAT64: str(int(float64)), "PYTHONPATH": path}
    own |= {"LANDSCAPE_TEST_DEVICE": testdevice.NAME, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, *options, str(FOLDER / "conformance" / name)],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    assert " passed" in done.stdout or "." in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_conformance(name, library):
    run_suite(library, name)


def test_a_device_without_float64(library):
    run_suite(library, "test_objectives.py", "-k", "mlp or sharpness or surfaces or weights", float64=False)

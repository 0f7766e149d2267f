"""`make gpu`: test and time a device, and write one file with the results: `python -m tests.device cuda`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import torch

from landscape.runtime.device import CPU, describe_device, find_device
from landscape.runtime.memory import memory_of
from tests.device import benchmarks

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "gpu-results.json"


def main(name: str) -> int:
    """Test and time the device of this name; returns the exit code."""
    try:
        device = find_device(name)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results: dict[str, object] = {
        "device": {**describe_device(device), "memory": memory_of(device).total},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "tests": run_tests(name),
    }
    print("measuring times, a few minutes ...")
    results["times"] = {str(device): benchmarks.measure(device)}
    if device != CPU:
        results["times"] = {**results["times"], "cpu": benchmarks.measure(CPU)}  # type: ignore[dict-item]
    Path(RESULTS).write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {RESULTS}: please send this file back")
    return 0 if not results["tests"]["failed"] else 1  # type: ignore[index]


def run_tests(name: str) -> dict[str, object]:
    """Run the conformance suite; returns how many tests passed, and what failed with torch's own words."""
    report = Path("build") / "gpu-tests.xml"
    report.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:xdist", f"--junitxml={report}"]
    environment = {**os.environ, "LANDSCAPE_TEST_DEVICE": name, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "tests/device/conformance"], cwd=ROOT, env=environment, check=False)
    cases = list(ElementTree.parse(ROOT / report).iter("testcase"))
    failed = {
        str(case.get("name")): (problem.text or "")[-4000:]
        for case in cases
        for problem in (*case.findall("failure"), *case.findall("error"))
    }
    skipped = [str(case.get("name")) for case in cases if case.find("skipped") is not None]
    return {"passed": len(cases) - len(failed) - len(skipped), "failed": failed, "skipped": skipped}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "cuda"))

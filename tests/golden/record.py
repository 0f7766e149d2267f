"""Fingerprints of runs and of results, and how far two of them are apart."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.golden.runs import GONE, RECIPES, study_all, train_all

PATH = Path(__file__).with_name("golden.json")
LISTED = 64  # a variable of more values is summarised
SAME, FLOOR = 1e-12, 1e-14  # relative error on the same machine; absolute one, as a share of the largest value
NOISE = 1e-15  # and whatever the values: what should be zero, as the cosine of two eigenvectors, is a rounding error
# of weights on another CPU. Runs in float64 begin with weights that torch drew in float32, which already differ by
# 2e-9 of their norm between AVX-512 and none
ELSEWHERE = {"float64": 1e-7, "float32": 1e-3}
STUDIES_ELSEWHERE = 1e-3
SECONDS = ("seconds",)  # variables that no two trainings have in common
# t-SNE magnifies rounding errors without bound; how many products or steps an iteration takes may hang on one of them,
# and so do residuals of iterations that ended below their tolerance
TSNE = ("tsne", "divergence")
UNSTABLE = (*TSNE, "products", "evaluations", "residual", "smallest_residual")


def machine() -> dict[str, str]:
    """What the last digits depend on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    lines = [re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE) for key in ("model name", "cpu family", "model")]
    cpu = ", ".join(line[1] for line in lines if line)
    return {"cpu": cpu, "capability": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}


def pinned() -> bool:
    """Whether the libraries that t-SNE calls, down to their linear algebra, are those of constraints.txt."""
    lines = (PATH.parents[2] / "constraints.txt").read_text().splitlines()
    return all(f"{name}=={version(name)}" in lines for name in ("numpy", "scipy", "scikit-learn"))


def projection(values: NDArray[Any]) -> float:
    """Along a unit vector that only the number of values decides; summed exactly."""
    key = int.from_bytes(hashlib.sha256(f"golden {len(values)}".encode()).digest()[:8], "little")
    vector = np.random.Generator(np.random.PCG64(key)).random(len(values)) - 0.5
    length = math.sqrt(math.fsum(vector * vector))
    return math.fsum(values * (vector / length)) if len(values) else 0.0


def of_run(path: Path) -> dict[str, Any]:
    """The files of every checkpoint: checkpoint/file -> its SHA-256, and norm and projection of every tensor."""
    found = {}
    for file in sorted(path.glob("checkpoints/*/*.safetensors")):
        tensors = {}
        for name, tensor in sorted(load_file(file).items()):
            values = tensor.astype(np.float64).ravel()
            tensors[name] = [math.sqrt(math.fsum(values * values)), projection(values)]
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        found[f"{file.parent.name}/{file.name}"] = {"sha256": digest, "tensors": tensors}
    return found


def of_values(array: NDArray[Any]) -> Any:
    """The finite values in order, or a summary of many; the set of words. Shape and padding do not matter."""
    if array.dtype.kind in "OSUT":
        return sorted({one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel().tolist()})
    values = array.astype(np.float64).ravel()
    values = np.sort(values[np.isfinite(values)])
    if len(values) <= LISTED:
        return values.tolist()
    return {
        "count": len(values),
        "min": float(values[0]),
        "max": float(values[-1]),
        "sum": math.fsum(values),
        "squares": math.fsum(values * values),
        "projection": projection(values),
    }


def record(folder: Path) -> dict[str, Any]:
    """Train, ask, and put down what came out; `folder` is for the runs."""
    runs = train_all(folder / "runs")
    answers = study_all(runs, folder / "answers")
    return {
        "machine": machine(),
        "runs": {name: of_run(path) for name, path in runs.items()},
        "studies": {
            case: {key: of_values(array) for key, array in sorted(values.items()) if last(key) not in SECONDS}
            for case, values in answers.items()
        },
    }


def last(key: str) -> str:
    """The variable of study/group/variable."""
    return key.rpartition("/")[2]


def load() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(PATH.read_text())
    return content


def write(content: Mapping[str, Any]) -> None:
    """One line for each tensor and variable, so that a difference can be read."""
    text = json.dumps(content, indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    PATH.write_text(text + "\n")


def differences(golden: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """What is not as it was, one line each."""
    same = golden["machine"] == found["machine"]
    for run, files in golden["runs"].items():
        tolerance = ELSEWHERE[RECIPES[run].get("dtype", "float64")]
        yield from (f"{run}/{line}" for line in _of_files(files, found["runs"].get(run, {}), tolerance, same))
    for case, values in golden["studies"].items():
        yield from (f"{case}: {line}" for line in _of_case(values, found["studies"].get(case, {}), same))


def _missing(golden: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} is missing" for name in golden if name not in found)
    yield from (f"{name} is new" for name in found if name not in golden)


def _of_files(golden: Mapping[str, Any], found: Mapping[str, Any], tolerance: float, same: bool) -> Iterator[str]:
    yield from _missing(golden, found)
    for name in (name for name in golden if name in found):
        old, new = golden[name], found[name]
        if same and old["sha256"] != new["sha256"]:
            yield f"{name}: SHA-256 {new['sha256'][:12]}, was {old['sha256'][:12]}"
        yield from (f"{name}: {line}" for line in _missing(old["tensors"], new["tensors"]))
        for tensor in (name for name in old["tensors"] if name in new["tensors"]):
            (norm, along), (new_norm, new_along) = old["tensors"][tensor], new["tensors"][tensor]
            # the vector has length one: an error of the tensor moves its projection by no more
            apart = max(abs(new_norm - norm), abs(new_along - along))
            if not apart <= (SAME if same else tolerance) * norm:
                yield f"{name}: tensor {tensor} is off by {apart:.1e}, its norm is {norm:.3g}"


def _of_case(golden: Mapping[str, Any], found: Mapping[str, Any], same: bool) -> Iterator[str]:
    yield from _missing({key: value for key, value in golden.items() if key not in GONE}, found)
    skipped = () if same and pinned() else TSNE if same else UNSTABLE
    for key in (key for key in golden if key in found):
        if last(key) not in skipped:
            line = _of_variable(golden[key], found[key], same)
            if line:
                yield f"{key}: {line}"


def _of_variable(old: Any, new: Any, same: bool) -> str:
    """What is different about a variable; nothing if it is as it was."""
    words = any(isinstance(one, list) and one and isinstance(one[0], str) for one in (old, new))
    if words or type(old) is not type(new):
        return "" if old == new else f"{new}, was {old}"
    counts = [len(one) if isinstance(one, list) else one["count"] for one in (old, new)]
    if counts[0] != counts[1]:
        return f"{counts[1]} finite values, were {counts[0]}"
    relative, floor = (SAME, FLOOR) if same else (STUDIES_ELSEWHERE, STUDIES_ELSEWHERE)
    if isinstance(old, list):
        floor = NOISE + floor * max(map(abs, old), default=0.0)
        wrong = [(a, b) for a, b in zip(old, new, strict=True) if not abs(a - b) <= relative * abs(a) + floor]
        return f"{len(wrong)} of {len(old)} values, such as {wrong[0][1]!r}, was {wrong[0][0]!r}" if wrong else ""
    length, extent = math.sqrt(old["squares"]), max(abs(old["min"]), abs(old["max"]))
    scales = {  # what an error of this share of all values does to each number
        "min": extent,
        "max": extent,
        "sum": length * math.sqrt(old["count"]),
        "squares": 2 * old["squares"],
        "projection": length,
    }
    off = [name for name, scale in scales.items() if not abs(old[name] - new[name]) <= relative * scale + NOISE]
    return "; ".join(f"{name} {new[name]!r}, was {old[name]!r}" for name in off)

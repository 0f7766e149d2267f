"""The child's side: python -m tests.benchmarks.worker NAME FOLDER ARGUMENTS, leaving answer.json in the folder."""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.benchmarks import problem
from tests.benchmarks.processes import CONTENDERS, CORES, TASKS


@dataclass(frozen=True)
class Answer:
    """What a contender found."""

    numbers: dict[str, Any]  # goes through JSON
    tensors: dict[str, Tensor]  # for the reference to check


Work = Callable[[], Answer]


def measure(
    contender: Callable[..., Work], folder: Path, *, count: int, repeats: int = 1, **setting: Any
) -> dict[str, Any]:
    """Set up once, work `repeats` times, and report the median."""
    given = problem.load(folder).first(count)
    _warm_up(given.first(problem.BATCH))
    start = time.perf_counter()
    work = contender(given, **setting)
    setup = time.perf_counter() - start
    seconds = []
    gc.collect()  # what imports and set-up left behind; a collection of it takes a tenth of a second, whoever it meets
    for _ in range(repeats):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    peak = peak_bytes()
    save_file({name: tensor.contiguous() for name, tensor in answer.tensors.items()}, folder / "answer.safetensors")
    return {"seconds": statistics.median(seconds), "setup": setup, "peak": peak, **answer.numbers}


def peak_bytes() -> int:
    """Most resident memory of this process. VmHWM, since on Linux ru_maxrss also remembers the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _warm_up(given: problem.Problem) -> None:
    """The first derivatives in a process cost seconds (kernels chosen, functorch loaded): pay them for everyone."""
    names = [name for name, _ in given.model.named_parameters()]
    values = tuple(given.model.parameters())

    def loss(*leaves: Tensor) -> Tensor:
        outputs = torch.func.functional_call(given.model, dict(zip(names, leaves, strict=True)), (given.inputs,))
        return functional.cross_entropy(outputs, given.targets)

    gradient = torch.autograd.grad(loss(*values), values, create_graph=True)
    torch.autograd.grad(gradient, values, [torch.ones_like(value) for value in values])
    detached = tuple(value.detach() for value in values)
    torch.func.jvp(torch.func.jacrev(loss, argnums=tuple(range(len(values)))), detached, detached)


def main() -> None:
    name, folder, arguments = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(CORES)
    function = resolve_name((CONTENDERS | TASKS)[name][1])
    with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative; peers leave the choice to their users
        numbers = measure(function, folder, **arguments) if name in CONTENDERS else function(folder, **arguments)
    (folder / "answer.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    main()

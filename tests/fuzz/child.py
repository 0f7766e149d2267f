"""The process in which readers meet hostile inputs: it may be short of memory, hang or crash, and the parent notices.

Tasks come as lines of JSON on standard input: [format, seed, first, last]. Answers go to standard output: one line of
JSON for every input after a line READY, [index, outcome, more, name of the reader], written when the input is done.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from tests.fuzz.cases import Bench, Case
from tests.fuzz.formats import FORMATS
from tests.fuzz.workspace import make_workspace

MEMORY = 2**30  # bytes beyond what the process has when it begins
READY = "ready\n"  # said before the inputs of a task
GROWTH = 2**28  # bytes that one input may take


def make_case(format: str, seed: int, index: int, bench: Bench) -> Case:
    """Input number `index`: the same one for the same numbers, whatever ran before."""
    return bench.format.case(random.Random(f"{seed} {format} {index}"))


def make_bench(format: str, folder: Path) -> Bench:
    """A sound directory for a format, and its readers."""
    place = folder / format
    make_workspace(place)
    return Bench(place, FORMATS[format](place))


def limit_memory() -> None:
    """Have an allocation fail that is absurdly large, instead of taking the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def peak() -> int:
    """The most memory that this process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the command prints them in a line; here they would be in the way
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a reader prints is not an answer
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        benches: dict[str, Bench] = {}
        for line in sys.stdin:
            format, seed, first, last = json.loads(line)
            if format not in benches:
                benches[format] = make_bench(format, Path(folder))
                limit_memory()
            answers.write(READY)
            answers.flush()
            for index in range(first, last):
                case = make_case(format, seed, index, benches[format])
                before = peak()
                outcome, more = benches[format].run(case)
                if peak() - before > GROWTH:
                    outcome, more = "memory", f"took {(peak() - before) >> 20} MB"
                answers.write(json.dumps([index, outcome, more, case.reader]) + "\n")
                answers.flush()


if __name__ == "__main__":
    main()

"""Compile the test device, once for every version of its source and of torch: `python -m tests.device.build`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("testdevice.cpp")


class NoCompilerError(RuntimeError):
    """There is nothing to compile the test device with."""


def build() -> Path:
    """The compiled test device; it is compiled now if that was not done before, which takes about a minute.

    Several processes may ask at once: one compiles, the others wait.
    """
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        raise NoCompilerError("the test device needs a C++ compiler (c++ or $CXX), and there is none")
    about = SOURCE.read_bytes() + f"{torch.__version__} {sys.version}".encode()
    folder = ROOT / "build" / f"testdevice-{hashlib.sha256(about).hexdigest()[:16]}"
    library = folder / "testdevice.so"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # not inside: torch has a lock of that name there
        if not (folder / "done").exists():
            # in a process of its own, so that what compiling imports and changes stays there
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            done = subprocess.run(
                [sys.executable, __file__, str(folder)],
                env={**os.environ, "PATH": path, "MAX_JOBS": "1"},
                capture_output=True,
                text=True,
            )
            if done.returncode != 0 or not library.exists():
                raise RuntimeError(f"the test device does not compile:\n{done.stdout}\n{done.stderr}")
            (folder / "done").touch()
    return library


def _compile(folder: str) -> None:
    from torch.utils import cpp_extension

    cpp_extension.load(
        "testdevice", [str(SOURCE)], extra_cflags=["-O1"], build_directory=folder, is_python_module=False, verbose=True
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _compile(sys.argv[1])
    else:
        print(build())

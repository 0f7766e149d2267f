"""What the system says about memory, with made-up /proc and /sys: plain machines, both kinds of control groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from landscape.runtime.machine import Machine, Memory

GB = 2**30
FIRST = "35 31 0:32 {root} {mount} rw,relatime - cgroup cgroup rw,memory"
SECOND = "41 31 0:38 {root} {mount} rw,relatime - cgroup2 cgroup2 rw"
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


def write(root: Path, path: str, text: str | int) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{text}\n")


@pytest.fixture(autouse=True)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine of 24 GB, as psutil would describe it."""
    found = SimpleNamespace(total=24 * GB, available=16 * GB)
    if "tmp_path" in request.fixturenames:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: found)
    return found


def machine(root: Path, *, own: str = "", mounts: str = "") -> Machine:
    write(root, "/proc/self/cgroup", own)
    write(root, "/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" + mounts)
    return Machine(root)


def group_1(root: Path, folder: str, limit: int, usage: int, cache: int = 0) -> None:
    write(root, f"{folder}/memory.limit_in_bytes", limit)
    write(root, f"{folder}/memory.usage_in_bytes", usage)
    write(root, f"{folder}/memory.stat", f"inactive_file 0\ntotal_inactive_file {cache}")


def group_2(root: Path, folder: str, limit: int | str, usage: int, cache: int = 0, high: int | str = "max") -> None:
    write(root, f"{folder}/memory.max", limit)
    write(root, f"{folder}/memory.high", high)
    write(root, f"{folder}/memory.current", usage)
    write(root, f"{folder}/memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 99")


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert machine(tmp_path).memory() == Memory(24 * GB, 16 * GB)


def test_memory_is_read_again_every_time(tmp_path: Path, system: SimpleNamespace) -> None:
    here = machine(tmp_path)
    assert here.memory().free == 16 * GB
    system.available = 3 * GB
    assert here.memory().free == 3 * GB


def test_without_proc_there_are_no_control_groups(tmp_path: Path) -> None:
    assert Machine(tmp_path / "empty").memory() == Memory(24 * GB, 16 * GB)


def test_this_machine() -> None:
    found = Machine().memory()
    assert 0 < found.free <= found.total <= psutil.virtual_memory().total


@pytest.mark.parametrize("own", ["5:memory:/jobs/7", "5:cpu,memory:/jobs/7\n0::/"])
def test_the_first_version_and_a_group_inside_a_group(tmp_path: Path, own: str) -> None:
    here = machine(tmp_path, own=own, mounts=FIRST.format(root="/", mount=V1))
    group_1(tmp_path, V1, 2**63 - 4096, 9 * GB)
    group_1(tmp_path, f"{V1}/jobs", 6 * GB, 5 * GB)
    group_1(tmp_path, f"{V1}/jobs/7", 4 * GB, 1 * GB)
    assert here.memory() == Memory(4 * GB, 1 * GB)  # the inner one limits, the outer one has less left
    group_1(tmp_path, f"{V1}/jobs", 6 * GB, 5 * GB, cache=4 * GB)  # files that were read go first
    assert here.memory() == Memory(4 * GB, 3 * GB)
    group_1(tmp_path, f"{V1}/jobs/7", 4 * GB, 5 * GB)
    assert here.memory().free == 0


def test_the_second_version_and_a_group_inside_a_group(tmp_path: Path) -> None:
    here = machine(tmp_path, own="0::/user/1/me", mounts=SECOND.format(root="/", mount=V2))
    group_2(tmp_path, f"{V2}/user/1/me", "max", 1 * GB)
    assert here.memory() == Memory(24 * GB, 16 * GB)
    group_2(tmp_path, f"{V2}/user/1", 8 * GB, 3 * GB, cache=1 * GB)
    assert here.memory() == Memory(8 * GB, 6 * GB)
    group_2(tmp_path, f"{V2}/user/1/me", "max", 1 * GB, high=3 * GB)
    assert here.memory() == Memory(3 * GB, 2 * GB)
    group_2(tmp_path, f"{V2}/user", 20 * GB, 20 * GB - 5)
    assert here.memory() == Memory(3 * GB, 5)


def test_a_container_that_sees_its_own_group_at_the_mount(tmp_path: Path) -> None:
    """Without a namespace the path is the host's: the mount shows the group itself."""
    here = machine(tmp_path, own="5:memory:/docker/abc/inner", mounts=FIRST.format(root="/docker/abc", mount=V1))
    group_1(tmp_path, V1, 4 * GB, 1 * GB)
    assert here.memory() == Memory(4 * GB, 3 * GB)
    group_1(tmp_path, f"{V1}/inner", 2 * GB, 1 * GB)
    assert here.memory() == Memory(2 * GB, 1 * GB)


@pytest.mark.parametrize("path", ["/docker/other", "/../sibling"])
def test_a_path_that_the_mount_does_not_show(tmp_path: Path, path: str) -> None:
    root = "/" if ".." in path else "/docker/abc"
    here = machine(tmp_path, own=f"0::{path}", mounts=SECOND.format(root=root, mount=V2))
    group_2(tmp_path, V2, 4 * GB, 1 * GB)
    group_2(tmp_path, "/sys/fs/sibling", 1 * GB, 1 * GB)
    assert here.memory() == Memory(4 * GB, 3 * GB)


def test_only_the_memory_controller_counts_in_the_first_version(tmp_path: Path) -> None:
    mounts = FIRST.format(root="/", mount="/sys/fs/cgroup/cpu").replace("rw,memory", "rw,cpu")
    here = machine(tmp_path, own="3:cpu:/x\n5:memory:/", mounts=mounts)
    group_1(tmp_path, "/sys/fs/cgroup/cpu/x", 1 * GB, 0)
    assert here.memory() == Memory(24 * GB, 16 * GB)


def test_a_mount_with_a_space_in_its_name(tmp_path: Path) -> None:
    here = machine(tmp_path, own="0::/", mounts=SECOND.format(root="/", mount="/my\\040groups"))
    group_2(tmp_path, "/my groups", 4 * GB, 1 * GB)
    assert here.memory() == Memory(4 * GB, 3 * GB)


@pytest.mark.parametrize("text", ["", "max", "many", "-1", "\n\n"])
def test_files_that_say_nothing_limit_nothing(tmp_path: Path, text: str) -> None:
    here = machine(tmp_path, own=f"garbage\n0::/\n{text}", mounts=SECOND.format(root="/", mount=V2) + "\nshort\n- -")
    for name in ("memory.max", "memory.current", "memory.stat"):
        write(tmp_path, f"{V2}/{name}", text)
    assert here.memory() == Memory(24 * GB, 16 * GB)

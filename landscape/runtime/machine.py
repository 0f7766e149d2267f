"""How much memory a process may use: what the system has free, and what every control group above it leaves.

psutil reads the system. Control groups (containers, batch queues) are read here, both versions of them, and groups
inside groups: psutil knows only the machine's own memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import psutil


@dataclass(frozen=True)
class Memory:
    """Bytes in all and bytes free, counting as free what the system would give up."""

    total: int
    free: int


@dataclass(frozen=True)
class Group:
    """A control group: its folder, and the names of its files, which depend on the version of control groups."""

    folder: Path
    limits: tuple[str, ...]
    usage: str
    cache: str  # the entry of memory.stat for file pages that the system takes back first

    def read(self) -> Memory | None:
        """What the group may use and what it leaves; None without a limit."""
        limits = [limit for name in self.limits if (limit := _read_number(self.folder / name)) is not None]
        usage = _read_number(self.folder / self.usage)
        if not limits or usage is None:
            return None
        words = (line.split() for line in _read_lines(self.folder / "memory.stat"))
        cached = sum(int(row[1]) for row in words if len(row) == 2 and row[0] == self.cache and row[1].isdecimal())
        limit = min(limits)
        return Memory(limit, max(limit - max(usage - cached, 0), 0))


FIRST = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
SECOND = (("memory.max", "memory.high"), "memory.current", "inactive_file")  # above "high" a group is slowed down


@dataclass(frozen=True)
class Machine:
    """The machine as this process sees it.

    root: the folder that holds proc/ and sys/; another one in tests.
    """

    root: Path = Path("/")

    def memory(self) -> Memory:
        """The least of what the system and every control group of this process have, read now."""
        system = psutil.virtual_memory()
        found = [Memory(system.total, system.available)]
        found += [memory for group in self._groups if (memory := group.read()) is not None]
        return Memory(min(one.total for one in found), min(one.free for one in found))

    @cached_property
    def _groups(self) -> list[Group]:
        """The control groups that limit this process, the innermost of a hierarchy first."""
        return list(self._find_groups())

    def _find_groups(self) -> Iterator[Group]:
        own = dict(self._find_own_paths())
        for line in _read_lines(self.root / "proc/self/mountinfo"):
            before, _, after = line.partition(" - ")
            mount, system = before.split(), after.split()
            if len(mount) < 5 or len(system) < 3:
                continue
            second = system[0] == "cgroup2"
            if not second and not (system[0] == "cgroup" and "memory" in system[2].split(",")):
                continue
            path = own.get("" if second else "memory")
            if path is not None:
                folder = self.root / _unescape(mount[4]).lstrip("/")
                for inside in _list_upwards(folder, _unescape(mount[3]), path):
                    yield Group(inside, *(SECOND if second else FIRST))

    def _find_own_paths(self) -> Iterator[tuple[str, str]]:
        """(controller, path of the group) of this process; the second version names no controller."""
        for line in _read_lines(self.root / "proc/self/cgroup"):
            fields = line.split(":", 2)
            if len(fields) == 3:
                for controller in fields[1].split(","):
                    yield controller, fields[2]


def _list_upwards(mount: Path, root: str, path: str) -> list[Path]:
    """Folders from the group at `path` up to `mount`, where the group `root` is shown.

    A container may see only its own group, or be told the path that the host knows: then only the mount is there.
    """
    try:
        inside = PurePosixPath(path).relative_to(root)
    except ValueError:
        return [mount]
    if ".." in inside.parts:
        return [mount]
    folder = mount / inside
    return [folder, *(above for above in folder.parents if above.is_relative_to(mount))]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _read_number(path: Path) -> int | None:
    """The number in a file; None if there is none, as in "max"."""
    text = "".join(_read_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _unescape(text: str) -> str:
    """mountinfo writes a space as \\040."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")

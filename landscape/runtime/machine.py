"""How much memory there is, as the system and its control groups (containers, batch queues) tell it.

A process may take what the machine has free and what every control group above it leaves. Both versions of control
groups are read, and groups inside groups. Where nothing can be read, half of the physical memory counts as free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Memory:
    """Bytes in all and bytes free, counting as free what the system would give up."""

    total: int
    free: int


@dataclass(frozen=True)
class Group:
    """A control group: its folder, and how its version of control groups calls its files."""

    folder: Path
    limits: tuple[str, ...]
    usage: str
    cache: str  # of the entries in memory.stat, file pages that the system takes back first

    def read(self) -> Memory | None:
        """What the group may use and what it leaves; None without a limit."""
        limits = [limit for name in self.limits if (limit := _number(self.folder / name)) is not None]
        usage = _number(self.folder / self.usage)
        if not limits or usage is None:
            return None
        limit = min(limits)
        used = usage - _table(self.folder / "memory.stat").get(self.cache, 0)
        return Memory(limit, max(limit - max(used, 0), 0))


FIRST = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
SECOND = (("memory.max", "memory.high"), "memory.current", "inactive_file")  # above "high" a group is held up


@dataclass(frozen=True)
class Machine:
    """The system as a process sees it; `root` is another folder in tests."""

    root: Path = Path("/")

    def memory(self) -> Memory:
        """The least of what the machine and every control group of this process have, read now."""
        table = _table(self.root / "proc/meminfo", unit=1024)
        if "MemAvailable" in table and "MemTotal" in table:
            found = [Memory(table["MemTotal"], table["MemAvailable"])]
        else:
            physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            found = [Memory(physical, physical // 2)]
        found += [memory for group in self._groups if (memory := group.read()) is not None]
        return Memory(min(one.total for one in found), min(one.free for one in found))

    @cached_property
    def _groups(self) -> list[Group]:
        """The control groups that limit this process, the innermost of a hierarchy first."""
        return list(self._find_groups())

    def _find_groups(self) -> Iterator[Group]:
        own = dict(self._own_paths())
        for line in _lines(self.root / "proc/self/mountinfo"):
            before, _, after = line.partition(" - ")
            places, kind = before.split(), after.split()
            if len(places) < 5 or len(kind) < 3:
                continue
            second = kind[0] == "cgroup2"
            if not second and not (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
                continue
            path = own.get("" if second else "memory")
            if path is not None:
                mount = self.root / _unescape(places[4]).lstrip("/")
                for folder in _upwards(mount, _unescape(places[3]), path):
                    yield Group(folder, *(SECOND if second else FIRST))

    def _own_paths(self) -> Iterator[tuple[str, str]]:
        """(controller, path of the group) of this process; the second version names no controller."""
        for line in _lines(self.root / "proc/self/cgroup"):
            parts = line.split(":", 2)
            if len(parts) == 3:
                for controller in parts[1].split(","):
                    yield controller, parts[2]


def _upwards(mount: Path, root: str, path: str) -> list[Path]:
    """Folders from the group at `path` up to `mount`, where the group `root` is seen.

    A container may see only its own group, or be told the path that the host knows: then the mount is all there is.
    """
    try:
        inside = PurePosixPath(path).relative_to(root)
    except ValueError:
        return [mount]
    if ".." in inside.parts:
        return [mount]
    folder = mount / inside
    return [folder, *(above for above in folder.parents if above.is_relative_to(mount))]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file; None if there is none, as in "max"."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _table(path: Path, unit: int = 1) -> dict[str, int]:
    """Lines of "name: number" or "name number"."""
    words = (line.replace(":", " ").split() for line in _lines(path))
    return {row[0]: int(row[1]) * unit for row in words if len(row) >= 2 and row[1].isdecimal()}


def _unescape(text: str) -> str:
    """mountinfo writes a space as \\040."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")

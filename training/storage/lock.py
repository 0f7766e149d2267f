"""One writer per directory. This file imports no torch.

    <directory>/lock                JSON: host, machine, pid, started, purpose, since, token
    <directory>/.lock-<token>.new   a lock on its way to its name, or left there by a killed process
    <directory>/.lock-<hash>.claim  the right to remove one particular lock

Whoever wants to write links a complete file to the name `lock`, which only one can do, on network file systems too.
The holder renews the file's modification time every few seconds. A lock is stale, and is taken over, if its process
has ended (told on the same machine at once) or if it was not renewed for a minute (told elsewhere). A minute of the
file system's own clock: the times of two files are compared, so the clocks of the hosts do not matter. A process on
the same machine that is alive but suspended keeps its lease.

Removing a stale lock is the delicate part: of two that see the same stale lock, the slower must not remove the new
lock of the faster. So a lock is removed or replaced only by whoever holds the claim to exactly that lock, and after
looking again. A claim is itself such a file and goes stale in the same way.

A holder that was away for longer than a minute (a suspended computer, an unreachable server) may find that another
has taken over. `check`, which is called before anything is put in its place, then raises LeaseLostError.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LOCK = "lock"
RENEWED = 5.0  # seconds between two signs of life
STALE = 60.0  # seconds without one after which a lock of another machine counts as left behind
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class BusyError(ValueError):
    """Another process writes into this directory."""


class LeaseLostError(OSError):
    """Another process has taken the directory over, because this one gave no sign of life."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    host: str
    machine: str  # tells machines and containers apart; process numbers mean something only within one
    pid: int
    started: str  # when the process began: its number may be used again
    purpose: str
    since: str
    token: str  # different for every lock

    def __str__(self) -> str:
        return f"{self.purpose} (pid {self.pid} on host {self.host}, since {self.since})"


@dataclass(frozen=True)
class Found:
    """A lock as it lies there."""

    raw: bytes
    renewed: float  # modification time
    holder: Holder | None  # None: not readable, perhaps because it is just being written

    @property
    def claim(self) -> str:
        """The name of the right to remove this lock and no other."""
        return f".lock-{hashlib.sha256(self.raw).hexdigest()[:16]}.claim"


@dataclass(frozen=True, eq=False)
class Lease:
    """The right to write into a directory, while it lasts."""

    directory: Path
    raw: bytes  # what the lock says

    def check(self) -> None:
        """Raise LeaseLostError if the directory was taken over."""
        found = _read(self.directory / LOCK)
        if found is None or found.raw != self.raw:
            taken = f"taken over by {found.holder}" if found is not None and found.holder else "no longer locked"
            raise LeaseLostError(
                f"{self.directory} was {taken}: this process gave no sign of life for {STALE:.0f} seconds, or its lock "
                "was removed. Nothing more was written; the same command goes on when the other is done"
            )


_held: dict[Path, Lease] = {}  # leases of this process, by absolute directory


def check(path: Path) -> None:
    """Raise LeaseLostError if this process held a lease on a directory above `path`, and another has taken it over.

    To be called before something gets its final name. Without a lease on any directory above, nothing happens.
    """
    if _held:
        place = path.absolute()
        for folder in (place, *place.parents):
            if folder in _held:
                _held[folder].check()


@contextmanager
def hold(directory: Path, purpose: str) -> Iterator[None]:
    """Be the only writer in a directory, or raise BusyError.

    directory: made if it is not there, and removed again if it is empty in the end.
    purpose: what others are told that this process is doing, such as "train".
    """
    made = _make(directory)
    try:
        lease = Lease(directory, _lock(directory, purpose))
        key = directory.absolute()
        _held[key] = lease
        over = threading.Event()
        renewing = threading.Thread(target=_renew, args=(lease, over), daemon=True, name=f"lease on {directory}")
        renewing.start()
        try:
            _sweep(directory)
            yield
        finally:
            over.set()
            renewing.join()
            del _held[key]
            _release(lease)
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()


def _make(directory: Path) -> list[Path]:
    """Make a folder and those above it; returns the new ones, outermost first."""
    absent = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return absent[::-1]


def _lock(directory: Path, purpose: str) -> bytes:
    """Get the lock of a directory; returns what it says."""
    while True:
        try:
            return _acquire(directory, LOCK, purpose)
        except FileNotFoundError:  # the folder, empty until now, was removed by another that was done with it
            directory.mkdir(parents=True, exist_ok=True)
        except BusyError as error:
            raise BusyError(f"{directory} is being written by {error}: wait for it, or choose another --out") from None


def _acquire(folder: Path, name: str, purpose: str) -> bytes:
    """Create a lock, or replace a stale one. BusyError names its holder."""
    raw = _description(purpose)
    new = folder / f".lock-{hashlib.sha256(raw).hexdigest()[:16]}.new"
    with open(new, "xb") as file:
        file.write(raw)
    try:
        while not _link(new, folder / name, raw):
            found = _read(folder / name)
            if found is None:
                continue  # given back in this moment
            if not _stale(found, new):
                raise BusyError(str(found.holder or "another process"))
            with contextlib.suppress(BusyError), _claim(folder, found):
                if _same(folder / name, found):
                    os.replace(new, folder / name)
                    return raw
            time.sleep(0.01)  # another one is at it
        return raw
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _claim(folder: Path, found: Found) -> Iterator[None]:
    """The right to remove or replace one particular lock."""
    raw = _acquire(folder, found.claim, "lock")
    try:
        yield
    finally:
        if (now := _read(folder / found.claim)) is not None and now.raw == raw:
            (folder / found.claim).unlink(missing_ok=True)


def _release(lease: Lease) -> None:
    """Remove a lock, if it is still one's own."""
    path = lease.directory / LOCK
    with contextlib.suppress(FileNotFoundError):  # somebody removed the whole directory
        while (found := _read(path)) is not None and found.raw == lease.raw:
            with contextlib.suppress(BusyError), _claim(lease.directory, found):
                if _same(path, found):
                    path.unlink(missing_ok=True)
                return
            time.sleep(0.01)  # another one has taken this one for stale, and is replacing it


def _same(path: Path, found: Found) -> bool:
    now = _read(path)
    return now is not None and now.raw == found.raw


def _link(new: Path, path: Path, raw: bytes) -> bool:
    """Give a file its name, if nobody has that name; says whether."""
    try:
        os.link(new, path)
        return True
    except FileExistsError:
        return os.stat(new).st_nlink == 2  # a server that did it, lost its answer and was asked again says this too
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    try:  # a file system without links: for a moment the file is there and empty
        with open(path, "xb") as file:
            file.write(raw)
        return True
    except FileExistsError:
        return False


def _read(path: Path) -> Found | None:
    """A lock, or None if there is none. A file is opened before its time is read: so a server is asked, not a cache."""
    try:
        with open(path, "rb") as file:
            raw, renewed = file.read(4096), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    try:
        content: dict[str, Any] = json.loads(raw)
        holder = Holder(**content)
        known = isinstance(holder.pid, int) and all(
            isinstance(part, str) for name, part in content.items() if name != "pid"
        )
    except (ValueError, TypeError, RecursionError):
        known = False
    return Found(raw, renewed, holder if known else None)


def _stale(found: Found, fresh: Path) -> bool:
    """Whether nobody is behind a lock any more. `fresh` is a file of one's own, which is touched for its time."""
    if found.holder is not None and found.holder.machine == _machine():
        return not _alive(found.holder)
    os.utime(fresh)
    with open(fresh, "rb") as file:
        now = os.fstat(file.fileno()).st_mtime
    return now - found.renewed > STALE


def _alive(holder: Holder) -> bool:
    """Whether the very process that made a lock on this machine still runs."""
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's, but it is there
    started = _started(holder.pid)
    return started is None or started == holder.started


def _renew(lease: Lease, over: threading.Event) -> None:
    """Give a sign of life until the lease is over or lost."""
    path = lease.directory / LOCK
    while not over.wait(RENEWED):
        with contextlib.suppress(OSError):  # a server that does not answer now may answer the next time
            found = _read(path)
            if found is None or found.raw != lease.raw:
                return  # `check` will say so
            os.utime(path)


def _sweep(directory: Path) -> None:
    """Remove what killed processes left of their attempts to get this lock."""
    own = _read(directory / LOCK)
    for path in directory.glob(".lock-*"):
        if own is None or path.name == own.claim:
            continue  # that one is decided by whoever claims it
        with contextlib.suppress(OSError):  # a living one may remove its own at the same time
            found = _read(path)
            if found is not None and _stale(found, directory / LOCK):
                path.unlink()


def _description(purpose: str) -> bytes:
    pid = os.getpid()
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    holder = Holder(socket.gethostname(), _machine(), pid, _started(pid) or "", purpose, since, secrets.token_hex(16))
    return json.dumps(asdict(holder), indent=2).encode() + b"\n"


def _machine() -> str:
    """Names what a process number belongs to: this machine since it was started, and the container."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _started(pid: int) -> str | None:
    """When a process began, as the system writes it; "" if only its remains are there, None if nobody can tell."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # other users' processes may be hidden
            return None
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.split()
    if not told:
        return None
    return "" if told[0].startswith("Z") else " ".join(told[1:])

"""The lock of a run directory: one process writes at a time. Imports no torch.

    <directory>/lock                JSON: host, machine, pid, started, purpose, since, token
    <directory>/.lock-<token>.new   a lock on its way to its name, or left there by a killed process
    <directory>/.lock-<hash>.claim  the right to remove one particular lock

A process that wants to write creates a complete file and links it to the name `lock`. Only one process can do so, on
network file systems too. The right to write that the lock gives is called a lease (`Lease`). Its holder updates the
file's modification time every few seconds. A lock is stale, and may be taken over, if its process has ended (checked
on the same machine) or if it was not updated for a minute (checked from another machine). The modification times of
two files are compared, so the clocks of the hosts do not matter. A process on the same machine that is alive but
suspended keeps its lease.

Two processes may find the same stale lock. The slower one must not remove the new lock of the faster one, so a process
first acquires a claim to that particular lock, then reads the lock again, and only then removes or replaces it. A claim
is a file of the same kind and goes stale in the same way.

A holder that was suspended or disconnected for more than a minute may have lost its lease to another process. `check`
is called before a file gets its final name, and raises LeaseLostError in that case.
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

LOCK = "lock"
RENEWED = 5.0  # seconds between two signs of life
STALE = 60.0  # seconds without one after which a lock of another machine counts as left behind
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class BusyError(ValueError):
    """Raised when another process holds the lock of a directory."""


class LeaseLostError(OSError):
    """Raised when another process has taken over the lock, because this one did not renew it in time."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

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
    """A lock file that was read."""

    raw: bytes
    renewed: float  # modification time
    holder: Holder | None  # None: not readable, perhaps because it is just being written

    @property
    def claim(self) -> str:
        """The name of the file that gives the right to remove this lock and no other."""
        return f".lock-{hashlib.sha256(self.raw).hexdigest()[:16]}.claim"


@dataclass(frozen=True, eq=False)
class Lease:
    """The right to write into a directory, while it lasts."""

    directory: Path
    raw: bytes  # content of the lock file

    def check(self) -> None:
        """Raise LeaseLostError if another process has taken over the directory."""
        found = _read(self.directory / LOCK)
        if found is None or found.raw != self.raw:
            taken = f"taken over by {found.holder}" if found is not None and found.holder else "no longer locked"
            raise LeaseLostError(
                f"{self.directory} was {taken}: this process did not renew its lock for {STALE:.0f} seconds, or the "
                "lock was removed. Nothing more was written; run the same command again when the other has finished"
            )


_held: dict[Path, Lease] = {}  # leases of this process, by absolute directory


def check(path: Path) -> None:
    """Raise LeaseLostError if this process has lost its lease on a directory above `path`.

    Call it before a file gets its final name. It does nothing if this process never held such a lease.
    """
    if _held:
        place = path.absolute()
        for folder in (place, *place.parents):
            if folder in _held:
                _held[folder].check()


_patience = [0.0]  # seconds that `hold` waits for a lock of another process: the innermost `wait_for_leases`


@contextmanager
def wait_for_leases(seconds: float) -> Iterator[None]:
    """Let `hold` wait for a lock that another process holds, for the duration of a block.

    A process that was lost with its machine cannot be asked whether it is alive: its lock is stale only after a minute.

    seconds: the longest to wait.
    """
    _patience.append(seconds)
    try:
        yield
    finally:
        _patience.pop()


@contextmanager
def hold(directory: Path, purpose: str) -> Iterator[None]:
    """Hold the lock of a directory for the duration of a block; BusyError if another process holds it.

    directory: created if it does not exist, and removed at the end if it is empty.
    purpose: what this process is doing, such as "train", for the messages of other processes.
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
    """Create a folder and its parents; return the new ones, outermost first."""
    absent = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return absent[::-1]


def _lock(directory: Path, purpose: str) -> bytes:
    """Acquire the lock of a directory; return the content of the lock file."""
    end = time.monotonic() + _patience[-1]
    while True:
        try:
            return _acquire(directory, LOCK, purpose)
        except FileNotFoundError:  # another process finished and removed the folder, which was still empty
            directory.mkdir(parents=True, exist_ok=True)
        except BusyError as error:
            if time.monotonic() < end:
                time.sleep(min(RENEWED, max(end - time.monotonic(), 0.01)))
                continue
            raise BusyError(f"{directory} is being written by {error}: wait for it, or choose another --out") from None


def _acquire(folder: Path, name: str, purpose: str) -> bytes:
    """Create a lock, or replace a stale one; BusyError names its holder."""
    raw = _description(purpose)
    new = folder / f".lock-{hashlib.sha256(raw).hexdigest()[:16]}.new"
    with open(new, "xb") as file:
        file.write(raw)
    try:
        while not _link(new, folder / name, raw):
            found = _read(folder / name)
            if found is None:
                continue  # released just now
            if not _stale(found, new):
                raise BusyError(str(found.holder or "another process"))
            with contextlib.suppress(BusyError), _claim(folder, found):
                if _same(folder / name, found):
                    os.replace(new, folder / name)
                    return raw
            time.sleep(0.01)  # another process is replacing it
        return raw
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _claim(folder: Path, found: Found) -> Iterator[None]:
    """Hold the right to remove or replace one particular lock."""
    raw = _acquire(folder, found.claim, "lock")
    try:
        yield
    finally:
        if (now := _read(folder / found.claim)) is not None and now.raw == raw:
            (folder / found.claim).unlink(missing_ok=True)


def _release(lease: Lease) -> None:
    """Remove the lock, if it still belongs to this process."""
    path = lease.directory / LOCK
    with contextlib.suppress(FileNotFoundError):  # the whole directory was removed
        while (found := _read(path)) is not None and found.raw == lease.raw:
            with contextlib.suppress(BusyError), _claim(lease.directory, found):
                if _same(path, found):
                    path.unlink(missing_ok=True)
                return
            time.sleep(0.01)  # another process considers this lock stale, and is replacing it


def _same(path: Path, found: Found) -> bool:
    now = _read(path)
    return now is not None and now.raw == found.raw


def _link(new: Path, path: Path, raw: bytes) -> bool:
    """Link a file to a name that is still free; tell whether that worked."""
    try:
        os.link(new, path)
        return True
    except FileExistsError:
        return os.stat(new).st_nlink == 2  # also raised if a server made the link and its answer was lost
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    try:  # a file system without links: the file is empty for a moment
        with open(path, "xb") as file:
            file.write(raw)
        return True
    except FileExistsError:
        return False


def _read(path: Path) -> Found | None:
    """Read a lock; None if there is none. Opening it first gets the time from the server, not from a cache."""
    try:
        with open(path, "rb") as file:
            raw, renewed = file.read(4096), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    try:
        content = json.loads(raw)
        holder = Holder(**content)
        known = isinstance(holder.pid, int) and all(
            isinstance(part, str) for name, part in content.items() if name != "pid"
        )
    except (ValueError, TypeError, RecursionError):
        known = False
    return Found(raw, renewed, holder if known else None)


def _stale(found: Found, fresh: Path) -> bool:
    """Tell whether the holder of a lock is gone. `fresh` is a file of this process, touched for its time."""
    if found.holder is not None and found.holder.machine == _machine():
        return not _alive(found.holder)
    os.utime(fresh)
    with open(fresh, "rb") as file:
        now = os.fstat(file.fileno()).st_mtime
    return now - found.renewed > STALE


def _alive(holder: Holder) -> bool:
    """Tell whether the process that made a lock on this machine still runs."""
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's process, but it exists
    started = _started(holder.pid)
    return started is None or started == holder.started


def _renew(lease: Lease, over: threading.Event) -> None:
    """Renew the lock until the lease ends or is lost."""
    path = lease.directory / LOCK
    while not over.wait(RENEWED):
        with contextlib.suppress(OSError):  # a server that does not answer now may do so next time
            found = _read(path)
            if found is None or found.raw != lease.raw:
                return  # `check` will raise
            os.utime(path)


def _sweep(directory: Path) -> None:
    """Remove the temporary files of killed processes that tried to acquire this lock."""
    own = _read(directory / LOCK)
    for path in directory.glob(".lock-*"):
        if own is None or path.name == own.claim:
            continue  # left to the process that holds this claim
        with contextlib.suppress(OSError):  # a live process may remove its own file at the same time
            found = _read(path)
            if found is not None and _stale(found, directory / LOCK):
                path.unlink()


def _description(purpose: str) -> bytes:
    pid = os.getpid()
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    holder = Holder(socket.gethostname(), _machine(), pid, _started(pid) or "", purpose, since, secrets.token_hex(16))
    return json.dumps(asdict(holder), indent=2).encode() + b"\n"


def _machine() -> str:
    """Identify the space of process numbers: this machine since it was booted, and the container."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _started(pid: int) -> str | None:
    """Find when a process began, as the system writes it; "" for a zombie, None if it cannot be found out."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # other users' processes may be hidden
            return None
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    columns = subprocess.run(command, capture_output=True, text=True).stdout.split()
    if not columns:
        return None
    return "" if columns[0].startswith("Z") else " ".join(columns[1:])

"""A file is replaced in one step, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training.storage import lock
from training.storage.atomic_files import remove_temporary_files, replace_file, temporary_path, write_atomically


def test_a_file_appears_with_all_its_pieces_and_the_folders_above_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"
    write_atomically(path, b"one ", memoryview(b"two"))
    assert path.read_bytes() == b"one two"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def write_half() -> None:
        with replace_file(path) as temporary:
            temporary.write_bytes(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file_and_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"file could not be written \(No space left on device\); what was saved before"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_lost_its_lock_writes_nothing(tmp_path: Path) -> None:
    with lock.hold(tmp_path / "run", "test"):
        write_atomically(tmp_path / "run" / "file", b"old")
        (tmp_path / "run" / "lock").unlink()
        with pytest.raises(lock.LeaseLostError, match="no longer locked"):
            write_atomically(tmp_path / "run" / "file", b"new")
    assert (tmp_path / "run" / "file").read_bytes() == b"old"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"kept")
    temporary_path(tmp_path / "file").write_bytes(b"half")
    temporary_path(tmp_path / "folder").mkdir()
    remove_temporary_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

"""Metrics are sealed line by line: no number can be changed, removed or moved unnoticed, by whoever reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.storage import lock, metrics
from training.storage.atomic_files import DamagedError

ROOT = Path(__file__).resolve().parents[3]
RECORDS = [{"round": t, "train_loss": 2.0 / t, "accuracy": None if t == 2 else 0.1 * t, "é": "ü"} for t in range(1, 6)]


@pytest.fixture
def run(tmp_path):
    for record in RECORDS:
        metrics.append(tmp_path, record)
    return tmp_path


def lines(run):
    return (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)


def put(run, *content):
    (run / "metrics.jsonl").write_bytes(b"".join(content))


def test_records_come_back_and_people_can_read_them(run):
    assert metrics.read(run) == RECORDS
    plain = [json.loads(line) for line in lines(run)]
    assert [{key: one[key] for key in one if key != "seal"} for one in plain] == RECORDS
    assert len({one["seal"] for one in plain}) == 5


def test_seals_are_a_function_of_the_records(run, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for record in RECORDS:
        metrics.append(other, record)
    assert lines(run) == lines(other)


DAMAGES = {
    "edited": lambda a, b, c, d, e: (a, b, c.replace(b"0.3", b"0.4"), d, e),
    "removed": lambda a, b, c, d, e: (a, b, d, e),
    "removed and renumbered": lambda a, b, c, d, e: (a, b, d.replace(b": 4", b": 3"), e.replace(b": 5", b": 4")),
    "moved": lambda a, b, c, d, e: (a, c, b, d, e),
    "doubled": lambda a, b, c, d, e: (a, a, b, b, c, c, d, d, e, e),
    "doubled at the end": lambda a, b, c, d, e: (a, b, c, d, e, e),
    "the first removed": lambda a, b, c, d, e: (b, c, d, e),
    "a seal of its own": lambda a, b, c, d, e: (a, metrics._sealed(b'{"round": 2}', ""), c, d, e),
    "no seal": lambda a, b, c, d, e: (a, b'{"round": 2}\n', c, d, e),
    "spaces": lambda a, b, c, d, e: (a, b.replace(b", ", b",  ", 1), c, d, e),
    "not JSON": lambda a, b, c, d, e: (a, b"x\n", c, d, e),
    "not an object": lambda a, b, c, d, e: (a, b"[2]\n", c, d, e),
    "deep": lambda a, b, c, d, e: (a, b"[" * 100_000 + b"\n", c, d, e),
    "not text": lambda a, b, c, d, e: (a, b"\xff\xfe\n", c, d, e),
    "an empty line": lambda a, b, c, d, e: (a, b"\n", b, c, d, e),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_changed_is_noticed_by_every_reader(run, damage):
    put(run, *DAMAGES[damage](*lines(run)))
    for read in (metrics.read, lambda run: metrics.rewind(run, 1)):
        with pytest.raises(DamagedError, match=r"metrics\.jsonl: line \d .*; end the file before it and remove the"):
            read(run)


@pytest.mark.parametrize(
    "record",
    [
        {"round": 1, "accuracy": "high"},
        {"round": 1, "test_loss": [1]},
        {"round": 1, "seconds": True},
        {"round": 1, "accuracy": 10**400},
        {"round": 1, "own_accuracies": [0.5]},
        {"round": 1, "own_accuracies": {"-1": 0.5}},
        {"round": 1, "own_accuracies": {"2": "high"}},
        {"round": 1, "client_accuracies": {"2": 0.5}},
        {"round": 1, "client_accuracies": [0.5, [1]]},
        {"round": True},
        {"round": 1.0},
    ],
)
def test_values_of_other_types_are_refused_though_they_are_sealed(tmp_path, record):
    put(tmp_path, metrics._sealed(json.dumps(record).encode(), ""))
    with pytest.raises(DamagedError, match="line 1 is not the record of round 1"):
        metrics.read(tmp_path)


@given(st.data())
@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_byte_that_changes_is_noticed(run, data):
    good = b"".join(lines(run))
    place = data.draw(st.integers(0, len(good) - 2))  # without the last line feed, the line counts as cut short
    changed = good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :]
    try:
        put(run, changed)
        with pytest.raises(DamagedError):
            metrics.read(run)
    finally:
        put(run, good)


def test_a_last_line_cut_short_is_left_out(run):
    good = b"".join(lines(run))
    for cut in range(1, len(lines(run)[-1])):
        put(run, good[:-cut])
        assert metrics.read(run) == RECORDS[:4]
    metrics.rewind(run, 4)
    metrics.append(run, RECORDS[4])
    assert b"".join(lines(run)) == good


def test_rewound_and_made_again_it_is_the_same_file(run):
    good = b"".join(lines(run))
    for round in (5, 3, 0):
        metrics.rewind(run, round)
        assert metrics.read(run) == RECORDS[:round]
        for record in RECORDS[round:]:
            metrics.append(run, record)
        assert b"".join(lines(run)) == good


def test_a_round_can_neither_be_recorded_twice_nor_left_out(run):
    for round in (4, 5, 7):
        with pytest.raises(DamagedError, match=f"ends at round 5, so the record of round {round} cannot follow"):
            metrics.append(run, {"round": round})
    assert metrics.read(run) == RECORDS


def test_records_longer_than_a_block_are_chained(tmp_path):
    records = [{"round": t, "text": "x" * 50_000 * t} for t in range(1, 4)]
    for record in records:
        metrics.append(tmp_path, record)
    assert metrics.read(tmp_path) == records


def test_an_absurd_line_takes_no_memory(tmp_path):
    with open(tmp_path / "metrics.jsonl", "wb") as file:
        os.truncate(file.fileno(), 2**40)  # of zeros; takes no room on the disk
    with pytest.raises(DamagedError, match="line 1 is longer than 16 MB"):
        metrics.read(tmp_path)


def test_without_the_lease_nothing_is_added(run):
    with lock.hold(run, "train"):
        (run / "lock").unlink()
        with pytest.raises(lock.LeaseLostError):
            metrics.append(run, {"round": 6})
    assert metrics.read(run) == RECORDS


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"format": 2}, "written by a newer version .format 2.; update fl-landscape"),
        ({}, "made before run directories had a format number"),
        ({"format": "1"}, 'its format is "1", expected a whole number'),
    ],
)
def test_other_formats_are_refused(run, about, message):
    (run / "provenance.json").write_text(json.dumps(about))
    with pytest.raises(DamagedError, match=f"provenance.json: {message}"):
        metrics.read(run)


def test_torch_is_not_needed():
    modules = "training.storage.metrics, training.verification, training.storage.run_directory, training.storage.toml"
    script = f"import sys; import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == 0

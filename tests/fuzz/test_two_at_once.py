"""Two commands on one run directory, started together: both are fine, or one of them says in a line who was first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.fuzz import commands
from tests.fuzz.directory import LONG, TRAIN, Directory, hashes, reference

RUN = "RUN"  # stands for the run directory
ANALYZE = ("analyze", RUN, "--study", "training")
CURVATURE = ("analyze", RUN, "--study", "curvature", "--set", "top=1")
PERSONAL = ("personal", RUN, "--strategy", "global")
CHECK, REPORT = ("check", RUN), ("report", RUN, "--format", "svg")
TIMES = 3 if LONG else 1  # every pair is started so often: who is first is up to the system


@pytest.fixture
def directory() -> Iterator[Directory]:
    made = Directory("feddyn")
    yield made
    made.close()


def together(directory: Directory, *pair: tuple[str, ...]) -> list[commands.Done]:
    """Two commands at once, and what holds for every one of them."""
    started = [
        commands.start(directory.folder, *(directory.name if word == RUN else word for word in words)) for words in pair
    ]
    done = [one.wait() for one in started]
    for one in done:
        assert "Traceback" not in one.out + one.err, one
        assert one.code in (0, 1, 2), one
        if one.code == 2:
            assert len(one.err.splitlines()) == 1, one
            assert one.err.startswith("error: "), one
    return done


def assert_intact(directory: Directory) -> None:
    """The run is what it would be if nobody had been in the way, and nothing is left half-written."""
    assert hashes(directory.run) == reference("feddyn")
    rounds = [json.loads(line)["round"] for line in (directory.run / "metrics.jsonl").read_text().splitlines()]
    assert rounds == [1, 2, 3, 4, 5, 6]
    done = directory.do("check", directory.name)
    assert done.code == 0, done
    assert not directory.leftovers()


@pytest.mark.parametrize("_", range(3))
def test_train_and_train(directory: Directory, _: int):
    done = together(directory, TRAIN, TRAIN)
    codes = sorted(one.code for one in done)
    assert codes in ([0, 0], [0, 2]), done
    for one in done:
        if one.code == 2:
            assert "is being written by train (pid " in one.err
    assert_intact(directory)


@pytest.mark.parametrize("other", [ANALYZE, PERSONAL, CHECK, REPORT], ids=["analyze", "personal", "check", "report"])
def test_train_and_another(directory: Directory, other: tuple[str, ...]):
    for _ in range(TIMES):
        shutil.rmtree(directory.run, ignore_errors=True)
        directory.do(*TRAIN, kill_at=60)
        trained, _second = together(directory, TRAIN, other)
        if trained.code == 2:
            assert "is being written by" in trained.err, trained
            directory.do(*TRAIN)
        assert_intact(directory)


@pytest.mark.parametrize(
    "pair",
    [(ANALYZE, ANALYZE), (ANALYZE, CURVATURE), (ANALYZE, PERSONAL), (CURVATURE, CHECK), (CURVATURE, REPORT)],
    ids=lambda pair: " and ".join(words[3] if len(words) > 3 else words[0] for words in pair),
)
def test_on_a_finished_run(directory: Directory, pair: tuple[tuple[str, ...], tuple[str, ...]]):
    assert directory.do(*TRAIN).code == 0
    for _ in range(TIMES):
        shutil.rmtree(directory.run / "analysis", ignore_errors=True)
        done = together(directory, *pair)
        codes = [one.code for one in done]
        assert 0 in codes, done
        assert 1 not in codes, done
        for one in done:
            if one.code == 2:
                assert "is being written by" in one.err, one
        for words in pair:
            again = directory.do(*(directory.name if word == RUN else word for word in words))
            assert again.code == 0, again
        assert_intact(directory)

"""Any order of train, kill, analyze, damage, check, report and two at once: the same bits, or one clear line."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.fuzz import commands
from tests.fuzz.directory import LONG, METHODS, TRAIN, Directory

PROFILE = settings(
    max_examples=40 if LONG else 6,
    stateful_step_count=25 if LONG else 10,
    deadline=None,
    derandomize=not LONG,
    database=None,
    phases=(Phase.generate, Phase.shrink) if "LANDSCAPE_SHRINK" in os.environ else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
STUDY = ("--study", "training")
PLACES = st.floats(0, 1, exclude_max=True)  # of a file in a list, or of a byte in a file


class RunDirectory(RuleBasedStateMachine):
    """Commands on one run directory; Directory says what must hold after each."""

    directory: Directory

    @initialize(method=st.sampled_from(sorted(METHODS)))
    def begin(self, method: str) -> None:
        self.directory = Directory(method)

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            try:
                self.directory.check()
                self.directory.train()
                self.directory.check()
            finally:
                self.directory.close()

    @rule()
    def train(self) -> None:
        self.directory.train()

    @rule(kill_at=st.integers(1, 150))
    def train_and_kill(self, kill_at: int) -> None:
        self.directory.do(*TRAIN, kill_at=kill_at)

    @rule(kill_at=st.none() | st.integers(1, 15))
    def analyze(self, kill_at: int | None) -> None:
        self.directory.do("analyze", self.directory.name, *STUDY, kill_at=kill_at)

    @rule(kill_at=st.none() | st.integers(1, 15))
    def personal(self, kill_at: int | None) -> None:
        self.directory.do("personal", self.directory.name, "--strategy", "global", kill_at=kill_at)

    @precondition(lambda self: self.directory.run.exists())
    @rule(which=PLACES, way=st.sampled_from(("flip", "flip", "truncate", "delete", "swap")), place=PLACES)
    def damage(self, which: float, way: str, place: float) -> None:
        def spoil(data: bytes) -> bytes | None:
            start = int(place * len(data))
            if way == "flip":
                return data[:start] + bytes([data[start] ^ 16]) + data[start + 1 :] if data else b"x"
            if way == "swap":
                return data[start:] + data[:start]
            return data[:start] if way == "truncate" else None

        self.directory.damage(lambda names: names[int(which * len(names))], spoil)

    @rule()
    def check(self) -> None:
        self.directory.check()

    @rule()
    def show(self) -> None:
        self.directory.do("show", self.directory.name)

    @precondition(lambda self: LONG or not (self.directory.run / "report").exists())  # it takes seconds
    @rule()
    def report(self) -> None:
        self.directory.do("report", self.directory.name, "--format", "svg")

    @rule(other=st.sampled_from(("train", "analyze", "check", "personal")))
    def two_at_once(self, other: str) -> None:
        words = {"train": TRAIN, "analyze": ("analyze", self.directory.name, *STUDY)}
        second = words.get(other, (other, self.directory.name))
        both = [commands.start(self.directory.folder, *one) for one in (TRAIN, second)]
        done = [one.wait() for one in both]
        for one in done:
            assert "Traceback" not in one.out + one.err, one
            assert one.code in (0, 1, 2), one
            if one.words == TRAIN and not self.directory.still_damaged():
                assert one.code == 0 or "is being written by" in one.err, one

    if LONG:

        @rule(delay=st.floats(0, 0.3))
        def train_and_kill_at_any_time(self, delay: float) -> None:
            before = self.directory.leftovers()
            started = commands.start(self.directory.folder, *TRAIN)
            started.process.join(delay)
            started.kill()
            self.directory.judge(started.wait(), before, killed=True)


def test_any_order_of_commands_ends_in_the_same_bits_or_in_one_clear_line():
    run_state_machine_as_test(RunDirectory, settings=PROFILE)

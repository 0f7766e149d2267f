"""Tell trackers about a run while it is trained, or about a report. No failure of a tracker stops the work.

What a tracker is told is a copy of metrics.jsonl. It asks the tracker for its last round and sends what comes after it:
rounds that are trained again after an interruption are not sent twice, and rounds that were trained without a tracker,
or while its server was down, are sent by the next `landscape train ... --track`. Imports no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.storage.run_directory import CONFIG, read_status
from training.tracking.catalog import CATALOG
from training.tracking.tracker import Exhibit, Row, Subject, Tracker, flatten_record, open_subject, read_rows

Say = Callable[[str], object]
PAUSE = 1.0  # seconds between two messages to a tracker: small models finish many rounds a second


class Guarded:
    """A tracker that may fail: the first failure is said in one line, and nothing more is sent.

    name: of the tracker. make_subject: makes what it is about, when the tracker is opened. say: prints a line.
    """

    def __init__(self, name: str, make_subject: Callable[[], Subject], say: Say):
        self.name, self.make_subject, self.say = name, make_subject, say
        self.tracker: Tracker | None = None
        self.failed = False

    def call(self, action: Callable[[Tracker], object]) -> None:
        """Do something with the tracker, which is opened before the first time."""
        if self.failed:
            return
        try:
            if self.tracker is None:
                self.tracker = CATALOG.find(self.name)(self.make_subject())
                self.say(f"{self.name}: {self.tracker.place}")
            action(self.tracker)
        except Exception as error:  # of a server, of the network, of another package: none of them is worth a run
            self.failed = True
            why = " ".join(str(error).split())[:300] or type(error).__name__
            self.say(f"warning: {self.name} failed, and gets no more of this run until the next command: {why}")

    def close(self, state: str) -> None:
        """Close the tracker, if it was opened."""
        if self.tracker is not None:
            self.call(lambda tracker: tracker.close(state))


class Follower:
    """Sends the rounds of one run to one tracker.

    run: its directory. guarded: the tracker.
    """

    def __init__(self, run: Path, guarded: Guarded):
        self.run, self.guarded = run, guarded
        self.last: int | None = None  # round that the tracker knows; None before it was asked
        self.waiting: list[Row] = []
        self.sent = 0.0  # when

    def add(self, record: Mapping[str, object], round: int) -> None:
        """Take the record of a round that was just stored, and send it soon."""
        if self.last is None:
            self.catch_up()
        elif round > self.last + len(self.waiting):
            self.waiting.append(Row(round, flatten_record(record)))
            if time.monotonic() - self.sent >= PAUSE:
                self.send()

    def catch_up(self) -> None:
        """Send every stored round that the tracker does not know."""
        if self.last is None:
            self.guarded.call(self._ask)
        self.send()

    def _ask(self, tracker: Tracker) -> None:
        self.last = tracker.find_last_round()
        self.waiting = [row for row in read_rows(self.run) if row.round > self.last]

    def send(self) -> None:
        """Send the rounds that wait."""
        if self.waiting and self.last is not None:
            rows, self.waiting, self.sent = self.waiting, [], time.monotonic()
            self.guarded.call(lambda tracker: tracker.log_rounds(rows))
            self.last = rows[-1].round


@contextmanager
def follow(run: Path, trackers: Sequence[str], say: Say) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Track a run for the duration of a block; gives a function to call with the record of each stored round.

    run: its directory, which may not exist yet. trackers: names, as `list_trackers` checks them. say: prints a line.
    At the end of the block trackers get what they lack, also of a run that was finished before.
    """
    followers = [Follower(run, Guarded(name, lambda: open_subject(run), say)) for name in trackers]

    def tell(record: Mapping[str, object]) -> None:
        round = record["round"]
        assert isinstance(round, int)
        for one in followers:
            one.add(record, round)

    try:
        yield tell
        if followers and (run / CONFIG).exists():
            for one in followers:
                one.catch_up()
    finally:
        for one in followers:
            one.send()
            one.guarded.close(_find_state(run))


def _find_state(run: Path) -> str:
    try:
        return read_status(run)["state"]
    except ValueError:  # not begun, or damaged
        return "running"


def send_report(
    subject: Subject,
    trackers: Sequence[str],
    figures: Sequence[Exhibit],
    tables: Sequence[Exhibit],
    say: Say,
    *,
    round: int = 0,
) -> None:
    """Send the figures and tables of a report to trackers.

    subject: the run that it is about, or the report itself where it is about several.
    trackers: names, as `list_trackers` checks them. figures, tables: what to send. say: prints a line.
    round: how far training was.
    """

    def send(tracker: Tracker) -> None:
        for figure in figures:
            tracker.log_figure(figure, round)
        for table in tables:
            tracker.log_table(table, round)

    for name in trackers:
        guarded = Guarded(name, lambda: subject, say)
        guarded.call(send)
        guarded.close("finished")

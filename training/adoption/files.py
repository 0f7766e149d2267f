"""Files of another framework's run: found by patterns with {round} and {client}, numbered as runs of ours are."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from training.adoption.description import PREVIOUS, Adopt, Description
from training.storage.run_directory import list_rounds

PLACEHOLDERS = {"round": r"(?P<round>\d{1,9})", "client": r"(?P<client>[^/]+?)"}


@dataclass(frozen=True)
class Files:
    """The files of a run.

    rounds: those that are adopted, ascending.
    global_models: by round, of all rounds that have one.
    client_models: by round and client. sent_models: by round.
    """

    rounds: tuple[int, ...]
    global_models: Mapping[int, Path]
    client_models: Mapping[int, Mapping[int, Path]]
    sent_models: Mapping[int, Path]

    @property
    def every(self) -> int:
        """The distance between two rounds."""
        return self.rounds[1] - self.rounds[0] if len(self.rounds) > 1 else max(self.rounds[0], 1)

    @property
    def participants(self) -> int | None:
        """The largest number of clients of a round; None where no client's model is there."""
        return max((len(own) for own in self.client_models.values()), default=None)

    def list_all(self) -> Iterator[tuple[str, Path]]:
        """Yield every file that is adopted, under a name that tells what it is."""
        for round in self.rounds:
            yield f"{round} global", self.global_models[round]
            yield from ((f"{round} client {k}", path) for k, path in sorted(self.client_models.get(round, {}).items()))
            if round in self.sent_models:
                yield f"{round} sent", self.sent_models[round]


def find_files(folder: Path, described: Description, clients: int) -> Files:
    """Find the files that a description means, or raise ValueError that says what is wrong with them.

    folder: what is adopted. clients: how many the partition has.
    """
    adopt = described.adopt
    finder = _Finder(folder, adopt, described.count)
    models = finder.find_by_round("global_models", adopt.global_models)
    rounds = _choose_rounds(adopt, sorted(models), described.source)
    if described.count not in (None, rounds[-1]):
        raise ValueError(
            f"{described.source}: rounds.count is {described.count}, but the last global model is of round "
            f"{rounds[-1]}: correct rounds.count, or adopt.round_shift (1 where the first round is called 0)"
        )
    local = finder.find_by_client(adopt.client_models, clients) if adopt.client_models is not None else {}
    alone = sorted(set(local) - set(models))
    if alone:
        raise ValueError(f"{folder}: round {alone[0]} has models of clients, but no global model")
    sent = {}
    if adopt.sent_models == PREVIOUS:
        sent = {round: models[round - 1] for round in rounds if round - 1 in models}
    elif adopt.sent_models is not None:
        sent = finder.find_by_round("sent_models", adopt.sent_models)
    return Files(tuple(rounds), models, {round: local[round] for round in rounds if round in local}, sent)


def _choose_rounds(adopt: Adopt, there: Sequence[int], source: str) -> list[int]:
    """The rounds to adopt: those that are listed, or all if they have the same distance from each other."""
    if adopt.rounds is not None:
        absent = sorted(set(adopt.rounds) - set(there))
        if absent or not adopt.rounds:
            raise ValueError(
                f"{source}: adopt.rounds must name rounds that have a global model; "
                f"{list_rounds(absent) or 'none is named'}; there are {list_rounds(there)}"
            )
        return sorted(set(adopt.rounds))
    steps = [after - before for before, after in pairwise(there)]
    for place, step in enumerate(steps):
        last = place == len(steps) - 1
        if step > steps[0] or (step < steps[0] and not last):
            raise ValueError(
                f"{source}: the rounds of the global models are not evenly spaced ({list_rounds(there)}): a file is "
                f"missing after round {there[place]}, or write adopt.rounds = [...] with the rounds to adopt"
            )
    return list(there)


class _Finder:
    def __init__(self, folder: Path, adopt: Adopt, count: int | None) -> None:
        self.folder, self.adopt, self.count = folder, adopt, count

    def find_by_round(self, what: str, pattern: str) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for _, round, path in self._match(what, pattern, ("round",)):
            self._refuse_two(found.get(round), path, f"round {round} has two {what.replace('_', ' ')}")
            found[round] = path
        return found

    def find_by_client(self, pattern: str, clients: int) -> dict[int, dict[int, Path]]:
        if "{client}" not in pattern:
            raise ValueError(f'adopt.client_models must contain {{client}}, got "{pattern}"')
        found: dict[int, dict[int, Path]] = {}
        for name, round, path in self._match("client_models", pattern, ("round", "client")):
            client = self._number(name, path, clients)
            own = found.setdefault(round, {})
            self._refuse_two(own.get(client), path, f"client {client} has two models in round {round}")
            own[client] = path
        return found

    def _match(self, what: str, pattern: str, allowed: Sequence[str]) -> Iterator[tuple[str, int, Path]]:
        """Yield the {client} and the round of every file that matches, and its path."""
        wild, exact = _compile(what, pattern, allowed)
        names = sorted(glob.glob(wild, root_dir=self.folder))
        matches = [(match, name) for name in names if (match := exact.fullmatch(Path(name).as_posix()))]
        matches = [(match, name) for match, name in matches if (self.folder / name).is_file()]
        if not matches:
            there = sorted(path.name for path in self.folder.iterdir())[:5]
            raise ValueError(f'adopt.{what} = "{pattern}" matches no file in {self.folder}, which has {there}')
        for match, name in matches:
            groups = match.groupdict()
            yield groups.get("client", ""), self._find_round(groups.get("round"), what, name), self.folder / name

    def _find_round(self, number: str | None, what: str, name: str) -> int:
        if number is None:
            if self.count is None:
                raise ValueError(f"adopt.{what} has no {{round}}: write rounds.count, after which {name} was saved")
            return self.count
        round = int(number) + self.adopt.round_shift
        if round < 0:
            raise ValueError(f"{name} would be of round {round}: correct adopt.round_shift")
        return round

    def _number(self, name: str, path: Path, clients: int) -> int:
        """The number of the client that a file calls by `name`."""
        known = self.adopt.client_names
        if known:
            if name not in known:
                raise ValueError(f"{path} is of client '{name}', which is not among adopt.client_names")
            client = known.index(name)
        elif name.isascii() and name.isdecimal() and len(name) < 10:
            client = int(name)
        else:
            raise ValueError(
                f"{path} is of client '{name}', expected a number: write adopt.client_names = [...], the names of "
                "client 0, 1, ..."
            )
        if client >= clients:
            raise ValueError(
                f"{path} is of client {client}, but the partition has clients 0 to {clients - 1}: correct "
                'partition.clients, or write adopt.client_names = ["1", "2", ...] if they are counted from 1'
            )
        return client

    def _refuse_two(self, one: Path | None, other: Path, problem: str) -> None:
        if one is not None:
            names = " and ".join(str(path.relative_to(self.folder)) for path in (one, other))
            raise ValueError(f"{self.folder}: {problem}: {names}; remove one, or write a stricter pattern")


def _compile(what: str, pattern: str, allowed: Sequence[str]) -> tuple[str, re.Pattern[str]]:
    """Make a pattern for glob and an exact one of a text with {round} and {client}."""
    if Path(pattern).is_absolute():
        raise ValueError(f'adopt.{what} must be relative to the folder that is adopted, got "{pattern}"')
    wild, exact, seen = "", "", set()
    for place, part in enumerate(re.split(r"\{(.*?)\}", pattern)):
        if place % 2 == 0:
            wild, exact = wild + glob.escape(part), exact + re.escape(part)
        elif part not in allowed:
            raise ValueError(
                f"adopt.{what} may contain {' and '.join(f'{{{one}}}' for one in allowed)}, got {{{part}}}"
            )
        else:
            wild, exact = f"{wild}*", exact + (f"(?P={part})" if part in seen else PLACEHOLDERS[part])
            seen.add(part)
    return wild, re.compile(exact)

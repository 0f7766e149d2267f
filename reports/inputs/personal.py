"""Accuracy of models made for clients, client by client, wherever it was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.store import Answer
from training.storage.verified_files import Json

FORMAT = "personal 1"  # of the files of `landscape personal`; see training/personal/scores.py
GLOBAL = "global"  # the strategy that makes no model: the global one as it is


@dataclass(frozen=True, eq=False)
class Personal:
    """Scores of one personalisation strategy on each client's own data: fractions, NaN for clients left out."""

    strategy: str
    round: int
    about: Json  # which global model, how many clients were drawn, options of the strategy
    client: NDArray[np.int64]
    before: NDArray[np.float64]  # of the global model
    after: NDArray[np.float64]  # of the client's own
    name: str = ""  # in figures and tables: the strategy, and what tells it from others of the same strategy

    @property
    def question(self) -> str:
        return json.dumps([self.strategy, self.about], sort_keys=True, default=str)


def read_answer(answer: Answer) -> list[Personal]:
    """Read the scores of the study `personal` at its last round."""
    last = answer.data.isel(round=-1)
    about = {"model": answer.settings.get("model", "server"), "clients": answer.settings.get("clients")}
    found = []
    for name in map(str, last["strategy"].values):
        one = last.sel(strategy=name)
        options = json.loads(str(one["options"].item())) if "options" in one else {}
        before, after = (np.asarray(one[key].values, dtype=np.float64) for key in ("before", "after"))
        client = np.asarray(one["client"].values, dtype=np.int64)
        found.append(Personal(name, int(last["round"]), {**about, **options}, client, before, after))
    return found


def read_json(content: Json) -> Personal:
    """Read the scores that `landscape personal` wrote."""
    if content.get("format") != FORMAT:
        raise ValueError(f"expected the format '{FORMAT}', got {content.get('format')!r}")
    rows = [(one["client"], one["before"], one["after"]) for one in content["clients"]]
    client, before, after = np.asarray(rows, dtype=np.float64).reshape(-1, 3).T
    about = {"model": content["model"], "clients": content["sample"], **content["options"]}
    return Personal(str(content["way"]), int(content["round"]), about, client.astype(np.int64), before, after)


def name_apart(found: Sequence[Personal]) -> tuple[Personal, ...]:
    """Keep every question once, at its latest round, under a name that no other has."""
    latest: dict[str, Personal] = {}
    for one in found:
        if one.question not in latest or one.round > latest[one.question].round:
            latest[one.question] = one
    named = []
    for one in latest.values():
        same = [other for other in latest.values() if other.strategy == one.strategy]
        told = [
            f"{key} {one.about.get(key)}"
            for key in dict.fromkeys(key for other in same for key in other.about)
            if len({json.dumps(other.about.get(key), default=str) for other in same}) > 1
        ]
        named.append(replace(one, name=f"{one.strategy} ({', '.join(told)})" if told else one.strategy))
    return tuple(named)

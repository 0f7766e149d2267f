"""`landscape runs`: one line for each run, with the settings in which they differ. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from training.console.messages import printable
from training.console.summaries import find_scores, find_standing, name_metric, write_score
from training.console.tables import make_table, show_value
from training.storage import metrics

UNTOLD = ("data.root", "data.download")  # where data lie does not tell runs apart


def find_differing(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Find the dotted settings in which runs differ.

    >>> find_differing([{"seed": 0, "local.lr": 0.1}, {"seed": 1, "local.lr": 0.1}])
    ['seed']
    """
    keys = dict.fromkeys(key for one in settings for key in one)
    return [
        key
        for key in keys
        if key not in UNTOLD and len({json.dumps(one.get(key), default=str) for one in settings}) > 1
    ]


def list_runs(runs: Sequence[tuple[Path, Mapping[str, object]]]) -> Table:
    """Make a table of runs: state, rounds, last accuracy or mean IoU, and what they differ in.

    runs: the directory and the settings, by dotted keys, of each.
    """
    keys = find_differing([settings for _, settings in runs])
    shown = [key.removesuffix(".name") for key in keys]
    scores = {path: find_scores(path, 1)[:1] for path, _ in runs}
    metric = name_metric([one for some in scores.values() for one in some])
    table = make_table("run", "state", "rounds", metric, *shown)
    for column in table.columns[2:4]:
        column.justify = "right"
    for path, settings in runs:
        state, done = find_standing(path)["state"], len(metrics.read(path))
        last = write_score(scores[path][0])[0] if scores[path] else "-"
        cells = [show_value(settings[key]) if settings.get(key) is not None else "-" for key in keys]
        head = (printable(path), "stopped" if state == "running" else state, f"{done} of {settings['rounds.count']}")
        table.add_row(*map(escape, (*head, last, *cells)))
    return table

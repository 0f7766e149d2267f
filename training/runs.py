"""A run as Python sees it: its settings, state, metrics and checkpoints, read from its directory. Imports no torch."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from training import recipe_tables
from training.console.summaries import Standing, describe_run, find_scores, find_standing
from training.data import partition
from training.recipe_tables import RecipeTables
from training.storage import metrics, run_directory, toml
from training.storage.run_directory import PARTITION
from training.storage.verified_files import Json

if TYPE_CHECKING:
    import pandas as pd

Places = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]  # runs, folders of runs or patterns: one or several


@dataclass(frozen=True)
class Run:
    """A run directory; it can be given wherever a path is expected.

    path: of the directory.
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.absolute().name

    @cached_property
    def recipe(self) -> RecipeTables:
        """Every setting, as tables."""
        return recipe_tables.read(self.path)

    @property
    def settings(self) -> Json:
        """Every setting by its dotted key, such as "local.lr"."""
        return dict(toml.flatten(self.recipe.model_dump(mode="json")))

    @property
    def status(self) -> Standing:
        """Its state (begun, running, finished or diverged), its finished rounds, and why it diverged."""
        return find_standing(self.path)

    @property
    def metrics(self) -> pd.DataFrame:
        """What was measured in training, one row for each finished round."""
        import pandas as pd

        return pd.DataFrame(metrics.read(self.path)).set_index("round") if self.rounds_done else pd.DataFrame()

    @property
    def rounds_done(self) -> int:
        """Finished rounds that are on record."""
        return len(metrics.read(self.path))

    @property
    def checkpoints(self) -> list[int]:
        """Rounds whose models were kept."""
        return run_directory.checkpoint_rounds(self.path)

    def describe(self) -> Json:
        """Describe the run by values that JSON can hold: path, state, settings, accuracies, checkpoints."""
        return {
            "run": str(self.path),
            **self.status,
            "rounds": self.recipe.rounds.count,
            "settings": self.recipe.model_dump(mode="json"),
            "scores": [asdict(score) for score in find_scores(self.path, self.recipe.evaluation.last)],
            "checkpoints": self.checkpoints,
        }

    def _repr_html_(self) -> str:
        """A summary for notebooks: status, settings, checkpoints, and the last metrics."""
        facts = describe_run(self.path, self.recipe, partition.load(self.path / PARTITION))
        rows = "".join(
            f"<tr><th>{html.escape(key)}</th><td>{html.escape(text)}</td></tr>" for key, text in facts.items()
        )
        scores = "".join(
            f"<tr><td>{html.escape(one.model)}</td><td>{one.round}</td><td>{html.escape(one.metric)}</td>"
            f"<td>{100 * one.value:.2f} %</td>"
            f"<td>{100 * one.mean:.2f} % (last {one.count})</td></tr>"
            for one in find_scores(self.path, self.recipe.evaluation.last)
        )
        head = "<tr><th>on the test data</th><th>round</th><th>metric</th><th>value</th><th>mean</th></tr>"
        return (
            f"<table><caption>{html.escape(self.name)}</caption>{rows}</table>"
            f"{f'<table>{head}{scores}</table>' if scores else ''}"
        )


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open a run directory; ValueError that lists runs nearby if it is none.

    path: of the directory, or a pattern that one run matches.
    """
    found = load_runs(path)
    if len(found) != 1:
        names = ", ".join(str(one.path) for one in found[:5])
        raise ValueError(
            f"{os.fspath(path)} holds {len(found)} runs ({names}, ...): write load_runs, or the path of one"
        )
    return found[0]


def load_runs(places: Places = "runs", where: str | Mapping[str, object] = "") -> list[Run]:
    """Open runs, those with some settings only if these are given.

    places: run directories, folders of runs, or patterns such as "runs/*sam*"; one or several.
    where: settings, as "algorithm=fedsam seed=1" or {"algorithm": "fedsam", "seed": 1}; see `select_runs`.
    """
    return select_runs([Run(path) for path in run_directory.find_runs(list_paths(places))], where)


def list_paths(places: Places) -> list[Path]:
    """Make paths of what a caller gave: one or several strings, paths or runs."""
    several = [places] if isinstance(places, (str, os.PathLike)) else places
    return [Path(one) for one in several]


def select_runs(runs: Iterable[Run], where: str | Mapping[str, object]) -> list[Run]:
    """Select the runs that have all of some settings.

    where: dotted settings with their values; a table's name stands for its `name`, and a last part such as "alpha" for
        the one setting that ends so. "state" is a setting here too. A value with * or ? is a pattern.
    """
    from fnmatch import fnmatchcase

    wanted = parse_filter(where) if isinstance(where, str) else dict(where)
    if not wanted:
        return list(runs)
    found, names = [], set[str]()
    for run in runs:
        known = {**run.settings, "state": run.status["state"]}
        names |= {part for key in known for part in (key, key.rpartition(".")[2], key.removesuffix(".name"))}
        values = {key: _find_setting(known, key) for key in wanted}
        if all(
            fnmatchcase(_write(values[key]), _write(value)) or _is_same_number(values[key], value)
            for key, value in wanted.items()
        ):
            found.append(run)
    if not found:
        _refuse_misspelt(wanted, names)
    return found


def _refuse_misspelt(wanted: Iterable[str], known: set[str]) -> None:
    """Raise ValueError if a setting that no run has is spelt almost like one that they have."""
    for key in wanted:
        near = [] if key in known else get_close_matches(key, sorted(known), n=1)
        if near:
            raise ValueError(f"no run has a setting '{key}'; did you mean '{near[0]}'?")


def parse_filter(text: str) -> dict[str, object]:
    """Read "algorithm=fedsam seed=1" as settings.

    >>> parse_filter("algorithm=fedsam seed=1")
    {'algorithm': 'fedsam', 'seed': 1}
    """
    found: dict[str, object] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise ValueError(f'expected settings such as "algorithm=fedsam seed=1", got "{word}"')
        found[key] = toml.parse_value(value)
    return found


def _find_setting(known: Mapping[str, object], key: str) -> object:
    """The value of a setting by its dotted key, by the name of its table, or by the last part of its key."""
    if key in known:
        return known[key]
    if f"{key}.name" in known:
        return known[f"{key}.name"]
    ending = [name for name in known if name.endswith(f".{key}")]
    if len(ending) > 1:
        raise ValueError(f"'{key}' may be {' or '.join(sorted(ending))}: write one of them")
    return known[ending[0]] if ending else None


def _is_same_number(one: object, other: object) -> bool:
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    return numbers and not isinstance(one, bool) and not isinstance(other, bool) and one == other


def _write(value: object) -> str:
    return value if isinstance(value, str) else toml.show(value)

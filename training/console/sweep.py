"""Train the runs of a recipe one after the other, with progress and results on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from landscape.errors import choose, whole
from training import config
from training.config import Recipe
from training.console.progress import Bars, bars
from training.console.summaries import Score, find_scores, find_standing
from training.console.tables import make_table, print_line, show_settings
from training.engine.opening import find_run
from training.engine.run import RoundCallback, train
from training.executors.choice import BACKENDS
from training.storage import checkpoint, metrics, toml
from training.storage.metrics import Record
from training.storage.run_directory import CONFIG, checkpoint_rounds, read_provenance


def train_all(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    console: Console,
    backend: str = "auto",
    workers: int | None = None,
    asked: Sequence[str] = (),
) -> list[Path]:
    """Train every recipe in its own directory under `out`; partial runs are resumed, finished ones skipped.

    recipes: what to train; duplicates are trained once. out: folder of the runs. console: where progress is printed.
    backend: an executor, or "auto". workers: processes; by default one per core.
    asked: dotted keys of settings to include in the names of new runs, besides those in which the runs differ.

    Returns the run directories. A run that diverges is marked so in its directory, and the next one begins.
    """
    choose("backend", backend, BACKENDS)
    if workers is not None:
        whole("workers", workers)
    unique = list({recipe.digest: recipe for recipe in recipes}.values())
    differing = find_differing_keys(unique)
    differences = describe_differences(unique)
    paths = []
    for number, (recipe, difference) in enumerate(zip(unique, differences, strict=True), start=1):
        name = recipe.name([*differing[number - 1], *asked])
        if len(unique) > 1:
            print_line(console, f"run {number} of {len(unique)}, {difference}: {find_run(out, recipe, name)}")
        paths.append(_train_one(recipe, out, name, console, backend, workers, alone=len(unique) == 1))
    if len(unique) == 1:
        _print_result(paths[0], unique[0], console)
    else:
        _print_results(paths, unique, differences, console)
    return paths


def describe_differences(recipes: Sequence[Recipe]) -> list[str]:
    """Describe each run by the settings that distinguish it: algorithm=fedsam, partition.alpha=0.5."""
    texts = []
    for recipe, keys in zip(recipes, find_differing_keys(recipes), strict=True):
        own = _flat(recipe)
        texts.append(show_settings({key.removesuffix(".name"): own[key] for key in keys}))
    return texts


def find_differing_keys(recipes: Sequence[Recipe]) -> list[list[str]]:
    """Find, for each run, the dotted keys of the settings that distinguish it from the others.

    Settings of a method or partition are compared only between runs of the same one.
    """
    flat = [_flat(recipe) for recipe in recipes]

    def differs(key: str, own: Mapping[str, object]) -> bool:
        name = f"{key.partition('.')[0]}.name"
        peers = flat if key == name else [other for other in flat if other.get(name) == own.get(name)]
        return any(other.get(key) != own[key] for other in peers)

    return [[key for key in own if differs(key, own)] for own in flat]


def _flat(recipe: Recipe) -> dict[str, object]:
    """Return every setting by its dotted key, and swa.name, which is on or off."""
    content = recipe.model_dump(mode="json")
    content["swa"] = {"name": "off"} if recipe.swa is None else {"name": "on", **content["swa"]}
    return dict(toml.flatten(content))


def _train_one(
    recipe: Recipe, out: Path, name: str, console: Console, backend: str, workers: int | None, *, alone: bool
) -> Path:
    path = find_run(out, recipe, name)
    done = find_end(path, recipe)
    if done:
        print_line(console, done)
        return path
    try:
        with bars(console) as bar:
            watch = _watch(recipe, console, bar)
            tell = partial(print_line, console)
            return train(recipe, out, name=name, backend=backend, workers=workers, on_round=watch, on_message=tell)
    except KeyboardInterrupt:
        kept = checkpoint_rounds(path)
        start = f"from round {kept[-1]}" if kept else "from the beginning"
        print_line(console, f"stopped. Nothing saved is lost: the same command resumes {start}")
        raise
    except ValueError as error:
        raise ValueError(str(error) if alone or str(path) in str(error) else f"{path.name}: {error}") from error


def find_end(path: Path, recipe: Recipe) -> str:
    """Explain why a run needs no more training: it finished and its last checkpoint is intact, or it diverged.

    path: the run directory, which may not exist. recipe: what it should hold. Returns an empty string if there is
    something left to train.

    Training is deterministic, so a diverged run would diverge again in the same round.
    """
    try:
        read_provenance(path)
        same = config.load(path / CONFIG)[0].digest == recipe.digest
        found = find_standing(path)
    except ValueError:  # missing or damaged: training reports it, and repairs what it can
        return ""
    if not same:
        return ""
    if found["state"] == "diverged":
        return f"diverged before, not trained again (remove {path} to try): {found['message']}"
    if found["state"] != "finished":
        return ""
    newest, damaged = checkpoint.load_newest(path)
    if newest is None or damaged or newest.round < recipe.rounds.count:
        return ""
    try:
        if len(metrics.read(path)) < recipe.rounds.count:
            return ""
    except ValueError:
        return ""
    return f"finished already, not trained again (remove {path} to start over)"


def _watch(recipe: Recipe, console: Console, bar: Bars) -> RoundCallback:
    """Make a callback that shows a bar and ten lines on a terminal, and one line per round elsewhere."""
    count = recipe.rounds.count
    if not console.is_terminal:
        return lambda record: print_line(console, describe_round(record, count))
    move, pause = bar(recipe.algorithm.name), -(-count // 10)

    def watch(record: Record) -> None:
        if record["round"] % pause == 0 or record["round"] == count:
            print_line(console, describe_round(record, count))
        move(record["round"], count)

    return watch


def describe_round(record: Record, count: int) -> str:
    """Describe one round in one line.

    record: its measurements. count: number of rounds of the run.
    """
    accuracy = record.get("accuracy")
    swa, personal = record.get("swa_accuracy"), record.get("personal_accuracy")
    parts = [
        f"round {record['round']:>{len(str(count))}}/{count}",
        f"train loss {record['train_loss']:.4f}",
        f"accuracy {'-' if accuracy is None else f'{100 * accuracy:.2f} %'}",
        *([f"SWA {100 * swa:.2f} %"] if swa is not None else []),
        *([f"own models {100 * personal:.2f} %"] if personal is not None else []),
        f"{record['seconds']:.2f} s",
    ]
    return "  ".join(parts)


def _print_result(path: Path, recipe: Recipe, console: Console) -> None:
    found = find_standing(path)
    print_line(console, f"{found['state']} after {found['round']} of {recipe.rounds.count} rounds: {path}")
    for score in _reported(path, recipe):
        print_line(console, f"accuracy of the {score.model}: {_accuracy(score)}")
    print_line(console, f"next: landscape show {path}")


def _accuracy(score: Score) -> str:
    last = f"{100 * score.accuracy:.2f} % after round {score.round}"
    return f"{last}, {100 * score.mean:.2f} % in the mean of the last {score.count} evaluated rounds"


def _print_results(
    paths: Sequence[Path], recipes: Sequence[Recipe], differences: Sequence[str], console: Console
) -> None:
    table = make_table("what differs", "state", "model", "accuracy", "mean accuracy", "run")
    for column in table.columns:
        column.no_wrap = column.header != "what differs"
    diverged = 0
    for path, recipe, difference in zip(paths, recipes, differences, strict=True):
        state = find_standing(path)["state"]
        diverged += state == "diverged"
        head, tail = (difference, state), f"*{recipe.digest[:8]}"
        for score in _reported(path, recipe):
            model = "SWA" if score.model.startswith("SWA") else "server's"
            mean = f"{100 * score.mean:.2f} % (last {score.count})"
            cells = (*head, model, f"{100 * score.accuracy:.2f} %", mean, tail)
            table.add_row(*map(escape, cells))
            head, tail = ("", ""), ""
        if tail:
            table.add_row(*map(escape, (*head, "-", "-", "-", tail)))
    console.print("", table, "")
    print_line(console, f"{len(paths)} runs in {paths[0].parent}, {diverged or 'none'} of them diverged")
    print_line(console, f"next: landscape show {paths[0]}")


def _reported(path: Path, recipe: Recipe) -> list[Score]:
    """Return the scores of the server's model and the SWA average; `landscape show` has the others too."""
    return [score for score in find_scores(path, recipe.evaluation.last) if not score.model.startswith("mean")]

"""Train the runs of a recipe, with progress and results on the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from landscape.errors import choose, whole
from landscape.runtime.termination import Terminated
from training import config
from training.config import Recipe
from training.console.jobs import Job, run_jobs
from training.console.progress import Bars, bars
from training.console.summaries import Score, find_scores, find_standing, name_metric, write_score
from training.console.tables import make_table, print_line, show_settings
from training.engine.opening import find_run
from training.engine.run import RoundCallback, train
from training.executors.choice import BACKENDS
from training.executors.pools import BACKENDS as PLACED
from training.executors.pools import Placement
from training.executors.ray_pool import Cluster
from training.storage import checkpoint, metrics, toml
from training.storage.metrics import Record
from training.storage.run_directory import CONFIG, checkpoint_rounds, read_provenance
from training.tracking.catalog import list_trackers
from training.tracking.following import follow


def train_all(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    console: Console,
    backend: str = "auto",
    workers: int | None = None,
    asked: Sequence[str] = (),
    cluster: Cluster | None = None,
    memory: int | None = None,
    shard: str = "",
    track: str | Sequence[str] = (),
) -> list[Path]:
    """Train every recipe in its own directory under `out`; partial runs are resumed, finished ones skipped.

    recipes: what to train; duplicates are trained once. out: folder of the runs. console: where progress is printed.
    backend: an executor, or "auto". workers: processes; by default one per core.
    asked: dotted keys of settings to include in the names of new runs, besides those in which the runs differ.
    cluster: of the backend ray. memory: bytes of clients' vectors in memory, as `engine.run.train` takes them.
    shard: "i/n" trains only the i-th of n parts, counted from zero.
    track: trackers that get the metrics of every run: tensorboard, wandb, mlflow, or 'module:name'; one or several.

    Returns the run directories. A run that diverges is marked so in its directory, and the next one begins.
    """
    choose("backend", backend, BACKENDS)
    if workers is not None:
        whole("workers", workers)
    trackers = list_trackers(track)
    first, stride = parse_shard(shard)
    unique = list({recipe.digest: recipe for recipe in recipes}.values())
    names = [recipe.name([*keys, *asked]) for recipe, keys in zip(unique, find_differing_keys(unique), strict=True)]
    differences = describe_differences(unique)[first::stride]  # among all runs: they have the same names in any shard
    unique, names = unique[first::stride], names[first::stride]
    if not unique:
        print_line(console, f"shard {shard}: the sweep has fewer runs than shards, and none for this one")
        return []
    how = _How(out, console, backend, workers, cluster or Cluster(), memory, tuple(trackers))
    train_runs = _train_side_by_side if _is_wide(unique, how) else _train_in_turn
    paths = train_runs(unique, names, differences, how)
    if len(unique) == 1:
        _print_result(paths[0], unique[0], console)
    else:
        _print_results(paths, unique, differences, console)
    return paths


def parse_shard(text: str) -> tuple[int, int]:
    """Parse which part of a sweep to train.

    text: "i/n" with 0 <= i < n, as Slurm counts the tasks of an array; empty: everything.
    Returns the first run, and the stride to the next.

    >>> parse_shard("1/4")
    (1, 4)
    """
    place, slash, count = text.partition("/")
    if not text:
        return 0, 1
    if not (slash and place.isdecimal() and count.isdecimal() and int(place) < int(count)):
        raise ValueError(f"--shard must be I/N with I from 0 to N - 1, such as 0/4 to 3/4; got '{text}'")
    return int(place), int(count)


@dataclass(frozen=True)
class _How:
    """The arguments of `train_all` that are the same for every run."""

    out: Path
    console: Console
    backend: str
    workers: int | None
    cluster: Cluster
    memory: int | None = None
    trackers: tuple[str, ...] = ()


def _is_wide(recipes: Sequence[Recipe], how: _How) -> bool:
    """Whether parallel runs keep more workers busy than the clients of one run at a time.

    Only the backends processes and ray know both, and agree with each other to the bit.
    """
    if how.backend not in PLACED or len(recipes) == 1:
        return False
    workers = how.workers or (os.cpu_count() or 1 if how.backend == "processes" else len(recipes))
    return min(workers, len(recipes)) >= min(workers, *(recipe.rounds.participants for recipe in recipes))


def _train_in_turn(
    recipes: Sequence[Recipe], names: Sequence[str], differences: Sequence[str], how: _How
) -> list[Path]:
    """Train the runs one after another."""
    paths = []
    for number, (recipe, name, difference) in enumerate(zip(recipes, names, differences, strict=True), start=1):
        if len(recipes) > 1:
            told = f"run {number} of {len(recipes)}, {difference}: {find_run(how.out, recipe, name)}"
            print_line(how.console, told)
        paths.append(_train_one(recipe, name, how, alone=len(recipes) == 1))
    return paths


def _train_side_by_side(
    recipes: Sequence[Recipe], names: Sequence[str], differences: Sequence[str], how: _How
) -> list[Path]:
    """Train several runs at a time, each in one worker."""
    paths = [find_run(how.out, recipe, name) for recipe, name in zip(recipes, names, strict=True)]
    left = [place for place, path in enumerate(paths) if not find_end(path, recipes[place])]
    for place in sorted({*range(len(paths))} - {*left}):
        print_line(how.console, f"{paths[place]}: {find_end(paths[place], recipes[place])}")
        with follow(paths[place], how.trackers, partial(print_line, how.console)):
            pass  # trackers get what they lack
    where = how.out.absolute()
    memory = None if how.memory is None else how.memory // min(how.workers or os.cpu_count() or 1, max(len(left), 1))
    jobs = [
        Job(paths[place].name, partial(_train_quietly, recipes[place], where, names[place], memory, how.trackers))
        for place in left
    ]
    placement = Placement(how.backend, how.workers, how.cluster)
    try:
        for number, (job, (said, tracked)) in enumerate(run_jobs(jobs, placement, how.console, how.out), start=1):
            state = find_standing(how.out / job.name)["state"]
            for line in tracked:
                print_line(how.console, f"{job.name}: {line}")
            last = f" ({said[-1]})" if said and state != "finished" else ""
            print_line(how.console, f"run {number} of {len(jobs)}, {job.name}: {state}{last}")
    except (KeyboardInterrupt, Terminated):
        print_line(how.console, "stopped. Nothing saved is lost: the same command resumes every run where it stopped")
        raise
    return paths


def _train_quietly(
    recipe: Recipe, out: Path, name: str, memory: int | None, trackers: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Train one run in a worker, with its share of the memory; returns its messages and those of trackers."""
    said: list[str] = []
    tracked: list[str] = []
    with follow(find_run(out, recipe, name), trackers, tracked.append) as tell:
        train(recipe, out, name=name, backend="serial", memory=memory, on_round=tell, on_message=said.append)
    return said, tracked


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


def _train_one(recipe: Recipe, name: str, how: _How, *, alone: bool) -> Path:
    console = how.console
    path = find_run(how.out, recipe, name)
    done = find_end(path, recipe)
    say = partial(print_line, console)
    try:
        with bars(console) as bar, follow(path, how.trackers, say) as tell:
            if done:
                say(done)
                return path  # trackers get what they lack
            watch = _watch(recipe, console, bar)
            return train(
                recipe,
                how.out,
                name=name,
                backend=how.backend,
                workers=how.workers,
                cluster=how.cluster,
                memory=how.memory,
                on_round=lambda record: (watch(record), tell(record)),
                on_message=say,
            )
    except (KeyboardInterrupt, Terminated):
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
    newest, damaged = checkpoint.load_newest(path, with_clients=False)
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
    if not console.is_terminal and not console.is_jupyter:
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
    metric = metrics.find_score([record])
    score, swa, personal = record.get(metric), record.get(f"swa_{metric}"), record.get("personal_accuracy")
    parts = [
        f"round {record['round']:>{len(str(count))}}/{count}",
        f"train loss {record['train_loss']:.4f}",
        f"{metrics.SCORES[metric]} {'-' if score is None else f'{100 * score:.2f} %'}",
        *([f"SWA {100 * swa:.2f} %"] if swa is not None else []),
        *([f"own models {100 * personal:.2f} %"] if personal is not None else []),
        f"{record['seconds']:.2f} s",
    ]
    return "  ".join(parts)


def _print_result(path: Path, recipe: Recipe, console: Console) -> None:
    found = find_standing(path)
    print_line(console, f"{found['state']} after {found['round']} of {recipe.rounds.count} rounds: {path}")
    for score in _reported(path, recipe):
        print_line(console, f"{score.metric} of the {score.model}: {_describe_score(score)}")
    print_line(console, f"next: landscape show {path}")


def _describe_score(score: Score) -> str:
    last = f"{100 * score.value:.2f} % after round {score.round}"
    return f"{last}, {100 * score.mean:.2f} % in the mean of the last {score.count} evaluated rounds"


def _print_results(
    paths: Sequence[Path], recipes: Sequence[Recipe], differences: Sequence[str], console: Console
) -> None:
    scores = {path: _reported(path, recipe) for path, recipe in zip(paths, recipes, strict=True)}
    metric = name_metric([one for some in scores.values() for one in some])
    table = make_table("what differs", "state", "model", metric, f"mean {metric}", "run")
    for column in table.columns:
        column.no_wrap = column.header != "what differs"
    diverged = 0
    for path, recipe, difference in zip(paths, recipes, differences, strict=True):
        state = find_standing(path)["state"]
        diverged += state == "diverged"
        head, tail = (difference, state), f"*{recipe.digest[:8]}"
        for score in scores[path]:
            model = {"SWA average": "SWA", "clients' own models": "own"}.get(score.model, "server's")
            table.add_row(*map(escape, (*head, model, *write_score(score), tail)))
            head, tail = ("", ""), ""
        if tail:
            table.add_row(*map(escape, (*head, "-", "-", "-", tail)))
    console.print("", table, "")
    print_line(console, f"{len(paths)} runs in {paths[0].parent}, {diverged or 'none'} of them diverged")
    print_line(console, f"next: landscape show {paths[0]}")


def _reported(path: Path, recipe: Recipe) -> list[Score]:
    """Return the scores without that of the participants' mean, which `landscape show` prints."""
    return [score for score in find_scores(path, recipe.evaluation.last) if not score.model.startswith("mean")]

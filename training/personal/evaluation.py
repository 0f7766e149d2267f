"""Personalised evaluation: how well every client is served, by the global model or by one made for it.

    <run>/personal/<way>-<hash of the options>.json

A way takes a run after one of its rounds and gives a function that scores the classes for any client's test examples.
A new way is one function and one line in PERSONAL.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from landscape.errors import choose, whole
from landscape.runtime.workers import ordered_map
from training.console.messages import printable
from training.console.progress import bars
from training.console.tables import add_notes, make_table, print_line, show_settings
from training.engine.local_training import DivergenceError
from training.personal.client_tests import Subject, client_examples, client_test, largest_draw, open_subject, sampled
from training.personal.scores import ClientScore, PersonalResult, load, save
from training.personal.strategies import PERSONAL as PERSONAL  # part of what this file offers
from training.personal.strategies import as_it_is
from training.rules.base import within
from training.storage import atomic_files, lease, toml
from training.storage.atomic_files import DamagedError
from training.storage.run_directory import find_runs


def evaluate(
    subject: Subject,
    way: str,
    given: Mapping[str, Any] | None = None,
    *,
    sample: int | None = None,
    watch: Callable[[int, int], object] = lambda done, total: None,
    say: Callable[[str], object] = print,
) -> PersonalResult:
    """Personalise a run in one way and test every client, or a sample of them; a result that is there is kept.

    given: options of the way, and `draw`, the size of a client's test set where it has none of its own.
    """
    options, clients = settle(subject, way, given or {}), sampled(subject.federation, sample)
    wanted = PersonalResult(way, subject.state.round, subject.model, options, sample, subject.checkpoint)
    path = subject.run / "personal" / wanted.file
    try:
        kept = load(path) if path.exists() else None
    except DamagedError as error:
        say(f"damaged, made again: {error}")
        kept = None
    if kept is not None and dataclasses.replace(kept, left_out=0, clients=()) == wanted:
        return kept
    try:
        # one thread, as in training: the same bits on every machine
        found = next(ordered_map(list, [_scores(subject, way, options, clients, watch)], workers=1))
    except DivergenceError as error:
        raise ValueError(
            f"{way}: client {error.client} of {subject.run} diverged in local step {error.step} at lr {error.lr:g}; "
            f"write a smaller lr{' or beta' if 'beta' in options else ''}"
        ) from None
    scores = tuple(score for score in found if score is not None)
    if not scores:
        raise ValueError(f"{way}: no client of {subject.run} has both test examples and a model; is draw too small?")
    result = dataclasses.replace(wanted, left_out=len(clients) - len(scores), clients=scores)
    save(path, result)
    return result


def _scores(
    subject: Subject, way: str, options: dict[str, Any], clients: Sequence[int], watch: Callable[[int, int], object]
) -> Iterator[ClientScore | None]:
    """The clients' scores in order; None for one that has no test examples, or no model."""
    federation = subject.federation
    draw, own = options.get("draw", 0), {key: value for key, value in options.items() if key != "draw"}
    before, after = as_it_is(subject), PERSONAL[way](subject, **own)
    for done, client in enumerate(clients, start=1):
        inputs, labels = client_examples(federation, client_test(federation, client, draw=draw))
        found = [predict(client, inputs) for predict in (before, after)] if len(labels) else [None]
        right = [int((logits.argmax(dim=1) == labels).sum()) / len(labels) for logits in found if logits is not None]
        yield ClientScore(client, len(labels), *right) if len(right) == 2 else None
        watch(done, len(clients))


def settle(subject: Subject, way: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a way with its value: given, the way's own, or the run's."""
    federation, local = subject.federation, subject.federation.recipe.local
    rounds, clients = federation.recipe.rounds, len(federation.client_indices)
    last = federation.compute_lr(max(subject.state.round - 1, 0))
    per_epoch = len(federation.client_indices.flat) / (clients * local.batch_size)  # steps of a client
    epochs = local.epochs if local.steps is None else local.steps / per_epoch
    whole_run = epochs * rounds.count * rounds.participants / clients  # what a client trains in all of its rounds
    of_run: dict[str, dict[str, Any]] = {
        "fedcr": {"rounds": rounds.count, "epochs": max(round(epochs), 1), "lr": local.lr},
        "finetune": {"lr": last},
        "knn": {"lr": last},
        "local": {"epochs": max(round(whole_run), 1), "lr": local.lr},
    }
    known = options_of(way)
    if federation.tests is not None:
        known.pop("draw")
    found = {key: of_run.get(way, {}).get(key, default) for key, default in known.items()}
    for key, value in given.items():
        if key == "draw" and key not in known:
            raise ValueError("draw: pooled data have test examples of every client's own; leave it out")
        found[choose(f"option of {way}", key, known)] = _like(f"{way}: {key}", value, found[key])
    if "draw" in found:
        whole("draw", found["draw"])
    if "lr" in found:  # torch refuses a rate that its floats cannot hold with a traceback
        within("lr", found["lr"], f"(0, {torch.finfo(federation.trainer.dtype).max:g}]")
    return found


def options_of(way: str) -> dict[str, Any]:
    """The options of a way with their defaults; None is for the run to say."""
    parameters = inspect.signature(PERSONAL[choose("way", way, PERSONAL)]).parameters.values()
    return {"draw": 1000, **{one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}}


def _like(what: str, value: Any, default: Any) -> Any:
    """The value in the type of the default."""
    if type(value) is type(default):
        return value
    if type(default) is float and type(value) is int:
        return float(value)
    kinds = {str: "a word", float: "a number", int: "a whole number"}
    raise ValueError(f"{what} must be {kinds[type(default)]}, got {toml.show(value)}")


def report(
    runs: Sequence[Path],
    ways: Sequence[str],
    given: Sequence[str],
    *,
    console: Console,
    round: int | None = None,
    model: str = "server",
    sample: int | None = None,
    data_root: Path | None = None,
) -> None:
    """Evaluate runs in some ways and print one table; an option goes to every way that knows it."""
    chosen, notes = parse(ways, given), dict[str, None]()
    table = make_table("run", "way", "mean ± std", "worst tenth", "mean before", "clients", "round", "options")
    for column in table.columns[2:7]:
        column.justify, column.no_wrap = "right", True

    def tell(text: str) -> None:
        print_line(console, text)

    with bars(console) as bar:
        for run in find_runs(runs):
            with lease.hold(run, "personal"):
                atomic_files.remove_temporary_files(run / "personal")
                subject = open_subject(run, round=round, model=model, data_root=data_root, say=tell)
                for way in ways:
                    watch = bar(f"{run.name} {way}") if console.is_terminal else lambda done, total: None
                    found = evaluate(subject, way, chosen[way], sample=sample, watch=watch, say=tell)
                    table.add_row(escape(printable(run)), *_cells(found))
                    notes.update(dict.fromkeys(_notes(subject, found)))
    console.print(add_notes(table, *notes) if notes else table)


def _notes(subject: Subject, found: PersonalResult) -> Iterator[str]:
    if "draw" in found.options:
        most = largest_draw(subject.federation, [score.client for score in found.clients])
        if found.options["draw"] > most:
            yield (
                f"{subject.run}: draw={found.options['draw']} exceeds the test examples of some classes, so test sets "
                f"are less skewed than their clients. Up to draw={most} they follow them"
            )


def _cells(found: PersonalResult) -> tuple[str, ...]:
    left = f" ({found.left_out} left out)" if found.left_out else ""
    return (
        found.way,
        f"{100 * found.mean:.2f} ± {100 * found.std:.2f} %",
        f"{100 * found.worst_tenth:.2f} %",
        f"{100 * found.mean_before:.2f} %",
        f"{len(found.clients)}{left}",
        str(found.round),
        escape(show_settings({"model": found.model, **found.options})),
    )


def parse(ways: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options as "key=value", handed to every way that knows the key; one of them must."""
    known = {way: options_of(way) for way in ways}
    chosen: dict[str, dict[str, Any]] = {way: {} for way in ways}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ValueError(f"--set wants key=value, for example epochs=5; got '{text}'")
        choose(f"option of {', '.join(ways)}", key, {name for names in known.values() for name in names})
        for way in ways:
            if key in known[way]:
                chosen[way][key] = toml.parse_value(value)
    return chosen

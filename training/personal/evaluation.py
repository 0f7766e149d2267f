"""Personalised evaluation: how well every client is served, by the global model or by one made for it.

    <run>/personal/<strategy>-<hash of the options>.json

A strategy takes a run after one of its rounds and gives a function that scores the classes for any client's test
examples. A new strategy is one function and one line in STRATEGIES.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import Field

from landscape.errors import choose
from landscape.runtime.workers import ordered_map
from training.engine.local_training import DivergenceError
from training.personal.client_evaluation import Subject, draw_test_examples, read_test_examples, sample_clients
from training.personal.scores import ClientScore, PersonalResult, load, save
from training.personal.strategies import STRATEGIES as STRATEGIES  # part of what this file offers
from training.personal.strategies import use_global_model
from training.settings import Count, Settings, build, fields, settings_of, values
from training.storage import toml
from training.storage.atomic_files import DamagedError


class TestSet(Settings):
    """How a client's test set is made where it has none of its own."""

    draw: Count = Field(1000, description="examples of a client's test set, by its class shares")


def evaluate(
    subject: Subject,
    strategy: str,
    given: Mapping[str, object] | None = None,
    *,
    sample: int | None = None,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
    on_message: Callable[[str], object] = print,
) -> PersonalResult:
    """Personalise a run with one strategy and test every client; a stored result is returned as it is.

    subject: a run after one of its rounds. strategy: one of STRATEGIES.
    given: options of the strategy, and `draw`, the size of a client's test set where it has none of its own.
    sample: test only so many clients, drawn by the run's seed.
    on_progress: called with clients done and clients in all. on_message: called with what the user should know.
    """
    options, clients = complete_options(subject, strategy, given or {}), sample_clients(subject.federation, sample)
    wanted = PersonalResult(strategy, subject.state.round, subject.model, options, sample, subject.checkpoint)
    path = subject.run / "personal" / wanted.file
    try:
        kept = load(path) if path.exists() else None
    except DamagedError as error:
        on_message(f"damaged, made again: {error}")
        kept = None
    if kept is not None and dataclasses.replace(kept, left_out=0, clients=()) == wanted:
        return kept
    try:
        # one thread, as in training: the same bits on every machine
        found = next(ordered_map(list, [_score_clients(subject, strategy, options, clients, on_progress)], workers=1))
    except DivergenceError as error:
        raise ValueError(
            f"{strategy}: client {error.client} of {subject.run} diverged in local step {error.step} at lr "
            f"{error.lr:g}; write a smaller lr"
        ) from None
    scores = tuple(score for score in found if score is not None)
    if not scores:
        raise ValueError(
            f"{strategy}: no client of {subject.run} has both test examples and a model; is draw too small?"
        )
    result = dataclasses.replace(wanted, left_out=len(clients) - len(scores), clients=scores)
    save(path, result)
    return result


def _score_clients(
    subject: Subject,
    strategy: str,
    options: dict[str, Any],
    clients: Sequence[int],
    on_progress: Callable[[int, int], object],
) -> Iterator[ClientScore | None]:
    """Yield the clients' scores in order; None for one that has no test examples, or no model."""
    federation = subject.federation
    draw, own = options.get("draw", 0), {key: value for key, value in options.items() if key != "draw"}
    before, after = use_global_model(subject), STRATEGIES[strategy](subject, **own)
    for done, client in enumerate(clients, start=1):
        inputs, labels = read_test_examples(federation, draw_test_examples(federation, client, draw=draw))
        found = [predict(client, inputs) for predict in (before, after)] if len(labels) else [None]
        right = [int((logits.argmax(dim=1) == labels).sum()) / len(labels) for logits in found if logits is not None]
        yield ClientScore(client, len(labels), *right) if len(right) == 2 else None
        on_progress(done, len(clients))


def complete_options(subject: Subject, strategy: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return every option of a strategy with its value: given, the strategy's default, or the run's own."""
    federation = subject.federation
    if federation.tests is not None and "draw" in given:
        raise ValueError("draw: pooled data have test examples of every client's own; leave it out")
    kind = options_class(strategy, drawn=federation.tests is None)
    found = values(build(kind, {**_read_run_options(subject, strategy), **given}, strategy))
    largest = torch.finfo(federation.trainer.dtype).max
    if found.get("lr") is not None and found["lr"] > largest:  # torch refuses such a rate with a traceback
        raise ValueError(f"{strategy}: lr must be at most {largest:g}, got {found['lr']:g}")
    return found


def _read_run_options(subject: Subject, strategy: str) -> dict[str, object]:
    """The options of a strategy that follow the run where they are not given."""
    federation, local = subject.federation, subject.federation.recipe.local
    rounds, clients = federation.recipe.rounds, len(federation.client_indices)
    last = federation.compute_lr(max(subject.state.round - 1, 0))
    per_epoch = len(federation.client_indices.flat) / (clients * local.batch_size)  # steps of a client
    epochs = local.epochs if local.steps is None else local.steps / per_epoch
    whole_run = epochs * rounds.count * rounds.participants / clients  # what a client trains in all of its rounds
    options: dict[str, dict[str, object]] = {
        "finetune": {"lr": last},
        "knn": {"lr": last},
        "local": {"epochs": max(round(whole_run), 1), "lr": local.lr},
    }
    return options.get(strategy, {})


def options_class(strategy: str, *, drawn: bool = True) -> type[Settings]:
    """Return the options of a strategy as a settings class.

    drawn: whether test sets are drawn, which adds `draw`.
    """
    function = STRATEGIES[choose("strategy", strategy, STRATEGIES)]
    return settings_of(function, exclude=("subject",), base=TestSet if drawn else Settings)


def parse_options(strategies: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, object]]:
    """Parse options written "key=value"; each goes to every strategy that has it, and at least one must.

    Returns the options of each strategy by its name.
    """
    known = {strategy: fields(options_class(strategy)) for strategy in strategies}
    chosen: dict[str, dict[str, object]] = {strategy: {} for strategy in strategies}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ValueError(f"--set wants key=value, for example epochs=5; got '{text}'")
        choose(f"option of {', '.join(strategies)}", key, {name for names in known.values() for name in names})
        for strategy in strategies:
            if key in known[strategy]:
                chosen[strategy][key] = toml.parse_value(value)
    return chosen

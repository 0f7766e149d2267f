"""Personalised evaluation: how well every client is served, by the global model or by one made for it.

    <run>/personal/<strategy>-<hash of the options>.json

A strategy takes a run after one of its rounds and gives a function that scores the classes for any client's test
examples. A new strategy is one function and one line in STRATEGIES.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from pydantic import Field

from landscape.errors import choose
from landscape.runtime.workers import ordered_map
from training.clients.local_training import DivergenceError
from training.personal.client_evaluation import Subject, draw_test_examples, read_test_examples, sample_clients
from training.personal.scores import ClientScore, PersonalResult, load, save
from training.personal.strategies import STRATEGIES as STRATEGIES  # part of what this file offers
from training.personal.strategies import use_global_model
from training.settings import Count, Settings, build, fields, settings_of, values
from training.storage import toml
from training.storage.atomic_files import DamagedError
from training.storage.verified_files import Json


class TestSet(Settings):
    """How a test set is drawn for a client that has none."""

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

    subject: a run after one of its rounds.
    strategy: one of STRATEGIES.
    given: options of the strategy, and `draw`, the size of the test set of a client that has none.
    sample: test only so many clients, drawn by the run's seed.
    on_progress: called with the number of clients that are done, and of all.
    on_message: called with what the user should know.
    """
    options, clients = complete_options(subject, strategy, given or {}), sample_clients(subject.federation, sample)
    request = PersonalResult(strategy, subject.state.round, subject.model, options, sample, subject.checkpoint)
    path = subject.run / "personal" / request.file
    try:
        stored = load(path) if path.exists() else None
    except DamagedError as error:
        on_message(f"damaged, computed again: {error}")
        stored = None
    if stored is not None and dataclasses.replace(stored, left_out=0, clients=()) == request:
        return stored
    try:
        # one thread, as in training: the same bits on every machine
        scored = next(ordered_map(list, [_score_clients(subject, strategy, options, clients, on_progress)], workers=1))
    except DivergenceError as error:
        raise ValueError(
            f"{strategy}: client {error.client} of {subject.run} diverged in local step {error.step} at lr "
            f"{error.lr:g}; write a smaller lr"
        ) from None
    scores = tuple(score for score in scored if score is not None)
    if not scores:
        raise ValueError(
            f"{strategy}: no client of {subject.run} has both test examples and a model; is draw too small?"
        )
    result = dataclasses.replace(request, left_out=len(clients) - len(scores), clients=scores)
    save(path, result)
    return result


def _score_clients(
    subject: Subject,
    strategy: str,
    options: Json,
    clients: Sequence[int],
    on_progress: Callable[[int, int], object],
) -> Iterator[ClientScore | None]:
    """Yield the clients' scores in order; None for one that has no test examples, or no model."""
    federation, task = subject.federation, subject.federation.dataset.task
    draw, own = options.get("draw", 0), {key: value for key, value in options.items() if key != "draw"}
    before, after = use_global_model(subject), STRATEGIES[strategy](subject, **own)
    for done, client in enumerate(clients, start=1):
        inputs, labels = read_test_examples(federation, draw_test_examples(federation, client, draw=draw))
        outputs = [predict(client, inputs) for predict in (before, after)] if len(labels) else [None]
        counts = [task.count_correct(one, labels) for one in outputs if one is not None]
        accuracies = [right / total for right, total in counts if total]
        yield ClientScore(client, len(labels), *accuracies) if len(accuracies) == 2 else None
        on_progress(done, len(clients))


def complete_options(subject: Subject, strategy: str, given: Mapping[str, object]) -> Json:
    """Return every option of a strategy with its value: given, the run's own, or the strategy's default.

    subject: a run after one of its rounds.
    strategy: one of STRATEGIES.
    given: options and their values.
    """
    federation = subject.federation
    if federation.tests is not None and "draw" in given:
        raise ValueError("draw: pooled data have test examples of every client's own; leave it out")
    kind = options_class(strategy, drawn=federation.tests is None)
    options: Json = values(build(kind, {**_read_run_options(subject, strategy), **given}, strategy))
    if not federation.recipe.knows_local and "lr" in options and options["lr"] is None:
        raise ValueError(
            f"{strategy}: this run was adopted without [local], so its learning rate is not known; write --set lr=0.01"
        )
    largest = torch.finfo(federation.trainer.dtype).max
    if options.get("lr") is not None and options["lr"] > largest:  # torch refuses such a rate with a traceback
        raise ValueError(f"{strategy}: lr must be at most {largest:g}, got {options['lr']:g}")
    return options


def _read_run_options(subject: Subject, strategy: str) -> dict[str, object]:
    """Return the options of a strategy that follow the run where they are not given."""
    federation, local = subject.federation, subject.federation.recipe.local
    if not federation.recipe.knows_local:
        return {}  # an adopted run that does not tell how its clients were trained
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

    strategy: one of STRATEGIES.
    drawn: whether test sets are drawn, which adds the option `draw`.
    """
    function = STRATEGIES[choose("strategy", strategy, STRATEGIES)]
    return settings_of(function, exclude=("subject",), base=TestSet if drawn else Settings)


def parse_options(strategies: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, object]]:
    """Parse options written "key=value"; each goes to every strategy that has it, and at least one must.

    strategies: names of STRATEGIES.
    given: the options as they are written after --set.
    Returns the options of each strategy by its name.

    >>> parse_options(["finetune", "global"], ["epochs=2"])
    {'finetune': {'epochs': 2}, 'global': {}}
    """
    available = {strategy: fields(options_class(strategy)) for strategy in strategies}
    chosen: dict[str, dict[str, object]] = {strategy: {} for strategy in strategies}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ValueError(f"--set expects key=value, for example epochs=5; got '{text}'")
        choose(f"option of {', '.join(strategies)}", key, {name for names in available.values() for name in names})
        for strategy in strategies:
            if key in available[strategy]:
                chosen[strategy][key] = toml.parse_value(value)
    return chosen

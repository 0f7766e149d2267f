"""The conformance suite of methods: what every method must do, built in or a user's own.

    from training import testing
    testing.check_method("mine:MINE")       # AssertionError that says what is wrong

Each check takes a federation that trains with the method. `check_method` makes small ones, of seven clients that hold
between 1 and 12 examples each, in double precision, and runs all checks. The package's own tests use them too.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training import config, settings
from training.data import datasets
from training.data.dealing import ClientIndices
from training.data.partition import Partition
from training.engine.federation import Federation
from training.engine.saving import restore_state, save_state
from training.engine.state import State
from training.executors.base import Executor
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked, require_stackable
from training.methods import catalog
from training.methods.method import Method
from training.plugins import find_reference
from training.storage import checkpoint, run_directory
from training.storage.metrics import Record
from training.storage.verified_files import Json

SIZES = (3, 7, 12, 5, 9, 4, 1)  # at four a batch: 1, 2, 3, 2, 3, 1, 1 steps an epoch, most with a shorter last batch
CLASSES, HIDDEN = 3, 5
EXACT = ("round", "lr", "participants", "gradients", "bytes_down", "bytes_up")  # metrics without rounding
ROUNDING = 1e-10  # between backends that add in another order
Round = tuple[State, Record, dict[int, Tensor]]  # what a round ends with: state, metrics, local models


def check_method(method: object, *, processes: bool = True, **given: object) -> None:
    """Run every check on a method; AssertionError says what is wrong.

    method: a name of `landscape list algorithms`, 'module:name', or what has that name at the top of a module.
    processes: whether to try worker processes too, which take seconds to start.
    given: settings of the method.
    """
    name = method if isinstance(method, str) else find_reference("algorithm", method)
    federation = make_federation(name, algorithm=given, rounds={"participants": 5})
    check_values(federation.method)
    check_settings(federation.method)
    check_names(federation.method)
    check_memory(federation)
    check_progress(federation)
    with tempfile.TemporaryDirectory() as folder:
        check_resuming(federation, Path(folder))
    with _say("with momentum"):
        check_progress(make_federation(name, algorithm=given, local={"momentum": 0.5, "weight_decay": 0.01}))
    if is_stackable(federation):
        check_executors(federation, Stacked(federation.trainer), Serial(federation.trainer), ROUNDING)
    if processes:
        executor = Processes(federation.trainer, workers=2)
        try:
            check_executors(federation, executor, Serial(federation.trainer), 0.0)
        finally:
            executor.close()


def make_federation(name: str = "fedavg", sizes: Sequence[int] = SIZES, **tables: object) -> Federation:
    """Make a small federation whose client k holds sizes[k] examples.

    name: of the method. tables: tables (or keys) of its recipe, where they differ from the usual ones.
    """
    content: Json = {
        "seed": 3,
        "dtype": "float64",
        "data": {"name": "synthetic", "examples": sum(sizes), "test_examples": 23, "classes": CLASSES},
        "partition": {"name": "iid", "clients": len(sizes)},
        "model": tables.pop("model", {"name": "mlp", "hidden": [HIDDEN]}),
        "algorithm": {"name": name},
        "local": {"lr": 0.2, "batch_size": 4, "epochs": 2},
        "rounds": {"count": 10, "participants": min(3, len(sizes))},
    }
    content["data"]["shape"] = [1, 2, 2]
    for key, table in tables.items():
        content[key] = {**content.get(key, {}), **table} if isinstance(table, dict) else table
    recipe = config.validate(content)
    labels = datasets.load("synthetic", **recipe.data.settings).labels
    assert labels is not None
    return Federation(recipe, deal_by_hand(sizes, labels.numpy()))


def deal_by_hand(sizes: Sequence[int], labels: np.ndarray) -> Partition:
    """Deal examples to clients of these sizes, at random."""
    order = np.random.default_rng(0).permutation(sum(sizes)).astype(np.int64)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return Partition("by hand", {}, 0, ClientIndices.of([np.sort(part) for part in parts]), labels)


def play(
    federation: Federation, rounds: int, executor: Executor | None = None, state: State | None = None
) -> list[Round]:
    """Play some rounds from the beginning, or from a state; returns what each ends with."""
    state, executor = state or federation.begin(), executor or Serial(federation.trainer)
    played = []
    for _ in range(rounds):
        played.append(federation.advance(state, executor))
        state = played[-1][0]
    return played


def close(left: Tensor, right: Tensor, tolerance: float = 1e-12) -> bool:
    """Tell whether vectors are equal up to rounding, relative to the longer of the two."""
    return float((left - right).norm()) <= tolerance * max(float(left.norm()), float(right.norm()))


def check_values(method: Method) -> None:
    """Rules are values: equal settings make equal rules, also after a journey to a worker process."""
    ForkingPickler.dumps(method)  # raises an error where another process could not be sent it
    again = copy.deepcopy(method)
    _require(again == method, f"{method.name} is another one after copying; are its rules made by @settings?")
    for slot, rule in method.slots.items():
        _require(dataclasses.is_dataclass(rule), f"the {slot} of {method.name} is not made by @settings")
        same = settings.replace(rule, {}, method.name)
        _require(same == rule and hash(same) == hash(rule), f"the {slot} of {method.name} is no value")


def check_settings(method: Method) -> None:
    """Every setting has a description and says what it may be; rules that share a setting share its value."""
    for rule in method.slots.values():
        for about in settings.describe(type(rule)):
            where = f"{type(rule).__name__}.{about.name}"
            _require(bool(about.description), f"{where} has no description: write Field(..., description=...)")
            _require(
                bool(about.allowed), f"{where} has no range: give it a type of training.settings, such as Positive"
            )
    for key, places in catalog.list_settings(method).items():
        values = {getattr(method.slots[place], key) for place in places}
        _require(len(values) == 1, f"{method.name} has different values of {key} in {', '.join(places)}")


def check_names(method: Method) -> None:
    """Two rules must not write over each other's memories, messages or uploads."""
    w = torch.ones(3)
    listed = {
        "client": list(method.client_vectors),
        "server": [key for rule in method.rules for key in rule.init_server(w)],
        "message": [key for rule in method.rules for key in rule.make_message(w, method.init_server(w))],
    }
    for kind, keys in listed.items():
        twice = sorted({key for key in keys if keys.count(key) > 1})
        _require(not twice, f"two rules of {method.name} have a {kind} vector called {', '.join(twice)}")


def check_memory(federation: Federation) -> None:
    """Clients are remembered from their first visit on, with just the vectors that their method declares."""
    _require(federation.begin().clients == {}, "clients are remembered before the first round")
    known: set[int] = set()
    declared = set(federation.method.client_vectors)
    for round, (state, _, _) in enumerate(play(federation, 3)):
        known |= set(federation.draw_cohort(round))
        _require(state.clients.keys() == (known if declared else set()), "not those who took part are remembered")
        for vectors in state.clients.values():
            _require(set(vectors) == declared, f"client_vectors says {sorted(declared)}, found {sorted(vectors)}")


def check_progress(federation: Federation) -> None:
    """Training moves, stays finite, gives the same bits again, and leaves what it was given as it was."""
    first = federation.begin()
    before = {"w": first.w.clone(), **{name: vector.clone() for name, vector in first.server.items()}}
    played, again = play(federation, 3, state=first), play(federation, 3)
    kept = {"w": first.w, **first.server}
    changed = [name for name, vector in before.items() if not torch.equal(vector, kept[name])]
    _require(not changed, f"a round writes into the server's {', '.join(changed)}; rules must return new vectors")
    for (state, record, _), (same, _, _) in zip(played, again, strict=True):
        _require(bool(torch.isfinite(state.w).all()), f"the model is not finite after round {state.round}")
        _require(math.isfinite(record["train_loss"]), f"the training loss is not finite in round {state.round}")
        _require(identical(state, same), f"round {state.round} is another one when it is played again")
    _require(not close(played[-1][0].w, first.w, 1e-6), "nothing moves")


def check_resuming(federation: Federation, folder: Path) -> None:
    """A state that was saved and read again goes on to the bit.

    folder: an empty one, for the checkpoint.
    """
    played = play(federation, 4)
    state, _, ends = played[1]
    (folder / "metrics.jsonl").touch()
    save_state(folder, federation, state, ends, list(ends))
    found = checkpoint.load(run_directory.checkpoint_path(folder, 2))
    _require(found.extra["cohort"] == federation.draw_cohort(1), "the checkpoint names another cohort")
    sizes = [len(federation.client_indices[client]) for client in federation.draw_cohort(1)]
    _require(found.extra["sizes"] == sizes, "the checkpoint has other sizes of clients")
    _require(all(torch.equal(found.locals[client], w) for client, w in ends.items()), "local models differ")
    restored = restore_state(found)
    _require(identical(restored, state), "the state is another one after saving")
    going_on = play(federation, 2, state=restored)[-1][0]
    _require(identical(going_on, played[-1][0]), "a resumed run differs: something outside the state is remembered")


def check_executors(federation: Federation, left: Executor, right: Executor, tolerance: float, rounds: int = 2) -> None:
    """Everything that two executors make of some rounds agrees: models, memories and metrics.

    tolerance: relative; 0 for the same bits.
    """
    what = f"{left.name} and {right.name} differ in"
    for (one, record, ends), (two, other, others) in zip(
        play(federation, rounds, left), play(federation, rounds, right), strict=True
    ):
        _require(ends.keys() == others.keys() and one.clients.keys() == two.clients.keys(), f"{what} who took part")
        pairs = [("model", one.w, two.w), ("mean", one.mean, two.mean), ("statistics", one.statistics, two.statistics)]
        pairs += [(f"model of client {k}", ends[k], others[k]) for k in ends]
        pairs += [(f"server's {name}", one.server[name], two.server[name]) for name in one.server]
        pairs += [
            (f"{name} of client {k}", own[name], two.clients[k][name]) for k, own in one.clients.items() for name in own
        ]
        for name, mine, theirs in pairs:
            _require(mine is not None and theirs is not None and close(mine, theirs, tolerance), f"{what} the {name}")
        for key in record.keys() - {"seconds"}:
            _require(_agree(key, record[key], other[key], 100 * tolerance), f"{what} the metric {key}")


def _agree(key: str, mine: object, theirs: object, tolerance: float) -> bool:
    if key in EXACT or not isinstance(mine, float) or not isinstance(theirs, (int, float)):
        return bool(mine == theirs)
    return bool(abs(mine - theirs) <= tolerance * abs(theirs))


def is_stackable(federation: Federation) -> bool:
    """Tell whether the clients of a federation can be trained in one stack, by the backend vmap."""
    try:
        require_stackable(federation.trainer)
    except ValueError:
        return False
    return True


def identical(one: State, two: State) -> bool:
    """Tell whether two states agree to the bit in everything that the next round depends on."""
    pairs = [(one.w, two.w), (one.mean, two.mean), (one.statistics, two.statistics)]
    pairs += [(one.server[name], two.server[name]) for name in one.server]
    pairs += [(one.clients[k][name], two.clients[k][name]) for k in one.clients for name in one.clients[k]]
    same_keys = one.server.keys() == two.server.keys() and one.clients.keys() == two.clients.keys()
    return one.round == two.round and same_keys and all(_equal(mine, theirs) for mine, theirs in pairs)


def _equal(mine: Tensor | None, theirs: Tensor | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return torch.equal(mine, theirs)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


@contextmanager
def _say(where: str) -> Iterator[None]:
    """Say where a check failed."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from None

"""Adopt a run of another framework: from its files to a run directory, which appears at once and complete."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from landscape.runtime import termination
from landscape.runtime.device import describe_device
from training import config
from training.adoption.description import PREVIOUS, Description, read_description
from training.adoption.files import Files, find_files
from training.adoption.points import PointReader
from training.adoption.records import Numbers, read_records
from training.config import Recipe
from training.engine import opening
from training.engine.evaluation import evaluate_state
from training.engine.federation import Federation
from training.engine.saving import save_state
from training.engine.state import State
from training.storage import lock, metrics, run_directory
from training.storage.atomic_files import flush, remove
from training.storage.run_directory import has_recipe, is_run, list_rounds
from training.storage.verified_files import Json, fingerprint

HERE = "evaluated here"  # what provenance.json says of metrics that this package computed
UNKNOWN = "0" * 64  # digest of a recipe before its files are read


@dataclass(frozen=True)
class Source:
    """All that an adopted run is made of, found and checked, but for the content of the models.

    folder: what is adopted. described: its adopt.toml.
    files: of the models. digests: SHA-256 of each, by its name in `Files.list_all`.
    records: the framework's metrics by round. federation: recipe, data, partition and network.
    """

    folder: Path
    described: Description
    files: Files
    digests: Mapping[str, str]
    records: Mapping[int, Numbers]
    federation: Federation

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run, as far as it is known."""
        return self.federation.recipe

    @property
    def last(self) -> int:
        """The last round."""
        return self.files.rounds[-1]

    @property
    def evaluates(self) -> bool:
        """Whether accuracies are computed here: the framework left none."""
        return not any(numbers.get("accuracy") is not None for numbers in self.records.values())


def adopt(
    folder: Path,
    out: Path,
    *,
    description: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    on_round: Callable[[int, int], object] = lambda done, total: None,
    on_message: Callable[[str], object] = lambda text: None,
) -> Path:
    """Turn what another framework left into a run directory; a run that was adopted before is left as it is.

    folder: with the files of the run.
    out: the folder of the run's directory.
    description: if it is not adopt.toml in that folder.
    data_root: folder of the data. device: where models are tested, if the framework left no accuracies.
    on_round: called with the number of rounds that are written, and of all.
    on_message: called with what the user should know, such as what is missing.
    Returns the run's directory. It appears when it is complete: a process that is killed leaves nothing under that
    name, and the same call starts anew.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected one with models of another framework, and adopt.toml")
    for place, what in ((folder, "DIR"), (out, "--out")):
        if is_run(place):
            raise ValueError(f"{what}: {place} is already a run of this package; give {_expected(what)}")
    source = _open(folder, read_description(folder, description), data_root, device)
    target = opening.find_run(out, source.recipe)
    if not has_recipe(target):
        with termination.listen(), _stage(target) as path:
            _write(path, source, on_round, on_message)
            _publish(path, target)
    found = config.load(target / "config.toml")[0]
    if found.digest != source.recipe.digest:
        raise ValueError(f"{target} holds another run: choose another --out, or remove it")
    return target


def _expected(what: str) -> str:
    return "the folder of another framework's files" if what == "DIR" else "a folder of runs, such as runs"


def _open(folder: Path, described: Description, data_root: Path | None, device: str) -> Source:
    """Find and check everything but the content of the models."""
    stated: Json = dict(described.tables)
    given = stated.get("rounds", {})
    if not isinstance(given, dict):
        raise ValueError(f"{described.source}: rounds must be a table of settings, got {given!r}")
    label = {"framework": described.adopt.framework, "method": _name_method(described), "digest": UNKNOWN}
    # a first look, for the number of clients: how many took part is known only from the files
    stated |= {"adopted": label, "rounds": {"participants": 1, **given}}
    recipe = config.validate(stated, described.source)
    files = find_files(folder, described, recipe.partition.clients)
    adopt = described.adopt
    path = None if adopt.metrics is None else folder / adopt.metrics
    records = {} if path is None else read_records(path, adopt.columns, adopt.round_shift)
    took_part = {} if files.participants is None else {"participants": files.participants}
    # nobody knows how many took part: the default must not be more than there are clients
    assumed = {"participants": recipe.partition.clients}
    stated["rounds"] = {**assumed, **took_part, **given, "count": files.rounds[-1]}
    stated["checkpoints"] = {"every": files.every, "keep_locals": _describe_kept(files)}
    recipe = config.validate(stated, described.source)
    if data_root is not None:
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"root": str(data_root.absolute())})})
    named = recipe.partition.settings.get("path")
    beside = folder if isinstance(named, str) and (folder / named).exists() else None
    federation = Federation(recipe, None, device, begins=False, files=beside)
    _require_constants(federation)
    digests = {name: fingerprint(path)["sha256"] for name, path in files.list_all()}
    federation.recipe = _identify(recipe, digests, records, federation.partition.digest)
    return Source(folder, described, files, digests, records, federation)


def _require_constants(federation: Federation) -> None:
    """Refuse images of one's own without constants: those that a run computes are not what the framework used."""
    data = federation.recipe.data
    absent = [key for key in ("mean", "std") if key not in data.settings]
    if ":" in data.name and federation.dataset.task.inputs == "images" and absent:
        raise ValueError(
            f"data '{data.name}': write data.mean and data.std, by which images are normalised before the network sees "
            "them; mean = [0.0] and std = [1.0] (one number for each channel) if the function has done that"
        )


def _identify(
    recipe: Recipe, digests: Mapping[str, str], records: Mapping[int, Numbers], partition_digest: str
) -> Recipe:
    """The recipe with the digest of all that the run is made of."""
    parts = {"models": digests, "records": {str(k): v for k, v in records.items()}, "partition": partition_digest}
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    assert recipe.adopted is not None
    return recipe.model_copy(update={"adopted": recipe.adopted.model_copy(update={"digest": digest})})


def _name_method(described: Description) -> str:
    """How the method is printed where [algorithm] does not say it: as described, or as the framework."""
    own = described.adopt.method
    return own or ("" if "algorithm" in described.tables else described.adopt.framework or "adopted")


def _describe_kept(files: Files) -> str:
    """Which checkpoints keep local models, in the words of recipes."""
    kept = set(files.client_models)
    if not kept:
        return "none"
    return "last" if kept == {files.rounds[-1]} and len(files.rounds) > 1 else "all"


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """Give a hidden folder beside the target to write the run into; one process at a time."""
    staging = target.with_name(f".adopt-{target.name}")
    try:
        with lock.hold(staging, "adopt"):
            remove(staging / target.name)  # what a killed process left
            try:
                yield staging / target.name
            finally:
                remove(staging / target.name)
    finally:
        with suppress(OSError):  # not empty: another process has begun
            staging.rmdir()


def _publish(path: Path, target: Path) -> None:
    """Give the finished run its name; one that another process adopted meanwhile is left as it is."""
    flush(path)
    lock.check(path)
    if not has_recipe(target):
        try:
            os.rename(path, target)
        except OSError as error:
            raise OSError(error.errno, f"{target} could not be made ({error.strerror}): is something there?") from None
        flush(target.parent)


def _write(
    path: Path, source: Source, on_round: Callable[[int, int], object], on_message: Callable[[str], object]
) -> None:
    """Write the run: description, then metrics and checkpoints round by round, then its status."""
    federation = source.federation
    missing = list_missing(source)
    for text in missing:
        on_message(f"missing: {text}")
    on_message(f"accuracies: {_tell_metrics(source)}")
    facts = {"data_digest": federation.dataset.digest, "partition_digest": federation.partition.digest}
    opening.open_run(path, source.recipe, federation.partition, facts, lambda: _describe(source, missing))
    metrics.rewind(path, 0)  # an empty file: there may be no round but the initial model
    reader = PointReader(federation.trainer.model, federation.trainer.dtype, on_message)
    kept = [round for round in source.files.rounds if round > 0]
    for round in range(source.last + 1):
        if round in source.files.rounds:
            state, local_models = _read_round(source, reader, round)
        else:
            state, local_models = None, {}
        if round:
            metrics.append(path, _make_record(source, round, state, len(local_models)))
        if state is not None:
            save_state(path, federation, state, local_models, sorted(local_models))
            on_round(sum(one <= round for one in kept), max(len(kept), 1))
    run_directory.write_status(path, "finished", source.last)


def _read_round(source: Source, reader: PointReader, round: int) -> tuple[State, dict[int, torch.Tensor]]:
    """The models of a round: the global one as a state, and the participants' by client."""
    files, digests, size = source.files, source.digests, reader.size
    theta = reader.read(files.global_models[round], digests[f"{round} global"])
    own = sorted(files.client_models.get(round, {}).items())
    local_models = {client: reader.read(path, digests[f"{round} client {client}"]) for client, path in own}
    sent = reader.read(files.sent_models[round], digests[f"{round} sent"]) if round in files.sent_models else None
    state = State(
        round=round,
        w=theta[:size].clone(),
        statistics=theta[size:].clone(),
        server={},
        sent=None if sent is None else sent[:size].clone(),
        sent_statistics=None if sent is None else sent[size:].clone(),
    )
    return state, local_models


def _make_record(source: Source, round: int, state: State | None, participants: int) -> Json:
    """The metrics of a round: the framework's, or what is computed here where it left no accuracies."""
    record: Json = {"round": round}
    if participants:
        record["participants"] = participants
    if state is not None:
        record["norm"] = float(state.w.double().norm())
        record |= evaluate_state(source.federation.evaluator, state) if source.evaluates else {}
    return record | {name: value for name, value in source.records.get(round, {}).items() if name not in record}


def _tell_metrics(source: Source) -> str:
    """Where the accuracies of the run come from."""
    if not source.evaluates:
        return f"from {source.described.adopt.metrics}"
    return HERE if source.federation.evaluator is not None else "none: there is no test data"


def list_missing(source: Source) -> list[str]:
    """List what other runs have and this one has not, in words for people."""
    files, rounds = source.files, source.files.rounds
    found = [] if 0 in rounds else ["the initial model (round 0)"]
    absent = [round for round in rounds if round and round not in files.client_models]
    if not files.client_models:
        found.append("models of clients; studies of local models will say so")
    elif absent:
        found.append(f"models of clients after round {list_rounds(absent)}")
    unsent = [round for round in files.client_models if round and round not in files.sent_models]
    if unsent:
        hint = "" if source.described.adopt.sent_models else f' (if it is, write sent_models = "{PREVIOUS}")'
        found.append(
            f"what clients were sent in round {list_rounds(unsent)}; it is not assumed to be the global model before"
            f"{hint}"
        )
    stated = source.described.tables.get("rounds", {})
    if files.participants is None and "participants" not in stated:
        found.append(f"rounds.participants; all {source.recipe.partition.clients} clients are assumed")
    if not source.recipe.knows_local:
        found.append("how clients were trained: [local] is not in adopt.toml")
    return found


def _describe(source: Source, missing: list[str]) -> dict[str, object]:
    """What provenance.json says beside digests."""
    federation, names = source.federation, source.federation.dataset.class_names
    about = {
        "framework": source.described.adopt.framework,
        "rounds": list(source.files.rounds),
        "files": len(source.digests),
        "accuracies": _tell_metrics(source),
        "missing": missing,
    }
    device = {"device": describe_device(federation.device)} if source.evaluates else {}
    return {"adopted": about, **device, **({"class_names": list(names)} if names is not None else {})}

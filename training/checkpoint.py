"""The run directory: written aside and renamed, hashed, verified, resumed. Nothing in it can execute code.

    <run>/config.toml  provenance.json  status.json  partition.npz  metrics.jsonl
          checkpoints/round_000100/{global, locals, server, clients}.safetensors  meta.json

A checkpoint appears under its name only when it is complete and flushed; a process killed at any moment leaves the
previous ones as they were, and at most files named .*.tmp, which the next start removes. meta.json holds the hashes
of a checkpoint's files, status.json those of the small files beside it; both are sealed by a hash of their own.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor

from training import config, files, partition
from training.config import Recipe
from training.files import DamagedError as DamagedError  # part of what this file offers
from training.files import write_text as write_text
from training.parts import Vectors

FILES = ("global", "locals", "server", "clients")
RESUMABLE = 2  # checkpoints that keep the clients' memories: the newest, and one in case that it is damaged


@dataclass(frozen=True)
class Checkpoint:
    """What is saved of a round: enough to analyse it, and to go on from it."""

    round: int  # rounds finished
    # "server", "mean" of participants, "swa"; "sent", what the participants were sent, where `locals` are kept;
    # "statistics", "swa_statistics", "sent_statistics" of norm layers
    models: Vectors
    locals: dict[int, Tensor]  # participant -> weights and running statistics; empty where not asked for
    server: Vectors
    clients: dict[int, Vectors]  # client -> its own vectors, for those that ever took part; see `forget_clients`
    extra: dict[str, Any]  # small numbers: cohort, sizes, SWA count, last participation


def open_run(root: Path, recipe: Recipe, split: partition.Partition, facts: Mapping[str, Any]) -> Path:
    """The directory of this recipe under `root`, new or found; one of another recipe or of other data is refused.

    facts: digests of the data and the partition, by name.
    """
    path = root / recipe.slug
    settings = path / "config.toml"
    found = settings.exists()
    if found:
        _refuse_another(path, recipe, facts)
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    for folder in (path, path / "checkpoints"):
        files.remove_leftovers(folder)
    if not found or not (path / "partition.npz").exists():
        with files.explained("partition.npz"):
            partition.save(split, path / "partition.npz")
    if not found or not (path / "provenance.json").exists():
        packages = {name: version(name) for name in ("fl-landscape", "torch", "numpy", "safetensors")}
        about = {"digest": recipe.digest, "packages": packages, "python": platform.python_version(), **facts}
        write_text(path / "provenance.json", json.dumps(about, indent=2))
    if not found:
        write_text(settings, config.dump(recipe))  # last: a directory without it is begun anew
    return path


def _refuse_another(path: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    digest = config.load(path / "config.toml")[0].digest
    if digest != recipe.digest:
        raise ValueError(
            f"{path} holds a run of another recipe (digest {digest[:8]}, wanted {recipe.digest[:8]}): "
            "choose another --out, or remove it"
        )
    about = read_provenance(path) if (path / "provenance.json").exists() else {}
    changed = [key for key, value in facts.items() if about.get(key, value) != value]
    if changed:
        raise ValueError(
            f"{path} was begun with other data ({', '.join(changed)} differs): give the data.root it was begun with, "
            "or choose another --out"
        )


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint aside, flush it, rename it. An intact one of the same round is left as it is."""
    target = at(run, checkpoint.round)
    if target.exists() and not problem(target) and not read_meta(target).get("forgotten"):
        return target
    aside = files.beside(target)
    contents = {
        "global": checkpoint.models,
        "locals": {f"{client}": w for client, w in checkpoint.locals.items()},
        "server": checkpoint.server,
        "clients": {
            f"{k}/{name}": vector for k, vectors in checkpoint.clients.items() for name, vector in vectors.items()
        },
    }
    with files.explained(f"the checkpoint of round {checkpoint.round} in {target.parent}"):
        try:
            files.remove(aside)
            aside.mkdir(parents=True)
            written = {
                f"{name}.safetensors": files.write_tensors(aside / f"{name}.safetensors", vectors)
                for name, vectors in contents.items()
                if vectors or name == "global"
            }
            meta = {"round": checkpoint.round, "files": written, **checkpoint.extra}
            files.write_bytes(aside / "meta.json", files.sealed(meta).encode())
            files.flush(aside)
            if checkpoint.round:
                files.flush(run / "metrics.jsonl")  # a checkpoint says that the rounds before it are on record
            files.remove(target)  # a damaged one, or one that forgot its clients
            os.replace(aside, target)
            files.flush(target.parent)
        finally:
            files.remove(aside)
    return target


def forget_clients(run: Path) -> None:
    """Drop the clients' memories from all but the newest checkpoints: each holds a model or more for every client.

    First the description, then the file: killed in between, a file is left that nobody reads.
    """
    for round in rounds(run)[:-RESUMABLE]:
        path = at(run, round)
        try:
            meta = read_meta(path)
        except DamagedError:
            continue  # `check` will say so
        if meta["files"].pop("clients.safetensors", None):
            write_text(path / "meta.json", files.sealed({**meta, "forgotten": True}))
        files.remove_leftovers(path)
        (path / "clients.safetensors").unlink(missing_ok=True)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte of it."""
    meta = read_meta(path)
    contents: dict[str, dict[str, Tensor]] = {name: {} for name in FILES}
    for file, wanted in meta.pop("files").items():
        try:
            contents[Path(file).stem] = parse_tensors(files.read_intact(path / file, wanted))
        except SafetensorError as error:
            raise DamagedError(f"{path / file}: not a safetensors file ({error})") from None
    clients: dict[int, Vectors] = {}
    for key, vector in contents["clients"].items():
        client, _, name = key.partition("/")
        clients.setdefault(int(client), {})[name] = vector
    return Checkpoint(
        round=meta.pop("round"),
        models=contents["global"],
        # a file gives its tensors in any order
        locals=dict(sorted((int(client), w) for client, w in contents["locals"].items())),
        server=contents["server"],
        clients=dict(sorted(clients.items())),
        extra=meta,
    )


def read_meta(path: Path) -> dict[str, Any]:
    """The description of a checkpoint, sealed by its own hash: round, files, and what small numbers came with it."""
    meta = files.read_sealed(path / "meta.json")
    if path.name != at(path, meta["round"]).name:
        raise DamagedError(f"{path}: holds round {meta['round']}, not the one that its name says")
    return meta


def rounds(run: Path) -> list[int]:
    """Rounds that have a checkpoint, ascending."""
    numbers = [path.name.removeprefix("round_") for path in (run / "checkpoints").glob("round_*")]
    return sorted(int(number) for number in numbers if number.isdecimal() and number == f"{int(number):06d}")


def at(run: Path, round: int) -> Path:
    """The place of a round's checkpoint."""
    return run / "checkpoints" / f"round_{round:06d}"


def problem(path: Path) -> str:
    """What is wrong with a checkpoint, in words; nothing if it is intact."""
    try:
        load(path)
    except DamagedError as error:
        return str(error)
    return ""


def newest(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint to go on from, and a line for every damaged one that was passed over."""
    problems: list[str] = []
    for round in reversed(rounds(run)):
        try:
            found = load(at(run, round))
        except DamagedError as error:
            problems.append(str(error))
            continue
        if not found.extra.get("forgotten"):
            return found, problems
    return None, problems


def check(run: Path) -> list[str]:
    """Every problem of a run directory in words; none if it is sound, be it finished or stopped on the way."""
    problems: list[str] = []
    status: dict[str, Any] = {}
    try:
        status = files.read_sealed(run / "status.json")
    except DamagedError as error:
        problems.append(str(error))
    for name, read in SMALL.items():
        try:
            files.read_intact(run / name, status.get("files", {}).get(name))
            read(run)
        except ValueError as error:
            problems.append(str(error))
    found = rounds(run)
    named = {at(run, round).name for round in found}
    for path in sorted((run / "checkpoints").glob("[!.]*")):
        text = problem(path) if path.name in named else f"{path}: not a checkpoint"
        problems += [text] if text else []
    return problems or list(_gaps(run, status, found))


def _gaps(run: Path, status: Mapping[str, Any], found: list[int]) -> Iterator[str]:
    """What should be there and is not, in a run whose files are all intact."""
    every = config.load(run / "config.toml")[0].checkpoints.every
    last = max(found, default=0) if status["state"] == "running" else status["round"]
    wanted = {0, *range(0, last + 1, every), last}
    yield from (f"{at(run, round)}: missing" for round in sorted(wanted - set(found)))
    done = len(read_metrics(run))
    if done < last:
        yield f"{run / 'metrics.jsonl'}: ends at round {done}, but round {last} was reached"


def read_provenance(run: Path) -> dict[str, Any]:
    """Where a run comes from: digests, versions, back-end."""
    path = run / "provenance.json"
    try:
        return dict(json.loads(files.read_intact(path)))
    except (ValueError, TypeError):
        raise DamagedError(f"{path}: not readable; remove this file, and training writes it anew") from None


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """One record per finished round; a last line cut short by a kill is left out."""
    return [json.loads(line) for line in _metrics_lines(run)]


def _metrics_lines(run: Path) -> list[bytes]:
    path = run / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            right = json.loads(line)["round"] == number
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            raise DamagedError(
                f"{path}: line {number} is not the record of round {number}; end the file before it and remove the "
                f"checkpoints from round {number} on, and training makes them again"
            )
    return lines


def rewind_metrics(run: Path, round: int) -> None:
    """Forget records after a round: they will be made again. Those before it stay as they are, to the byte."""
    path = run / "metrics.jsonl"
    lines = _metrics_lines(run)
    if len(lines) < round:
        raise DamagedError(
            f"{path}: ends at round {len(lines)}, but there is a checkpoint of round {round}; remove the checkpoints "
            f"from round {len(lines) + 1} on, and training makes them again"
        )
    kept = b"".join(line + b"\n" for line in lines[:round])
    if not path.exists() or path.read_bytes() != kept:
        write_text(path, kept.decode())


def append_metrics(run: Path, record: Mapping[str, Any]) -> None:
    """Add the record of a round."""
    with files.explained("metrics.jsonl"), open(run / "metrics.jsonl", "ab") as file:
        file.write(f"{json.dumps(record)}\n".encode())


def write_status(run: Path, state: str, round: int, message: str = "") -> None:
    """Say how far a run is, with the fingerprints of its small files; metrics still grow while it is running."""
    about = {"state": state, "round": round, "message": message}
    try:
        before = files.read_sealed(run / "status.json")
    except DamagedError:
        before = {}
    if state != "running" and about == {key: before.get(key) for key in about}:
        return  # said already: to hash the files again would bless what was damaged since
    names = [name for name in SMALL if state != "running" or name != "metrics.jsonl"]
    prints = {name: files.fingerprint((run / name).read_bytes()) for name in names}
    write_text(run / "status.json", files.sealed({**about, "files": prints}))


SMALL: dict[str, Callable[[Path], object]] = {
    "config.toml": lambda run: config.load(run / "config.toml"),
    "partition.npz": lambda run: partition.load(run / "partition.npz"),
    "provenance.json": read_provenance,
    "metrics.jsonl": read_metrics,
}

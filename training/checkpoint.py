"""The run directory: written aside and renamed, hashed, verified, resumed. Nothing in it can execute code.

    <run>/config.toml  provenance.json  status.json  partition.npz  metrics.jsonl
          checkpoints/round_000100/{global, locals, state}.safetensors  meta.json

A checkpoint appears under its name only when it is complete and flushed; a process killed at any moment leaves the
previous ones as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

from training import config, partition
from training.config import Recipe
from training.parts import Vectors

FILES = ("global", "locals", "state")


@dataclass(frozen=True)
class Checkpoint:
    """What is saved of a round: enough to analyse it, and to go on from it."""

    round: int  # rounds finished
    models: Vectors  # "server", "mean" of participants and "swa", with "statistics" of norm layers
    locals: dict[int, Tensor]  # participant -> its model; empty where they were not asked for
    server: Vectors
    clients: dict[int, Vectors]  # client -> its own vectors, for those that ever took part
    extra: dict[str, Any]  # small numbers: cohort, sizes, SWA count, last participation


class DamagedError(ValueError):
    """A file that is not what was written."""


def open_run(root: Path, recipe: Recipe, split: partition.Partition, facts: Mapping[str, Any]) -> Path:
    """The directory of this recipe under `root`, new or found; one that holds another recipe is refused."""
    path = root / recipe.slug
    settings = path / "config.toml"
    if settings.exists():
        found = config.load(settings)[0]
        if found.digest != recipe.digest:
            raise ValueError(
                f"{path} holds a run of another recipe (digest {found.digest[:8]}, wanted {recipe.digest[:8]}): "
                "choose another --out, or remove it"
            )
        return path
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    partition.save(split, path / "partition.npz")
    packages = {name: version(name) for name in ("fl-landscape", "torch", "numpy", "safetensors")}
    about = {"digest": recipe.digest, "packages": packages, "python": platform.python_version(), **facts}
    write_text(path / "provenance.json", json.dumps(about, indent=2))
    write_text(settings, config.dump(recipe))  # last: a directory without it is begun anew
    return path


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint aside, flush it, rename it."""
    target = run / "checkpoints" / f"round_{checkpoint.round:06d}"
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    contents = {
        "global": checkpoint.models,
        "locals": {f"{client}": w for client, w in checkpoint.locals.items()},
        "state": {
            **{f"server/{name}": vector for name, vector in checkpoint.server.items()},
            **{f"{k}/{name}": vector for k, vectors in checkpoint.clients.items() for name, vector in vectors.items()},
        },
    }
    with explained(f"checkpoint of round {checkpoint.round}"):
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            files = {}
            for name, vectors in contents.items():
                if name == "locals" and not vectors:
                    continue
                data = format_tensors({key: vector.contiguous() for key, vector in vectors.items()})
                write_bytes(aside / f"{name}.safetensors", data)
                files[f"{name}.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            meta = {"round": checkpoint.round, "files": files, **checkpoint.extra}
            write_text(aside / "meta.json", json.dumps({**meta, "sha256": _seal(meta)}, indent=2))
            if target.exists():
                shutil.rmtree(target)  # an earlier one of the same round, damaged or from a resumed run
            os.replace(aside, target)
            _flush_directory(target.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte of it."""
    meta = read_meta(path)
    contents: dict[str, dict[str, Tensor]] = {name: {} for name in FILES}
    for file, facts in meta["files"].items():
        try:
            data = (path / file).read_bytes()
        except OSError as error:
            raise DamagedError(f"{path / file}: cannot be read ({error.strerror})") from None
        if len(data) != facts["bytes"] or hashlib.sha256(data).hexdigest() != facts["sha256"]:
            raise DamagedError(f"{path / file}: {len(data)} bytes that do not match the hash written with them")
        try:
            contents[Path(file).stem] = parse_tensors(data)
        except SafetensorError as error:
            raise DamagedError(f"{path / file}: not a safetensors file ({error})") from None
    server: Vectors = {}
    clients: dict[int, Vectors] = {}
    for key, vector in contents["state"].items():
        owner, _, name = key.partition("/")
        if owner == "server":
            server[name] = vector
        else:
            clients.setdefault(int(owner), {})[name] = vector
    known = {"round", "files", "sha256"}
    return Checkpoint(
        round=meta["round"],
        models=contents["global"],
        locals={int(client): w for client, w in contents["locals"].items()},
        server=server,
        clients=clients,
        extra={key: value for key, value in meta.items() if key not in known},
    )


def read_meta(path: Path) -> dict[str, Any]:
    """The description of a checkpoint, sealed by its own hash."""
    try:
        meta: dict[str, Any] = json.loads((path / "meta.json").read_text())
        sealed = meta.pop("sha256")
    except (OSError, ValueError, KeyError):
        raise DamagedError(f"{path / 'meta.json'}: missing or not readable") from None
    if sealed != _seal(meta):
        raise DamagedError(f"{path / 'meta.json'}: its content does not match its hash")
    return meta


def rounds(run: Path) -> list[int]:
    """Rounds that have a checkpoint, ascending."""
    return sorted(int(path.name.removeprefix("round_")) for path in (run / "checkpoints").glob("round_*"))


def at(run: Path, round: int) -> Path:
    return run / "checkpoints" / f"round_{round:06d}"


def newest(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and a line for every damaged one that was passed over."""
    problems: list[str] = []
    for round in reversed(rounds(run)):
        try:
            return load(at(run, round)), problems
        except DamagedError as error:
            problems.append(str(error))
    return None, problems


def check(run: Path) -> list[str]:
    """Every problem of a run directory in words; none if it is sound."""
    problems = []
    try:
        config.load(run / "config.toml")
    except ValueError as error:
        problems.append(str(error))
    try:
        partition.load(run / "partition.npz")
    except (ValueError, OSError) as error:
        problems.append(str(error))
    for name in ("provenance.json", "status.json"):
        try:
            json.loads((run / name).read_text())
        except (OSError, ValueError):
            problems.append(f"{run / name}: missing or not readable")
    found = rounds(run)
    if not found:
        problems.append(f"{run / 'checkpoints'}: no checkpoint")
    for round in found:
        try:
            load(at(run, round))
        except DamagedError as error:
            problems.append(str(error))
    try:
        done = [line["round"] for line in read_metrics(run)]
    except DamagedError as error:
        problems.append(str(error))
    else:
        if done != list(range(1, len(done) + 1)):
            problems.append(f"{run / 'metrics.jsonl'}: rounds are missing or out of order")
    return problems


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """One record per finished round; a last line cut short by a kill is left out."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise DamagedError(f"{path}: line {number} is not readable") from None
    return records


def rewind_metrics(run: Path, round: int) -> None:
    """Forget records after a round: they will be made again."""
    records = [record for record in read_metrics(run) if record["round"] <= round]
    write_text(run / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def append_metrics(run: Path, record: Mapping[str, Any]) -> None:
    with explained("metrics"), open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_bytes(aside, text.encode())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _seal(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _flush_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """A full disk in words."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno, f"{what} could not be written ({error.strerror}); earlier checkpoints are intact"
        ) from error

"""Training from Python: what `landscape train`, `adopt`, `personal` and `list` do, as functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from landscape.runtime.memory import parse_bytes
from training import config, sweep_expansion
from training.adoption import adopting
from training.config import Recipe
from training.console import listings
from training.console.personal_results import evaluate_runs
from training.console.progress import bars
from training.console.sweep import train_all
from training.console.tables import print_line, to_records
from training.executors.ray_pool import Cluster
from training.runs import Places, Run, list_paths
from training.storage import toml
from training.storage.verified_files import Json

if TYPE_CHECKING:
    import pandas as pd

Source = str | os.PathLike[str] | Mapping[str, object] | Recipe
Settings = Mapping[str, object] | Sequence[str]  # {"local.lr": 0.1}, or ["local.lr=0.1"] as after --set


def choose_console(progress: bool | None) -> Console:
    """Choose where a function that is called from Python prints.

    progress: True: print; False: be silent; None: print on a terminal and in notebooks.
    """
    console = Console()
    shown = console.is_terminal or console.is_jupyter if progress is None else progress
    return console if shown else Console(quiet=True)


def train(
    recipe: Source,
    out: str | os.PathLike[str] = "runs",
    *,
    settings: Settings = (),
    data_root: str | os.PathLike[str] | None = None,
    download: bool = False,
    backend: str = "auto",
    workers: int | None = None,
    device: str | None = None,
    cluster: Cluster | None = None,
    memory: str | int | None = None,
    track: str | Sequence[str] = (),
    progress: bool | None = None,
) -> Run:
    """Train a recipe; a partial run is resumed, a finished one returned as it is.

    recipe: the name of a shipped recipe, a TOML file, nested settings, or a `Recipe`.
    out: folder in which the run's directory is created.
    settings: changes, such as {"local.lr": 0.1}.
    data_root: folder of the data. download: whether to download missing data.
    backend: an executor, or "auto". workers: processes at most; by default one for each core.
    device: auto, cpu, cuda, cuda:1 or mps; by default as the recipe says. cluster: of the backend ray.
    memory: of clients' vectors, such as "2G"; what is beyond is kept in a temporary file. By default a quarter of what
        is free.
    track: trackers that get the metrics: tensorboard, wandb, mlflow, or 'module:name'; one or several.
    progress: whether to print; by default on a terminal and in notebooks.
    """
    recipes = read_recipes(recipe, settings, data_root=data_root, download=download, device=device)
    if len(recipes) != 1:
        raise ValueError(f"this recipe sweeps over {len(recipes)} runs: write train_sweep, which returns all of them")
    (path,) = train_all(
        recipes,
        Path(out),
        console=choose_console(progress),
        backend=backend,
        workers=workers,
        asked=_keys(settings),
        cluster=cluster,
        memory=None if memory is None else parse_bytes(memory),
        track=track,
    )
    return Run(path)


def train_sweep(
    recipe: Source,
    out: str | os.PathLike[str] = "runs",
    *,
    settings: Settings = (),
    data_root: str | os.PathLike[str] | None = None,
    download: bool = False,
    backend: str = "auto",
    workers: int | None = None,
    device: str | None = None,
    cluster: Cluster | None = None,
    memory: str | int | None = None,
    shard: str = "",
    track: str | Sequence[str] = (),
    progress: bool | None = None,
    console: Console | None = None,
) -> list[Run]:
    """Train every run of a recipe's sweep; returns the runs in order.

    shard: "i/n" trains only the i-th of n parts, counted from zero.
    console: where to print, instead of what `progress` chooses.

    Other arguments: see `train`.
    """
    recipes = read_recipes(recipe, settings, data_root=data_root, download=download, device=device)
    shown = console or choose_console(progress)
    paths = train_all(
        recipes,
        Path(out),
        console=shown,
        backend=backend,
        workers=workers,
        asked=_keys(settings),
        cluster=cluster,
        memory=None if memory is None else parse_bytes(memory),
        shard=shard,
        track=track,
    )
    return [Run(path) for path in paths]


def read_recipes(
    source: Source,
    settings: Settings = (),
    *,
    data_root: str | os.PathLike[str] | None = None,
    download: bool = False,
    device: str | None = None,
) -> list[Recipe]:
    """Read all recipes of a source: several, if it has a sweep.

    source: the name of a shipped recipe, a TOML file, nested settings, or a `Recipe`.

    Other arguments: see `train`.
    """
    changes = _write_changes(settings)
    if isinstance(source, Recipe):
        device = device or source.device  # which is not among the settings that make a run
        source = source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, Mapping):
        expanded = sweep_expansion.expand(source, changes, "recipe")
        loaded = [config.validate(one) for one in expanded]
    else:
        loaded = config.load(os.fspath(source), changes)
    given: Json = {} if data_root is None else {"root": str(Path(data_root).absolute())}
    given |= {"download": True} if download else {}
    place = {} if device is None else {"device": device}
    return [one.model_copy(update={"data": one.data.model_copy(update=given), **place}) for one in loaded]


def _write_changes(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={toml.show(value)}" for key, value in settings.items()]
    return list(settings)


def _keys(settings: Settings) -> list[str]:
    """Return the keys of changed settings, which become part of the names of new runs."""
    return [one.partition("=")[0].strip().removeprefix("sweep.") for one in _write_changes(settings)]


def adopt(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] = "runs",
    *,
    description: str | os.PathLike[str] | None = None,
    data_root: str | os.PathLike[str] | None = None,
    device: str = "auto",
    progress: bool | None = None,
    console: Console | None = None,
) -> Run:
    """Turn the models that another framework saved into a run, which every study then measures.

    folder: with the files of the models, and adopt.toml, which describes them (docs/adopt.md).
    out: folder in which the run's directory is created. A run that was adopted before is returned as it is.
    description: the TOML file, if it has another name or lies elsewhere.
    data_root: folder of the data. device: where models are tested, if the framework left no accuracies.
    progress: whether to print; by default on a terminal and in notebooks. console: where to print, instead.
    """
    shown = console or choose_console(progress)
    with bars(shown) as bar:
        path = adopting.adopt(
            Path(folder),
            Path(out),
            description=None if description is None else Path(description),
            data_root=None if data_root is None else Path(data_root),
            device=device,
            on_round=bar("rounds adopted"),
            on_message=lambda text: print_line(shown, text),
        )
    print_line(shown, f"adopted: {path}")
    print_line(shown, f"next: landscape show {path}")
    return Run(path)


def evaluate_personal(
    runs: Places,
    strategy: str | Sequence[str] = "finetune",
    *,
    round: int | None = None,
    model: str = "server",
    clients: int | None = None,
    data_root: str | os.PathLike[str] | None = None,
    device: str = "auto",
    progress: bool | None = None,
    console: Console | None = None,
    **options: object,
) -> pd.DataFrame:
    """Make a model for each client and test it on the client's own data; returns one row per client.

    runs: one or several.
    strategy: finetune, global, knn, local or own; one or several.
    round: of the global model; by default the newest checkpoint. model: server, mean or swa.
    clients: test only this many, drawn by the run's seed.
    data_root: folder of the data, if not the one used in training. device: auto, cpu, cuda, cuda:1 or mps.
    progress: whether to print; by default on a terminal and in notebooks. console: where to print, instead.
    options: of the strategies, such as epochs=5.
    """
    import pandas as pd

    results = evaluate_runs(
        list_paths(runs),
        [strategy] if isinstance(strategy, str) else list(strategy),
        _write_changes(options),
        console=console or choose_console(progress),
        round=round,
        model=model,
        sample=clients,
        data_root=None if data_root is None else Path(data_root),
        device=device,
    )
    rows = [
        {"run": path.name, "strategy": one.strategy, "round": one.round, **asdict(score)}
        for path, one in results
        for score in one.clients
    ]
    return pd.DataFrame(rows)


def list_entries(kind: str) -> list[Json]:
    """List what recipes can name, with settings: one entry for each.

    kind: algorithms, datasets, partitions, models or recipes.
    """
    return to_records(listings.make_listing(kind))

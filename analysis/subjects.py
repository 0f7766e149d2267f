"""What studies measure: runs of `landscape train`, and users' own models."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from landscape import Objective
from landscape.errors import choose, whole
from landscape.layout import running_statistics
from landscape.losses.batches import choose_stratified
from landscape.losses.sources import Source
from landscape.losses.summed_loss import Loss
from landscape.objectives.sampling import Draw
from landscape.rng import numpy_generator
from landscape.runtime.device import find_device
from landscape.runtime.memory import parse_bytes
from training import config
from training.console.messages import printable
from training.data import partition
from training.data.dealing import Ints
from training.data.sources import DatasetSource, read_or_hold
from training.engine.evaluation import choose_batchnorm
from training.engine.federation import Federation
from training.storage import checkpoint, run_directory
from training.storage.verified_files import Json
from training.tasks.classification import CLASSIFICATION
from training.tasks.task import Task

MODELS = ("server", "mean", "swa")  # those of a checkpoint
# "final" is what a run is judged by: the average of rounds where there is one by then, the server's model elsewhere
GLOBAL_MODELS = ("final", *MODELS)
SPLITS = ("train", "test")
Examples = tuple[Tensor, Tensor]  # inputs, targets


def check_rounds(wanted: str) -> str:
    """Return a text that names rounds, or raise ValueError; `Subject.select` checks that a run has them."""
    word, _, number = wanted.partition(" ")
    numbers = all(part.strip().isdecimal() for part in wanted.split(","))
    if wanted in ("last", "all") or (word == "every" and number.isdecimal() and int(number) > 0) or numbers:
        return wanted
    raise ValueError(f'rounds must be "last", "all", "every 10" or numbers like 0,50,100; got "{wanted}"')


@dataclass(frozen=True)
class Limits:
    """How much of the machine a study may use, and how exactly it computes."""

    memory: str | int | None = None  # as `Objective` takes it
    workers: int | None = None
    chunk_size: int = 512  # most examples at once
    dtype: torch.dtype = torch.float32
    device: str = "auto"  # where everything is computed, as `find_device` takes it

    def __post_init__(self) -> None:
        find_device(self.device)
        if self.memory is not None:
            parse_bytes(self.memory)
        if self.workers is not None:
            whole("workers", self.workers)

    def halved(self) -> Limits:
        """Return limits with chunks half as large, after memory ran out: 256, 128, ..., 1."""
        return replace(self, chunk_size=max(self.chunk_size // 2, 1))


@dataclass(frozen=True)
class Opening:
    """How another process opens the same subject.

    function: a function at the top of a module, with all its arguments but `limits`.
    limits: for a subject that is measured beside others.
    """

    function: Callable[..., Subject]
    limits: Limits

    def open(self) -> Subject:
        """Open the subject, for measuring on one thread."""
        return self.function(limits=replace(self.limits, workers=1))


class Subject(ABC):
    """A model over rounds, with the data of its clients: everything that studies use."""

    name: str
    path: Path  # where results go
    model: nn.Module
    policy: str  # for norm layers
    classes: int
    task: Task = CLASSIFICATION
    rounds: list[int]  # those that can be measured
    clients: list[int]  # none for a model that was not trained by federated learning
    limits: Limits
    opening: Opening | None = None  # None: only this process has it

    @property
    def device(self) -> torch.device:
        """Where everything is computed: examples and points are there."""
        return find_device(self.limits.device)

    @property
    def computing(self) -> Json:
        """How everything is computed, as `Objective` and `compute_outputs` take it."""
        limits = {name: getattr(self.limits, name) for name in ("dtype", "workers", "chunk_size")}
        return limits | {"device": self.device, "batchnorm": self.policy}

    @abstractmethod
    def examples(self, split: str, client: int | None = None, positions: Tensor | None = None) -> Examples:
        """Inputs as the network sees them, without augmentation, and targets: of everyone, or of one client.

        positions: numbers of those that are wanted; None: all, in order.
        """

    def labels(self, split: str, client: int | None = None) -> Tensor | None:
        """The class of every example; None where classes are not known."""
        targets = self.examples(split, client)[1]
        return targets if targets.ndim == 1 else None

    @abstractmethod
    def point(self, round: int, model: str = "server") -> Tensor:
        """A global model of a round: weights, followed by running statistics where there are norm layers."""

    @abstractmethod
    def local_points(self, round: int) -> dict[int, Tensor]:
        """The models of a round's participants."""

    def sent_point(self, round: int) -> Tensor | None:
        """The point at which a round's participants began, with the statistics they got; None if it was not kept."""
        return None

    @abstractmethod
    def inputs(self, rounds: Sequence[int]) -> Json:
        """Return digests of everything that an answer about these rounds depends on."""

    def treat_norms(self, batchnorm: str) -> Subject:
        """This subject; if statistics of norm layers are to be "recomputed" and it has any, one that does that.

        Its objectives take vectors of weights only, and statistics always come from everyone's training data.
        """
        if batchnorm != "recomputed" or not running_statistics(self.model):
            return self
        other = copy.copy(self)
        other.policy = batchnorm
        return other

    def objective(self, split: str = "train", client: int | None = None, limit: int | None = None) -> Objective:
        """The loss on everyone's data or on one client's; `limit`: on so many examples of them, drawn once."""
        choose("split", split, SPLITS)
        data = self.find_data(split, client)
        objective = self._pattern(data).on(data)
        if limit is not None and limit < objective.count:
            objective = objective.subset(limit)
        if self.policy == "recomputed" and (split, client) != ("train", None):
            return objective.with_statistics_from(self.objective("train", limit=limit))
        return objective

    def count(self, split: str = "train", client: int | None = None, limit: int | None = None) -> int:
        """Count the examples that `objective` would have with these arguments."""
        size = self.count_all(split, client)
        return min(size, limit or size)

    def count_evaluated(self, split: str, client: int | None, limit: int | None) -> int:
        """Count the examples that one evaluation of that objective takes, with those of recomputed statistics."""
        statistics = self.count("train", limit=limit) if self.policy == "recomputed" else 0
        return self.count(split, client, limit) + statistics

    def count_seen(self, split: str, limit: int | None) -> dict[str, int]:
        """Count the examples of everyone that are seen with a limit, and all that there are, for attributes."""
        return {"examples": self.count(split, limit=limit), "population": self.count(split)}

    def count_all(self, split: str, client: int | None = None) -> int:
        """Count all examples, without reading them if possible."""
        return len(self.examples(split, client)[1])

    def find_data(self, split: str, client: int | None = None) -> Examples | Source:
        """The examples as `Objective` takes them: a source where they would take too much memory."""
        return self.examples(split, client)

    def draw_examples(
        self, split: str, client: int | None, count: int | None, seed: int, *purpose: str | int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Some examples, each class in proportion where classes are known: inputs, targets, and their numbers.

        split, client: whose examples.
        count: how many are drawn; None, or more than there are: all of them, in order.
        seed, purpose: what the draw depends on.
        """
        total = self.count_all(split, client)
        chosen = torch.arange(total)
        if count is not None and count < total:
            chosen = choose_stratified(self.labels(split, client), total, count, numpy_generator(seed, *purpose))
        return *self.examples(split, client, chosen), chosen

    def _pattern(self, data: Examples | Source) -> Objective:
        """Make an objective on a few examples; others are derived from it, so that the model is probed once."""
        limits = self.limits
        count = len(data) if isinstance(data, Source) else min(len(data[1]), limits.chunk_size)
        patterns: dict[tuple[Limits, str], Objective] = self.__dict__.setdefault("_patterns", {})
        known = patterns.get((limits, self.policy))
        if known is None or known.count < count:
            few = data if isinstance(data, Source) else (data[0][:count], data[1][:count])
            patterns[limits, self.policy] = self.make_objective(few, self.task.loss)
        return patterns[limits, self.policy]

    def make_objective(self, data: Examples | Source, loss: Loss, drawn: Draw | None = None) -> Objective:
        """Make a new objective of this subject's model, within its limits.

        data, loss, drawn: as `Objective` takes them.
        """
        return Objective(self.model, data, loss=loss, memory=self.limits.memory, drawn=drawn, **self.computing)

    def shares(self, clients: Sequence[int]) -> dict[int, float]:
        """p_k = n_k / sum of n_j over these clients."""
        sizes = {client: self.count("train", client) for client in clients}
        return {client: size / sum(sizes.values()) for client, size in sizes.items()}

    def select_with(self, wanted: str, *models: str) -> list[int]:
        """Select rounds like `select`; ValueError if one of them lacks one of these global models."""
        rounds = self.select(wanted)
        for round in rounds:
            for model in models:
                self.point(round, model)
        return rounds

    def select(self, wanted: str) -> list[int]:
        """Select rounds by a text: "last", "all", "every 10", or numbers "0,50,100"."""
        if wanted == "all":
            return self.rounds
        if wanted == "last":
            return self.rounds[-1:]
        word, _, number = check_rounds(wanted).partition(" ")
        if word == "every":
            return [round for round in self.rounds if round % int(number) == 0 or round == self.rounds[-1]]
        asked = sorted({int(part) for part in wanted.split(",")})
        missing = [round for round in asked if round not in self.rounds]
        if missing:
            raise ValueError(
                f"{self.name}: no checkpoint of round {', '.join(map(str, missing))}; there are "
                f"{', '.join(map(str, self.rounds))}"
            )
        return asked


@dataclass
class Run(Subject):
    """A run directory."""

    path: Path
    data_root: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not (self.path / "config.toml").exists():
            raise ValueError(f"{self.path}: not a run directory (no config.toml); landscape train makes them")
        recipe = config.load(self.path / "config.toml")[0]
        if self.data_root is not None:
            recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"root": str(self.data_root)})})
        self.recipe = recipe
        self.name = printable(self.path.name)
        stored = partition.load(self.path / "partition.npz")
        self.federation = Federation(recipe, stored, self.limits.device, begins=False)
        self.model, self.classes = self.federation.trainer.model, self.federation.dataset.classes
        self.clients = list(range(len(self.federation.client_indices)))
        self.policy, self.task = self.federation.policy, self.federation.dataset.task
        self.rounds = run_directory.checkpoint_rounds(self.path)
        if not self.rounds:
            raise ValueError(f"{self.path}: has no checkpoint yet")
        data = None if self.data_root is None else self.data_root.absolute()
        self.opening = Opening(partial(Run, self.path.absolute(), data), self.limits)
        self.limits = replace(self.limits, dtype=self.federation.trainer.dtype)
        self._checkpoint = lru_cache(maxsize=2)(
            lambda round: checkpoint.load(run_directory.checkpoint_path(self.path, round))
        )

    def checkpoint(self, round: int) -> checkpoint.Checkpoint:
        """The checkpoint of a round, verified."""
        if round not in self.rounds:
            self.select(str(round))
        return self._checkpoint(round)

    def examples(self, split: str, client: int | None = None, positions: Tensor | None = None) -> Examples:
        source = self._find_source(split, client)
        inputs, targets = source.read(torch.arange(len(source)) if positions is None else positions)
        return inputs.to(self.device), targets.to(self.device)

    def labels(self, split: str, client: int | None = None) -> Tensor | None:
        return self._find_source(split, client).labels

    def find_data(self, split: str, client: int | None = None) -> Examples | Source:
        return read_or_hold(self.federation.trainer.placed, *self._choose(split, client), self.limits.dtype)

    def count_all(self, split: str, client: int | None = None) -> int:
        return len(self._choose(split, client)[1])

    def _find_source(self, split: str, client: int | None) -> DatasetSource:
        stored, chosen = self._choose(split, client)
        return DatasetSource(self.federation.trainer.placed, stored, torch.from_numpy(chosen), self.limits.dtype)

    def _choose(self, split: str, client: int | None) -> tuple[Literal["train", "test"], Ints]:
        """Where the examples of a split are stored in the data set, and their numbers there."""
        fed, data = self.federation, self.federation.dataset
        stored: Literal["train", "test"] = "train"
        if split == "train":
            chosen = fed.client_indices.flat if client is None else fed.client_indices[client]
            if client is None and self.recipe.adopted is not None:
                # in the order of the data set, not client by client: sums then round as if the same weights were opened
                # with `open_model`, and both give the same bits
                chosen = np.sort(chosen)
        elif fed.tests is not None:
            chosen = fed.tests.flat if client is None else fed.tests[client]
        elif client is None:
            stored, chosen = "test", np.arange(len(data.test_inputs))
        else:
            raise ValueError(f"{self.name}: clients have no test data in this run; use split train")
        if len(chosen) == 0:
            raise ValueError(f"{self.name}: there is no {split} data; use another split")
        return stored, chosen

    def point(self, round: int, model: str = "server") -> Tensor:
        models = self.checkpoint(round).models
        if choose("model", model, GLOBAL_MODELS) == "final":
            model = "swa" if "swa" in models else "server"
        if model not in models:
            kept = ", ".join(name for name in MODELS if name in models)
            raise ValueError(f"{self.name}: round {round} has no {model} model, only {kept}")
        statistics = "swa_statistics" if model == "swa" else "statistics"
        return torch.cat([models[model], models[statistics]]).to(self.device)

    def local_points(self, round: int) -> dict[int, Tensor]:
        found = self.checkpoint(round).locals
        if not found:
            those = [one for one, files in self._files(self.rounds).items() if files.get("locals.safetensors")]
            kept = ", ".join(map(str, those)) or "none"
            advice = 'Train with checkpoints.keep_locals = "all"'
            if self.recipe.adopted is not None:
                advice = "Adopt the run again with adopt.client_models"
            raise ValueError(f"{self.name}: round {round} keeps no local models; rounds that do: {kept}. {advice}")
        return {client: point.to(self.device) for client, point in found.items()}

    def _files(self, rounds: Sequence[int]) -> dict[int, Json]:
        """Read what checkpoints say about their files."""
        paths = {round: run_directory.checkpoint_path(self.path, round) for round in rounds}
        return {round: run_directory.read_meta(path)["files"] for round, path in paths.items()}

    def sent_point(self, round: int) -> Tensor | None:
        models = self.checkpoint(round).models
        if "sent" not in models:
            return None
        return torch.cat([models["sent"], models["sent_statistics"]]).to(self.device)

    def inputs(self, rounds: Sequence[int]) -> Json:
        # what clients remember is dropped in time: an answer must not depend on whether it is still there, except to
        # be NaN (delta_epsilon)
        prints = {
            str(round): {name: one for name, one in files.items() if name != "clients.safetensors"}
            for round, files in self._files(rounds).items()
        }
        return {
            "run": self.recipe.digest,
            "data": self.federation.dataset.digest,
            "partition": self.federation.partition.digest,
            "checkpoints": prints,
        }


@dataclass
class Own(Subject):
    """A user's own model with its data: one point, no clients."""

    name: str
    path: Path
    model: nn.Module
    theta: Tensor
    data: dict[str, Examples]  # split -> inputs, labels
    fingerprint: str
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.rounds, self.clients = [0], []
        self.theta = self.theta.to(self.device)
        self.data = {split: (x.to(self.device), y.to(self.device)) for split, (x, y) in self.data.items()}
        self.policy = choose_batchnorm(self.model)
        self.classes = int(max(int(labels.max()) for _, labels in self.data.values())) + 1

    def examples(self, split: str, client: int | None = None, positions: Tensor | None = None) -> Examples:
        if split not in self.data:
            raise ValueError(f"{self.name}: there is no {split} data, only {', '.join(self.data)}; use that")
        inputs, targets = self.data[split]
        places = slice(None) if positions is None else positions.to(self.device)
        return inputs[places], targets[places]

    def point(self, round: int, model: str = "server") -> Tensor:
        return self.theta

    def local_points(self, round: int) -> dict[int, Tensor]:
        raise ValueError(f"{self.name}: a single model has no clients; this study needs a run of landscape train")

    def inputs(self, rounds: Sequence[int]) -> Json:
        return {"model": self.fingerprint}

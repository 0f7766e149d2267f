"""A federation: who takes part in a round, what it brings back, and how good the models are."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from landscape import Objective
from landscape.layout import running_statistics
from landscape.rng import numpy_generator
from landscape.runtime.replica import NORM
from training.config import Recipe
from training.data import datasets, partition
from training.engine.aggregation import RoundAggregate
from training.engine.local_training import ClientIndices, DivergenceError, LocalTrainer
from training.engine.recording import perturbation_error
from training.executors.base import Broadcast, Executor, Task
from training.methods import catalog
from training.models import networks
from training.rules.vectors import Vectors

Record = dict[str, Any]


@dataclass
class State:
    """The federation between two rounds."""

    round: int  # rounds finished
    w: Tensor  # (d,) the server's model
    statistics: Tensor  # (b,) running statistics of norm layers
    server: Vectors
    clients: dict[int, Vectors] = field(default_factory=dict)  # only those that ever took part
    mean: Tensor | None = None  # plain mean of the last participants
    sent: Tensor | None = None  # (d,) what was broadcast to them: where their local training began
    sent_statistics: Tensor | None = None  # (b,) likewise
    swa: Tensor | None = None
    swa_statistics: Tensor | None = None  # (b,) averaged like the models
    captured: int = 0  # models in the SWA average


class Federation:
    """A run in memory: its recipe, data, method and evaluation."""

    def __init__(self, recipe: Recipe, stored: partition.Partition | None = None):
        self.recipe = recipe
        self.method = catalog.method(recipe.algorithm.name, recipe.algorithm.settings)
        data = recipe.data
        dataset = datasets.load(data.name, root=data.root, download=data.download, **data.settings)
        self.dataset = datasets.pooled(dataset) if data.pooled else dataset
        self.partition = stored or draw_partition(recipe, self.dataset)
        parts, self.tests = list(self.partition.indices), None
        if data.pooled:
            splits = [partition.split_client(own, seed=recipe.seed, client=k) for k, own in enumerate(parts)]
            parts, self.tests = [train for train, _ in splits], [test for _, test in splits]
        self.client_indices = ClientIndices.of(parts)
        model = networks.build(
            recipe.model.name,
            classes=self.dataset.classes,
            channels=self.dataset.channels,
            size=self.dataset.size,
            seed=recipe.seed,
            **recipe.model.settings,
        )
        self.trainer = LocalTrainer(recipe, self.dataset, self.client_indices, self.method, model)
        self.objective = self._objective()

    def _objective(self) -> Objective | None:
        images, labels = self.dataset.test_images, self.dataset.test_labels
        if self.tests is not None:  # pooled data: everyone's test parts together
            places = torch.from_numpy(np.concatenate(self.tests))
            images, labels = self.dataset.train_images[places], self.dataset.train_labels[places]
        if len(labels) == 0:
            return None
        inputs = datasets.normalise(images, self.dataset, self.trainer.dtype)
        return Objective(self.trainer.model, (inputs, labels), dtype=self.trainer.dtype, batchnorm=self.policy)

    @property
    def policy(self) -> str:
        """BatchNorm in evaluation: running statistics travel with the weights; layers that keep none use the batch."""
        if running_statistics(self.trainer.model):
            return "interpolated"
        return "batch" if any(isinstance(module, NORM) for module in self.trainer.model.modules()) else "frozen"

    def begin(self) -> State:
        """The state before the first round."""
        w = self.trainer.layout.flatten(self.trainer.model).to(self.trainer.dtype)
        buffers = [buffer.reshape(-1) for buffer in running_statistics(self.trainer.model).values()]
        statistics = torch.cat(buffers).to(self.trainer.dtype) if buffers else w.new_zeros(0)
        return State(0, w, statistics, self.method.init_server(w))

    def draw_cohort(self, round: int) -> list[int]:
        """The participants of a round, a function of seed and round alone."""
        N, S = len(self.client_indices), self.recipe.rounds.participants
        if self.recipe.rounds.sampling == "fixed":
            drawn = numpy_generator(self.recipe.seed, "cohort", round).choice(N, S, replace=False)
            return sorted(int(client) for client in drawn)
        draws = (numpy_generator(self.recipe.seed, "cohort", round, again).random(N) for again in itertools.count())
        chosen = (np.flatnonzero(draw < S / N) for draw in draws)  # nobody at all: draw again
        return [int(client) for client in next(cohort for cohort in chosen if len(cohort))]

    def compute_lr(self, round: int) -> float:
        """The local rate of a round: decayed; once SWA has begun cyclic, or constant for cycles of one round.

        (1 - s) lr + s lr_end, s = (round mod c + 1) / c (FedSAM paper, eq. 7), with the rate lr that decay has reached.
        """
        local, swa = self.recipe.local, self.recipe.swa
        if swa is None or round < self.swa_start:
            return local.lr * local.lr_decay**round
        reached = local.lr * local.lr_decay**self.swa_start
        share = (round % swa.cycle + 1) / swa.cycle if swa.cycle > 1 else 0.0
        return (1 - share) * reached + share * swa.lr_end

    @property
    def swa_start(self) -> int:
        """Rounds before SWA begins: all of them where there is none."""
        count = self.recipe.rounds.count
        return math.floor(self.recipe.swa.start * count + 1e-9) if self.recipe.swa else count  # 0.29 * 100 is 28.99...

    def advance(
        self, state: State, executor: Executor, keep_locals: bool = True
    ) -> tuple[State, Record, dict[int, Tensor]]:
        """One round: the next state, its metrics, and every participant's model where they are to be kept.

        A local model is its weights, followed by its running statistics where there are norm layers that keep some.
        """
        began = time.perf_counter()
        recipe, method, round = self.recipe, self.method, state.round
        cohort, lr = self.draw_cohort(round), self.compute_lr(round)
        sizes = {k: len(self.client_indices[k]) if recipe.rounds.aggregation == "size" else 1 for k in cohort}
        weights = {k: size / sum(sizes.values()) for k, size in sizes.items()}
        gradients, probe = 0, None
        if method.server.probes:
            probe = self._probe(state, weights, executor)
            seen = probe.report(state.w, len(self.client_indices))
            start = method.server.choose_sent_point_after(state.w, state.server, seen)
            gradients = probe.gradients
        else:
            start = method.server.choose_sent_point(state.w, state.server)
        aggregate, clients, local_models = self._exchange(state, start, weights, executor, keep_locals)
        report = aggregate.report(state.w, len(self.client_indices))
        w, server = method.advance(state.w, state.server, report)
        if not bool(torch.isfinite(w).all()):
            raise DivergenceError(round + 1, None, None, lr)
        following = replace(
            self._begin_average(state),
            round=round + 1,
            w=w,
            statistics=aggregate.statistics.to(start.dtype),
            server=server,
            clients=clients,
            mean=report.mean_model,
            sent=start,
            sent_statistics=state.statistics,
        )
        self._average(following)
        down, up = (vectors * start.numel() + state.statistics.numel() for vectors in method.traffic)
        record: Record = {
            "round": round + 1,
            "lr": lr,
            "participants": len(cohort),
            "train_loss": aggregate.loss,
            "norm": float(w.double().norm()),
            "update": float(report.displacement.double().norm()),
            "drift": aggregate.drift / len(cohort),
            "cosine": aggregate.cosine,
            "gradients": gradients + aggregate.gradients,
            "bytes_down": down * start.element_size() * len(cohort),
            "bytes_up": up * start.element_size() * len(cohort),
        }
        if recipe.record:
            record["recorded"] = aggregate.recorded | self._recorded(state, weights, executor, probe)
        if (round + 1) % recipe.evaluation.every == 0 or round + 1 > recipe.rounds.count - recipe.evaluation.last:
            record.update(self.evaluate(following))
            if not math.isfinite(record.get("test_loss", 0.0)):
                raise DivergenceError(round + 1, None, None, lr)
        record["seconds"] = time.perf_counter() - began
        return following, record, local_models

    def _exchange(
        self, state: State, start: Tensor, weights: dict[int, float], executor: Executor, keep_locals: bool
    ) -> tuple[RoundAggregate, dict[int, Vectors], dict[int, Tensor]]:
        """Let the cohort train from `start`: what it brought back, everyone's memory, and its models."""
        method = self.method
        fresh = method.init_client(self.trainer.layout, start)
        remembered = {k: state.clients.get(k, fresh) for k in weights}
        message = method.make_message(state.w, state.server)
        broadcast = Broadcast(start, message, state.statistics, self.compute_lr(state.round), state.round)
        aggregate = RoundAggregate(broadcast, self.recipe.local.momentum, weights)
        local_models, clients = {}, dict(state.clients)
        for result in executor.run(broadcast, [Task(k, remembered[k]) for k in weights]):
            aggregate.add(result, remembered[result.client])
            if method.client_vectors:
                clients[result.client] = result.state
            if keep_locals:
                local_models[result.client] = torch.cat([result.w, result.statistics])
        return aggregate, clients, local_models

    def _probe(self, state: State, weights: dict[int, float], executor: Executor) -> RoundAggregate:
        """What the cohort would bring back from the model itself; nobody remembers it."""
        return self._exchange(state, state.w, weights, executor, keep_locals=False)[0]

    def _recorded(
        self, state: State, weights: dict[int, float], executor: Executor, probe: RoundAggregate | None
    ) -> Record:
        """What is recorded once a round; for eq. 6 of FedGloSS the cohort trains once more if it has not yet."""
        if "delta_epsilon" not in self.recipe.record:
            return {}
        probe = probe or self._probe(state, weights, executor)
        return {"delta_epsilon": {"mean": perturbation_error(self.method, state.server, probe.displacement)}}

    def _begin_average(self, state: State) -> State:
        """Server-side SWA starts from the model before its first round (FedSAM paper, Algorithm 1, lines 2 and 3)."""
        if self.recipe.swa is None or state.round != self.swa_start:
            return state
        return replace(state, swa=state.w, swa_statistics=state.statistics)

    def _average(self, state: State) -> None:
        """Capture the model at the end of a cycle, or where the published code does."""
        swa, round = self.recipe.swa, state.round - 1
        if swa is None or state.swa is None or state.swa_statistics is None:
            return
        at_end = (round + 1) % swa.cycle == 0
        as_code = round > self.swa_start and (round - self.swa_start) % swa.cycle == 0
        if at_end if swa.capture == "cycle_end" else as_code:
            n = state.captured if swa.count_from == "zero" else (round + 1) // swa.cycle
            state.swa = (n * state.swa + state.w) / (n + 1)
            state.swa_statistics = (n * state.swa_statistics + state.statistics) / (n + 1)
            state.captured += 1

    def evaluate(self, state: State) -> Record:
        """Test loss and accuracy of the server's model, the participants' mean and the SWA model."""
        if self.objective is None:
            return {}
        points = (
            ("", state.w, state.statistics),
            ("mean_", state.mean, state.statistics),
            ("swa_", state.swa, state.swa_statistics),
        )
        record: Record = {}
        for name, w, statistics in points:
            if w is None or statistics is None:
                continue
            if name != "mean_" or not torch.equal(w, state.w):  # FedAvg's mean is the server's model: look once
                found = self.objective.evaluate(torch.cat([w, statistics]))
            record[f"{name}test_loss"] = found.loss
            record[f"{name}accuracy"] = None if found.error is None else 1 - found.error
        return record


def draw_partition(recipe: Recipe, dataset: datasets.Dataset) -> partition.Partition:
    """The recipe's partition of a data set; superclasses come with the data."""
    settings = recipe.partition.settings
    if recipe.partition.name == "pachinko" and "coarse" not in settings:
        if dataset.coarse is None:
            raise ValueError(f"partition pachinko needs superclasses; data set '{dataset.name}' has none")
        settings["coarse"] = dataset.coarse
    labels = dataset.train_labels.numpy()
    return partition.partition(recipe.partition.name, labels, recipe.partition.clients, seed=recipe.seed, **settings)

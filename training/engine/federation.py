"""A federation and one round of it: who takes part, what they send back, and the next state."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from landscape.layout import running_statistics
from landscape.rng import numpy_generator
from landscape.runtime.device import Place, find_device
from training.clients.local_training import OWN_STATISTICS, DivergenceError
from training.clients.trainer import LocalTrainer
from training.config import Recipe
from training.data import datasets, partition
from training.data.dataset import Dataset, pool
from training.data.dealing import ClientIndices, Ints
from training.data.given import Known
from training.engine import swa
from training.engine.aggregation import RoundAggregate
from training.engine.client_tests import Accuracy, ClientTests, average, require_labels
from training.engine.evaluation import Evaluator, PartOfTests, choose_batchnorm, evaluate_state, make_test_objective
from training.engine.state import State
from training.executors.base import Broadcast, Executor, Participant
from training.methods import catalog
from training.models import networks
from training.models.weights import Start, start_from
from training.recording import compute_perturbation_error
from training.rules.context import RoundReport
from training.storage.client_vectors import ClientVectors
from training.storage.metrics import Record


@dataclass
class Exchange:
    """The results of a cohort's local training, and the clients' vectors afterwards."""

    aggregate: RoundAggregate
    clients: ClientVectors  # of all clients that ever took part
    local_models: dict[int, Tensor] = field(default_factory=dict)  # participant -> weights and running statistics
    accuracies: dict[int, Accuracy] = field(default_factory=dict)  # participant -> of its model on its own tests


class Federation:
    """A run in memory: its recipe, data, method and test objective.

    recipe: everything that determines the run.
    stored: the partition that the run was begun with; drawn from the recipe's seed if there is none yet.
    device: where clients are trained and models tested; by default as the recipe says.
    begins: whether initial weights are needed; what only reads a run does without the recipe's file of weights.
    files: folder of a file that the partition names; by default that of the data.
    """

    def __init__(
        self,
        recipe: Recipe,
        stored: partition.Partition | None = None,
        device: Place | None = None,
        begins: bool = True,
        files: Path | None = None,
    ):
        self.recipe, self.device = recipe, find_device(device or recipe.device)
        self.method = catalog.find_method(recipe.algorithm.name, recipe.algorithm.settings)
        data = recipe.data
        dataset = datasets.load(data.name, root=data.root, download=data.download, **data.settings)
        self.dataset = pool(dataset) if data.pooled else dataset
        self.partition = stored or draw_partition(recipe, self.dataset, files)
        # a copy, for torch takes no view of an array that cannot be written to
        dealt = self.partition.indices
        self.client_indices, self.tests = ClientIndices(dealt.flat.copy(), dealt.bounds), None
        if data.pooled:
            seed = find_partition_seed(recipe)
            splits = [partition.split_client(own, seed=seed, client=k) for k, own in enumerate(self.client_indices)]
            self.client_indices = ClientIndices.of([train for train, _ in splits])
            self.tests = ClientIndices.of([test for _, test in splits])
        model = self._build_model()
        self.started_from = load_start(model, recipe) if begins else None
        model = self.method.adapt_network(model, classes=self.dataset.classes, seed=recipe.seed)
        self.trainer = LocalTrainer(recipe, self.dataset, self.client_indices, self.method, model, self.device)
        self.objective = make_test_objective(self.trainer, self.tests)
        self.evaluator = self._make_evaluator()
        self.client_tests = self._make_client_tests()

    def _build_model(self) -> nn.Module:
        """Build the recipe's network for the data."""
        facts, own = self.dataset.facts, self.recipe.model.settings
        if told := [key for key in own if key in facts]:
            raise ValueError(f"model.{told[0]} comes with the data set '{self.dataset.name}'; leave it out")
        return networks.build(self.recipe.model.name, seed=self.recipe.seed, **facts, **own)

    def _make_evaluator(self) -> Evaluator | None:
        """What tests the models of a round; None where there is no test data."""
        if self.recipe.evaluation.own_statistics:
            if not self.keeps_statistics:
                raise ValueError('evaluation.own_statistics: no client keeps any; write rounds.statistics = "own"')
            if self.objective is None or self.users_tests is None:
                raise ValueError(
                    "evaluation.own_statistics needs clients with test examples of their own: partition natural, and "
                    f"data that name the user of every test example; data set '{self.dataset.name}' with partition "
                    f"{self.partition.name} has none"
                )
            initial = self.begin().statistics
            return Evaluator.of_clients(self.objective, self.trainer, self.users_tests, initial)
        return None if self.objective is None else Evaluator.of(self.objective, self.dataset)

    def _make_client_tests(self) -> ClientTests | None:
        """Make the test examples of every client, if the recipe asks for accuracies of clients."""
        wanted, seed = self.recipe.evaluation, self.recipe.seed
        if not (wanted.personal or wanted.clients):
            return None
        if self.objective is None:
            key = "personal" if wanted.personal else "clients"
            raise ValueError(f"evaluation.{key}: data set '{self.dataset.name}' has no test examples; leave it out")
        places = self._place_tests()
        if places is None:
            require_labels(self.dataset)
        return ClientTests(self.objective, self.dataset, self.client_indices, places, seed, wanted.draw)

    def _place_tests(self) -> ClientIndices | None:
        """Find the positions of each client's own test examples; None if they are drawn by class shares."""
        if self.tests is not None:
            return ClientIndices(np.arange(len(self.tests.flat)), self.tests.bounds)
        return self.users_tests

    @functools.cached_property
    def users_tests(self) -> ClientIndices | None:
        """The test examples of each client's user, where clients are the users of the data and have such (LEAF)."""
        users, tests = self.dataset.users, self.dataset.test_users
        if self.partition.name != "natural" or users is None or tests is None:
            return None
        place = {name: number for number, name in enumerate(tests.names)}
        names = (users.names[users.index[own[0]]] for own in self.client_indices)
        return ClientIndices.of([tests.find(place[name]) if name in place else np.zeros(0, np.int64) for name in names])

    @functools.cached_property
    def initial_accuracies(self) -> list[Accuracy]:
        """The accuracy of the initial model on every client's test examples, which counts until a client's first round.

        Computed once, where it is asked for.
        """
        assert self.client_tests is not None
        begun = self.begin()
        return self.client_tests.score_all(begun.w, begun.statistics)

    @property
    def keeps_statistics(self) -> bool:
        """Whether every client keeps running statistics of its norm layers to itself, all or some."""
        return bool(self.trainer.own_statistics.any())

    @property
    def policy(self) -> str:
        """The BatchNorm policy of evaluations."""
        return choose_batchnorm(self.trainer.model)

    def begin(self) -> State:
        """Create the state before the first round."""
        w = self.trainer.layout.flatten(self.trainer.model).to(self.trainer.dtype)
        buffers = [buffer.reshape(-1) for buffer in running_statistics(self.trainer.model).values()]
        statistics = torch.cat(buffers).to(self.trainer.dtype) if buffers else w.new_zeros(0)
        return State(0, w, statistics, self.method.init_server(w))

    def draw_cohort(self, round: int) -> list[int]:
        """Draw the participants of a round, a function of seed and round alone."""
        N, S = len(self.client_indices), self.recipe.rounds.participants
        if self.recipe.rounds.sampling == "fixed":
            drawn = numpy_generator(self.recipe.seed, "cohort", round).choice(N, S, replace=False)
            return sorted(int(client) for client in drawn)
        draws = (numpy_generator(self.recipe.seed, "cohort", round, again).random(N) for again in itertools.count())
        chosen = (np.flatnonzero(draw < S / N) for draw in draws)  # an empty cohort is drawn again
        return [int(client) for client in next(cohort for cohort in chosen if len(cohort))]

    def weigh(self, cohort: list[int]) -> dict[int, float]:
        """The weights p_k of the participants in every mean, which sum to one."""
        by_size = self.recipe.rounds.aggregation == "size"
        sizes = {k: len(self.client_indices[k]) if by_size else 1 for k in cohort}
        return {k: size / sum(sizes.values()) for k, size in sizes.items()}

    def compute_lr(self, round: int) -> float:
        """The local rate of a round."""
        return swa.compute_lr(self.recipe, round)

    def advance(
        self, state: State, executor: Executor, keep_locals: bool = True
    ) -> tuple[State, Record, dict[int, Tensor]]:
        """Run one round.

        state: before the round.
        executor: trains the participants.
        keep_locals: whether the participants' models are wanted.
        Returns the next state, the metrics of the round, and the participants' models by client: their weights (d,),
        followed by the running statistics of their norm layers (b,).
        """
        began, recipe = time.perf_counter(), self.recipe
        weights = self.weigh(self.draw_cohort(state.round))
        probe = self._probe(state, weights, executor) if self.method.server.probes else None
        start = self._choose_sent_point(state, probe)
        exchange = self._exchange(state, start, weights, executor, keep_locals, tested=recipe.evaluation.personal)
        aggregate = exchange.aggregate
        report = aggregate.report(state.w, len(self.client_indices))
        following = self._make_next_state(state, report, exchange)
        record = self._measure(state, following, aggregate, report, probe)
        if recipe.record:
            record["recorded"] = aggregate.recorded | self._record_round(state, weights, executor, probe)
        if recipe.evaluation.personal:
            record.update(self._measure_personal(following, exchange.accuracies))
        finished = following.round
        if finished % recipe.evaluation.every == 0 or finished > recipe.rounds.count - recipe.evaluation.last:
            record.update(evaluate_state(self.evaluator, following))
            if recipe.evaluation.clients and self.client_tests is not None:
                record.update(self._measure_clients(self.client_tests, following))
            if not math.isfinite(record.get("test_loss", 0.0)):
                raise DivergenceError(finished, None, None, report.lr)
        record["seconds"] = time.perf_counter() - began
        return following, record, exchange.local_models

    def _choose_sent_point(self, state: State, probe: RoundAggregate | None) -> Tensor:
        server = self.method.server
        if probe is None:
            return server.choose_sent_point(state.w, state.server)
        report = probe.report(state.w, len(self.client_indices))
        return server.choose_sent_point_after(state.w, state.server, report)

    def _exchange(
        self,
        state: State,
        start: Tensor,
        weights: Mapping[int, float],
        executor: Executor,
        keep_locals: bool = False,
        tested: bool = False,
    ) -> Exchange:
        """Let the cohort train from `start`.

        state: before the round. weights: p_k of the participants. executor: trains them.
        keep_locals: whether their models are wanted. tested: whether each is tested on its own test examples.
        """
        method = self.method
        fresh = method.init_client(self.trainer.layout, start)
        if self.keeps_statistics:
            fresh[OWN_STATISTICS] = self.begin().statistics
        # vectors on the disk are read one client at a time, when an executor asks for them
        remembered = {k: state.clients.get(k, fresh) for k in weights}
        message = method.make_message(state.w, state.server)
        broadcast = Broadcast(start, message, state.statistics, self.compute_lr(state.round), state.round)
        private = method.correction.find_private(self.trainer.layout)
        aggregate = RoundAggregate(broadcast, self.recipe.local.momentum, weights, private)
        exchange = Exchange(aggregate, state.clients.copy())
        for result in executor.run(broadcast, [Participant(k, remembered[k]) for k in weights]):
            aggregate.add(result, remembered[result.client])
            if result.state:
                exchange.clients[result.client] = result.state
            if keep_locals:
                exchange.local_models[result.client] = torch.cat([result.w, result.statistics])
            if tested and self.client_tests is not None:
                if not bool(torch.isfinite(result.statistics).all()):
                    raise DivergenceError(state.round + 1, result.client, result.steps, broadcast.lr)
                accuracy = self.client_tests.score(result.client, result.w, result.statistics)
                exchange.accuracies[result.client] = accuracy
        return exchange

    def _probe(self, state: State, weights: Mapping[int, float], executor: Executor) -> RoundAggregate:
        """Compute what the cohort would send back if it trained from the server's model; no client's vectors change."""
        return self._exchange(state, state.w, weights, executor).aggregate

    def _make_next_state(self, state: State, report: RoundReport, exchange: Exchange) -> State:
        w, server = self.method.advance(state.w, state.server, report)
        if not bool(torch.isfinite(w).all()):
            raise DivergenceError(state.round + 1, None, None, report.lr)
        following = replace(
            swa.start_average(state, self.recipe),
            round=state.round + 1,
            w=w,
            statistics=exchange.aggregate.statistics.to(w.dtype),
            server=server,
            clients=exchange.clients,
            own_accuracies={**state.own_accuracies, **exchange.accuracies},
            mean=report.mean_model,
            sent=report.start,
            sent_statistics=state.statistics,
        )
        return swa.capture(following, self.recipe)

    def _measure(
        self,
        state: State,
        following: State,
        aggregate: RoundAggregate,
        report: RoundReport,
        probe: RoundAggregate | None,
    ) -> Record:
        """The metrics of a round that need no further computation on data."""
        participants, start = report.participants, report.start
        travelling = int((~self.trainer.own_statistics).sum())
        down, up = (numbers + travelling for numbers in self.method.count_numbers(self.trainer.layout))
        return {
            "round": following.round,
            "lr": report.lr,
            "participants": participants,
            "train_loss": aggregate.loss,
            "norm": float(following.w.double().norm()),
            "update": float(report.displacement.double().norm()),
            "drift": report.drift,
            "cosine": aggregate.cosine,
            "gradients": aggregate.gradients + (0 if probe is None else probe.gradients),
            "bytes_down": down * start.element_size() * participants,
            "bytes_up": up * start.element_size() * participants,
        }

    def _measure_personal(self, following: State, accuracies: Mapping[int, Accuracy]) -> Record:
        """FedFSA's measure, the mean over all clients of each one's own latest model, and its new summands."""
        latest, initial = following.own_accuracies, self.initial_accuracies
        return {
            "personal_accuracy": average(latest.get(client, known) for client, known in enumerate(initial)),
            "own_accuracies": {str(client): accuracy for client, accuracy in accuracies.items()},
        }

    def _measure_clients(self, tests: ClientTests, following: State) -> Record:
        """The server's model on every client's own test examples."""
        record: Record = {"client_accuracies": tests.score_all(following.w, following.statistics)}
        if self.dataset.task.confusion:
            theta = torch.cat([following.w, following.statistics])
            places = [torch.from_numpy(tests.find_places(client)) for client in range(len(self.client_indices))]
            record["client_mious"] = [
                Evaluator([PartOfTests(tests.objective.take(own))], self.dataset.task, self.dataset.classes).measure(
                    theta
                )["miou"]
                for own in places
            ]
        return record

    def _record_round(
        self, state: State, weights: Mapping[int, float], executor: Executor, probe: RoundAggregate | None
    ) -> Record:
        """What is recorded once a round; for FedGloSS's eq. 6 the cohort also trains from the server's model."""
        if "delta_epsilon" not in self.recipe.record:
            return {}
        probe = probe or self._probe(state, weights, executor)
        return {"delta_epsilon": {"mean": compute_perturbation_error(self.method, state.server, probe.displacement)}}


def load_start(model: nn.Module, recipe: Recipe) -> Start | None:
    """Put the weights of the recipe's file into a new model; None where the recipe names no file.

    model: as its function made it.
    """
    if recipe.model.weights is None:
        return None
    assert recipe.model.weights_digest is not None
    return start_from(model, recipe.model.weights, recipe.model.weights_digest)


def draw_partition(recipe: Recipe, dataset: Dataset, files: Path | None = None) -> partition.Partition:
    """Draw the recipe's partition of a data set; superclasses come with the data.

    files: folder of a file that the partition names; by default that of the data.
    """
    settings = recipe.partition.settings
    if recipe.partition.name == "pachinko" and "coarse" not in settings:
        if dataset.coarse is None:
            raise ValueError(f"partition pachinko needs superclasses; data set '{dataset.name}' has none")
        settings["coarse"] = dataset.coarse
    labels = _find_partition_labels(dataset)
    known = Known(dataset.users, dataset.keys, files or datasets.find_root(recipe.data.root))
    seed, clients = find_partition_seed(recipe), recipe.partition.clients
    return partition.partition(recipe.partition.name, labels, clients, seed=seed, known=known, **settings)


def find_partition_seed(recipe: Recipe) -> int:
    """Return the seed of the partition: its own, which runs of several seeds may share, or the run's."""
    return recipe.seed if recipe.partition.seed is None else recipe.partition.seed


def _find_partition_labels(dataset: Dataset) -> Ints:
    """Return the labels by which examples are distributed; for label maps their users, if there are any."""
    if dataset.labels is not None:
        return dataset.labels.numpy()
    return np.zeros(len(dataset.train_inputs), dtype=np.int64) if dataset.users is None else dataset.users.index

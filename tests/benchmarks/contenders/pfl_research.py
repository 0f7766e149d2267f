"""pfl-research: python -m tests.benchmarks.contenders.pfl_research WORK ROUNDS, printing the seconds of each round.

Start it with torch.distributed.run for several processes; then the first of them prints.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.contenders.rounds import RATE, WORK


class Classifier(nn.Module):
    """A network with the loss that pfl asks for."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, targets: Tensor, eval: bool = False) -> Tensor:
        """The mean cross-entropy."""
        return functional.cross_entropy(self.network(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor, eval: bool = False) -> dict[str, Any]:
        """Nothing: no round is evaluated."""
        return {}


class Watch(TrainingProcessCallback):  # type: ignore[misc]
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def after_central_iteration(self, *args: Any, **kwargs: Any) -> tuple[bool, Metrics]:
        self.ended.append(time.perf_counter())
        return False, Metrics()


def measure(work: str, rounds: int) -> list[float]:
    """Seconds of each round but the first."""
    torch.set_num_threads(1)
    given = WORK[work]
    network = Classifier(given.make())
    model = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    users = list(range(given.clients))
    data = {user: Dataset(raw_data=given.draw(user), user_id=str(user)) for user in users}
    sampler = get_user_sampler("minimize_reuse", users)
    everyone = FederatedDataset(data.__getitem__, sampler, dict.fromkeys(users, given.examples))
    watch = Watch()
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=everyone, val_data=everyone),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 2,
            evaluation_frequency=10**6,
            train_cohort_size=given.clients,
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_batch_size=given.batch, local_num_epochs=1, local_learning_rate=RATE
        ),
        callbacks=[watch],
    )
    return [after - before for before, after in itertools.pairwise(watch.ended)][1:]


if __name__ == "__main__":
    seconds = measure(sys.argv[1], int(sys.argv[2]))
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(seconds), flush=True)

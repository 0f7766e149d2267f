"""Flower's simulation: python -m tests.benchmarks.contenders.flower WORK ROUNDS, printing the seconds of each round.

One CPU a client, as many at a time as there are cores. Networks and examples are made once in every process of Ray.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.contenders.rounds import RATE, WORK

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def get_model(work: str) -> nn.Module:
    """The network of this process."""
    torch.set_num_threads(1)
    return WORK[work].make()


@functools.cache
def get_examples(work: str, client: int) -> tuple[Tensor, Tensor]:
    """The examples of a client, kept by this process."""
    return WORK[work].draw(client)


class Client(NumPyClient):
    """Trains the network on the examples of one client."""

    def __init__(self, work: str, client: int):
        self.work, self.client = work, client

    def fit(self, parameters: list[Any], config: Any) -> tuple[list[Any], int, dict[str, Any]]:
        model, (inputs, targets) = get_model(self.work), get_examples(self.work, self.client)
        with torch.no_grad():
            for own, given in zip(model.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(np.array(given)))
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for chosen in torch.randperm(len(inputs)).split(WORK[self.work].batch):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(model(inputs[chosen]), targets[chosen]))
            optimizer.step()
        return [own.detach().numpy() for own in model.parameters()], len(inputs), {}


class TimedFedAvg(FedAvg):  # type: ignore[misc]
    """FedAvg that notes when each round begins."""

    def __init__(self, began: list[float], **settings: Any):
        super().__init__(**settings)
        self.began = began

    def configure_fit(self, *args: Any, **kwargs: Any) -> Any:
        self.began.append(time.perf_counter())
        return super().configure_fit(*args, **kwargs)

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> Any:
        if failures or len(results) != self.min_fit_clients:  # else a client that fails would make Flower fast
            self.began.clear()
            raise RuntimeError(
                f"round {server_round}: {len(results)} clients trained, {len(failures)} failed: {failures}"
            )
        return super().aggregate_fit(server_round, results, failures)


def measure(work: str, rounds: int) -> list[float]:
    """Seconds of each round but the first, in which processes start."""
    began: list[float] = []
    clients = WORK[work].clients
    start = ndarrays_to_parameters([own.detach().numpy() for own in get_model(work).parameters()])

    def make_server(context: Any) -> ServerAppComponents:
        everyone = {"min_fit_clients": clients, "min_available_clients": clients}
        strategy = TimedFedAvg(began, fraction_fit=1.0, fraction_evaluate=0.0, initial_parameters=start, **everyone)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds + 2))

    def make_client(context: Any) -> Any:
        return Client(work, int(context.node_config["partition-id"])).to_client()

    run_simulation(
        ServerApp(server_fn=make_server),
        ClientApp(client_fn=make_client),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": CORES}},
    )
    if len(began) != rounds + 2:
        raise SystemExit(f"Flower finished {max(len(began) - 1, 0)} of {rounds + 1} rounds")
    return [after - before for before, after in itertools.pairwise(began)][1:]


if __name__ == "__main__":
    from tests.benchmarks.contenders import flower  # under a name that Ray's processes can import

    print(json.dumps(flower.measure(sys.argv[1], int(sys.argv[2]))))

"""All clients of a round as one computation: torch.func.vmap over their stacked weights.

Small networks spend their time in Python and in kernel launches; stacking C clients pays those once per step.
Clients with fewer steps or shorter last batches are padded: a padded example weighs nothing, a client that is
done no longer moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from landscape.replica import NORM
from landscape.workers import ordered_map
from training.allocation import Ints
from training.executor import Broadcast, Executor, Task
from training.local import DivergenceError, Result, Workshop, local_step
from training.parts import Visit

LARGEST = 2**27  # bytes of stacked weights: beyond that a step outweighs Python's share, and memory comes to matter


class Stacked(Executor):
    """Every participant at once by vmap, or as many as stay within LARGEST."""

    name = "vmap"

    def __init__(self, shop: Workshop):
        self.shop = shop
        refuse(shop)
        self._names = [entry.name for entry in shop.layout.entries]

    def run(self, broadcast: Broadcast, tasks: Sequence[Task]) -> Iterator[Result]:
        size = max(LARGEST // (broadcast.start.numel() * broadcast.start.element_size()), 1)
        groups = [tasks[first : first + size] for first in range(0, len(tasks), size)]
        # on one thread, like a single client task: the same bits whatever the machine
        for results in ordered_map(lambda group: self._train(broadcast, group), groups, workers=1):
            yield from results

    def _train(self, broadcast: Broadcast, tasks: Sequence[Task]) -> list[Result]:
        shop, clients = self.shop, [task.client for task in tasks]
        steps = [shop.steps(client) for client in clients]
        visit = Visit(
            layout=shop.layout,
            start=broadcast.start,
            message=broadcast.message,
            state={name: torch.stack([task.state[name] for task in tasks]) for name in tasks[0].state},
            lr=broadcast.lr,
            momentum=shop.recipe.local.momentum,
            steps=torch.tensor(steps, dtype=shop.dtype)[:, None],
            round=broadcast.round,
        )
        w = broadcast.start.expand(len(tasks), -1)
        velocity: Tensor | None = None
        orders = [shop.orders(client, broadcast.round) for client in clients]
        totals = torch.zeros(len(tasks), dtype=torch.float64)
        evaluations = 0
        for step in range(max(steps)):
            inputs, targets, weights, active = self._batch(orders, clients, broadcast.round, step)

            def gradient(
                point: Tensor,
                first: bool,
                batch: tuple[Tensor, Tensor, Tensor] = (inputs, targets, weights),
                active: Tensor = active,
                step: int = step,
            ) -> Tensor:
                nonlocal evaluations
                losses, slopes = self._gradients(point, *batch)
                evaluations += 1
                wrong = active & ~torch.isfinite(losses)
                if bool(wrong.any()):
                    first_wrong = clients[int(wrong.int().argmax())]
                    raise DivergenceError(broadcast.round + 1, first_wrong, step + 1, visit.lr)
                if first:
                    totals.add_(torch.where(active, losses, 0.0).double())
                return slopes

            before = dict(visit.state)
            moved, velocity = local_step(shop.method, gradient, w, velocity, visit, shop.recipe)
            w = torch.where(active[:, None], moved, w)
            for name, old in before.items():
                visit.state[name] = torch.where(active[:, None], visit.state[name], old)
        state = {**visit.state, **shop.method.finish(visit, w)}
        uploads = shop.method.upload(visit, w)
        per_step = evaluations // max(steps)
        return [
            Result(
                client=client,
                w=w[row].clone(),  # a view would keep the whole stack alive for as long as the client's state
                statistics=broadcast.statistics,
                state={name: vector[row].clone() for name, vector in state.items()},
                uploads={name: vector[row].clone() for name, vector in uploads.items()},
                steps=steps[row],
                examples=len(shop.parts[client]),
                loss=float(totals[row]) / steps[row],
                gradients=per_step * steps[row],
            )
            for row, client in enumerate(clients)
        ]

    def _batch(
        self, orders: Sequence[Iterator[Ints]], clients: Sequence[int], round: int, step: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inputs (C, B, ...), targets, example weights (C, B) that average each client's own batch, who is active."""
        shop = self.shop
        size = min(shop.recipe.local.batch_size, max(len(shop.parts[client]) for client in clients))
        pieces = []
        for order, client in zip(orders, clients, strict=True):
            chosen = next(order, None)
            pieces.append(None if chosen is None else shop.batch(chosen, client, round, step))
        inputs, targets = next(piece for piece in pieces if piece is not None)
        X = inputs.new_zeros(len(clients), size, *inputs.shape[1:])
        y = targets.new_zeros(len(clients), size, *targets.shape[1:])
        weights = torch.zeros(len(clients), size, dtype=shop.dtype)
        for row, piece in enumerate(pieces):
            if piece is not None:
                count = len(piece[0])
                X[row, :count], y[row, :count] = piece
                weights[row, :count] = 1 / count
        return X, y, weights, torch.tensor([piece is not None for piece in pieces])

    def _gradients(self, points: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        module, layout = self.shop.replica.module, self.shop.layout
        tensors = {entry.name: layout.view(points, entry) for entry in layout.entries}

        def loss(own: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            outputs = torch.func.functional_call(module, own, (x,))
            return (functional.cross_entropy(outputs, y, reduction="none") * weight).sum()

        slopes, losses = torch.func.vmap(torch.func.grad_and_value(loss))(tensors, inputs, targets, weights)
        flat = torch.cat([slopes[name].flatten(1) for name in self._names], dim=1)
        return losses.detach(), flat.detach()


def refuse(shop: Workshop) -> None:
    """Say why a model cannot be stacked, if it cannot."""
    modules = list(shop.model.modules())
    if any(isinstance(module, NORM) for module in modules):
        raise ValueError("backend vmap: BatchNorm statistics cannot be stacked; use serial or processes")
    if any(isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0 for module in modules):
        raise ValueError("backend vmap: dropout would differ from the serial draw; use serial or processes")

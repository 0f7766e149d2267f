"""The vmap backend: all clients of a round in one computation over their stacked weights.

Small networks spend most of their time in Python and in kernel launches, which a stack of C clients needs only once per
step. Networks of plain layers have a stacked form of their own (`stacked_layers`); that of others, and of losses with
further terms, is made by torch.func.vmap. Clients with fewer steps or a shorter last batch are padded: padded examples
have weight zero, and a client that has finished no longer moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape.runtime.device import CPU
from landscape.runtime.replica import NORM
from landscape.runtime.workers import ordered_map
from training.clients.local_training import ClientResult, DivergenceError, local_step, select_half
from training.clients.trainer import LocalTrainer
from training.data.dealing import Ints
from training.executors.base import Broadcast, Executor, Participant
from training.executors.stacked_layers import StackedNetwork, stack_network
from training.recording import Recorder
from training.rules.base import LossTerm, ModelOutput
from training.rules.context import ClientContext
from training.rules.corrections import Correction
from training.rules.vectors import Part, Vectors, list_inside, move

LARGEST = 2**27  # bytes of stacked weights or patches: beyond that Python's share of the time is small, memory matters


class Stacked(Executor):
    """Trains all clients of a round at once, or in groups whose weights or patches of images take LARGEST bytes.

    trainer: trains one client of the run. ValueError if its clients cannot be stacked.
    """

    name = "vmap"

    def __init__(self, trainer: LocalTrainer):
        require_stackable(trainer)
        self.trainer = trainer
        self.network = stack_network(trainer.replica.module, trainer.layout)

    def run(self, broadcast: Broadcast, participants: Sequence[Participant]) -> Iterator[ClientResult]:
        size = max(LARGEST // self._count_bytes(), 1)
        groups = [participants[first : first + size] for first in range(0, len(participants), size)]
        # on one thread, as every client is trained, so that the bits do not depend on the number of cores
        sent = broadcast.to(self.trainer.device)
        for results in ordered_map(lambda group: self._train(sent, group), groups, workers=1):
            yield from results

    def _count_bytes(self) -> int:
        """Count the bytes that a client needs: of its weights, or of the patches of its batch if they are more."""
        trainer = self.trainer
        shape = tuple(trainer.dataset.train_inputs.shape[1:])
        copied = 0 if self.network is None else self.network.count_copied(shape) * trainer.batch_size
        return max(trainer.layout.size, copied) * trainer.dtype.itemsize

    def _train(self, broadcast: Broadcast, participants: Sequence[Participant]) -> list[ClientResult]:
        trainer, clients, device = self.trainer, [one.client for one in participants], self.trainer.device
        steps = [trainer.count_steps(client) for client in clients]
        context = ClientContext(
            layout=trainer.layout,
            start=broadcast.start,
            message=broadcast.message,
            state=move(_stack_states(participants), device),
            lr=broadcast.lr,
            momentum=trainer.recipe.local.momentum,
            steps=torch.tensor(steps, dtype=trainer.dtype, device=device)[:, None],
            round=broadcast.round,
            seed=trainer.recipe.seed,
            clients=tuple(clients),
        )
        w = broadcast.start.expand(len(participants), -1)
        velocity: Tensor | None = None
        recorder = Recorder.create(trainer.recipe.record)
        orders = [trainer.draw_batches(client, broadcast.round) for client in clients]
        totals = torch.zeros(len(participants), dtype=torch.float64)
        evaluations = torch.zeros(len(participants), dtype=torch.int64)
        for step in range(max(steps)):
            batch = self._load_batch(orders, clients, broadcast.round, step)
            gradient_at = StackedGradient(trainer, context, batch, self.network)
            before, scratch, active = dict(context.state), dict(context.scratch), batch.active[:, None].to(device)
            taken = gradient_at if recorder is None else recorder.wrap(gradient_at)
            moved, velocity = local_step(trainer.method, taken, w, velocity, context, trainer.recipe, recorder)
            w = torch.where(active, moved, w)
            for name, old in before.items():
                context.state[name] = torch.where(active, context.state[name], old)
            for name, old in scratch.items():
                context.scratch[name] = torch.where(active, context.scratch[name], old)
            totals += torch.where(batch.active, gradient_at.losses, 0.0)
            evaluations += gradient_at.evaluations * batch.active
        state = {**context.state, **trainer.method.update_client(context, w)}
        uploads = trainer.method.make_upload(context, w)
        return [
            ClientResult(
                client=client,
                w=w[row].clone(),  # a view would keep the whole stack alive for as long as the client's state
                statistics=broadcast.statistics,
                state={name: vector[row].clone() for name, vector in state.items()},
                uploads={name: vector[row].clone() for name, vector in uploads.items()},
                steps=steps[row],
                examples=len(trainer.client_indices[client]),
                loss=float(totals[row]) / steps[row],
                gradients=int(evaluations[row]),
                recorded={} if recorder is None else recorder.read_series(row, steps[row]),
            ).to(CPU)
            for row, client in enumerate(clients)
        ]

    def _load_batch(self, orders: Sequence[Iterator[Ints]], clients: Sequence[int], round: int, step: int) -> Batch:
        """Load every client's own batch, padded to one size with examples of weight zero."""
        trainer = self.trainer
        size = min(trainer.batch_size, max(len(trainer.client_indices[client]) for client in clients))
        chosen = [next(order, NOTHING) for order in orders]
        counts = [len(one) for one in chosen]
        if not trainer.augments:  # all batches at once; the padding is the first example of the data
            padded = np.zeros((len(clients), size), dtype=np.int64)
            for row, one in enumerate(chosen):
                padded[row, : len(one)] = one
            inputs, targets = trainer.read_examples(padded.reshape(-1))
            inputs, targets = (one.reshape(*padded.shape, *one.shape[1:]) for one in (inputs, targets))
            return Batch(inputs, targets, counts)
        loaded = {
            row: trainer.load_batch(one, client, round, step)
            for row, (one, client) in enumerate(zip(chosen, clients, strict=True))
            if len(one)
        }
        inputs, targets = next(iter(loaded.values()))
        X = inputs.new_zeros(len(clients), size, *inputs.shape[1:])
        y = targets.new_zeros(len(clients), size, *targets.shape[1:])
        for row, batch in loaded.items():
            X[row, : counts[row]], y[row, : counts[row]] = batch
        return Batch(X, y, counts)


NOTHING = np.empty(0, dtype=np.int64)  # the batch of a client that has no step left


def _stack_states(participants: Sequence[Participant]) -> Vectors:
    return {name: torch.stack([one.state[name] for one in participants]) for name in participants[0].state}


@dataclass(frozen=True)
class Batch:
    """The mini-batches of one local step of a stack of clients."""

    inputs: Tensor  # (C, B, ...)
    targets: Tensor  # (C, B) or (C, B, classes)
    counts: list[int]  # examples of each client without padding; 0: it has no step left

    @property
    def active(self) -> Tensor:
        return torch.tensor([count > 0 for count in self.counts])

    def compute_weights(self, half: int | None, dtype: torch.dtype) -> Tensor:
        """(C, B) that average each client's own batch, or one half of it."""
        weights = np.zeros(self.inputs.shape[:2])
        for row, count in enumerate(self.counts):
            if count:
                chosen = select_half(count, half)
                weights[row, chosen] = 1 / (chosen.stop - chosen.start)
        return torch.from_numpy(weights).to(self.inputs.device, dtype)


class StackedGradient:
    """The gradients of one local step of a stack of clients; see `local_training.StepGradient`.

    network: the stacked form of the network, if it has one.
    """

    def __init__(
        self,
        trainer: LocalTrainer,
        context: ClientContext,
        batch: Batch,
        network: StackedNetwork | None,
        strict: bool = True,
    ):
        self.trainer, self.context, self.batch, self.network = trainer, context, batch, network
        self.strict, self.evaluations = strict, 0
        self.losses = torch.zeros(len(batch.counts), dtype=torch.float64)
        self._views: dict[str, tuple[Tensor, ...]] = {}  # outputs, and features where they are asked for

    def __call__(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        trainer, added = self.trainer, loss_term or self.trainer.method.loss_term
        weights = self.batch.compute_weights(half, trainer.dtype)
        tensors = self._split(point)
        inside = [name for name, chosen in zip(tensors, list_inside(trainer.layout, part), strict=True) if chosen]
        if added is None and self.network is not None:
            slopes, plain = self._differentiate_layers(self.network, tensors, inside, weights)
            values = plain
        else:
            slopes, values, plain = self._differentiate(tensors, inside, weights, added, loss_term is not None)
        if self.strict:
            self._check(values, plain)
        if self.evaluations == 0:
            self.losses = plain.cpu().double()
        self.evaluations += 1
        parts = [slopes[name] if name in slopes else torch.zeros_like(one) for name, one in tensors.items()]
        return torch.cat([one.flatten(1) for one in parts], dim=1).detach()

    def _differentiate_layers(
        self, network: StackedNetwork, tensors: Vectors, inside: list[str], weights: Tensor
    ) -> tuple[Vectors, Tensor]:
        """The gradients of the wanted tensors, layer by layer, and the loss (C,) of each client."""
        outputs, kept = network.forward(tensors, self.batch.inputs)
        leaf = outputs.flatten(0, 1).requires_grad_()
        losses = self.trainer.loss((leaf,), self.batch.targets.flatten(0, 1), reduction="none").view_as(weights)
        (slope,) = torch.autograd.grad((losses * weights).sum(), leaf)
        found = network.backward(slope.view_as(outputs), kept, tensors, inside)
        return found, (losses.detach() * weights).sum(dim=1)

    def _differentiate(
        self, tensors: Vectors, inside: list[str], weights: Tensor, added: LossTerm | None, alone: bool
    ) -> tuple[Vectors, Tensor, Tensor]:
        """The gradients of the wanted tensors by vmap, and each client's loss with and without the added term.

        alone: the loss is the added term only.
        """
        trainer, others = self.trainer, {} if added is None else self._compute_references(added)

        def loss(
            inside: Vectors, fixed: Vectors, x: Tensor, y: Tensor, weight: Tensor, views: dict[str, tuple[Tensor, ...]]
        ) -> tuple[Tensor, Tensor]:
            output = self._compute_output({**inside, **fixed}, x, added is not None and added.features)
            plain = trainer.loss(output.heads, y, reduction="none")
            values = plain
            if added is not None:
                values = added(
                    output, {name: ModelOutput(view[0], *view[1:] or (None,)) for name, view in views.items()}, y
                )
                values = values if alone else values + plain
            return (values * weight).sum(), (plain * weight).sum().detach()

        function = torch.func.vmap(torch.func.grad_and_value(loss, has_aux=True))
        fixed = {name: one for name, one in tensors.items() if name not in inside}
        own = {name: tensors[name] for name in inside}
        slopes, (values, plain) = function(own, fixed, self.batch.inputs, self.batch.targets, weights, others)
        return slopes, values.detach(), plain

    def make_silent_copy(self) -> StackedGradient:
        return StackedGradient(self.trainer, self.context, self.batch, self.network, strict=False)

    def _compute_output(self, own: Vectors, inputs: Tensor, features: bool) -> ModelOutput:
        module = self.trainer.replica.module
        return self.trainer.compute_output(lambda x: torch.func.functional_call(module, own, (x,)), inputs, features)

    def _compute_references(self, term: LossTerm) -> dict[str, tuple[Tensor, ...]]:
        """Compute the outputs of the reference models on the batch, once per step."""
        for name, points in term.references(self.context).items():
            if name not in self._views:

                def view(own: Vectors, x: Tensor) -> tuple[Tensor, ...]:
                    output = self._compute_output(own, x, term.features)
                    return (output.outputs,) if output.features is None else (output.outputs, output.features)

                tensors = self._split(points.expand(len(self.batch.counts), -1))
                with torch.no_grad():
                    self._views[name] = torch.func.vmap(view)(tensors, self.batch.inputs)
        return self._views

    def _split(self, points: Tensor) -> Vectors:
        layout = self.trainer.layout
        return {entry.name: layout.view(points, entry) for entry in layout.entries}

    def _check(self, *losses: Tensor) -> None:
        wrong = self.batch.active & ~torch.stack([torch.isfinite(loss) for loss in losses]).all(dim=0).cpu()
        if bool(wrong.any()):
            context = self.context
            client = context.clients[int(wrong.int().argmax())]
            raise DivergenceError(context.round + 1, client, context.step + 1, context.lr)


def require_stackable(trainer: LocalTrainer) -> None:
    """Raise ValueError, which names the reason, if the clients of a trainer cannot be stacked."""
    if type(trainer.method.correction).choose_start is not Correction.choose_start:
        raise ValueError(f"backend vmap: {trainer.method.name} starts every client elsewhere; use serial or processes")
    if trainer.method.local_loss is not None:
        raise ValueError(f"backend vmap: {trainer.method.name} has its own loss; use serial or processes")
    if trainer.dataset.task.targets == "map" and trainer.recipe.local.hard_pixels is None:
        raise ValueError(
            "backend vmap: the loss is a mean over the valid pixels of a batch, not over its images; use serial or "
            "processes"
        )
    modules = list(trainer.model.modules())
    if any(isinstance(module, NORM) for module in modules):
        raise ValueError("backend vmap: BatchNorm statistics cannot be stacked; use serial or processes")
    if any(isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0 for module in modules):
        raise ValueError("backend vmap: dropout would differ from the serial draw; use serial or processes")

"""Local training of one client: one step and one loop, shared by every method; `local_step` serves every backend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from landscape.rng import key, numpy_generator
from landscape.runtime.dropout import draw_dropout
from landscape.runtime.replica import Replica
from training.clients.trainer import LocalTrainer, put_at_rest
from training.config import Recipe
from training.methods.method import Method
from training.recording import Recorder
from training.rules.base import GradientFunction, LossTerm, ModelOutput
from training.rules.context import ClientContext
from training.rules.vectors import Part, Vectors, list_inside, move, norm

OWN_STATISTICS = "own_statistics"  # the name of a client's running statistics among its vectors, where it keeps them


class DivergenceError(RuntimeError):
    """Raised when a loss or a model is no longer finite.

    round, step: where it happened; both count from one, as the metrics do.
    client: who diverged; None for the server's model.
    lr: the local rate of the round.
    """

    def __init__(self, round: int, client: int | None, step: int | None, lr: float):
        super().__init__(round, client, step, lr)  # all of them: worker processes send this by pickle
        self.round, self.client, self.step, self.lr = round, client, step, lr

    def __str__(self) -> str:
        if self.client is None:
            return (
                f"the server's model diverged in round {self.round} (local lr {self.lr:g}). "
                "Try a smaller local.lr, or smaller steps of the server"
            )
        return (
            f"client {self.client} diverged in round {self.round}, local step {self.step} (lr {self.lr:g}). "
            "Try a smaller local.lr, local.clip = 10, or a smaller radius of the perturbation"
        )


@dataclass(frozen=True)
class ClientResult:
    """What a participant sends back."""

    client: int
    w: Tensor  # (d,) where local training ended
    statistics: Tensor  # (b,) running statistics of norm layers, empty if there are none
    state: Vectors  # the client's new vectors
    uploads: Vectors
    steps: int
    examples: int
    loss: float  # mean of the mini-batch losses before each step
    gradients: int  # gradient evaluations
    recorded: dict[str, list[float]] = field(default_factory=dict)  # quantity -> values by step; see `recording`

    def to(self, device: torch.device) -> ClientResult:
        """Return the same result with its vectors on a device."""
        return replace(
            self,
            w=self.w.to(device),
            statistics=self.statistics.to(device),
            state=move(self.state, device),
            uploads=move(self.uploads, device),
        )


class StepGradient:
    """The gradients of one local step of one client (a `GradientFunction`).

    The first call updates the statistics of norm layers and defines the training loss of the step.
    inputs, targets: the batch.
    at_rest: norm layers learn nothing, not even from the first call.
    strict: raise DivergenceError where a loss is not finite.
    """

    def __init__(
        self,
        trainer: LocalTrainer,
        context: ClientContext,
        inputs: Tensor,
        targets: Tensor,
        at_rest: bool = False,
        strict: bool = True,
    ):
        self.trainer, self.context, self.inputs, self.targets = trainer, context, inputs, targets
        self.at_rest, self.strict = at_rest, strict
        self.evaluations, self.loss = 0, math.nan
        self._views: dict[tuple[str, int | None], ModelOutput] = {}

    def __call__(
        self, point: Tensor, loss_term: LossTerm | None = None, half: int | None = None, part: Part = "all"
    ) -> Tensor:
        trainer, added = self.trainer, loss_term or self.trainer.method.loss_term
        chosen = select_half(len(self.targets), half)
        inputs, targets = self.inputs[chosen], self.targets[chosen]
        others = {} if added is None else self._compute_references(added, inputs, half)
        trainer.replica.place(point)
        rest = self.at_rest or self.evaluations > 0
        with _statistics_at_rest(trainer.replica) if rest else nullcontext():
            if trainer.method.local_loss is not None and loss_term is None:
                network = trainer.replica.module
                loss, plain = trainer.method.local_loss(network, self.inputs, self.targets, self.context, chosen)
            else:
                with trainer.products:
                    network, features = trainer.replica.module, added is not None and added.features
                    output = trainer.compute_output(network, inputs, features)
                plain = trainer.loss(output.heads, targets)
                loss = plain if added is None else added(output, others, targets).mean() + (0.0 if loss_term else plain)
        wanted = list_inside(trainer.layout, part)
        inside = [leaf for leaf, chosen in zip(trainer.replica.leaves, wanted, strict=True) if chosen]
        gradients = iter(torch.autograd.grad(loss, inside, allow_unused=True, materialize_grads=True))
        if self.strict and not (math.isfinite(float(loss.detach())) and math.isfinite(float(plain.detach()))):
            context = self.context
            raise DivergenceError(context.round + 1, context.clients[0], context.step + 1, context.lr)
        if self.evaluations == 0:
            self.loss = float(plain.detach())
        self.evaluations += 1
        every = zip(trainer.replica.leaves, wanted, strict=True)
        return torch.cat(
            [(next(gradients) if chosen else torch.zeros_like(leaf)).reshape(-1) for leaf, chosen in every]
        )

    @property
    def references(self) -> int:
        """How often the outputs of a reference model were computed."""
        return len(self._views)

    def make_silent_copy(self) -> StepGradient:
        """Make a copy on the same batch whose calls have no effect: neither counted, nor seen by norm layers."""
        return StepGradient(self.trainer, self.context, self.inputs, self.targets, at_rest=True, strict=False)

    def _compute_references(self, term: LossTerm, inputs: Tensor, half: int | None) -> dict[str, ModelOutput]:
        """Outputs of the reference models; in training mode like the model itself, so that equal models agree."""
        found = {}
        for name, point in term.references(self.context).items():
            if (name, half) not in self._views:
                replica = self.trainer.replica
                with torch.no_grad(), _statistics_at_rest(replica), self.trainer.products:
                    replica.place(point)
                    self._views[name, half] = self.trainer.compute_output(replica.module, inputs, term.features)
            found[name] = self._views[name, half]
        return found


def select_half(count: int, half: int | None) -> slice:
    """Select the examples of half 0 or 1 of a batch of `count`, or all of them; one example is in both halves.

    >>> select_half(5, 0), select_half(5, 1)
    (slice(0, 3, None), slice(3, 5, None))
    """
    middle = (count + 1) // 2
    if half is None or count == 1:
        return slice(0, count)
    return slice(0, middle) if half == 0 else slice(middle, count)


def local_step(
    method: Method,
    gradient_at: GradientFunction,
    w: Tensor,
    velocity: Tensor | None,
    context: ClientContext,
    recipe: Recipe,
    recorder: Recorder | None = None,
) -> tuple[Tensor, Tensor | None]:
    """One step of any method: perturb, take the gradient there, correct, decay, move.

    Weight decay acts at the unperturbed weights, outside the method's correction; momentum is torch's SGD.
    gradient_at: gradients on the batch of this step; wrapped by the recorder if there is one.
    w: (d,) or (C, d) the weights.
    velocity: of the local momentum; None in the first step.
    context: the client's round; its step count goes up by one.
    recipe: its [local] table is used.
    recorder: stores quantities of the step and changes nothing.
    Returns the next weights and velocity.
    """
    local = recipe.local
    descent, plain = method.perturbation.descend(w, gradient_at, context, method.correction.needs_gradient)
    u = direction = method.correction(descent, plain, w, context)
    if local.clip is not None:
        u = u * torch.clamp(local.clip / norm(u), max=1.0)
    if local.weight_decay:
        u = torch.add(u, w, alpha=local.weight_decay)
    frozen = method.correction.find_frozen(context.layout)
    if frozen is not None:
        u = u.clone()
        u[..., frozen] = 0.0
    if local.momentum:
        velocity = u if velocity is None else torch.add(u, velocity, alpha=local.momentum)
        u = velocity
    moved = torch.sub(w, u, alpha=context.lr)
    if recorder is not None:
        recorder.record(method, context, w, descent, direction, moved)
    context.step += 1
    return moved, velocity


def train_client(trainer: LocalTrainer, context: ClientContext, client: int, statistics: Tensor) -> ClientResult:
    """Run all local steps of a client in one round.

    context: the client's round, with the point that was sent.
    statistics: (b,) running statistics of norm layers that were sent.
    """
    velocity: Tensor | None = None
    recorder = Recorder.create(trainer.recipe.record)
    trainer.load_statistics(statistics)
    losses: list[float] = []
    evaluations = 0

    def samples(share: float, again: int) -> Iterator[StepGradient]:
        nonlocal evaluations
        own = numpy_generator(trainer.recipe.seed, "enter", context.round, client, again).permutation(
            trainer.client_indices[client]
        )
        own = own[: math.ceil(share * len(own))]
        for number, start in enumerate(range(0, len(own), trainer.batch_size)):
            batch = trainer.load_batch(own[start : start + trainer.batch_size], client, context.round, -1 - number)
            gradient_at = StepGradient(trainer, context, *batch, at_rest=True)
            yield gradient_at
            evaluations += gradient_at.evaluations

    with draw_dropout(key(trainer.recipe.seed, "dropout", context.round, client), trainer.device):
        w = trainer.method.correction.choose_start(context, samples)
        for step, chosen in enumerate(trainer.draw_batches(client, context.round)):
            gradient_at = StepGradient(trainer, context, *trainer.load_batch(chosen, client, context.round, step))
            taken = gradient_at if recorder is None else recorder.wrap(gradient_at)
            w, velocity = local_step(trainer.method, taken, w, velocity, context, trainer.recipe, recorder)
            losses.append(gradient_at.loss)
            evaluations += gradient_at.evaluations
    statistics = trainer.read_statistics()
    return ClientResult(
        client=client,
        w=w,
        statistics=statistics,
        state={**context.state, **trainer.method.update_client(context, w)},
        uploads={**trainer.method.make_upload(context, w), **_summarise(trainer, client, w, statistics)},
        steps=trainer.count_steps(client),
        examples=len(trainer.client_indices[client]),
        loss=float(np.mean(losses)),
        gradients=evaluations,
        recorded={} if recorder is None else recorder.read_series(0, trainer.count_steps(client)),
    )


def _summarise(trainer: LocalTrainer, client: int, w: Tensor, statistics: Tensor) -> Vectors:
    """Compute what a client tells the server about its data, if the method has its own loss."""
    if trainer.method.local_loss is None:
        return {}
    with put_at_rest(trainer, w, statistics) as network:
        return trainer.method.local_loss.summarise(network, *trainer.read_examples(trainer.client_indices[client]))


@contextmanager
def _statistics_at_rest(replica: Replica) -> Iterator[None]:
    """Let norm layers normalise by the batch without learning from it."""
    kept = [(layer, layer.momentum) for layer in replica.norms]
    for layer, _ in kept:
        # BatchNorm goes by the flag, which also spares its batch counter; InstanceNorm by the momentum
        layer.track_running_stats, layer.momentum = False, 0.0
    try:
        yield
    finally:
        for layer, momentum in kept:
            layer.track_running_stats, layer.momentum = True, momentum

"""What rules are given: a client's round as the client sees it, and as the server sees it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from landscape.layout import Layout
from training.rules.vectors import Vectors, effective_steps


@dataclass
class ClientContext:
    """One client in one round, as its rules see it. Rules rebind entries of `state`; they never write into a vector."""

    layout: Layout
    start: Tensor  # (d,) the point that was sent
    message: Vectors  # (d,) each: what the server sent beside it
    state: Vectors  # (d,) or (C, d) each: the client's own vectors
    lr: float
    momentum: float  # of local SGD
    steps: Tensor | int  # K; (C, 1) for a stack of clients
    round: int
    seed: int = 0  # of the run, for rules that draw random numbers
    clients: tuple[int, ...] = (0,)  # the client's number; several for a stack
    step: int = 0  # local steps taken so far
    scratch: Vectors = field(default_factory=dict)  # like `state`, but forgotten after the round

    @property
    def effective_steps(self) -> Tensor | float:
        """a_k, how many gradients lie in the displacement of the client's steps."""
        return effective_steps(self.steps, self.momentum)


@dataclass(frozen=True)
class RoundReport:
    """What the server knows when a round is over; every mean is over the participants."""

    model: Tensor  # (d,) w^t, the server's model
    start: Tensor  # (d,) the point that was sent, w^t unless the method looks ahead
    displacement: Tensor  # (d,) D = sum p_k D_k
    pseudo_gradient: Tensor  # (d,) G = sum p_k (w^t - w_k) / (lr a_k)
    effective_steps: float  # sum p_k a_k
    uploads: Vectors  # sum p_k of everything else that was sent up
    changes: Vectors  # sum over participants of (new - old) of each client vector, unweighted
    states: Vectors  # sum p_k of the participants' new client vectors
    drift: float  # mean ||D_k||, unweighted
    participants: int  # S
    clients: int  # N, all there are
    lr: float
    round: int
    totals: Vectors = field(default_factory=dict)  # sum over participants of `uploads`, unweighted

    @property
    def mean_model(self) -> Tensor:
        """The mean of the participants' models."""
        return self.start + self.displacement

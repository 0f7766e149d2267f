"""Steps that several partition schemes share: sizes, class shares, turns, and the choice of examples.

A table of counts has a row for each client and a column for each class that occurs. Random numbers come from the
generator that is passed in, in a fixed order, so that a partition is a function of its seed.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# classes that are not exhausted -> unnormalised class weights of every client
Prior = Callable[[NDArray[np.bool_]], Floats]


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """The examples of every client as one array with bounds: a million clients cost no more than their examples.

    >>> indices = ClientIndices.of([np.array([0, 2]), np.array([1])])
    >>> len(indices), indices[1].tolist(), [own.tolist() for own in indices]
    (2, [1], [[0, 2], [1]])
    """

    flat: Ints  # the examples of client 0, then those of client 1, ...
    bounds: Ints  # (clients + 1,) where each client's examples begin, and where the last one's end

    @classmethod
    def of(cls, indices: Sequence[Ints]) -> ClientIndices:
        """Store the example indices of each client."""
        sizes = np.fromiter((len(own) for own in indices), dtype=np.int64, count=len(indices))
        return cls.cut(np.concatenate([np.zeros(0, np.int64), *indices]), sizes)

    @classmethod
    def cut(cls, flat: Ints, sizes: Ints) -> ClientIndices:
        """Cut an array into consecutive pieces, one for each client.

        flat: the array.
        sizes: of the pieces.
        """
        return cls(flat, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]))

    @property
    def sizes(self) -> Ints:
        """Examples per client (clients,)."""
        return np.diff(self.bounds)

    def sort(self) -> ClientIndices:
        """Sort the examples within each client; the result cannot be written to."""
        owner = np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)
        flat = self.flat.astype(np.int64)
        steps_back = np.diff(flat) < 0
        steps_back[self.bounds[1:-1][(self.bounds[1:-1] > 0) & (self.bounds[1:-1] < len(flat))] - 1] = False
        if steps_back.any():  # sorting a million clients takes memory, and most are sorted already
            flat = flat[np.lexsort((flat, owner))]
        flat.setflags(write=False)
        return ClientIndices(flat, self.bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, client: int) -> Ints:
        if not -len(self) <= client < len(self):
            raise IndexError(f"there is no client {client} among {len(self)}")
        client %= len(self)
        return self.flat[self.bounds[client] : self.bounds[client + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[client] for client in range(len(self)))


def number_classes(labels: Ints) -> tuple[Ints, Ints]:
    """Number the classes that occur 0, 1, ...

    labels: (examples,).
    Returns the number of every example's class, and the examples of each class.

    >>> number_classes(np.array([7, 3, 7]))
    (array([1, 0, 1]), array([1, 2]))
    """
    _, codes, stock = np.unique(labels, return_inverse=True, return_counts=True)
    return codes.astype(np.int64), stock.astype(np.int64)


def split_evenly(total: int, parts: int) -> Ints:
    """Split a number of examples into parts that differ by at most one, the larger first.

    >>> split_evenly(11, 3)
    array([4, 4, 3])
    """
    return np.full(parts, total // parts, dtype=np.int64) + (np.arange(parts) < total % parts)


def draw_equal_sizes(total: int, clients: int, generator: np.random.Generator) -> Ints:
    """Draw how many of `total` examples each client gets: sizes that differ by at most one, in random order."""
    return generator.permutation(split_evenly(total, clients))


def draw_log_gamma(concentration: Floats, generator: np.random.Generator) -> Floats:
    """Draw logarithms of Gamma(a) variables, whose softmax is Dirichlet: log G(a) = log G(a + 1) + log(U) / a.

    concentration: a, of any shape.
    Returns the draws in the same shape.

    Dirichlet draws themselves underflow at small a, and what is left of them after a class runs out is then 0 / 0.
    The floor stands for a = 0, the limit in which the largest entry has all the mass.
    """
    a = np.maximum(concentration, 1e-100)
    draws: Floats = np.log(generator.standard_gamma(a + 1)) - generator.standard_exponential(a.shape) / a
    return draws


def softmax(logs: Floats) -> Floats:
    """Return rows that are proportional to exp(logs) and add up to one."""
    weights: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def make_flat_prior(log_shares: Floats) -> Prior:
    """Make a prior that renormalises every client's shares over the classes that are left.

    log_shares: (clients, classes) logarithms of the shares.
    """
    return lambda left: softmax(np.where(left, log_shares, -np.inf))


def take_turns_in_order(sizes: Ints, generator: np.random.Generator) -> Ints:
    """Return the client of each turn: one after the other, in random order, takes all its examples.

    sizes: examples of each client.
    """
    order = generator.permutation(len(sizes))
    return np.repeat(order, sizes[order])


def take_turns_at_random(sizes: Ints, generator: np.random.Generator) -> Ints:
    """Return the client of each turn, drawn uniformly from the clients that are not yet full.

    sizes: examples of each client.
    """
    left = sizes.copy()
    turns: list[Ints] = []
    while left.any():
        # Dropping the draws of clients that filled up meanwhile is the same as drawing among the others.
        drawn = generator.choice(np.flatnonzero(left), size=left.sum())
        drawn = drawn[count_earlier(drawn) < left[drawn]]
        left -= np.bincount(drawn, minlength=len(left))
        turns.append(drawn)
    return np.concatenate(turns)


def count_earlier(values: Ints) -> Ints:
    """Count for each entry how often its value has come before.

    >>> count_earlier(np.array([3, 5, 3]))
    array([0, 0, 1])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    before = np.empty_like(values)
    before[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return before


def serve(prior: Prior, turns: Ints, sizes: Ints, stock: Ints, generator: np.random.Generator) -> Ints:
    """Let the client of each turn draw a class from its shares of the classes that are not exhausted.

    prior: the shares, given which classes are left.
    turns: (examples,) the client of each turn.
    sizes: examples of each client.
    stock: examples of each class.
    Returns the table of counts.
    """
    left = stock.tolist()
    counts = np.zeros((len(sizes), len(stock)), dtype=np.int64)
    cumulative = np.cumsum(prior(stock > 0), axis=1)
    for client, uniform in zip(turns.tolist(), generator.random(len(turns)).tolist(), strict=True):
        row = cumulative[client]
        cls = row.searchsorted(uniform * row[-1], side="right")  # "right" never lands on a class of weight 0
        counts[client, cls] += 1
        left[cls] -= 1
        if not left[cls] and any(left):
            cumulative = np.cumsum(prior(np.array(left) > 0), axis=1)
    return counts


def cut_classes(stock: Ints, clients: int, alpha: float, balance: bool, generator: np.random.Generator) -> Ints:
    """Cut each class in turn at the running sums of its clients' shares: one attempt of `dirichlet_by_class`.

    stock: examples of each class.
    clients: how many there are.
    alpha: of the Dirichlet distribution of the shares.
    balance: give nothing more to a client that has its fair share.
    Returns the table of counts.
    """
    counts = np.zeros((clients, len(stock)), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    drawn = draw_log_gamma(np.full((len(stock), clients), alpha), generator)
    for cls, (log_shares, available) in enumerate(zip(drawn, stock, strict=True)):
        if balance:
            log_shares[sizes >= stock.sum() / clients] = -np.inf
        running = np.cumsum(np.exp(log_shares - log_shares.max()))
        # Dividing by the last sum makes it exactly 1, else rounding hands one example to a client that is full.
        cuts = np.floor(running / running[-1] * available).astype(np.int64)
        counts[:, cls] = np.diff(cuts, prepend=0)
        sizes += counts[:, cls]
    return counts


def count_missing(counts: Ints, min_size: int) -> Ints:
    """Count how many examples each client lacks.

    counts: the table of counts.
    min_size: examples that each client should have.
    """
    lacking: Ints = np.maximum(min_size - counts.sum(axis=1), 0)
    return lacking


def apportion(stock: Ints, clients: int, parts: int, generator: np.random.Generator) -> Ints:
    """Decide how many clients share each class: at least one, in proportion to its examples (highest averages).

    stock: examples of each class.
    clients: how many there are.
    parts: the sum of what is returned, a multiple of `clients`.
    """
    most = np.minimum(stock, clients)
    if not len(stock) <= parts <= most.sum():
        raise ValueError(
            f"classes_per_client={parts // clients} for {clients} clients makes {parts} parts of classes, but these "
            f"labels allow {len(stock)} to {most.sum()}: every class needs a client, every part an example"
        )
    holders = np.ones(len(stock), dtype=np.int64)
    ties = generator.permutation(len(stock)).tolist()
    queue = [(-float(available), ties[cls], cls) for cls, available in enumerate(stock) if most[cls] > 1]
    heapq.heapify(queue)
    for _ in range(parts - len(stock)):
        _, tie, cls = heapq.heappop(queue)
        holders[cls] += 1
        if holders[cls] < most[cls]:
            heapq.heappush(queue, (-float(stock[cls] / holders[cls]), tie, cls))
    return holders


def sort_by_class(codes: Ints, generator: np.random.Generator) -> Ints:
    """Return the indices of all examples, class after class, in random order within a class.

    codes: the class number of every example.
    """
    shuffled = generator.permutation(len(codes))
    return shuffled[np.argsort(codes[shuffled], kind="stable")]


def choose_owners(codes: Ints, counts: Ints, generator: np.random.Generator) -> Ints:
    """Choose at random which examples fill a table of counts.

    codes: the class number of every example.
    counts: the table.
    Returns the client that owns each example.
    """
    clients, classes = counts.shape
    owner = np.empty(len(codes), dtype=np.int64)
    owner[sort_by_class(codes, generator)] = np.repeat(np.tile(np.arange(clients), classes), counts.T.ravel())
    return owner


def top_up(owner: Ints, missing: Ints, min_size: int, generator: np.random.Generator) -> Ints:
    """Move random examples of clients above `min_size` to those that lack some, with a warning.

    owner: the client that owns each example.
    missing: examples that each client lacks.
    min_size: examples that each client should have.
    Returns the owners afterwards.
    """
    if not missing.any():
        return owner
    warnings.warn(
        f"dirichlet_by_class: no attempt gave every client {min_size} examples; moved {missing.sum()} examples to "
        f"{np.count_nonzero(missing)} clients. A larger alpha, fewer clients or a smaller min_size avoids this.",
        stacklevel=4,  # the caller of `partition`
    )
    shuffled = generator.permutation(len(owner))
    spare = shuffled[count_earlier(owner[shuffled]) >= min_size]
    filled = owner.copy()
    filled[spare[: missing.sum()]] = np.repeat(np.arange(len(missing)), missing)
    return filled


def group_by_owner(owner: Ints, clients: int) -> ClientIndices:
    """Return the sorted examples of every client.

    owner: the client that owns each example.
    clients: how many there are.

    >>> [own.tolist() for own in group_by_owner(np.array([1, 0, 1]), 2)]
    [[1], [0, 2]]
    """
    return ClientIndices.cut(np.argsort(owner, kind="stable"), np.bincount(owner, minlength=clients))

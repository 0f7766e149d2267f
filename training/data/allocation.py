"""How many examples of each class every client gets: the partition schemes of the papers, as pure functions.

A scheme fills a table of counts (clients x classes) whose columns add up to the data; which examples fill a count is
then a uniformly random choice. Partitions are so disjoint and complete by construction, whatever the settings.

Every scheme takes labels (examples,), the number of clients and a generator, and returns the examples of each client.
Its keyword arguments are the settings; `partition` checks their annotated types and ranges (see training/settings.py).
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from landscape.errors import whole
from training.settings import Count, Positive, as_tuple

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# classes that are not exhausted -> unnormalised class weights of every client
Prior = Callable[[NDArray[np.bool_]], Floats]

# Redraws of `dirichlet_by_class` before examples are moved instead; the public codes redraw for ever. One attempt in 4
# succeeds at alpha = 0.1 with 100 clients and 10 classes, one in 30 with 200 clients, one in 40,000 at alpha = 0.05.
ATTEMPTS = 1000
SHARES = 1_000_000  # drawn over all attempts, which bounds the time (under a second) for many clients as well


Mass = Annotated[float, Field(ge=0, allow_inf_nan=True, description="total mass; 0: one class per client, inf: IID")]
CoarseLabels = Annotated[
    tuple[int, ...], BeforeValidator(as_tuple), Field(description="coarse label of each fine label")
]


def iid(labels: Ints, clients: int, generator: np.random.Generator) -> list[Ints]:
    """Shuffle the examples and deal them out in equal shares."""
    owner = np.repeat(np.arange(clients), _equal_sizes(len(labels), clients, generator))
    return _groups(generator.permutation(owner), clients)


def dirichlet_total(labels: Ints, clients: int, generator: np.random.Generator, *, alpha: Mass) -> list[Ints]:
    """Equal sizes, class shares q_k ~ Dirichlet(alpha * p) with p the class frequencies (Hsu et al. 2019).

    alpha is the total mass: on C balanced classes it equals C * beta of `dirichlet_per_class`. alpha = 0 gives every
    client one class (two where a class runs out in the middle of a client), alpha = inf is IID. Clients are served one
    after the other in random order, since the last ones must take the classes that are left.
    """
    if math.isinf(alpha):
        return iid(labels, clients, generator)
    codes, stock = _classes(labels)
    sizes = _equal_sizes(len(labels), clients, generator)
    concentration = np.broadcast_to(alpha * stock / len(labels), (clients, len(stock)))
    turns = _one_by_one(sizes, generator)
    counts = _serve(_flat_prior(_log_gamma(concentration, generator)), turns, sizes, stock, generator)
    return _groups(_hand_out(codes, counts, generator), clients)


def dirichlet_per_class(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    beta: Annotated[Positive, Field(description="mass of each class")],
) -> list[Ints]:
    """Equal sizes, class shares q_k ~ Dirichlet(beta, ..., beta), one entry per class (FedDyn, 2021; FedFSA).

    One example at a time goes to a random client that is not full. An exhausted class leaves the shares of everybody,
    which are renormalised; drawing again instead can last for ever, and refilling the class would use images twice.
    """
    codes, stock = _classes(labels)
    sizes = _equal_sizes(len(labels), clients, generator)
    concentration = np.full((clients, len(stock)), beta)
    turns = _interleaved(sizes, generator)
    counts = _serve(_flat_prior(_log_gamma(concentration, generator)), turns, sizes, stock, generator)
    return _groups(_hand_out(codes, counts, generator), clients)


def dirichlet_by_class(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: Annotated[Positive, Field(description="mass of each client")],
    balance: Annotated[bool, Field(description="give nothing more to a client that has its fair share")] = True,
    min_size: Annotated[Count, Field(description="redraw while a client has fewer examples")] = 10,
) -> list[Ints]:
    """Unequal sizes: each class is cut into shares ~ Dirichlet(alpha, ..., alpha) over the clients (FedMA, 2020).

    balance: a client that holds its fair share, |D| / N, gets nothing of the classes still to come (MOON, FedSoL).
    min_size: redraw while a client has fewer examples. The number of attempts is bounded; after that random examples
    of larger clients fill up the smaller ones, with a warning.
    """
    total = len(labels)
    if min_size * clients > total:
        raise ValueError(
            f"min_size={min_size} for {clients} clients needs {min_size * clients} examples, there are {total}; "
            f"write min_size={max(total // clients, 1)} or less"
        )
    codes, stock = _classes(labels)
    best = _cut_classes(stock, clients, alpha, balance, generator)
    for _ in range(min(ATTEMPTS, SHARES // best.size)):
        if best.sum(axis=1).min() >= min_size:
            break
        counts = _cut_classes(stock, clients, alpha, balance, generator)
        best = min(best, counts, key=lambda table: _missing(table, min_size).sum())
    owner = _hand_out(codes, best, generator)
    return _groups(_top_up(owner, _missing(best, min_size), min_size, generator), clients)


def shards(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    shards_per_client: Annotated[Count, Field(description="shards that each client gets")],
) -> list[Ints]:
    """Sort by class, cut into equal shards, deal each client the same number of them (McMahan et al. 2017).

    A client may get two shards of one class. Where the shards do not fit the classes some hold the end of one class and
    the start of the next.
    """
    if shards_per_client * clients > len(labels):
        raise ValueError(
            f"shards_per_client={shards_per_client} for {clients} clients makes more shards than the {len(labels)} "
            f"examples; write shards_per_client={len(labels) // clients} or less"
        )
    codes, _ = _classes(labels)
    sizes = _equal_sizes(len(labels), clients, generator)
    count = clients * shards_per_client
    lengths = np.diff(np.arange(count + 1) * len(labels) // count)
    # Shards one example longer than the others are dealt on their own, so that clients differ by one and not by s.
    longer = lengths > len(labels) // count
    quota = sizes - shards_per_client * (len(labels) // count)
    holder = np.empty(count, dtype=np.int64)
    holder[longer] = generator.permutation(np.repeat(np.arange(clients), quota))
    holder[~longer] = generator.permutation(np.repeat(np.arange(clients), shards_per_client - quota))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[_by_class(codes, generator)] = np.repeat(holder, lengths)
    return _groups(owner, clients)


def pathological(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    classes_per_client: Annotated[Count, Field(description="classes that each client holds")],
) -> list[Ints]:
    """Every client holds exactly this many classes, in about equal parts.

    A class is shared by a number of clients in proportion to its examples. Sizes are equal when the classes are and
    their number divides clients * classes_per_client; otherwise the number of classes is kept and sizes give way.
    """
    codes, stock = _classes(labels)
    whole("classes_per_client", classes_per_client, 1, len(stock))
    holders = _apportion(stock, clients, clients * classes_per_client, generator)
    holds = np.zeros((clients, len(stock)), dtype=bool)
    for served, client in enumerate(generator.permutation(clients)):
        # A class needed by as many clients as are left must be taken now; so no client ever runs out of choices.
        race = np.where(holders > 0, generator.standard_exponential(len(stock)) / np.maximum(holders, 1), np.inf)
        race[holders == clients - served] = -1.0
        taken = np.argsort(race)[:classes_per_client]
        holds[client, taken] = True
        holders[taken] -= 1
    counts = np.zeros((clients, len(stock)), dtype=np.int64)
    ahead = np.zeros(clients)  # of an exact division, by the roundings so far
    for cls, available in enumerate(stock):
        members = generator.permutation(np.flatnonzero(holds[:, cls]))
        members = members[np.argsort(ahead[members], kind="stable")]
        counts[members, cls] = _shares(available, len(members))
        ahead[members] += counts[members, cls] - available / len(members)
    return _groups(_hand_out(codes, counts, generator), clients)


def pachinko(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    coarse: CoarseLabels,
    alpha: Annotated[Positive, Field(description="mass of each coarse label")] = 0.1,
    beta: Annotated[Positive, Field(description="mass of each fine label")] = 10.0,
) -> list[Ints]:
    """Equal sizes; draw a coarse label ~ Dirichlet(alpha), then one of its fine labels ~ Dirichlet(beta) (PAM, 2021).

    coarse: the coarse label of each fine label, so that coarse[3] belongs to label 3. An exhausted fine label leaves
    its coarse label's shares, an exhausted coarse label leaves the clients' shares, and what remains is renormalised
    (Reddi et al. 2021: alpha = 0.1, beta = 10, 500 clients of 100 images).
    """
    if labels.max() >= len(coarse):
        raise ValueError(f"coarse must give a coarse label for labels 0 to {labels.max()}, got {len(coarse)} entries")
    codes, stock = _classes(labels)
    _, parent = np.unique(np.asarray(coarse)[np.unique(labels)], return_inverse=True)
    log_coarse = _log_gamma(np.full((clients, parent.max() + 1), alpha), generator)
    log_fine = _log_gamma(np.full((clients, len(stock)), beta), generator)

    def prior(left: NDArray[np.bool_]) -> Floats:
        weights = np.zeros_like(log_fine)
        open_coarse = np.bincount(parent[left], minlength=log_coarse.shape[1]) > 0
        coarse_shares = _softmax(np.where(open_coarse, log_coarse, -np.inf))
        for group in np.flatnonzero(open_coarse):
            members = left & (parent == group)
            weights[:, members] = coarse_shares[:, [group]] * _softmax(log_fine[:, members])
        return weights

    sizes = _equal_sizes(len(labels), clients, generator)
    counts = _serve(prior, _one_by_one(sizes, generator), sizes, stock, generator)
    return _groups(_hand_out(codes, counts, generator), clients)


def _classes(labels: Ints) -> tuple[Ints, Ints]:
    """Number the classes that occur 0, 1, ...; return every example's number and the examples per class."""
    _, codes, stock = np.unique(labels, return_inverse=True, return_counts=True)
    return codes.astype(np.int64), stock.astype(np.int64)


def _shares(total: int, parts: int) -> Ints:
    """Cut a number into parts that differ by at most one, the larger first."""
    return np.full(parts, total // parts, dtype=np.int64) + (np.arange(parts) < total % parts)


def _equal_sizes(total: int, clients: int, generator: np.random.Generator) -> Ints:
    return generator.permutation(_shares(total, clients))


def _log_gamma(concentration: Floats, generator: np.random.Generator) -> Floats:
    """Logarithms of Gamma(a) draws, whose softmax is Dirichlet: log G(a) = log G(a + 1) + log(U) / a.

    Dirichlet draws themselves underflow at small a, and what is left of them after a class runs out is then 0 / 0.
    The floor stands for a = 0, the limit in which the largest entry has all the mass.
    """
    a = np.maximum(concentration, 1e-100)
    draws: Floats = np.log(generator.standard_gamma(a + 1)) - generator.standard_exponential(a.shape) / a
    return draws


def _softmax(logs: Floats) -> Floats:
    """Rows proportional to exp(logs) that add up to one."""
    weights: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _flat_prior(log_shares: Floats) -> Prior:
    """Shares of the classes that are left, renormalised for every client."""
    return lambda left: _softmax(np.where(left, log_shares, -np.inf))


def _one_by_one(sizes: Ints, generator: np.random.Generator) -> Ints:
    """Turns in which one client after the other, in random order, takes all its examples."""
    order = generator.permutation(len(sizes))
    return np.repeat(order, sizes[order])


def _interleaved(sizes: Ints, generator: np.random.Generator) -> Ints:
    """Turns in which each goes to a client drawn uniformly from those that are not yet full."""
    left = sizes.copy()
    turns: list[Ints] = []
    while left.any():
        # Dropping the draws of clients that filled up meanwhile is the same as drawing among the others.
        drawn = generator.choice(np.flatnonzero(left), size=left.sum())
        drawn = drawn[_occurrence(drawn) < left[drawn]]
        left -= np.bincount(drawn, minlength=len(left))
        turns.append(drawn)
    return np.concatenate(turns)


def _occurrence(values: Ints) -> Ints:
    """How often each entry's value has come before it: [3, 5, 3] -> [0, 0, 1]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    before = np.empty_like(values)
    before[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return before


def _serve(prior: Prior, turns: Ints, sizes: Ints, stock: Ints, generator: np.random.Generator) -> Ints:
    """Let the client of each turn draw a class from its shares of the classes not exhausted; count what it got."""
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


def _cut_classes(stock: Ints, clients: int, alpha: float, balance: bool, generator: np.random.Generator) -> Ints:
    """One attempt of `dirichlet_by_class`: cut each class in turn at the running sums of its clients' shares."""
    counts = np.zeros((clients, len(stock)), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    drawn = _log_gamma(np.full((len(stock), clients), alpha), generator)
    for cls, (log_shares, available) in enumerate(zip(drawn, stock, strict=True)):
        if balance:
            log_shares[sizes >= stock.sum() / clients] = -np.inf
        running = np.cumsum(np.exp(log_shares - log_shares.max()))
        # Dividing by the last sum makes it exactly 1, else rounding hands one example to a client that is full.
        cuts = np.floor(running / running[-1] * available).astype(np.int64)
        counts[:, cls] = np.diff(cuts, prepend=0)
        sizes += counts[:, cls]
    return counts


def _missing(counts: Ints, min_size: int) -> Ints:
    """How many examples each client lacks."""
    lacking: Ints = np.maximum(min_size - counts.sum(axis=1), 0)
    return lacking


def _apportion(stock: Ints, clients: int, places: int, generator: np.random.Generator) -> Ints:
    """How many clients share each class: at least one, in proportion to its examples (highest averages)."""
    most = np.minimum(stock, clients)
    if not len(stock) <= places <= most.sum():
        raise ValueError(
            f"classes_per_client={places // clients} for {clients} clients makes {places} parts of classes, but these "
            f"labels allow {len(stock)} to {most.sum()}: every class needs a client, every part an example"
        )
    holders = np.ones(len(stock), dtype=np.int64)
    ties = generator.permutation(len(stock)).tolist()
    queue = [(-float(available), ties[cls], cls) for cls, available in enumerate(stock) if most[cls] > 1]
    heapq.heapify(queue)
    for _ in range(places - len(stock)):
        _, tie, cls = heapq.heappop(queue)
        holders[cls] += 1
        if holders[cls] < most[cls]:
            heapq.heappush(queue, (-float(stock[cls] / holders[cls]), tie, cls))
    return holders


def _by_class(codes: Ints, generator: np.random.Generator) -> Ints:
    """All examples, class after class, in random order within a class."""
    shuffled = generator.permutation(len(codes))
    return shuffled[np.argsort(codes[shuffled], kind="stable")]


def _hand_out(codes: Ints, counts: Ints, generator: np.random.Generator) -> Ints:
    """Choose the examples behind a table of counts at random; return the owner of each example."""
    clients, classes = counts.shape
    owner = np.empty(len(codes), dtype=np.int64)
    owner[_by_class(codes, generator)] = np.repeat(np.tile(np.arange(clients), classes), counts.T.ravel())
    return owner


def _top_up(owner: Ints, missing: Ints, min_size: int, generator: np.random.Generator) -> Ints:
    """Move random examples of clients above `min_size` to those that lack some."""
    if not missing.any():
        return owner
    warnings.warn(
        f"dirichlet_by_class: no attempt gave every client {min_size} examples; moved {missing.sum()} examples to "
        f"{np.count_nonzero(missing)} clients. A larger alpha, fewer clients or a smaller min_size avoids this.",
        stacklevel=4,  # the caller of `partition`
    )
    shuffled = generator.permutation(len(owner))
    spare = shuffled[_occurrence(owner[shuffled]) >= min_size]
    filled = owner.copy()
    filled[spare[: missing.sum()]] = np.repeat(np.arange(len(missing)), missing)
    return filled


def _groups(owner: Ints, clients: int) -> list[Ints]:
    """The sorted examples of every client."""
    return cut(np.argsort(owner, kind="stable"), np.bincount(owner, minlength=clients))


def cut(flat: Ints, sizes: Ints) -> list[Ints]:
    """Consecutive pieces of these sizes, as views (much faster than np.split for a million of them)."""
    stops = np.cumsum(sizes).tolist()
    return [flat[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)]

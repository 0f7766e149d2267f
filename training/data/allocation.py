"""How many examples of each class every client gets: the partition schemes of the papers, as pure functions.

A scheme fills a table of counts (clients x classes) whose columns add up to the data; which examples fill a count is
then a uniformly random choice. This makes partitions disjoint and complete by construction, whatever the settings.

All schemes have these arguments, and return the indices of every client's examples:
  labels     (examples,) the class number of every example
  clients    how many clients there are
  generator  the source of all random numbers
Their keyword arguments are the settings; `partition` checks types and ranges (see training/settings.py).
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from landscape.errors import whole
from training.data.dealing import (
    ClientIndices,
    Floats,
    apportion,
    choose_owners,
    count_missing,
    cut_classes,
    draw_equal_sizes,
    draw_log_gamma,
    group_by_owner,
    make_flat_prior,
    number_classes,
    serve,
    softmax,
    sort_by_class,
    split_evenly,
    take_turns_at_random,
    take_turns_in_order,
    top_up,
)
from training.data.dealing import Ints as Ints  # part of what this file offers
from training.settings import Count, Positive, as_tuple

# Redraws of `dirichlet_by_class` before examples are moved instead; the public codes redraw for ever. One attempt in 4
# succeeds at alpha = 0.1 with 100 clients and 10 classes, one in 30 with 200 clients, one in 40,000 at alpha = 0.05.
ATTEMPTS = 1000
SHARES = 1_000_000  # drawn over all attempts, which bounds the time (under a second) for many clients as well


Mass = Annotated[float, Field(ge=0, allow_inf_nan=True, description="total mass; 0: one class per client, inf: IID")]
CoarseLabels = Annotated[
    tuple[int, ...], BeforeValidator(as_tuple), Field(description="coarse label of each fine label")
]


def iid(labels: Ints, clients: int, generator: np.random.Generator) -> ClientIndices:
    """Shuffle the examples and deal them out in equal shares."""
    owner = np.repeat(np.arange(clients), draw_equal_sizes(len(labels), clients, generator))
    return group_by_owner(generator.permutation(owner), clients)


def dirichlet_total(labels: Ints, clients: int, generator: np.random.Generator, *, alpha: Mass) -> ClientIndices:
    """Equal sizes, class shares q_k ~ Dirichlet(alpha * p) with p the class frequencies (Hsu et al. 2019).

    alpha: the total mass; on C balanced classes it equals C * beta of `dirichlet_per_class`. 0 gives every client one
        class (two where a class runs out in the middle of a client), inf is IID.

    Clients are served one after the other in random order, since the last ones must take the classes that are left.
    """
    if math.isinf(alpha):
        return iid(labels, clients, generator)
    codes, stock = number_classes(labels)
    sizes = draw_equal_sizes(len(labels), clients, generator)
    concentration = np.broadcast_to(alpha * stock / len(labels), (clients, len(stock)))
    turns = take_turns_in_order(sizes, generator)
    counts = serve(make_flat_prior(draw_log_gamma(concentration, generator)), turns, sizes, stock, generator)
    return group_by_owner(choose_owners(codes, counts, generator), clients)


def dirichlet_per_class(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    beta: Annotated[Positive, Field(description="mass of each class")],
) -> ClientIndices:
    """Equal sizes, class shares q_k ~ Dirichlet(beta, ..., beta), one entry per class (FedDyn, 2021; FedFSA).

    beta: the mass of each class.

    One example at a time goes to a random client that is not full. An exhausted class leaves the shares of everybody,
    which are renormalised; drawing again instead can last for ever, and refilling the class would use images twice.
    """
    codes, stock = number_classes(labels)
    sizes = draw_equal_sizes(len(labels), clients, generator)
    concentration = np.full((clients, len(stock)), beta)
    turns = take_turns_at_random(sizes, generator)
    counts = serve(make_flat_prior(draw_log_gamma(concentration, generator)), turns, sizes, stock, generator)
    return group_by_owner(choose_owners(codes, counts, generator), clients)


def dirichlet_by_class(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: Annotated[Positive, Field(description="mass of each client")],
    balance: Annotated[bool, Field(description="give nothing more to a client that has its fair share")] = True,
    min_size: Annotated[Count, Field(description="redraw while a client has fewer examples")] = 10,
) -> ClientIndices:
    """Unequal sizes: each class is cut into shares ~ Dirichlet(alpha, ..., alpha) over the clients (FedMA, 2020).

    alpha: the mass of each client.
    balance: whether a client that holds its fair share, |D| / N, gets nothing of the remaining classes (MOON, FedSoL).
    min_size: draw again while a client has fewer examples. The number of attempts is bounded; after that, random
        examples of larger clients fill up the smaller ones, with a warning.
    """
    total = len(labels)
    if min_size * clients > total:
        raise ValueError(
            f"min_size={min_size} for {clients} clients needs {min_size * clients} examples, there are {total}; "
            f"write min_size={max(total // clients, 1)} or less"
        )
    codes, stock = number_classes(labels)
    best = cut_classes(stock, clients, alpha, balance, generator)
    for _ in range(min(ATTEMPTS, SHARES // best.size)):
        if best.sum(axis=1).min() >= min_size:
            break
        counts = cut_classes(stock, clients, alpha, balance, generator)
        best = min(best, counts, key=lambda table: count_missing(table, min_size).sum())
    owner = choose_owners(codes, best, generator)
    return group_by_owner(top_up(owner, count_missing(best, min_size), min_size, generator), clients)


def shards(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    shards_per_client: Annotated[Count, Field(description="shards that each client gets")],
) -> ClientIndices:
    """Sort by class, cut into equal shards, deal each client the same number of them (McMahan et al. 2017).

    shards_per_client: how many each client gets.

    A client may get two shards of one class. Where the shards do not fit the classes, some hold the end of one class
    and the start of the next.
    """
    if shards_per_client * clients > len(labels):
        raise ValueError(
            f"shards_per_client={shards_per_client} for {clients} clients makes more shards than the {len(labels)} "
            f"examples; write shards_per_client={len(labels) // clients} or less"
        )
    codes, _ = number_classes(labels)
    sizes = draw_equal_sizes(len(labels), clients, generator)
    count = clients * shards_per_client
    lengths = np.diff(np.arange(count + 1) * len(labels) // count)
    # Shards one example longer than the others are dealt on their own, so that clients differ by one and not by s.
    longer = lengths > len(labels) // count
    quota = sizes - shards_per_client * (len(labels) // count)
    holder = np.empty(count, dtype=np.int64)
    holder[longer] = generator.permutation(np.repeat(np.arange(clients), quota))
    holder[~longer] = generator.permutation(np.repeat(np.arange(clients), shards_per_client - quota))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[sort_by_class(codes, generator)] = np.repeat(holder, lengths)
    return group_by_owner(owner, clients)


def pathological(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    classes_per_client: Annotated[Count, Field(description="classes that each client holds")],
) -> ClientIndices:
    """Every client holds exactly this many classes, in about equal parts.

    classes_per_client: how many classes each client holds.

    A class is shared by a number of clients in proportion to its examples. Sizes are equal when the classes are and
    their number divides clients * classes_per_client; otherwise the number of classes is kept and sizes give way.
    """
    codes, stock = number_classes(labels)
    whole("classes_per_client", classes_per_client, 1, len(stock))
    holders = apportion(stock, clients, clients * classes_per_client, generator)
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
        counts[members, cls] = split_evenly(available, len(members))
        ahead[members] += counts[members, cls] - available / len(members)
    return group_by_owner(choose_owners(codes, counts, generator), clients)


def pachinko(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    coarse: CoarseLabels,
    alpha: Annotated[Positive, Field(description="mass of each coarse label")] = 0.1,
    beta: Annotated[Positive, Field(description="mass of each fine label")] = 10.0,
) -> ClientIndices:
    """Equal sizes; draw a coarse label ~ Dirichlet(alpha), then one of its fine labels ~ Dirichlet(beta) (PAM, 2021).

    coarse: the coarse label of each fine label, so that coarse[3] belongs to label 3.
    alpha: the mass of each coarse label.
    beta: the mass of each fine label.

    An exhausted fine label is taken out of its coarse label's shares, an exhausted coarse label out of the clients'
    shares, and what remains is renormalised (Reddi et al. 2021: alpha = 0.1, beta = 10, 500 clients of 100 images).
    """
    if labels.max() >= len(coarse):
        raise ValueError(f"coarse must give a coarse label for labels 0 to {labels.max()}, got {len(coarse)} entries")
    codes, stock = number_classes(labels)
    _, parent = np.unique(np.asarray(coarse)[np.unique(labels)], return_inverse=True)
    log_coarse = draw_log_gamma(np.full((clients, parent.max() + 1), alpha), generator)
    log_fine = draw_log_gamma(np.full((clients, len(stock)), beta), generator)

    def prior(left: NDArray[np.bool_]) -> Floats:
        weights = np.zeros_like(log_fine)
        open_coarse = np.bincount(parent[left], minlength=log_coarse.shape[1]) > 0
        coarse_shares = softmax(np.where(open_coarse, log_coarse, -np.inf))
        for group in np.flatnonzero(open_coarse):
            members = left & (parent == group)
            weights[:, members] = coarse_shares[:, [group]] * softmax(log_fine[:, members])
        return weights

    sizes = draw_equal_sizes(len(labels), clients, generator)
    counts = serve(prior, take_turns_in_order(sizes, generator), sizes, stock, generator)
    return group_by_owner(choose_owners(codes, counts, generator), clients)

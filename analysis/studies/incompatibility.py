"""Do clients agree on what is flat? The dispersion of their sharpness at one point, and where it comes from.

At one global model w, for a fixed set E of clients (FedVSSAM, Definition 1 and eq. 20):
    R_k = F_k(w + rho v_k / ||v_k||) - F_k(w),    Phi = (1/|E|) sum_k (R_k - mean R)^2
with v_k the method's own search direction: (1 - a) d + a g_k for FedVSSAM (eq. 14), the gradient g_k for others. Its
two sources stand beside it: data heterogeneity ||g_k - g||^2 (eq. 6), and friendly adversaries, perturbations that
raise one batch's loss and lower another's (eqs. 7, 8). g = sum p_k g_k runs over all N clients, as eq. 6 says, also
where E is some of them; L = sum p_k F_k, which is asked for again and again, runs over E. Means over a drawn E come
with their standard error as estimates of the mean over all N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared.friendly import compare_batches, dispersion, friendly, rise_error
from analysis.shared.search import delta_epsilon, search_of, server_rule
from analysis.store import Table, Variable
from analysis.studies.drift import cosine, distance
from analysis.study import (
    Arrays,
    Checked,
    Piece,
    Study,
    limit_setting,
    rounds_setting,
    seed_setting,
    setting,
    stacked,
    variable,
)
from analysis.subjects import Run, Subject
from landscape import Objective, sharpness
from landscape.objectives.batches import join
from landscape.rng import numpy_generator

BATCH = 32  # likewise, for a subject without a recipe
IID_BATCHES, IID_SIZE = 10, 512  # of the reference gradient that d is compared with (FedVSSAM, appendix C.5)
EVERYONE, SERVER = -1, -2  # pieces of work that belong to no client


@dataclass(frozen=True)
class Settings(Checked):
    """Which clients are asked, and within which radius."""

    rounds: str = rounds_setting("all")
    clients: int = setting(50, "size of the set E of clients, drawn once", least=1)
    radius: float | None = setting(
        None, "rho, how far clients search", positive=True, absent="the method's own, or 0.05"
    )
    steps: int = setting(20, "of the maximised R_k; 0: leave it out", least=0)
    batches: int = setting(8, "most mini-batches of a client that are compared with each other; 0: none", least=0)
    batch: int | None = setting(None, "their size", least=1, absent="that of the training")
    limit: int | None = limit_setting()
    seed: int = seed_setting()


def chosen(subject: Subject, settings: Settings) -> list[int]:
    """The fixed set E: all clients, or some of them drawn once for all rounds."""
    everyone = subject.clients
    if not everyone:
        raise ValueError(f"{subject.name}: a single model has no clients; this study needs a run of landscape train")
    if settings.clients >= len(everyone):
        return everyone
    drawn = numpy_generator(settings.seed, "clients").choice(len(everyone), settings.clients, replace=False)
    return [everyone[place] for place in sorted(drawn)]


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    sizes = {client: len(subject.examples("train", client)[1]) for client in chosen(subject, settings)}
    sizes = {client: min(size, settings.limit or size) for client, size in sizes.items()}
    everyone, size = sum(sizes.values()), _batch_size(subject, settings)
    whole = sum(min(count, settings.limit or count) for count in _sizes(subject).values())
    planned = []
    for round in subject.select(settings.rounds):
        passes = whole + 0.7 * everyone + IID_BATCHES * IID_SIZE
        planned.append(Piece(_key(round, EVERYONE), passes, 6, round, EVERYONE))
        if server_rule(subject) is not None:
            planned.append(Piece(_key(round, SERVER), 2.0 * everyone, 8, round, SERVER))
        for client, count in sizes.items():
            compared = min(settings.batches, count // size)
            # the maximum: two long climbs and three short ones
            climbs = 2 * (settings.steps + 2) + 3 * (settings.steps / 4 + 2) if settings.steps else 2
            passes = climbs * count + everyone / 3 + compared * (1 + compared / 3) * size
            planned.append(Piece(_key(round, client), passes, 10 + settings.batches, round, client))
    return planned


def _sizes(subject: Subject) -> dict[int, int]:
    return {client: len(subject.examples("train", client)[1]) for client in subject.clients}


def _key(round: int, client: int) -> str:
    return f"round {round} " + {EVERYONE: "everyone", SERVER: "server"}.get(client, f"client {client}")


def _batch_size(subject: Subject, settings: Settings) -> int:
    own = subject.recipe.local.batch_size if isinstance(subject, Run) else BATCH
    return settings.batch or own


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    if piece.client == SERVER:
        return {"delta_epsilon": np.asarray(delta_epsilon(subject, piece.round))}
    if piece.client == EVERYONE:
        return _everyone(subject, settings, piece.round)
    return _client(subject, settings, piece, found[_key(piece.round, EVERYONE)])


def _everyone(subject: Subject, settings: Settings, round: int) -> Arrays:
    """Every client's loss, the global gradient, and what its own perturbation does to everyone."""
    shares = subject.shares(chosen(subject, settings))
    objectives = {client: subject.objective("train", client, limit=settings.limit) for client in shares}
    theta = subject.point(round).to(next(iter(objectives.values())).dtype)
    # without gradients, like those that they are subtracted from
    losses = {client: objective.loss(theta) for client, objective in objectives.items()}
    total = _global_gradient(subject, settings, theta)
    gradient = total.to(theta)
    search = search_of(subject, round, settings.radius)
    there = theta + search.perturbation(gradient)
    rises = {client: objective.loss(there) - losses[client] for client, objective in objectives.items()}
    arrays: Arrays = {
        "loss": np.asarray(list(losses.values())),
        "examples": np.asarray([objective.count for objective in objectives.values()]),
        "gradient_norm": np.asarray(float(total.norm())),
        "radius": np.asarray(search.radius),
        "rise": np.asarray(sum(shares[client] * rise for client, rise in rises.items())),
        "_gradient": gradient.cpu().numpy(),
    }
    if isinstance(subject, Run) and "direction" in (server := subject.checkpoint(round).server):
        arrays |= tracking(subject, settings, theta, server["direction"])
    return arrays


def _global_gradient(subject: Subject, settings: Settings, theta: Tensor) -> Tensor:
    """g = sum of p_k g_k over all N clients, in float64."""
    if settings.limit is None:
        return subject.objective("train").gradient(theta).double().cpu()  # their examples together
    total = torch.zeros(len(theta), dtype=torch.float64)
    for client, share in subject.shares(subject.clients).items():
        own = subject.objective("train", client, limit=settings.limit)
        total += share * own.gradient(theta).double().cpu()
    return total


def tracking(subject: Subject, settings: Settings, theta: Tensor, direction: Tensor) -> Arrays:
    """||d - g_IID||^2, and how much of it is the sampling noise of g_IID; the same samples for every round."""
    inputs, labels = subject.examples("train")
    objective = subject.objective("train")
    places = numpy_generator(settings.seed, "iid").integers(len(labels), size=(IID_BATCHES, IID_SIZE))
    batches = (objective.on(inputs[batch], labels[batch]) for batch in torch.from_numpy(places))
    gradients = torch.stack([batch.gradient(theta).double()[: len(direction)] for batch in batches])
    mean = gradients.mean(dim=0)
    noise = float((gradients - mean).square().sum()) / (IID_BATCHES * (IID_BATCHES - 1))
    return {
        "tracking_error": np.asarray(distance(direction, mean) ** 2),
        "tracking_noise": np.asarray(noise),
        "tracking_cosine": np.asarray(cosine(direction.double(), mean)),
    }


def _client(subject: Subject, settings: Settings, piece: Piece, everyone: Arrays) -> Arrays:
    """One client's R_k, what its perturbation does to the others, and how its mini-batches get on."""
    objective = subject.objective("train", piece.client, limit=settings.limit)
    theta = subject.point(piece.round).to(objective.dtype)
    search = search_of(subject, piece.round, settings.radius)
    own, shared = objective.gradient(theta), torch.from_numpy(everyone["_gradient"]).to(theta)
    e, common = search.perturbation(own), search.perturbation(shared)
    losses = [
        subject.objective("train", other, limit=settings.limit).loss(theta + e) for other in chosen(subject, settings)
    ]
    # in a random order: examples of one class often lie together
    inputs, targets = join(objective.chunks)
    order = numpy_generator(settings.seed, "batches", piece.client).permutation(len(inputs))
    shuffled = objective.on(inputs[order], targets[order], population=objective.population)
    arrays: Arrays = {
        "others": np.asarray(losses) - everyone["loss"],
        "rise_error": np.asarray(rise_error(shuffled, theta, e)),
        "gradient_norm": np.asarray(float(own.double().norm())),
        "gradient_cosine": np.asarray(cosine(own, shared)),
        "heterogeneity": np.asarray(distance(own, shared) ** 2),
        "perturbation_distance": np.asarray(distance(e, common)),
        "perturbation_cosine": np.asarray(cosine(e, common)),
    }
    if settings.steps:
        best = sharpness(
            objective, theta, search.radius, "sam_max", steps=settings.steps, restarts=3, seed=settings.seed
        )
        assert best.perturbation is not None
        arrays["maximised"] = np.asarray(best.value)
        arrays["maximised_error"] = np.asarray(rise_error(shuffled, theta, best.perturbation))
    if settings.batches:
        size = min(_batch_size(subject, settings), shuffled.count)
        whole_ones = shuffled.split(size)[: shuffled.count // size]
        arrays |= compare_batches(whole_ones[: settings.batches], theta, own, search)
        arrays["gradient_error"] = np.asarray(_gradient_error(float(arrays["batch_variance"]), size, shuffled))
    return arrays


def _gradient_error(variance: float, size: int, objective: Objective) -> float:
    """Standard error of a sub-sample's gradient, from the variance of batches drawn from it without replacement."""
    n, N = objective.count, objective.population
    if N is None:
        return 0.0
    if n <= size:
        return math.nan
    return math.sqrt(variance * size * (n - 1) / ((n - size) * n) * (1 - n / N))


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    rounds, clients = subject.select(settings.rounds), chosen(subject, settings)
    shares = np.asarray(list(subject.shares(clients).values()))
    among_all = subject.shares(subject.clients)
    drawn = Drawn(shares, np.asarray([among_all[client] for client in clients]), np.asarray(list(among_all.values())))

    def by_client(name: str) -> NDArray[Any]:
        """(round, client, ...)"""
        rows = [stacked(found, [_key(round, client) for client in clients], name) for round in rounds]
        return np.stack(rows)

    others = by_client("others")
    values = {"rise": np.diagonal(others, axis1=1, axis2=2), "global_rise": others @ shares}
    words = dict(CLIENT_WORDS)
    if settings.steps:
        words |= MAXIMISED_WORDS
    if settings.batches:
        words |= BATCH_WORDS
    values |= {name: by_client(name) for name in words if name not in values}
    both, keys = ("round", "client"), [_key(round, EVERYONE) for round in rounds]
    every = partial(variable, found, keys)
    of_clients = {
        "round": Variable(("round",), np.asarray(rounds), "communication round"),
        "client": Variable(("client",), np.asarray(clients), "client of the fixed set E"),
        "other": Variable(("other",), np.asarray(clients), "client of the fixed set E"),
        "share": Variable(("client",), shares, "p_k, its share of the examples of E"),
        "examples": every("examples", both, "examples seen"),
        "loss": every("loss", both, "F_k(w)"),
        "other_rise": Variable((*both, "other"), others, "F_j(w + e_k) - F_j(w), j the other client"),
        **{name: Variable(both, values[name], text) for name, text in words.items()},
    }
    one = ("round",)
    of_rounds = {
        "round": of_clients["round"],
        "radius": every("radius", one, "rho"),
        "loss": Variable(one, stacked(found, keys, "loss") @ shares, "L(w)"),
        "gradient_norm": every("gradient_norm", one, "||g||"),
        "global_rise": every("rise", one, "L(w + e) - L(w), e the perturbation of everyone's gradient"),
        "friendly_clients": Variable(one, np.asarray([friendly(some) for some in others]), f"{FRIENDLY} client's"),
        **_dispersions(values, drawn, settings),
    }
    if "tracking_error" in found[keys[0]]:
        of_rounds["tracking_error"] = every("tracking_error", one, "||d - g_IID||^2, d the server's direction")
        of_rounds["tracking_noise"] = every("tracking_noise", one, "sampling noise of g_IID that is contained in it")
        of_rounds["tracking_cosine"] = every("tracking_cosine", one, "cosine of d and g_IID")
    if server_rule(subject) is not None:
        gaps = stacked(found, [_key(round, SERVER) for round in rounds], "delta_epsilon")
        of_rounds["delta_epsilon"] = Variable(one, gaps, "||e~ - e^||, FedGloSS eq. 6; NaN: duals not on record")
    about = {
        "search": "g" if search_of(subject, rounds[-1], settings.radius).direction is None else "(1 - a) d + a g",
        "clients": len(clients),
        "population": len(subject.clients),
    }
    return {"rounds": Table(of_rounds, about), "clients": Table(of_clients, about)}


@dataclass(frozen=True, eq=False)
class Drawn:
    """The clients of E among all N."""

    shares: NDArray[Any]  # (|E|,) of the examples of E
    own: NDArray[Any]  # (|E|,) p_k, of all examples
    everyone: NDArray[Any]  # (N,) p_k

    def standard_error(self, values: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
        """Of a weighted mean over E as an estimate of that over all N: 0 where E is all, NaN for a single client.

        values (round, client); E is drawn without replacement, and weights that sum to one make it a ratio.
        """
        n, N = len(self.shares), len(self.everyone)
        if n == N:
            return np.zeros(len(values))
        mean, _ = dispersion(values, weights)
        squares = np.square((values - mean[:, None]) * weights).sum(axis=1)
        return np.asarray(np.sqrt((1 - n / N) * squares * (n / (n - 1) if n > 1 else math.nan)))

    def noise_of_mean(self, squares: NDArray[Any]) -> NDArray[Any]:
        """sum of p_j^2 s_j^2 over all N clients; those outside E are taken to be as noisy as those in it."""
        known = squares @ self.own**2
        return np.asarray(known * float(self.everyone @ self.everyone) / float(self.own @ self.own))


def _dispersions(values: Mapping[str, NDArray[Any]], drawn: Drawn, settings: Settings) -> dict[str, Variable]:
    """Means and variances over the clients of E, uniform and by size, with and without the noise of sub-samples."""
    result, shares, doubt = {}, drawn.shares, "its standard error; 0: E is all clients"
    names = {"rise": "R_k", **({"maximised": "maximised R_k"} if settings.steps else {})}
    for end, weights, how in (("", np.full_like(shares, 1 / len(shares)), ""), ("_weighted", shares, ", by size")):
        for name, symbol in names.items():
            mean, raw = dispersion(values[name], weights)
            # an error of one R_k also moves the mean: its share of the variance is w (1 - w), not w
            noise = np.square(values[f"{name}_error"]) @ (weights * (1 - weights))
            result[f"{name}_mean{end}"] = (mean, f"mean of {symbol}{how}")
            result[f"{name}_mean{end}_standard_error"] = (drawn.standard_error(values[name], weights), doubt)
            result[f"{name}_dispersion{end}"] = (raw, f"variance of {symbol} over clients{how}")
            result[f"{name}_dispersion_noise{end}"] = (noise, "what sub-sampling adds to it on average")
            result[f"{name}_dispersion_corrected{end}"] = (raw - noise, "variance without that noise; may be negative")
        mean, _ = dispersion(values["heterogeneity"], weights)
        result[f"heterogeneity{end}"] = (mean, f"mean of ||g_k - g||^2{how}, g over all clients (eq. 6)")
        result[f"heterogeneity{end}_standard_error"] = (drawn.standard_error(values["heterogeneity"], weights), doubt)
        if settings.batches:
            squares = np.square(values["gradient_error"])
            noise = squares @ (weights * (1 - 2 * drawn.own)) + drawn.noise_of_mean(squares)
            result[f"heterogeneity_noise{end}"] = (noise, "what sub-sampling adds to it on average")
            variance, _ = dispersion(values["batch_variance"], weights)
            result[f"batch_variance{end}"] = (variance, f"mean of ||g_batch - g_k||^2{how}")
    if settings.batches:
        pairs = [rates[np.isfinite(rates)] for rates in values["friendly_batches"]]
        rates = np.asarray([some.mean() if len(some) else math.nan for some in pairs])
        result["friendly_batches"] = (rates, f"mean over clients: {FRIENDLY} batch's")
    return {name: Variable(("round",), array, text) for name, (array, text) in result.items()}


FRIENDLY = "share of ordered pairs where a perturbation that raises the own loss lowers the other"
CLIENT_WORDS = {
    "rise": "R_k = F_k(w + e_k) - F_k(w), e_k = rho v_k / ||v_k||",
    "rise_error": "its standard error, where a subset of the data was seen",
    "global_rise": "L(w + e_k) - L(w)",
    "gradient_norm": "||g_k||",
    "gradient_cosine": "cosine of g_k and g",
    "heterogeneity": "||g_k - g||^2",
    "perturbation_distance": "||e_k - e||, e the perturbation of everyone's gradient",
    "perturbation_cosine": "cosine of e_k and e",
}
MAXIMISED_WORDS = {
    "maximised": "max of F_k(w + e) - F_k(w) over ||e|| <= rho, by projected ascent",
    "maximised_error": "its standard error, where a subset of the data was seen",
}
BATCH_WORDS = {
    "batches": "mini-batches compared with each other",
    "batch_variance": "||g_batch - g_k||^2, mean over them",
    "batch_variance_error": "its standard error",
    "friendly_batches": f"{FRIENDLY} batch's",
    "friendly_batches_linear": "the same to first order: by the signs of <e_b, g_c>",
    "other_batch_rise": "mean rise of one batch's loss under another's perturbation",
    "gradient_error": "standard error of g_k, where a subset of the data was seen",
}

STUDY = Study(
    name="incompatibility",
    about="whether clients agree on what is flat: dispersion of R_k, heterogeneity, friendly adversaries, tracking",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="001 D1 eqs 5-8 20 F8, 002 eq 6 F4",
)

"""Do clients agree on what is flat? The dispersion of their sharpness at one point, and where it comes from.

At one global model w, for a fixed set E of clients (FedVSSAM, Definition 1 and eq. 20):
    R_k = F_k(w + rho v_k / ||v_k||) - F_k(w),    Phi = (1/|E|) sum_k (R_k - mean R)^2
with v_k the method's own search direction: (1 - a) d + a g_k for FedVSSAM (eq. 14), the gradient g_k for others. Its
two sources stand beside it: data heterogeneity ||g_k - g||^2 (eq. 6), and friendly adversaries, perturbations that
raise one batch's loss and lower another's (eqs. 7, 8). g = sum p_k g_k runs over all N clients, as eq. 6 says, also
where E is some of them; L = sum p_k F_k, which is needed again and again, runs over E. Means over a drawn E come
with their standard error as estimates of the mean over all N.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import xarray as xr
from pydantic import Field
from torch import Tensor

from analysis.shared.dispersion import ClientSample, compare_batches, describe_dispersions, describe_friends
from analysis.shared.search import find_search, find_server_rule, measure_delta_epsilon
from analysis.study import Datasets, Limit, Piece, Rounds, Seed, Study, scalar, variable
from analysis.subjects import Run, Subject
from landscape import sharpness
from landscape.geometry.directions import cosine_or_nan, distance, norm
from landscape.objectives.subsample_errors import gradient_error, rise_error, shuffle
from landscape.rng import numpy_generator
from landscape.runtime.device import to_float64
from training.settings import Count, Positive, Whole, settings

GROUPS = 16  # parts of a sub-sample whose rises are compared for a standard error
BATCH = 32  # for a subject without a recipe
IID_BATCHES, IID_SIZE = 10, 512  # of the reference gradient that d is compared with (FedVSSAM, appendix C.5)
SUBSET = "its standard error, where a subset of the data was seen"
MAXIMISED = "max of F_k(w + e) - F_k(w) over ||e|| <= rho, by projected ascent"
MEMBER = "client of the fixed set E"


@settings
class Settings:
    """Which clients are compared, and within which radius."""

    rounds: Rounds = "all"
    clients: Count = Field(default=50, description="size of the set E of clients, drawn once")
    radius: Positive | None = Field(default=None, description="rho of clients; none: the method's own, or 0.05")
    steps: Whole = Field(default=20, description="of the maximised R_k; 0: leave it out")
    batches: Whole = Field(default=8, description="most mini-batches of a client that are compared; 0: none")
    batch: Count | None = Field(default=None, description="their size; none: that of the training")
    limit: Limit = None
    seed: Seed = 0


def choose_clients(subject: Subject, settings: Settings) -> list[int]:
    """The fixed set E: all clients, or some of them drawn once for all rounds."""
    everyone = subject.clients
    if not everyone:
        raise ValueError(f"{subject.name}: a single model has no clients; this study needs a run of landscape train")
    if settings.clients >= len(everyone):
        return everyone
    drawn = numpy_generator(settings.seed, "clients").choice(len(everyone), settings.clients, replace=False)
    return [everyone[place] for place in sorted(drawn)]


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """For each round one piece for everyone together, then one for each client of E."""
    clients, size = choose_clients(subject, settings), _batch_size(subject, settings)
    sizes = {client: subject.count("train", client, settings.limit) for client in subject.clients}
    chosen = sum(sizes[client] for client in clients)
    for_server = 2.0 * chosen if find_server_rule(subject) is not None else 0.0
    # the maximum: two long climbs and three short ones
    climbs = 2 * (settings.steps + 2) + 3 * (settings.steps / 4 + 2) if settings.steps else 2
    planned = []
    for round in subject.select(settings.rounds):
        passes = sum(sizes.values()) + 0.7 * chosen + IID_BATCHES * IID_SIZE + for_server
        everyone = Piece(round, passes=passes, vectors=8)
        planned.append(everyone)
        for client in clients:
            compared = min(settings.batches, sizes[client] // size)
            passes = climbs * sizes[client] + chosen / 3 + compared * (1 + compared / 3) * size
            planned.append(Piece(round, client, passes=passes, vectors=10 + settings.batches, after=(everyone,)))
    return planned


def _batch_size(subject: Subject, settings: Settings) -> int:
    own = subject.recipe.local.batch_size if isinstance(subject, Run) else BATCH
    return settings.batch or own


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """One client of E, or everyone together."""
    if piece.client is None:
        return _measure_everyone(subject, settings, piece.round)
    return _measure_client(subject, settings, piece.round, piece.client, earlier[0])


def _measure_everyone(subject: Subject, settings: Settings, round: int) -> xr.Dataset:
    """Every client's loss, the global gradient, and what its own perturbation does to everyone."""
    shares = subject.shares(choose_clients(subject, settings))
    objectives = [subject.objective("train", client, limit=settings.limit) for client in shares]
    theta = subject.point(round).to(objectives[0].dtype)
    # without gradients, like those that they are subtracted from
    losses = [objective.loss(theta) for objective in objectives]
    total = _sum_gradients(subject, settings, theta)
    gradient = total.to(theta)
    search = find_search(subject, round, settings.radius)
    there = theta + search.perturb(gradient)
    rises = [objective.loss(there) - loss for objective, loss in zip(objectives, losses, strict=True)]
    rise = sum(share * rise for share, rise in zip(shares.values(), rises, strict=True))
    found = {
        "client_loss": variable("client", losses, "F_k(w)"),
        "examples": variable("client", [one.count for one in objectives], "examples seen"),
        "radius": scalar(search.radius, "rho"),
        "gradient_norm": scalar(norm(total), "||g||"),
        "global_rise": scalar(rise, "L(w + e) - L(w), e the perturbation of everyone's gradient"),
        "_gradient": variable("_parameter", gradient.cpu().numpy(), "g"),
    }
    if isinstance(subject, Run) and "direction" in (server := subject.checkpoint(round).server):
        found |= measure_tracking(subject, settings, theta, server["direction"])
    if find_server_rule(subject) is not None:
        gap = measure_delta_epsilon(subject, round)
        found["delta_epsilon"] = scalar(gap, "||e~ - e^||, FedGloSS eq. 6; NaN: duals not on record")
    return xr.Dataset(found, {"client": variable("client", list(shares), MEMBER)})


def _sum_gradients(subject: Subject, settings: Settings, theta: Tensor) -> Tensor:
    """g = sum of p_k g_k over all N clients, in float64."""
    if settings.limit is None:
        return to_float64(subject.objective("train").gradient(theta)).cpu()  # their examples together
    total = torch.zeros(len(theta), dtype=torch.float64)
    for client, share in subject.shares(subject.clients).items():
        own = subject.objective("train", client, limit=settings.limit)
        total += share * to_float64(own.gradient(theta)).cpu()
    return total


def measure_tracking(subject: Subject, settings: Settings, theta: Tensor, direction: Tensor) -> dict[str, xr.Variable]:
    """||d - g_IID||^2, and how much of it is the sampling noise of g_IID; the same samples for every round.

    direction: d, the server's direction.
    """
    direction = direction.to(theta.device)
    objective = subject.objective("train")
    places = numpy_generator(settings.seed, "iid").integers(objective.count, size=(IID_BATCHES, IID_SIZE))
    batches = (objective.on(*subject.examples("train", None, batch)) for batch in torch.from_numpy(places))
    gradients = torch.stack([to_float64(batch.gradient(theta))[: len(direction)] for batch in batches])
    mean = gradients.mean(dim=0)
    noise = float((gradients - mean).square().sum()) / (IID_BATCHES * (IID_BATCHES - 1))
    return {
        "tracking_error": scalar(distance(direction, mean) ** 2, "||d - g_IID||^2, d the server's direction"),
        "tracking_noise": scalar(noise, "sampling noise of g_IID that is contained in it"),
        "tracking_cosine": scalar(cosine_or_nan(to_float64(direction), mean), "cosine of d and g_IID"),
    }


def _measure_client(subject: Subject, settings: Settings, round: int, client: int, everyone: xr.Dataset) -> xr.Dataset:
    """One client's R_k, what its perturbation does to the others, and how its mini-batches compare."""
    objective = subject.objective("train", client, limit=settings.limit)
    theta = subject.point(round).to(objective.dtype)
    search = find_search(subject, round, settings.radius)
    own, shared = objective.gradient(theta), torch.from_numpy(everyone["_gradient"].values).to(theta)
    e, common = search.perturb(own), search.perturb(shared)
    shares = subject.shares(choose_clients(subject, settings))
    losses = [subject.objective("train", other, limit=settings.limit).loss(theta + e) for other in shares]
    rises = np.asarray(losses) - everyone["client_loss"].values
    shuffled = shuffle(objective, settings.seed, "batches", client)
    parts = shuffled.split(math.ceil(shuffled.count / GROUPS))
    found = {
        "other_rise": variable("other", rises, "F_j(w + e_k) - F_j(w), j the other client"),
        "rise": scalar(rises[list(shares).index(client)], "R_k = F_k(w + e_k) - F_k(w), e_k = rho v_k / ||v_k||"),
        "rise_error": scalar(rise_error(shuffled, theta, e, parts), SUBSET),
        "client_global_rise": scalar(rises @ np.asarray(list(shares.values())), "L(w + e_k) - L(w)"),
        "client_gradient_norm": scalar(norm(own), "||g_k||"),
        "gradient_cosine": scalar(cosine_or_nan(own, shared), "cosine of g_k and g"),
        "client_heterogeneity": scalar(distance(own, shared) ** 2, "||g_k - g||^2"),
        "perturbation_distance": scalar(distance(e, common), "||e_k - e||, e the perturbation of everyone's gradient"),
        "perturbation_cosine": scalar(cosine_or_nan(e, common), "cosine of e_k and e"),
    }
    if settings.steps:
        steps, seed = settings.steps, settings.seed
        best = sharpness(objective, theta, search.radius, "sam_max", steps=steps, restarts=3, seed=seed)
        assert best.perturbation is not None
        found["maximised"] = scalar(best.value, MAXIMISED)
        found["maximised_error"] = scalar(rise_error(shuffled, theta, best.perturbation, parts), SUBSET)
    if settings.batches:
        size = min(_batch_size(subject, settings), shuffled.count)
        whole_ones = shuffled.split(size)[: shuffled.count // size]
        found |= compare_batches(whole_ones[: settings.batches], theta, own, search)
        error = gradient_error(shuffled, float(found["client_batch_variance"].values), size)
        found["gradient_error"] = scalar(error, "standard error of g_k, where a subset of the data was seen")
    return xr.Dataset(found, {"other": variable("other", list(shares), MEMBER)})


def derive(subject: Subject, settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add means and variances over clients, and how often clients are friendly to each other."""
    clients, among_all = choose_clients(subject, settings), subject.shares(subject.clients)
    shares = np.asarray(list(subject.shares(clients).values()))
    own, everyone = np.asarray([among_all[client] for client in clients]), np.asarray(list(among_all.values()))
    by_client = {str(name): one.values for name, one in answer.data_vars.items()}
    found = {
        "share": variable("client", shares, "p_k, its share of the examples of E"),
        "loss": variable("round", by_client["client_loss"] @ shares, "L(w)"),
        **describe_friends(answer),
        **describe_dispersions(by_client, ClientSample(shares, own, everyone)),
    }
    mixed = find_search(subject, int(answer["round"][-1]), settings.radius).direction is not None
    about = {"search": "(1 - a) d + a g" if mixed else "g", "clients": len(clients), "all_clients": len(everyone)}
    return answer.assign(found).assign_attrs(about)


STUDY = Study("incompatibility", __doc__, Settings, pieces, measure, derive, papers="001 D1 eqs 5-8 20 F8, 002 eq 6 F4")

"""How training went: every metric over rounds, rounds and bytes to a target accuracy, and the mean of the last rounds.

Of segmentation the mean IoU takes the place of the accuracy.

Records after the newest checkpoint are left out: they may still change, and checkpoints name what an answer is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field

from analysis.study import Datasets, Floats, Piece, Study, variable
from analysis.subjects import MODELS, Run, Subject
from training.recording import DESCRIPTIONS
from training.settings import Count, Several, Share, settings
from training.storage import metrics
from training.storage.metrics import PREFIX

Record = Mapping[str, object]  # of one round, as metrics.jsonl has it
ABOUT = {  # metric -> what it is, its units
    "lr": ("rate of local training", "1"),
    "participants": ("participants of the round", "1"),
    "train_loss": ("mean loss of the participants' mini-batches", "1"),
    "norm": ("||w|| of the server's model", "1"),
    "update": ("norm of the participants' mean displacement", "1"),
    "drift": ("mean distance between start and end of local training", "1"),
    "cosine": ("mean cosine between two participants' displacements", "1"),
    "gradients": ("gradient evaluations of mini-batches", "1"),
    "bytes_down": ("bytes sent to the participants", "bytes"),
    "bytes_up": ("bytes sent to the server", "bytes"),
    "seconds": ("duration", "s"),
    "personal_accuracy": ("mean over all clients of the accuracy of their own latest models on their own tests", "1"),
}
OF_CLIENTS = {  # metric with a value for each client -> name of the variable, what it is
    "own_accuracies": ("own_accuracy", "accuracy of the client's own model after the round; NaN: did not take part"),
    "client_accuracies": ("client_accuracy", "accuracy of the server's model on the client's own test examples"),
    "client_mious": ("client_miou", "mean IoU of the server's model on the client's own test examples"),
}


@settings
class Settings:
    """What is made of the metrics."""

    targets: Several[Share] = Field(
        default=(0.5, 0.6, 0.7, 0.8, 0.9), description="accuracies, or mean IoUs, to reach, as fractions"
    )
    last: Count | None = Field(default=None, description="evaluated rounds in the final mean; none: as the recipe says")


def read_records(subject: Subject) -> list[dict[str, object]]:
    """The metrics of a run up to its newest checkpoint, one record for each round."""
    if not isinstance(subject, Run):
        raise ValueError(f"{subject.name}: a single model has no metrics over rounds; training needs a run")
    found = metrics.read(subject.path)[: subject.rounds[-1]]
    if not found:
        raise ValueError(f"{subject.name}: no round is finished yet, so there are no metrics")
    return found


def find_first(scores: Floats, targets: Sequence[float], entries: NDArray[np.number]) -> Floats:
    """The entries where scores are first at least a target, (models, targets); NaN: never.

    scores: (models, rounds), NaN where a round was not evaluated.
    targets: what is to be reached.
    entries: (rounds,) such as the numbers of the rounds.
    """
    reached = scores[:, None, :] >= np.asarray(targets)[:, None]  # NaN compares as false
    return np.where(reached.any(axis=-1), entries[reached.argmax(axis=-1)], np.nan)


def summarise_last(values: Floats, count: int) -> tuple[float, float, int]:
    """Mean and sample standard deviation of the last `count` rounds that were evaluated, and how many there were."""
    known = values[~np.isnan(values)][-count:]
    mean = float(known.mean()) if len(known) else np.nan
    return mean, float(known.std(ddof=1)) if len(known) > 1 else np.nan, len(known)


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece: nothing is computed here that is worth keeping."""
    read_records(subject)
    return [Piece(vectors=0)]


def measure(subject: Subject, settings: Settings, piece: Piece, earlier: Datasets) -> xr.Dataset:
    """The metrics over rounds, what was recorded along local steps, and summaries of each global model."""
    assert isinstance(subject, Run)
    records = read_records(subject)
    names = dict.fromkeys(
        name for one in records for name, value in one.items() if not isinstance(value, (str, dict, list))
    )
    found = {name: variable("round", _collect_column(records, name), *describe_metric(name)) for name in names}
    rounds = found.pop("round").astype(np.int64)
    for name in [name for name in ("bytes_down", "bytes_up") if name in found]:  # an adopted run may not tell
        about = f"{ABOUT[name][0]}, summed over rounds"
        found[f"{name}_so_far"] = variable("round", np.cumsum(found[name].values), about, "bytes")
    quantities: list[Record] = [one if isinstance(one := record.get("recorded"), dict) else {} for record in records]
    whole = xr.Dataset(found | _describe_recorded(quantities), {"round": rounds})
    if "step" in whole.sizes:
        whole = whole.assign_coords(step=variable("step", np.arange(1, whole.sizes["step"] + 1), "local step"))
    whole = _add_clients(whole, records)
    score = metrics.find_score(records)
    models = [model for model in MODELS if f"{PREFIX[model]}{score}" in whole]
    return _add_summaries(whole, score, models, settings.targets, settings.last or subject.recipe.evaluation.last)


def _collect_column(records: Sequence[Record], name: str) -> Floats:
    """One number of every record; NaN where it was not measured."""
    values = [record.get(name) for record in records]
    return np.asarray([float(value) if isinstance(value, (int, float)) else np.nan for value in values])


def _describe_recorded(quantities: Sequence[Record]) -> dict[str, xr.Variable]:
    """What was recorded along the local steps: means over a round, and values by step.

    NaN where a quantity is undefined, and after the last step of a round that had fewer.
    """
    tables = {
        name: [one if isinstance(one := some.get(name), dict) else {} for some in quantities]
        for name in dict.fromkeys(name for some in quantities for name in some)
    }
    longest = max((len(one.get("by_step", [])) for own in tables.values() for one in own), default=0)
    found = {}
    for name, own in tables.items():
        about = DESCRIPTIONS.get(name, name.replace("_", " "))
        means = _collect_column(own, "mean")
        found[name] = variable("round", means, f"{about}, mean over participants and local steps")
        steps = [one.get("by_step", []) for one in own]
        if any(steps):
            padded = [[*some, *[None] * (longest - len(some))] for some in steps]
            values = np.asarray(padded, dtype=np.float64)  # None becomes NaN
            found[f"{name}_by_step"] = variable(("round", "step"), values, f"{about}, mean over participants")
    return found


def _add_clients(whole: xr.Dataset, records: Sequence[Record]) -> xr.Dataset:
    """Accuracies of clients over rounds, and the best round of their mean (FedFSA)."""
    found: dict[str, xr.Variable] = {}
    tables = {metric: [dict(_list_by_client(record.get(metric))) for record in records] for metric in OF_CLIENTS}
    clients = sorted({client for rows in tables.values() for row in rows for client in row})
    for metric, rows in tables.items():
        if any(rows):
            name, about = OF_CLIENTS[metric]
            values = np.asarray([[row.get(client) for client in clients] for row in rows], dtype=np.float64)
            found[name] = variable(("round", "client"), values, about)
    if "personal_accuracy" in whole and not np.isnan(whole["personal_accuracy"]).all():
        best = int(np.nanargmax(whole["personal_accuracy"]))
        about = ABOUT["personal_accuracy"][0]
        found["best_personal_accuracy"] = variable((), whole["personal_accuracy"].values[best], f"highest {about}")
        found["best_personal_round"] = variable((), whole["round"].values[best], "the first round that has it")
    coords = {"client": variable("client", clients, "client")} if clients else {}
    return whole.assign(found).assign_coords(coords)


def _list_by_client(given: object) -> Iterable[tuple[int, object]]:
    """Clients and their values, from {"<client>": value} or [value of client 0, ...]."""
    if isinstance(given, dict):
        return ((int(client), value) for client, value in given.items())
    return enumerate(given) if isinstance(given, list) else ()


def _add_summaries(
    whole: xr.Dataset, score: str, models: Sequence[str], targets: Sequence[float], last: int
) -> xr.Dataset:
    """Targets and final means of the server's model, the participants' mean and the SWA model.

    score: the metric by which they are compared.
    """
    if not models:
        return whole
    unknown = whole["round"] * np.nan  # what an adopted run does not tell
    values, loss = (
        np.stack([whole.get(f"{PREFIX[model]}{name}", unknown) for model in models]) for name in (score, "test_loss")
    )
    rounds, printed = whole["round"].values, metrics.SCORES[score]
    traffic = whole.get("bytes_down_so_far", unknown) + whole.get("bytes_up_so_far", unknown)
    finals = [[*summarise_last(a, last), *summarise_last(b, last)[:2]] for a, b in zip(values, loss, strict=True)]
    mean, spread, count, loss_mean, loss_spread = np.asarray(finals, dtype=np.float64).T
    known = np.where(np.isnan(values), -np.inf, values)
    of, both = f"of the last {last} evaluated rounds", ("model", "target")
    found = {
        f"final_{score}": variable("model", mean, f"mean {printed} {of}"),
        f"final_{score}_spread": variable("model", spread, f"standard deviation {of} (n - 1)"),
        "final_loss": variable("model", loss_mean, f"mean test loss {of}"),
        "final_loss_spread": variable("model", loss_spread, f"standard deviation {of} (n - 1)"),
        "final_count": variable("model", count.astype(np.int64), "rounds in that mean"),
        f"best_{score}": variable("model", known.max(axis=1), f"highest {printed} of a round"),
        "best_round": variable("model", rounds[known.argmax(axis=1)], "the first round that has it"),
    }
    coords = {"model": variable("model", models, "global model")}
    if targets:
        about = "first evaluated round that reaches the target; NaN: never"
        found["rounds_to_target"] = variable(both, find_first(values, targets, rounds), about)
        spent = find_first(values, targets, traffic.values)
        found["bytes_to_target"] = variable(both, spent, "bytes down and up until then", "bytes")
        coords["target"] = variable("target", targets, f"{printed} to reach, a fraction")
    return whole.assign(found).assign_coords(coords)


def describe_metric(name: str) -> tuple[str, str]:
    """Long name and units of a metric."""
    model = next((model for model in ("mean", "swa") if name.startswith(PREFIX[model])), "server")
    plain = name.removeprefix(PREFIX[model])
    whose = {"server": "the server's model", "mean": "the participants' mean", "swa": "the SWA model"}[model]
    kinds = {"accuracy": "test accuracy of {}, a fraction", "test_loss": "test loss of {}", "miou": "mean IoU of {}"}
    return (kinds[plain].format(whose), "1") if plain in kinds else ABOUT.get(name, (name.replace("_", " "), "1"))


STUDY = Study(
    "training",
    __doc__,
    Settings,
    pieces,
    measure,
    rounds=lambda subject, settings: subject.rounds,
    papers="001 T1, 002 T3 T5, 003 T2",
)

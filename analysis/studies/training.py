"""How training went: every metric over rounds, rounds and bytes to a target accuracy, and the mean of the last rounds.

Records after the newest checkpoint are left out: they may still change, and checkpoints name what an answer is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.store import Table, Variable
from analysis.study import Arrays, Checked, Piece, Study, setting
from analysis.subjects import MODELS, Run, Subject
from training.storage import metrics

Floats = NDArray[np.float64]
PREFIX = {"server": "", "mean": "mean_", "swa": "swa_"}  # how a model's metrics are called in metrics.jsonl
RECORDED, BY_STEP = "recorded ", "_by_step"
QUANTITIES = {  # of training.engine.recording -> what it is
    "proximal_cosine": "cos(grad L(w + e), grad L_p(w)), FedSoL Figure 9b",
    "proximal_norm": "||grad L_p(w)||",
    "gradient_norm": "||grad L(w)||",
    "descent_norm": "norm of the gradient that the step takes",
    "direction_norm": "norm of the corrected gradient",
    "update_norm": "length of the step",
    "perturbation_norm": "||e||",
    "perturbed_cosine": "cos(grad L(w + e), grad L(w))",
    "server_cosine": "cosine of grad L(w) and the server's direction",
    "server_gap": "||grad L(w) - the server's direction||",
    "perturbation_gap": "distance of e from the same length along the server's direction",
    "delta_epsilon": "||e~ - e^||, FedGloSS eq. 6",
}
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
}


@dataclass(frozen=True)
class Settings(Checked):
    """What is made of the metrics."""

    targets: tuple[float, ...] = setting((0.5, 0.6, 0.7, 0.8, 0.9), "accuracies to reach, between 0 and 1")
    last: int | None = setting(None, "evaluated rounds in the final mean", least=1, absent="as the recipe says")

    def __post_init__(self) -> None:
        super().__post_init__()
        for target in self.targets:
            if isinstance(target, bool) or not isinstance(target, (int, float)) or not 0 < target <= 1:
                raise ValueError(f"targets must be fractions between 0 and 1, such as [0.5, 0.8]; got {target}")


def records(subject: Subject) -> list[dict[str, Any]]:
    """The metrics of a run up to its newest checkpoint."""
    if not isinstance(subject, Run):
        raise ValueError(f"{subject.name}: a single model has no metrics over rounds; training needs a run")
    found = metrics.read(subject.path)[: subject.rounds[-1]]
    if not found:
        raise ValueError(f"{subject.name}: no round is finished yet, so there are no metrics")
    return found


def column(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """One metric over rounds; NaN where it was not measured."""
    values = [row.get(name) for row in rows]
    return np.asarray([np.nan if value is None else float(value) for value in values])


def reached(accuracy: Floats, targets: Sequence[float]) -> list[int | None]:
    """Place of the first round whose accuracy is at least the target, None where there is none."""
    hits = [np.flatnonzero(accuracy >= target) for target in targets]  # NaN compares as false
    return [int(hit[0]) if len(hit) else None for hit in hits]


def last_mean(values: Floats, count: int) -> tuple[float, float, int]:
    """Mean and sample standard deviation of the last `count` rounds that were evaluated, and how many they were."""
    known = values[~np.isnan(values)][-count:]
    mean = float(known.mean()) if len(known) else np.nan
    return mean, float(known.std(ddof=1)) if len(known) > 1 else np.nan, len(known)


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    records(subjects[0])
    return [Piece("metrics", 0.0, vectors=0)]


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    rows = records(subjects[0])
    names = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, (str, dict)))
    return {name: column(rows, name) for name in names} | recorded(rows)


def recorded(rows: Sequence[Mapping[str, Any]]) -> Arrays:
    """What was recorded along the local steps, by names that begin with RECORDED: (round,), and by step (round, step).

    NaN where a quantity is undefined, and after the last step of a round that had fewer.
    """
    found: list[Mapping[str, Any]] = [row.get("recorded", {}) for row in rows]
    longest = max((len(one.get("by_step", [])) for some in found for one in some.values()), default=0)
    arrays: Arrays = {}
    for name in dict.fromkeys(name for one in found for name in one):
        own = [one.get(name, {}) for one in found]
        arrays[f"{RECORDED}{name}"] = column(own, "mean")
        steps = [one.get("by_step", []) for one in own]
        if any(steps):
            padded = [[*some, *[None] * (longest - len(some))] for some in steps]
            arrays[f"{RECORDED}{name}{BY_STEP}"] = np.asarray(padded, dtype=np.float64)  # None becomes NaN
    return arrays


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    assert isinstance(subject, Run)
    measured = {name: values for name, values in found["metrics"].items() if not name.startswith(RECORDED)}
    rounds = Variable(("round",), measured.pop("round").astype(np.int64), "communication round")
    counts = {name: np.cumsum(measured[name]) for name in ("bytes_down", "bytes_up")}
    variables = {"round": rounds}
    for name, values in measured.items():
        variables[name] = Variable(("round",), values, *about(name))
    for name, values in counts.items():
        variables[f"{name}_so_far"] = Variable(("round",), values, f"{ABOUT[name][0]}, summed over rounds", "bytes")
    models = [model for model in MODELS if f"{PREFIX[model]}accuracy" in measured]
    result = {"rounds": Table(variables)}
    if models:
        result["models"] = Table(
            _by_model(measured, rounds.values, sum(counts.values()), models, settings, subject.recipe.evaluation.last)
        )
    along = {n.removeprefix(RECORDED): values for n, values in found["metrics"].items() if n.startswith(RECORDED)}
    return result | ({"recorded": _along_steps(rounds, along)} if along else {})


def _along_steps(rounds: Variable, found: Mapping[str, NDArray[Any]]) -> Table:
    """Quantities of local training over rounds, and over rounds and steps."""
    variables = {"round": rounds}
    for name, values in found.items():
        if values.ndim == 2:
            steps = np.arange(1, values.shape[1] + 1)
            variables["step"] = Variable(("step",), steps, "local step")
            variables[name] = Variable(("round", "step"), values, f"{_quantity(name)}, mean over participants")
        else:
            variables[name] = Variable(("round",), values, f"{_quantity(name)}, mean over participants and local steps")
    return Table(variables)


def _quantity(name: str) -> str:
    plain = name.removesuffix(BY_STEP)
    return QUANTITIES.get(plain, plain.replace("_", " "))


def _by_model(
    measured: Arrays, rounds: NDArray[Any], traffic: Any, models: list[str], settings: Settings, usual: int
) -> dict[str, Variable]:
    """Targets and final means of the server's model, the participants' mean and the SWA model."""
    targets, last = settings.targets, settings.last or usual
    accuracy = np.stack([measured[f"{PREFIX[model]}accuracy"] for model in models])
    loss = np.stack([measured[f"{PREFIX[model]}test_loss"] for model in models])
    hits = [reached(row, targets) for row in accuracy]

    def at_hits(values: NDArray[Any]) -> Floats:
        picked = [[np.nan if hit is None else float(values[hit]) for hit in row] for row in hits]
        return np.asarray(picked, dtype=np.float64).reshape(len(models), len(targets))

    finals = [[*last_mean(a, last), *last_mean(b, last)[:2]] for a, b in zip(accuracy, loss, strict=True)]
    mean, spread, count, loss_mean, loss_spread = np.asarray(finals, dtype=np.float64).T
    known = np.where(np.isnan(accuracy), -np.inf, accuracy)
    of = f"of the last {last} evaluated rounds"
    return {
        "model": Variable(("model",), np.asarray(models), "global model"),
        "target": Variable(("target",), np.asarray(targets, dtype=np.float64), "accuracy to reach, a fraction"),
        "rounds_to_target": Variable(("model", "target"), at_hits(rounds), "first evaluated round there; NaN: never"),
        "bytes_to_target": Variable(("model", "target"), at_hits(traffic), "bytes down and up until then", "bytes"),
        "final_accuracy": Variable(("model",), mean, f"mean accuracy {of}"),
        "final_accuracy_spread": Variable(("model",), spread, f"standard deviation {of} (n - 1)"),
        "final_loss": Variable(("model",), loss_mean, f"mean test loss {of}"),
        "final_loss_spread": Variable(("model",), loss_spread, f"standard deviation {of} (n - 1)"),
        "final_count": Variable(("model",), count.astype(np.int64), "rounds in that mean"),
        "best_accuracy": Variable(("model",), known.max(axis=1), "highest accuracy of a round"),
        "best_round": Variable(("model",), rounds[known.argmax(axis=1)], "the first round that has it"),
    }


def about(name: str) -> tuple[str, str]:
    """Long name and units of a metric."""
    model = next((model for model in ("mean", "swa") if name.startswith(PREFIX[model])), "server")
    plain = name.removeprefix(PREFIX[model])
    whose = {"server": "the server's model", "mean": "the participants' mean", "swa": "the SWA model"}[model]
    kinds = {"accuracy": f"test accuracy of {whose}, a fraction", "test_loss": f"test loss of {whose}"}
    return (kinds[plain], "1") if plain in kinds else ABOUT.get(name, (name.replace("_", " "), "1"))


STUDY = Study(
    name="training",
    about="metrics over rounds; rounds and bytes to target accuracies; mean of the last rounds",
    settings=Settings,
    rounds=lambda subject, settings: subject.rounds,
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="001 T1, 002 T3 T5, 003 T2",
)

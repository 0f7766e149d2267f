"""Numbers of runs that findings compare; NaN where a run does not have them."""

from __future__ import annotations

import math

import numpy as np

from reports.inputs.runs import Run
from reports.quantities.measures import MEASURES, find_final_accuracy

GUESSING = 2.0  # times the accuracy of chance: a run below it decides nothing
TAIL = 0.25  # share of the rounds that "the end of training" means


def find_accuracy(run: Run) -> float:
    """Find the final test accuracy in per cent, of the SWA model where there is one."""
    return find_final_accuracy(run)


def find_lambda_1(run: Run) -> float:
    """Find the largest Hessian eigenvalue of the global model on the training data."""
    return MEASURES["lambda_1"].find(run)


def is_guessing(run: Run) -> bool:
    """Whether a model learned next to nothing: an untrained network is flat too, and a radius too large for a small
    network says nothing about a method."""
    return find_final_accuracy(run) <= GUESSING * run.chance


def find_local_sharpness(run: Run) -> float:
    """Find the largest eigenvalue of participants' models on their own data, mean over participants."""
    return MEASURES["local"].find(run)


def find_global_sharpness(run: Run) -> float:
    """Find the largest eigenvalue of participants' models on everyone's data, mean over participants."""
    return MEASURES["everyone"].find(run)


def find_incompatibility(run: Run) -> float:
    """Find the dispersion of the clients' flatness proxies at the last round (FedVSSAM, Definition 1)."""
    return MEASURES["incompatibility"].find(run)


def find_forgetting(run: Run) -> float:
    """Find the mean loss of accuracy per class since each class's best round, in points."""
    return MEASURES["forgetting"].find(run)


def find_norm(run: Run) -> float:
    """Find the norm of the global model after the last round."""
    _, values = run.series("norm")
    return float(values[-1]) if len(values) else math.nan


def find_norm_growth(run: Run) -> float:
    """Find the growth of the global model's norm over the last quarter of training, as a ratio."""
    _, values = run.series("norm")
    count = max(round(TAIL * len(values)), 1)
    return float(values[-1] / values[-1 - count]) if len(values) > count else math.nan


def find_drift(run: Run) -> float:
    """Find the mean distance between start and end of local training over the last quarter of training."""
    _, values = run.series("drift")
    return float(np.mean(values[-max(round(TAIL * len(values)), 1) :])) if len(values) else math.nan


def find_perturbation_error(run: Run) -> float:
    """Find delta_epsilon (FedGloSS, eq. 6), its mean over the last quarter of training."""
    recorded = [record.get("recorded", {}).get("delta_epsilon", {}).get("mean") for record in run.metrics]
    known = [float(one) for one in recorded[-max(round(TAIL * len(recorded)), 1) :] if one is not None]
    return float(np.mean(known)) if known else math.nan


def find_best_personal(run: Run) -> float:
    """Find the highest accuracy of clients' own latest models, mean over all clients, in per cent (FedFSA)."""
    _, values = run.series("personal_accuracy")
    return 100.0 * float(values.max()) if len(values) else math.nan

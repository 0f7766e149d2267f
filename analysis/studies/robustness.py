"""Accuracy under the common corruptions (Hendrycks and Dietterich 2019): what FedSAM/FedASAM, Figures 6 and 8, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.shared.corruptions import CORRUPTIONS, DEPARTURES, SEVERITIES, corrupt
from analysis.store import Table, Variable
from analysis.studies.features import drawn, look
from analysis.study import (
    Arrays,
    Checked,
    Piece,
    Study,
    limit_setting,
    model_setting,
    rounds_setting,
    seed_setting,
    setting,
)
from analysis.subjects import SPLITS, Run, Subject

Floats = NDArray[np.float64]
CLEAN = "clean"


@dataclass(frozen=True)
class Settings(Checked):
    """What is done to which images."""

    rounds: str = rounds_setting("last")
    model: str = model_setting()
    split: str = setting("test", "data that are corrupted", choices=SPLITS)
    corruptions: tuple[str, ...] = setting((), "which ones; an empty list: all", choices=CORRUPTIONS)
    severities: tuple[int, ...] = setting(SEVERITIES, "how strong: 1 is mild", least=1, most=len(SEVERITIES))
    black: tuple[float, ...] = setting((), "what the network sees for black, per channel; needed if data cannot say")
    white: tuple[float, ...] = setting((), "what it sees for white")
    limit: int | None = limit_setting()
    seed: int = seed_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.severities:
            raise ValueError("severities must name at least one of 1, 2, 3, 4, 5")
        if len(self.black) != len(self.white):
            raise ValueError(f"black and white need one number a channel each, got {self.black} and {self.white}")
        if any(low == high for low, high in zip(self.black, self.white, strict=True)):
            raise ValueError(f"black and white must differ in every channel, got {self.black} and {self.white}")


def greys(subject: Subject, settings: Settings, channels: int) -> tuple[Floats, Floats]:
    """What the network sees for black and for white, (C, 1, 1) each."""
    black, white = settings.black, settings.white
    if not black and isinstance(subject, Run) and subject.federation.dataset.train_images.dtype == torch.uint8:
        data = subject.federation.dataset
        black = tuple((0 - mean) / std for mean, std in zip(data.mean, data.std, strict=True))
        white = tuple((1 - mean) / std for mean, std in zip(data.mean, data.std, strict=True))
    if not black:
        raise ValueError(
            f"{subject.name}: its images are not bytes, so nobody knows what is black. Write what the network sees for "
            "black and white in each channel, for example --set robustness.black=[0] --set robustness.white=[1]"
        )
    if len(black) != channels:
        raise ValueError(f"{subject.name}: black and white need {channels} numbers, one a channel; got {len(black)}")
    return np.asarray(black, dtype=np.float64)[:, None, None], np.asarray(white, dtype=np.float64)[:, None, None]


def examples(subject: Subject, settings: Settings) -> tuple[Tensor, Tensor]:
    """Inputs and labels that are looked at."""
    inputs, labels = subject.examples(settings.split)
    if inputs.ndim != 4:
        raise ValueError(f"{subject.name}: corruptions need images of shape (N, C, H, W), got {tuple(inputs.shape)}")
    places = drawn(labels, settings.limit, settings.seed, "robustness")
    return inputs[places], labels[places]


def pixels_of(inputs: Tensor, black: Floats, white: Floats) -> Floats:
    """Inputs of the network as pixels between 0 and 255; those that were bytes come out as whole numbers."""
    pixels = 255 * (inputs.double().numpy() - black) / (white - black)
    near = np.round(pixels)
    pixels = np.where(np.abs(pixels - near) < 1e-3, near, pixels)  # normalised in float32: about 1e-5 off
    return np.clip(pixels, 0, 255)


def inputs_of(pixels: Floats, black: Floats, white: Floats, dtype: torch.dtype) -> Tensor:
    """Pixels as the network sees them."""
    return torch.from_numpy(black + (white - black) * pixels / 255).to(dtype)


def kinds(subject: Subject, settings: Settings, channels: int) -> tuple[list[str], list[str]]:
    """Corruptions that are applied, and those that these images cannot have."""
    asked = list(dict.fromkeys(settings.corruptions)) or list(CORRUPTIONS)
    fits = [name for name in asked if CORRUPTIONS[name].channels in (None, channels)]
    if not fits:
        raise ValueError(f"{subject.name}: {', '.join(asked)} cannot be applied to images of {channels} channels")
    return fits, [name for name in asked if name not in fits]


def pieces(subjects: Sequence[Subject], settings: Settings) -> list[Piece]:
    (subject,) = subjects
    inputs, _ = examples(subject, settings)
    greys(subject, settings, inputs.shape[1])
    rounds = subject.select(settings.rounds)
    for round in rounds:
        subject.point(round, settings.model)
    passes = len(inputs) * len(rounds) / 3
    applied = kinds(subject, settings, inputs.shape[1])[0]
    return [Piece(CLEAN, passes), *(Piece(name, passes * len(settings.severities)) for name in applied)]


def measure(subjects: Sequence[Subject], settings: Settings, piece: Piece, found: Mapping[str, Arrays]) -> Arrays:
    (subject,) = subjects
    inputs, labels = examples(subject, settings)
    points = [subject.point(round, settings.model) for round in subject.select(settings.rounds)]

    def right(seen: Tensor) -> list[int]:
        return [int((look(subject, point, seen).outputs.argmax(dim=1) == labels).sum()) for point in points]

    if piece.key == CLEAN:
        return {"correct": np.asarray(right(inputs)), "total": np.asarray(len(labels))}
    black, white = greys(subject, settings, inputs.shape[1])
    pixels = pixels_of(inputs, black, white)
    rows, changes = [], []
    for severity in settings.severities:
        changed = corrupt(pixels, piece.key, severity, seed=settings.seed)
        rows.append(right(inputs_of(changed, black, white, inputs.dtype)))
        changes.append(float(np.sqrt(np.mean(np.square(changed - pixels)))))
    return {"correct": np.asarray(rows).T, "change": np.asarray(changes)}


def tables(subjects: Sequence[Subject], settings: Settings, found: Mapping[str, Arrays]) -> dict[str, Table]:
    (subject,) = subjects
    applied, left_out = kinds(subject, settings, examples(subject, settings)[0].shape[1])
    total = int(found[CLEAN]["total"])
    clean = found[CLEAN]["correct"] / total
    correct = np.stack([found[name]["correct"] for name in applied], axis=1)  # (round, corruption, severity)
    accuracy = correct / total
    axes = ("round", "corruption", "severity")
    drop = 1 - np.divide(
        accuracy, clean[:, None, None], out=np.full(accuracy.shape, np.nan), where=clean[:, None, None] > 0
    )
    mean = accuracy.mean(axis=(1, 2))
    variables = {
        "round": Variable(("round",), np.asarray(subject.select(settings.rounds)), "communication round"),
        "corruption": Variable(("corruption",), np.asarray(applied), "kind of corruption"),
        "severity": Variable(("severity",), np.asarray(settings.severities), "severity, 1 to 5"),
        "clean_accuracy": Variable(("round",), clean, "accuracy on the images as they are, a fraction"),
        "correct": Variable(axes, correct, f"corrupted images that are right, of {total}"),
        "accuracy": Variable(axes, accuracy, "accuracy on corrupted images, a fraction"),
        "standard_error": Variable(axes, np.sqrt(accuracy * (1 - accuracy) / total), "of that accuracy (binomial)"),
        "relative_drop": Variable(axes, drop, "share of the clean accuracy that is lost"),
        "mean_by_severity": Variable(("round", "severity"), accuracy.mean(axis=1), "mean over corruptions"),
        "mean_by_corruption": Variable(("round", "corruption"), accuracy.mean(axis=2), "mean over severities"),
        "mean_accuracy": Variable(("round",), mean, "mean over corruptions and severities"),
        "mean_relative_drop": Variable(("round",), drop.mean(axis=(1, 2)), "mean share that is lost"),
        "change": Variable(
            ("corruption", "severity"),
            np.stack([found[name]["change"] for name in applied]),
            "root mean square change of a pixel, of 255",
        ),
        "extra": Variable(
            ("corruption",),
            np.asarray([int(CORRUPTIONS[name].extra) for name in applied]),
            "1 for the four kinds beside the benchmark's fifteen",
        ),
        "departure": Variable(
            ("corruption",),
            np.asarray([DEPARTURES.get(name, "") for name in applied]),
            "how it differs from the published files",
        ),
    }
    return {"robustness": Table(variables, {"left_out": left_out, "total": total})}


STUDY = Study(
    name="robustness",
    about="accuracy under the common corruptions in five severities, and what is lost of the clean accuracy",
    settings=Settings,
    rounds=lambda subject, settings: subject.select(settings.rounds),
    pieces=pieces,
    measure=measure,
    tables=tables,
    papers="003 F6 F8",
)

"""Accuracy under the common corruptions in five severities, and what is lost of the clean accuracy.

Hendrycks and Dietterich 2019; FedSAM/FedASAM, Figures 6 and 8. Of CIFAR the published files (CIFAR-10-C and 100-C)
are used where they are in the folder of the data; else images are corrupted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from analysis.shared.outputs import judge
from analysis.study import Datasets, Floats, Limit, Model, Piece, Rounds, Seed, Split, Study, require_names, variable
from analysis.subjects import Run, Subject
from training.data.corruptions import CORRUPTIONS, DEPARTURES, SEVERITIES, corrupt
from training.data.datasets import find_root
from training.data.readers.corrupted_cifar import FILES, find_folder, read_corrupted
from training.settings import Names, Several, settings

Kinds = Annotated[Names, require_names(CORRUPTIONS, empty=True)]
Greys = Several[float]
PUBLISHED = "none: the published file itself"  # how a published file departs from the published files
Severities = Several[Annotated[int, Field(ge=SEVERITIES[0], le=SEVERITIES[-1])]]


@settings
class Settings:
    """What is done to which images."""

    rounds: Rounds = "last"
    model: Model = "final"
    split: Split = Field(default="test", description="data that are corrupted")
    corruptions: Kinds = Field(default=(), description="which ones; an empty list: all")
    severities: Severities = Field(default=SEVERITIES, min_length=1, description="1 is mild, 5 is severe")
    black: Greys = Field(default=(), description="what the network sees for black, per channel; if data are no bytes")
    white: Greys = Field(default=(), description="what the network sees for white")
    limit: Limit = None
    seed: Seed = 0
    images: Literal["auto", "published", "made"] = Field(
        default="auto",
        description="corrupted images: the published ones where they are there, only these, or made here",
    )

    @model_validator(mode="after")
    def _check_greys(self) -> Self:
        if len(self.black) != len(self.white):
            raise ValueError(f"black and white need one number a channel each, got {self.black} and {self.white}")
        if any(low == high for low, high in zip(self.black, self.white, strict=True)):
            raise ValueError(f"black and white must differ in every channel, got {self.black} and {self.white}")
        return self


@dataclass(frozen=True)
class CorruptionPiece(Piece):
    """All rounds and severities under one corruption; None: the images as they are."""

    dims: ClassVar[tuple[str, ...]] = ("corruption",)
    corruption: str | None = None


def find_greys(subject: Subject, settings: Settings, channels: int) -> tuple[Floats, Floats]:
    """What the network sees for black and for white, (channels, 1, 1) each."""
    black, white = settings.black, settings.white
    if not black and isinstance(subject, Run) and subject.federation.dataset.train_inputs.dtype == torch.uint8:
        data = subject.federation.dataset
        black = tuple((0 - mean) / std for mean, std in zip(data.mean, data.std, strict=True))
        white = tuple((1 - mean) / std for mean, std in zip(data.mean, data.std, strict=True))
    if not black:
        raise ValueError(
            f"{subject.name}: its images are not bytes, so it is unknown what black is. Write what the network sees "
            "for black and white in each channel, for example --set robustness.black=[0] --set robustness.white=[1]"
        )
    if len(black) != channels:
        raise ValueError(f"{subject.name}: black and white need {channels} numbers, one per channel; got {len(black)}")
    return np.asarray(black, dtype=np.float64)[:, None, None], np.asarray(white, dtype=np.float64)[:, None, None]


def examples(subject: Subject, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """Images and labels, and their numbers among all of the split."""
    inputs, labels, chosen = subject.draw_examples(settings.split, None, settings.limit, settings.seed, "robustness")
    if inputs.ndim != 4:
        raise ValueError(f"{subject.name}: robustness is about images; inputs here have shape {tuple(inputs.shape)}")
    return inputs.cpu(), labels, chosen


def find_published(subject: Subject, settings: Settings) -> Path | None:
    """Find the folder of the published corrupted images of a run's test data; None if they are not to be used."""
    if settings.images == "made":
        return None
    folder, data = None, "its own data"
    if isinstance(subject, Run) and settings.split == "test" and subject.federation.tests is None:
        data = subject.federation.dataset.name
        folder = find_folder(data, find_root(subject.federation.recipe.data.root))
    if folder is None and settings.images == "published":
        wanted = f"; get {FILES[data].describe()} and put it beside the data" if data in FILES else ""
        raise ValueError(
            f"{subject.name}: there are no published corrupted images of the {settings.split} data{wanted}"
        )
    return folder


def read_published(folder: Path, subject: Subject, corruption: str, severity: int, chosen: Tensor) -> Floats:
    """Published images under a corruption, as pixels between 0 and 255.

    folder: of the files.
    chosen: numbers of the test images.
    """
    assert isinstance(subject, Run)
    labels = subject.federation.dataset.test_labels
    assert labels is not None
    return np.asarray(read_corrupted(folder, corruption, severity, labels.numpy())[chosen.numpy()], dtype=np.float64)


def to_pixels(inputs: Tensor, black: Floats, white: Floats) -> Floats:
    """Inputs of the network as pixels between 0 and 255; those that were bytes come out as whole numbers."""
    pixels = 255 * (inputs.double().numpy() - black) / (white - black)
    near = np.round(pixels)
    pixels = np.where(np.abs(pixels - near) < 1e-3, near, pixels)  # normalised in float32: about 1e-5 off
    return np.clip(pixels, 0, 255)


def to_inputs(pixels: Floats, black: Floats, white: Floats, dtype: torch.dtype) -> Tensor:
    """Pixels as the network sees them."""
    return torch.from_numpy(black + (white - black) * pixels / 255).to(dtype)


def choose_corruptions(subject: Subject, settings: Settings) -> tuple[list[str], list[str]]:
    """Corruptions that are applied, and those that images of so many channels cannot have."""
    channels = examples(subject, settings)[0].shape[1]
    asked = list(settings.corruptions or CORRUPTIONS)
    fits = [name for name in asked if CORRUPTIONS[name].channels in (None, channels)]
    if not fits:
        raise ValueError(f"{subject.name}: {', '.join(asked)} cannot be applied to images of {channels} channels")
    return fits, [name for name in asked if name not in fits]


def pieces(subject: Subject, settings: Settings) -> list[Piece]:
    """One piece for the images as they are, and one for each corruption."""
    inputs, _, _ = examples(subject, settings)
    find_published(subject, settings)
    find_greys(subject, settings, inputs.shape[1])
    rounds = subject.select_with(settings.rounds, settings.model)
    passes = len(inputs) * len(rounds) / 3
    applied, _ = choose_corruptions(subject, settings)
    corrupted = [CorruptionPiece(corruption=name, passes=passes * len(settings.severities)) for name in applied]
    return [CorruptionPiece(passes=passes), *corrupted]


def measure(subject: Subject, settings: Settings, piece: CorruptionPiece, earlier: Datasets) -> xr.Dataset:
    """How many images every round's model has right, clean or under one corruption."""
    inputs, labels, chosen = examples(subject, settings)
    rounds = subject.select(settings.rounds)
    points = [subject.point(round, settings.model) for round in rounds]

    total = len(labels) if subject.task.ignored is None else int((labels != subject.task.ignored).sum())

    def count_right(seen: Tensor) -> list[int]:
        return [int(np.trace(judge(subject, point, seen, labels).confusion)) for point in points]

    if piece.corruption is None:
        accuracy = np.asarray(count_right(inputs)) / total
        clean = variable("round", accuracy, "accuracy on the images as they are, a fraction")
        return xr.Dataset({"clean_accuracy": clean}, {"round": rounds}, {"total": total})
    black, white = find_greys(subject, settings, inputs.shape[1])
    pixels = to_pixels(inputs, black, white)
    right, changes = [], []
    folder = find_published(subject, settings)
    if folder is not None and settings.images == "auto" and not (folder / f"{piece.corruption}.npy").is_file():
        folder = None
    for severity in settings.severities:
        if folder is None:
            changed = corrupt(pixels, piece.corruption, severity, seed=settings.seed)
        else:
            changed = read_published(folder, subject, piece.corruption, severity, chosen)
        right.append(count_right(to_inputs(changed, black, white, inputs.dtype)))
        changes.append(float(np.sqrt(np.mean(np.square(changed - pixels)))))
    about = f"predictions on corrupted images that are right, of {total}"
    departure = DEPARTURES.get(piece.corruption, "") if folder is None else PUBLISHED
    found = {
        "correct": variable(("severity", "round"), right, about),
        "change": variable("severity", changes, "root mean square change of a pixel, of 255"),
        "extra": variable(
            (),
            CORRUPTIONS[piece.corruption].extra,
            "whether it is one of the four kinds beside the benchmark's fifteen",
        ),
        "departure": variable((), departure, "how it differs from the published files"),
    }
    severities = variable("severity", settings.severities, "severity, 1 to 5")
    return xr.Dataset(found, {"round": rounds, "severity": severities})


def derive(subject: Subject, settings: Settings, answer: xr.Dataset) -> xr.Dataset:
    """Add accuracies, what is lost of the clean accuracy, and means over corruptions and severities."""
    total, axes = int(answer.attrs["total"]), ("round", "corruption", "severity")
    correct = answer["correct"].transpose(*axes)
    accuracy, clean = correct / total, answer["clean_accuracy"]
    drop = 1 - accuracy / clean.where(clean > 0)
    error, both = np.sqrt(accuracy * (1 - accuracy) / total), ("corruption", "severity")
    found = {
        "correct": correct.variable,
        "accuracy": variable(axes, accuracy, "accuracy on corrupted images, a fraction"),
        "standard_error": variable(axes, error, "of that accuracy (binomial)"),
        "relative_drop": variable(axes, drop, "share of the clean accuracy that is lost"),
        "mean_by_severity": variable(("round", "severity"), accuracy.mean("corruption"), "mean over corruptions"),
        "mean_by_corruption": variable(axes[:2], accuracy.mean("severity"), "mean over severities"),
        "mean_accuracy": variable("round", accuracy.mean(both), "mean over corruptions and severities"),
        "mean_relative_drop": variable("round", drop.mean(both), "mean share that is lost"),
    }
    about = {"left_out": ", ".join(choose_corruptions(subject, settings)[1])}
    published = [str(name) for name in answer["corruption"].values[answer["departure"].values == PUBLISHED]]
    about |= {"published": ", ".join(published)} if published else {}
    return answer.assign(found).assign_attrs(about)


STUDY = Study("robustness", __doc__, Settings, pieces, measure, derive, papers="003 F6 F8")

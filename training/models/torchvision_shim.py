"""The one place that imports torchvision, so that its wheel also works beside a CPU-only torch.

The PyPI wheel's compiled operators are linked against CUDA. Without it they do not load, and importing torchvision
fails on "operator torchvision::nms does not exist" although data sets, models and transforms need none of them.
Declaring the two operators that the import looks up is enough. Where the real ones load, nothing is declared.
"""

from __future__ import annotations

from importlib import import_module

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
OPERATORS = ("nms", "qnms")
declared: list[torch.library.Library] = []  # kept for the life of the process: collecting it would undo it

try:
    import_module("torchvision")
except RuntimeError as error:
    if "torchvision::" not in str(error):
        raise
    declared.append(torch.library.Library("torchvision", "FRAGMENT"))  # type: ignore[no-untyped-call]
    for operator in OPERATORS:
        declared[0].define(operator + SCHEMA)  # type: ignore[no-untyped-call]

from torchvision import datasets, models  # noqa: E402
from torchvision.datasets import mnist, utils  # noqa: E402
from torchvision.transforms import functional  # noqa: E402

__all__ = ["datasets", "functional", "mnist", "models", "utils"]

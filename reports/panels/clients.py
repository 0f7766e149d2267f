"""Clients as papers name them: by the class they hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.inputs.runs import Run

MOSTLY = 0.5  # share of a client's examples from which a class gives it its name


def name_client(run: Run, client: int, classes: Sequence[str] = ()) -> str:
    """Name a client by the class that most of its examples have; by its number where there is none.

    classes: names of classes; none: "class 3".
    """
    counts = run.class_counts
    if counts is None or client >= len(counts) or counts[client].sum() == 0:
        return f"client {client}"
    most = int(np.argmax(counts[client]))
    if counts[client][most] <= MOSTLY * counts[client].sum():
        return f"client {client}"
    return classes[most] if most < len(classes) else f"class {most}"

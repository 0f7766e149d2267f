"""Every figure by name. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from reports.figure import Figure
from reports.figures import accuracy, dumbbell, eigenvalues, interpolation

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        accuracy.FIGURE,
        eigenvalues.FIGURE,
        dumbbell.FIGURE,
        interpolation.FIGURE,
    )
}

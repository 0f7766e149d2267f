"""Every figure by name, in the order of the page. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from reports.figure_type import Figure
from reports.figures import (
    accuracy,
    classes,
    communication,
    contours,
    density,
    difference,
    drift,
    dumbbell,
    eigenvalues,
    feature_norms,
    features,
    flatness,
    forgetting,
    friendly,
    heatmap,
    incompatibility,
    interpolation,
    local_surfaces,
    output_norms,
    overlay,
    partition,
    personal,
    plane,
    recorded,
    robustness,
    sensitivity,
    setting,
    sharpness,
    spectrum,
    surface,
    two_settings,
)
from training.plugins import ExtensionPoint

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        # how good is it?
        accuracy.FIGURE,
        communication.FIGURE,
        classes.FIGURE,
        forgetting.FIGURE,
        output_norms.FIGURE,
        feature_norms.FIGURE,
        features.FIGURE,
        robustness.FIGURE,
        personal.FIGURE,
        setting.FIGURE,
        two_settings.FIGURE,
        # how flat is it?
        eigenvalues.FIGURE,
        spectrum.FIGURE,
        density.FIGURE,
        surface.FIGURE,
        overlay.FIGURE,
        contours.FIGURE,
        difference.FIGURE,
        sharpness.FIGURE,
        flatness.FIGURE,
        # do clients agree?
        partition.FIGURE,
        dumbbell.FIGURE,
        heatmap.FIGURE,
        local_surfaces.FIGURE,
        incompatibility.FIGURE,
        friendly.FIGURE,
        sensitivity.FIGURE,
        drift.FIGURE,
        recorded.FIGURE,
        # is it connected?
        plane.FIGURE,
        interpolation.FIGURE,
    )
}


def accept_figure(name: str, found: object) -> Figure:
    """Return a user's own figure; name: its 'module:name', for messages."""
    if not isinstance(found, Figure):
        raise ValueError(f"figure '{name}' must be a reports.figure_type.Figure, got {type(found).__name__}")
    return found


CATALOG = ExtensionPoint("figure", FIGURES, accept_figure)
register_figure = CATALOG.register

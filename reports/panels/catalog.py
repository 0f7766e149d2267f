"""Every kind of panel by name. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from reports.panels import (
    bars,
    corruptions,
    curves,
    each_over_rounds,
    features,
    heat,
    layers,
    local_accuracy,
    partition,
    sweep,
)
from reports.panels.kind import Kind
from reports.panels.loss import eigen_surface, interpolation, local_surfaces, plane, spectrum, surface

PANELS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # over rounds
        curves.KIND,
        each_over_rounds.CLIENTS,
        each_over_rounds.CLASSES,
        local_accuracy.KIND,
        heat.KIND,
        # one number per series
        bars.KIND,
        corruptions.KIND,
        sweep.KIND,
        # what the loss looks like
        surface.KIND,
        local_surfaces.KIND,
        eigen_surface.KIND,
        plane.KIND,
        interpolation.KIND,
        spectrum.KIND,
        # what is inside
        features.KIND,
        layers.KIND,
        partition.KIND,
    )
}

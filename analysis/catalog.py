"""Every study by name. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from analysis.studies import (
    curvature,
    drift,
    features,
    forgetting,
    incompatibility,
    interpolation,
    local_global,
    personal,
    plane,
    robustness,
    sensitivity,
    sharpness,
    surface,
    training,
)
from analysis.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        # how good is it?
        training.STUDY,
        forgetting.STUDY,
        robustness.STUDY,
        personal.STUDY,
        features.STUDY,
        # how flat is it?
        curvature.STUDY,
        surface.STUDY,
        sharpness.STUDY,
        # do clients agree?
        local_global.STUDY,
        incompatibility.STUDY,
        drift.STUDY,
        sensitivity.STUDY,
        # is it connected?
        plane.STUDY,
        interpolation.STUDY,
    )
}

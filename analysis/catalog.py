"""Every study by name. A new one is one file and its name here, and is under test."""

from __future__ import annotations

from types import ModuleType

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

MODULES: dict[str, tuple[ModuleType, ...]] = {
    "how good is it?": (training, forgetting, robustness, personal, features),
    "how flat is it?": (curvature, surface, sharpness),
    "do clients agree?": (local_global, incompatibility, drift, sensitivity),
    "is it connected?": (plane, interpolation),
}
STUDIES: dict[str, Study] = {one.STUDY.name: one.STUDY for modules in MODULES.values() for one in modules}

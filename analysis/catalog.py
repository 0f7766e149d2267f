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
from training.plugins import ExtensionPoint

MODULES: dict[str, tuple[ModuleType, ...]] = {
    "how good is it?": (training, forgetting, robustness, personal, features),
    "how flat is it?": (curvature, surface, sharpness),
    "do clients agree?": (local_global, incompatibility, drift, sensitivity),
    "is it connected?": (plane, interpolation),
}
STUDIES: dict[str, Study] = {one.STUDY.name: one.STUDY for modules in MODULES.values() for one in modules}


def accept_study(name: str, found: object) -> Study:
    """Return a user's own study; name: its 'module:name', for messages."""
    if not isinstance(found, Study):
        raise ValueError(f"study '{name}' must be an analysis.study.Study, got {type(found).__name__}")
    if found.name in STUDIES:
        raise ValueError(f"study '{name}' is called '{found.name}' like a built-in one: give it another name")
    return found


CATALOG = ExtensionPoint("study", STUDIES, accept_study)
register_study = CATALOG.register

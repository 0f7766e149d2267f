"""Every study by name. A new one is one file and its name here, and is under test."""

from __future__ import annotations

from importlib import import_module

from analysis.study import Study
from training.plugins import ExtensionPoint

MODULES = {  # of analysis.studies, by the question that they answer
    "how good is it?": ("training", "forgetting", "robustness", "personal", "features"),
    "how flat is it?": ("curvature", "surface", "sharpness"),
    "do clients agree?": ("local_global", "incompatibility", "drift", "sensitivity"),
    "is it connected?": ("plane", "interpolation"),
}
STUDIES: dict[str, Study] = {
    name: import_module(f"analysis.studies.{name}").STUDY for names in MODULES.values() for name in names
}


def accept_study(name: str, found: object) -> Study:
    """Return a user's own study; name: its 'module:name', for messages."""
    if not isinstance(found, Study):
        raise ValueError(f"study '{name}' must be an analysis.study.Study, got {type(found).__name__}")
    if found.name in STUDIES:
        raise ValueError(f"study '{name}' is called '{found.name}' like a built-in one: give it another name")
    return found


CATALOG = ExtensionPoint("study", STUDIES, accept_study)
register_study = CATALOG.register

"""Every study by name. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from analysis import curvature, local_global
from analysis.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        curvature.STUDY,
        local_global.STUDY,
    )
}

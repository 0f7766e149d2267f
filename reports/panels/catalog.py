"""Every kind of panel by name. A new one is one file and one line here, and is under test."""

from __future__ import annotations

from reports.panels import bars, curves, sweep
from reports.panels.kind import Kind

PANELS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        curves.KIND,
        bars.KIND,
        sweep.KIND,
    )
}

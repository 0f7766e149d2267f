"""A figure that is never done, for tests of what happens when a report is killed while it draws."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from reports.figure_type import Drawing, Figure
from reports.inputs.runs import Collection, Run


def draw(runs: Sequence[Run], everything: Collection) -> list[Drawing]:
    Path(f"{os.environ['ENDLESS']}{os.getpid()}").touch()
    time.sleep(600)
    return []


ENDLESS = Figure("endless", "good", "Endless", "It never ends.", (), draw)

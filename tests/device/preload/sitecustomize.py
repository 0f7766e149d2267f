"""Python runs this file at its start where the folder is on its path: every process then has the test device."""

import os

if os.environ.get("LANDSCAPE_TESTDEVICE"):
    import runpy
    from pathlib import Path

    loader = runpy.run_path(str(Path(__file__).parent.parent / "testdevice.py"))
    loader["load"](os.environ["LANDSCAPE_TESTDEVICE"])

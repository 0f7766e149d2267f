"""
A surface for ParaView
======================

Surfaces are stored as netCDF. ``reports.export`` writes one as a VTK grid for ParaView, or in the layout of Goldstein's
``loss-landscape``, so that pictures in papers can be rendered with the tools that one knows.
"""

import tempfile
from pathlib import Path

import analysis
import reports
import training

folder = Path(tempfile.mkdtemp())
run = training.train("digits_fedsam", folder, settings={"rounds.count": 4}, backend="serial")
surface = analysis.analyze(run, "surface", steps=11, limit=200, name="wide")
figure = reports.figure("surface", run)

# %%
# The answer's file is what is exported. Its heights are the training loss; error and standard error lie in the same
# file and can be chosen as colours.

answer = run.path / "analysis" / "surface" / "wide.h5"
reports.export(answer, folder / "surface.vts", split="train")
reports.export(answer, folder / "goldstein.h5")
print((folder / "surface.vts").read_text()[:400])

# %%
# In ParaView: open ``surface.vts``, press *Apply*, and colour by *train_loss*. ``landscape export`` does the same from
# a terminal.

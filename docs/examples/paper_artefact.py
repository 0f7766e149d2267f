"""
A figure of a paper
===================

Every numbered table and figure of five papers has a name, and one command makes it: it trains the runs, answers the
questions and draws. This is Figure 2 of FedGloSS at the scale ``digits``: what local models of FedSAM look like on
their own data and on everyone's. ``landscape reproduce fedgloss/figure2`` is the same from a terminal.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from rich.console import Console

import reports

folder = Path(tempfile.mkdtemp())
made = reports.reproduce("fedgloss/figure2", out=folder, console=Console(quiet=True), workers=1)
for path in sorted((folder / "digits" / "fedgloss").iterdir()):
    print(path.name)

# %%
# Beside the picture lie its numbers and a page for the paper. The caption says what was scaled down.

picture = next((folder / "digits" / "fedgloss").glob("figure2*.png"))
pixels = plt.imread(picture)
figure = plt.figure(figsize=(12, 12 * pixels.shape[0] / pixels.shape[1]))
axes = figure.add_axes((0, 0, 1, 1))  # the picture has margins of its own
axes.imshow(pixels)
axes.axis("off")
plt.show()
assert not made.problems

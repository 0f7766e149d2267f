"""The FedGloSS paper: Caldarola et al. 2025."""

from __future__ import annotations

from reports.artefact import Paper
from reports.papers.fedgloss.facts import FACTS
from reports.papers.fedgloss.figures import FIGURES
from reports.papers.fedgloss.runs import BASE, SEEDS
from reports.papers.fedgloss.tables import TABLES

PAPER = Paper(
    "fedgloss",
    "FedGloSS",
    "Beyond Local Sharpness: Communication-Efficient Global Sharpness-aware Minimization for Federated Learning",
    "Caldarola et al., CVPR 2025",
    BASE,
    SEEDS,
    (*TABLES, *FACTS, *FIGURES),
)

"""Every paper by its key. A new one is one file and one line here."""

from __future__ import annotations

from reports.artefact import Paper
from reports.papers import fedgloss

PAPERS: dict[str, Paper] = {paper.key: paper for paper in (fedgloss.PAPER,)}

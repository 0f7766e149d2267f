"""Every paper by its key. A new one is one file and one line here."""

from __future__ import annotations

from reports.artefact import Paper
from reports.papers import fedfsa, fedgloss, fedsam, fedsol, fedvssam

PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in (fedfsa.PAPER, fedvssam.PAPER, fedgloss.PAPER, fedsam.PAPER, fedsol.PAPER)
}

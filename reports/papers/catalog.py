"""Every paper by its key. A new one is one file and one line here."""

from __future__ import annotations

from reports.papers import fedsam, fedsol
from reports.papers.artefact import Paper

PAPERS: dict[str, Paper] = {paper.key: paper for paper in (fedsam.PAPER, fedsol.PAPER)}

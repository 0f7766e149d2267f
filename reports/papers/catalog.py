"""Every paper by its key. A new one is one folder and one line here."""

from __future__ import annotations

from reports.artefact import Paper
from reports.papers.fedfsa.paper import PAPER as FEDFSA
from reports.papers.fedgloss.paper import PAPER as FEDGLOSS
from reports.papers.fedsam.paper import PAPER as FEDSAM
from reports.papers.fedsol.paper import PAPER as FEDSOL
from reports.papers.fedvssam.paper import PAPER as FEDVSSAM

PAPERS: dict[str, Paper] = {paper.key: paper for paper in (FEDFSA, FEDVSSAM, FEDGLOSS, FEDSAM, FEDSOL)}

"""Every paper by its key. A new one is one file and one line here."""

from __future__ import annotations

from reports.findings.experiments import PAPER as FINDINGS
from reports.papers.artefact import Paper

PAPERS: dict[str, Paper] = {paper.key: paper for paper in (FINDINGS,)}

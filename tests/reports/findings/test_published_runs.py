"""The runs in docs/findings are those that the findings declare: otherwise `make findings` would say "not run"."""

from __future__ import annotations

import tarfile
import tomllib
from pathlib import Path

import pytest

from reports.artefacts.plan import plan_paper
from reports.artefacts.scales import find_scale
from reports.findings.experiments import PAPER
from training import config

FOLDER = Path(__file__).parents[3] / "docs" / "findings"


@pytest.mark.parametrize("scale", ["digits", "small"])
def test_packed_runs_are_declared(scale: str) -> None:
    declared = {config.validate(one.content).digest for one in plan_paper(PAPER, find_scale(scale)).values()}
    packed = {}
    with tarfile.open(FOLDER / scale / "runs.tar.xz", "r:xz") as archive:
        for member in archive:
            if member.name.endswith("config.toml"):
                content = archive.extractfile(member)
                assert content is not None
                packed[member.name] = config.validate(tomllib.load(content)).digest
    assert packed
    assert [name for name, digest in packed.items() if digest not in declared] == []

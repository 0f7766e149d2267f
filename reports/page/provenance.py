"""Where the numbers come from: settings, seeds, versions, hashes, and the commands that make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from analysis.store import Stored
from reports.runs import Collection, Run


def of_run(run: Run) -> dict[str, Any]:
    """Everything stored about one run."""
    stored = _facts(run)
    config = run.path / "config.toml"
    return {
        "run": run.name,
        "algorithm": run.algorithm,
        "facts": {
            "settings": stored.get("digest", ""),
            "seed": run.seed,
            "data": stored.get("data_digest", ""),
            "partition": stored.get("partition_digest", ""),
            "versions": ", ".join(f"{name} {number}" for name, number in stored.get("packages", {}).items()),
            "python": stored.get("python", ""),
        },
        "recipe": config.read_text(encoding="utf-8"),
        "hashes": _hashes(run.results.values()),
        "studies": [_study(one, [run.name]) for one in run.results.values()],
    }


def together(everything: Collection) -> list[dict[str, Any]]:
    """Studies that compared runs."""
    return [_study(one, one.provenance.get("subjects", [])) for files in everything.together.values() for one in files]


def _facts(run: Run) -> dict[str, Any]:
    try:
        return dict(json.loads((run.path / "provenance.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _hashes(results: Any) -> list[dict[str, Any]]:
    """Checkpoints that studies looked at, each once."""
    found: dict[tuple[int, str], str] = {}
    for stored in results:
        for one in stored.provenance.get("inputs") or []:
            for round, files in one.get("checkpoints", {}).items():
                for name, facts in files.items():
                    found[int(round), name] = facts["sha256"]
    return [{"round": round, "file": name, "sha256": sha} for (round, name), sha in sorted(found.items())]


def _study(stored: Stored, subjects: Sequence[str]) -> dict[str, Any]:
    batchnorm = stored.provenance.get("batchnorm", [])
    return {
        "study": stored.study,
        "digest": stored.digest,
        "versions": ", ".join(f"{name} {number}" for name, number in stored.provenance.get("packages", {}).items()),
        "batchnorm": ", ".join(dict.fromkeys([batchnorm] if isinstance(batchnorm, str) else batchnorm)),
        "command": _command(stored, subjects),
    }


def _command(stored: Stored, subjects: Sequence[str]) -> str:
    """The call that asks the same question, every setting said."""
    words = ["landscape", "analyze", *subjects, "--study", stored.study]
    for key, value in stored.settings.items():
        if value is not None:
            words += ["--set", f"{stored.study}.{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)

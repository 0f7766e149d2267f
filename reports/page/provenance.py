"""Where the numbers come from: settings, seeds, versions, hashes, and the commands that make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence

from analysis.store import Answer
from reports.inputs.runs import Collection, Run


def describe_run(run: Run) -> dict[str, object]:
    """Describe where the numbers of a run come from, for the page."""
    stored = _read_facts(run)
    answers = [answer for some in run.answers.values() for answer in some]
    return {
        "run": run.name,
        "algorithm": run.algorithm,
        "facts": {
            "settings": str(stored.get("digest", "")),
            "seed": run.seed if run.settings else "",
            "data": str(stored.get("data_digest", "")),
            "partition": str(stored.get("partition_digest", "")),
            "versions": _list_versions(stored),
            "python": str(stored.get("python", "")),
            "training": run.progress.description,
        },
        "recipe": _read_recipe(run),
        "hashes": _list_hashes(answers),
        "studies": [_describe_study(one, [run.name]) for one in answers],
    }


def describe_comparisons(everything: Collection) -> list[dict[str, object]]:
    """Describe the studies that compared runs, for the page."""
    return [
        _describe_study(one, _as_texts(one.provenance.get("subjects")))
        for files in everything.together.values()
        for one in files
    ]


def _read_recipe(run: Run) -> str:
    try:
        return (run.path / "config.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # a model that was not trained here, or gone since it was read
        return ""


def _read_facts(run: Run) -> dict[str, object]:
    try:
        return dict(json.loads((run.path / "provenance.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _list_versions(stored: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {number}" for name, number in _as_mapping(stored.get("packages")).items())


def _as_mapping(value: object) -> Mapping[str, object]:
    """A JSON object; nothing for whatever else a file may hold in its place."""
    return value if isinstance(value, Mapping) else {}


def _as_texts(value: object) -> list[str]:
    """One text or a list of them."""
    return [str(one) for one in (value if isinstance(value, list) else [value] if isinstance(value, str) else [])]


def _list_hashes(results: Iterable[Answer]) -> list[dict[str, object]]:
    """Checkpoints that studies looked at, each once."""
    found: dict[tuple[int, str], str] = {}
    for stored in results:
        inputs = stored.provenance.get("inputs")
        for one in inputs if isinstance(inputs, list) else []:
            for round, files in _as_mapping(_as_mapping(one).get("checkpoints")).items():
                for name, facts in _as_mapping(files).items():
                    if str(round).isdecimal():
                        found[int(round), str(name)] = str(_as_mapping(facts).get("sha256", ""))
    return [{"round": round, "file": name, "sha256": sha} for (round, name), sha in sorted(found.items())]


def _describe_study(stored: Answer, subjects: Sequence[str]) -> dict[str, object]:
    return {
        "study": stored.study,
        "digest": stored.digest,
        "versions": _list_versions(stored.provenance),
        "batchnorm": ", ".join(dict.fromkeys(_as_texts(stored.provenance.get("batchnorm")))),
        "command": _make_command(stored, subjects),
    }


def _make_command(stored: Answer, subjects: Sequence[str]) -> str:
    """The call that asks the same question, every setting said."""
    words = ["landscape", "analyze", *subjects, "--study", stored.study]
    for key, value in stored.settings.items():
        if value is not None:
            words += ["--set", f"{stored.study}.{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)

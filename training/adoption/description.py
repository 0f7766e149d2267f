"""adopt.toml: where the models of another framework's run are, and what is known about it.

[adopt]
framework = "Flower 1.40.0"
global_models = "global_{round}.safetensors"
client_models = "client_{client}_{round}.safetensors"
sent_models = "previous"

[data]                       # and any other table of a recipe, as far as it is known
name = "digits"
[model]
name = "digits_cnn"
[partition]
name = "file"
path = "clients.json"
clients = 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from training.settings import Count, Names, Settings, Several, Whole, build
from training.storage import toml

FILE = "adopt.toml"  # the usual name, in the folder that is adopted
PREVIOUS = "previous"  # instead of a pattern: clients began at the global model of the round before
NEEDED = {  # tables that must be there -> an example
    "data": 'name = "digits"',
    "model": 'name = "digits_cnn", or "module:function"',
    "partition": 'name = "file", path = "clients.json" and clients = 2 (or iid with clients = 1 if nobody knows)',
}
Pattern = Annotated[str, Field(min_length=1)]


class Adopt(Settings):
    """The table [adopt]: which files are what. Patterns are relative to the folder that is adopted."""

    framework: str = Field("", description="what trained the run, such as Flower 1.40.0")
    method: str = Field("", description="the method as it is printed, if none of ours: see [algorithm]")
    global_models: Pattern = Field(
        description="files of the global model, with {round}; without it the file is the model after rounds.count"
    )
    client_models: Pattern | None = Field(None, description="files of the participants' models, with {client} too")
    sent_models: Pattern | None = Field(
        None, description="files of what participants were sent, or previous: the global model of the round before"
    )
    round_shift: int = Field(0, description="added to the numbers of rounds: 1 where the first round is called 0")
    rounds: Several[Whole] | None = Field(None, description="rounds to adopt; needed if there are gaps between them")
    client_names: Names = Field((), description="{client} of client 0, 1, ...; by default it is the number")
    metrics: Pattern | None = Field(None, description="CSV or JSONL of metrics, one line for each round")
    columns: dict[str, str] = Field(
        {}, description='our name of a metric -> its name in that file: {accuracy = "test_acc"}'
    )


@dataclass(frozen=True)
class Description:
    """What adopt.toml says.

    source: the file, for messages.
    adopt: the table [adopt].
    tables: the other tables, those of a recipe.
    """

    source: str
    adopt: Adopt
    tables: Mapping[str, Any]

    @property
    def count(self) -> int | None:
        """The number of rounds, if it is stated."""
        rounds = self.tables.get("rounds")
        count = rounds.get("count") if isinstance(rounds, dict) else None
        return build(_Stated, {"count": count}, f"{self.source}: rounds").count if count is not None else None


class _Stated(Settings):
    count: Count


def read_description(folder: Path, file: Path | None = None) -> Description:
    """Read adopt.toml; ValueError that tells every mistake.

    folder: what is adopted. file: if the description has another name, or lies elsewhere.
    """
    path = folder / FILE if file is None else file
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; it says where the models are, which model and data they belong to, and who holds "
            "which examples (docs/adopt.md has examples)"
        )
    content = toml.read(path)
    own = content.pop("adopt", None)
    if not isinstance(own, dict):
        raise ValueError(f'{path} needs a table [adopt] with global_models = "global_{{round}}.pt" or the like')
    for table, example in NEEDED.items():
        if not isinstance(content.get(table), dict):
            raise ValueError(f"{path} needs a table [{table}], such as {example}")
    if "adopted" in content or "sweep" in content:
        raise ValueError(f"{path} describes one run: leave out [adopted] and [sweep]")
    return Description(str(path), build(Adopt, own, f"{path} [adopt]"), content)

"""Weights & Biases: one run there for each of ours. Needs the package wandb.

WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY and WANDB_DIR mean what they mean for wandb. Without an account on this machine
the run is kept offline, in the folder wandb/ of ours, and `wandb sync` uploads it later. The id of the run there is
kept in tracking/wandb.json: a resumed run goes on under the same id.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from training.storage.verified_files import Json
from training.tracking.tracker import PROJECT, Exhibit, Row, Subject, read_memory, write_memory

NAME = "wandb"
WAIT_FOR_START = 30.0  # seconds after which a server that does not answer is given up
WAIT_FOR_END = 60.0  # seconds for the last uploads; what is left stays on the disk for `wandb sync`


class WeightsAndBiases:
    """One run of Weights & Biases, with the round as the axis of all curves."""

    def __init__(self, subject: Subject):
        import wandb

        self.folder, memory = subject.folder, read_memory(subject.folder, NAME)
        self.mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        known = memory.get("id")
        self.id = known if isinstance(known, str) else secrets.token_hex(8)
        same = memory.get("mode") == self.mode  # another mode knows nothing of what was sent
        self.round, self.step = (_read_count(memory, name) if same else 0 for name in ("round", "step"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            dir=os.environ.get("WANDB_DIR") or str(self.folder),
            id=self.id,
            name=subject.name,
            config=dict(subject.settings),
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            settings=wandb.Settings(
                silent=True,
                console="off",  # what is printed belongs to the terminal
                init_timeout=WAIT_FOR_START,
                finish_timeout=WAIT_FOR_END,
            ),
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")
        self.step = max(self.step, self.run.step)

    @property
    def place(self) -> str:
        if self.mode == "offline":
            return f"wandb sync {os.path.dirname(self.run.dir)}"
        return str(self.run.url or self.mode)

    def find_last_round(self) -> int:
        return self.round

    def log_rounds(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._log({**row.values, "round": row.round})
            self.round = row.round
        self._remember()

    def log_figure(self, figure: Exhibit, round: int) -> None:
        import wandb

        picture = wandb.Image(str(figure.files["png"]), caption=figure.caption)
        self._log({f"figures/{figure.name}": picture, "round": round})

    def log_table(self, table: Exhibit, round: int) -> None:
        import wandb

        with open(table.files["csv"], newline="", encoding="utf-8") as file:
            heads, *rows = csv.reader(file)
        self._log({f"tables/{table.name}": wandb.Table(columns=list(heads), data=rows), "round": round})

    def close(self, state: str) -> None:
        self.run.finish(exit_code=int(state == "diverged"))
        self._remember()

    def _log(self, values: Json) -> None:
        """Add a row. Its number goes on where an earlier process stopped: wandb drops numbers that it has seen."""
        self.run.log(values, step=self.step, commit=True)
        self.step += 1

    def _remember(self) -> None:
        content = {"id": self.id, "mode": self.mode, "round": self.round, "step": self.step}
        write_memory(self.folder, NAME, content)


def _read_count(memory: Mapping[str, object], name: str) -> int:
    value = memory.get(name)
    return value if isinstance(value, int) and value >= 0 else 0

"""Where models come from, as studies that compare models store it: run, round and client."""

from __future__ import annotations

from dataclasses import dataclass

import xarray as xr


@dataclass(frozen=True)
class Origin:
    """Where a model comes from.

    run: the name of its run.
    round: the communication round.
    client: the participant whose model it is; None: the global model.
    """

    run: str
    round: int
    client: int | None = None

    @property
    def label(self) -> str:
        """All of it, for tables of numbers."""
        return f"{self.run} round {self.round}" + ("" if self.client is None else f" client {self.client}")


def read_origins(data: xr.Dataset, what: str) -> list[Origin]:
    """The origin of every model along an axis.

    data: with the variables `<what>_run`, `<what>_round` and `<what>_client` along one axis.
    what: such as "model", "start" or "end".

    >>> data = xr.Dataset({"end_run": ("pair", ["a"]), "end_round": ("pair", [4]), "end_client": ("pair", [-1])})
    >>> read_origins(data, "end")
    [Origin(run='a', round=4, client=None)]
    """
    runs, rounds, clients = (data[f"{what}_{name}"].values.tolist() for name in ("run", "round", "client"))
    return [
        Origin(str(run), int(round), int(client) if client >= 0 else None)
        for run, round, client in zip(runs, rounds, clients, strict=True)
    ]

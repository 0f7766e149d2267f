"""Files in the layout of FL-Simulator and PFLlib, adopted with the descriptions and modules of docs/adopt.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from training.adoption import adopting
from training.data import partition
from training.storage import checkpoint, metrics, run_directory

DOCS = (Path(__file__).parents[3] / "docs" / "adopt.md").read_text()
BLOCKS = dict(re.findall(r"<!-- file: ([\w.]+) -->\n```\w+\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL))
CLIENTS, EACH = 11, 3  # two digits: names as texts have another order than numbers
NET = "tests.training.adoption.test_layouts:make_net"


def make_net(classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, classes))


def draw(*key: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(int("".join(map(str, (1, *key)))))
    return {name: torch.randn(one.shape, generator=generator) for name, one in make_net().state_dict().items()}


def flatten(*key: int) -> torch.Tensor:
    return torch.cat([one.reshape(-1) for one in draw(*key).values()])


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the docs, whose modules can be imported."""
    for name, text in BLOCKS.items():
        text = text.replace("my_models:make_net", NET).replace("clients = 4", f"clients = {CLIENTS}")
        (tmp_path / name).write_text(text.replace("clients = 20", f"clients = {CLIENTS}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def make_examples(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    count = int(np.prod(shape))
    images = np.arange(count * 16, dtype=np.float32).reshape(*shape, 1, 4, 4) / (count * 16)
    return images, (np.arange(count) % 10).reshape(*shape)


def test_fl_simulator(place: Path) -> None:
    folder = place / "Data" / "mnist"
    folder.mkdir(parents=True)
    (x, y), (test_x, test_y) = make_examples(CLIENTS, EACH), make_examples(20)
    arrays = {"client_x": x, "client_y": y[..., None], "test_x": test_x, "test_y": test_y[:, None]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    vectors = torch.stack([flatten(2, client) for client in range(CLIENTS)])
    for round in (1, 2):
        torch.save(flatten(round), place / f"global_{round}.pt")
        for client in (4, 10):
            torch.save(vectors[client].clone(), place / f"client_{client}_{round}.pt")
    np.save(place / "tst-FedAvg.npy", [[2.5, 0.25], [1.5, 0.5]])
    runpy.run_path(str(place / "flsim_metrics.py"))
    run = adopting.adopt(place, place / "runs", description=place / "flsim.toml")
    found = checkpoint.load(run_directory.checkpoint_path(run, 2))
    assert torch.equal(found.models["server"], flatten(2))
    assert torch.equal(found.models["sent"], flatten(1))
    assert torch.equal(found.locals[10], flatten(2, 10))
    assert list(found.locals) == [4, 10]
    assert partition.load(run / "partition.npz").indices[10].tolist() == [30, 31, 32]
    assert [(one["test_loss"], one["accuracy"]) for one in metrics.read(run)] == [(2.5, 0.25), (1.5, 0.5)]


def test_pfllib(place: Path) -> None:
    for split in ("train", "test"):
        (place / "dataset" / "MNIST" / split).mkdir(parents=True)
        for client in range(CLIENTS):
            x, y = make_examples(EACH)
            part = {"x": x + client, "y": (y + client) % 10}
            np.savez_compressed(place / "dataset" / "MNIST" / split / f"{client}.npz", data=np.array(part, object))
    net = make_net()
    net.load_state_dict(draw(5))
    torch.save(net, place / "FedAvg_server_state.pt")  # as PFLlib saves it
    with pytest.raises(ValueError, match=r"it asks for .*Linear.*torch\.save\(model\.state_dict\(\)"):
        adopting.adopt(place, place / "runs", description=place / "pfllib.toml")
    torch.save(net.state_dict(), place / "FedAvg_server_state.pt")
    (place / "pfllib.toml").write_text((place / "pfllib.toml").read_text().replace("2001", "5"))
    run = adopting.adopt(place, place / "runs", description=place / "pfllib.toml")
    assert run_directory.checkpoint_rounds(run) == [5]
    assert torch.equal(checkpoint.load(run_directory.checkpoint_path(run, 5)).models["server"], flatten(5))
    dealt = partition.load(run / "partition.npz")
    assert dealt.labels[dealt.indices[10]].tolist() == [0, 1, 2]  # client 10, not the third of "0", "1", "10", "2"
    assert dealt.labels[dealt.indices[2]].tolist() == [2, 3, 4]
    assert "accuracy" in metrics.read(run)[4]

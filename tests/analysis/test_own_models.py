"""A model of one's own: weights from every usual kind of file, data from every usual place, mistakes by name."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from analysis.own_models import load_weights, open_model
from analysis.subjects import Limits
from tests.analysis.helpers import ask, plan


def network(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes))


def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 2, 2, generator=generator), torch.arange(count) % 3


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x.flatten(1)))


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """A module of the user's."""
    module = types.ModuleType("mine")
    module.network = network
    module.tied = Tied
    module.number = lambda: 7
    module.data = lambda: (examples(9, 0), examples(6, 1))
    module.pair = lambda: examples(9, 0)
    module.wrong = lambda: [1, 2, 3]
    module.pixels = lambda: ((examples(9, 0)[0] * 0).to(torch.uint8), examples(9, 0)[1])
    module.fractions = lambda: (examples(9, 0)[0], torch.zeros(9))
    module.negative = lambda: (examples(9, 0)[0], examples(9, 0)[1] - 1)
    module.fewer = lambda: (examples(9, 0)[0], examples(8, 0)[1])
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


@pytest.fixture
def trained():
    model = network()
    torch.manual_seed(3)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape))
    return model


def opened(path, model="mine:network", data="mine:data", **more):
    said = []
    own = open_model(model, path, data, out=path.parent, say=said.append, **more)
    return own, said


def as_state(model, path):
    torch.save(model.state_dict(), path)


def as_checkpoint(model, path):
    torch.save({"epoch": 3, "model_state_dict": model.state_dict(), "loss": 0.5}, path)


def as_parallel(model, path):
    torch.save({"state_dict": {f"module.{name}": t for name, t in model.state_dict().items()}}, path)


def as_safetensors(model, path):
    save_file(model.state_dict(), path)


@pytest.mark.parametrize(
    ("write", "suffix", "said"),
    [
        (as_state, "pt", []),
        (as_checkpoint, "pth", ["weights taken from its entry 'model_state_dict'"]),
        (
            as_parallel,
            "ckpt",
            ["weights taken from its entry 'state_dict'", "begins with 'module.', which is left out"],
        ),
        (as_safetensors, "safetensors", []),
    ],
)
def test_every_kind_of_file_gives_the_same_model(tmp_path, trained, write, suffix, said):
    path = tmp_path / f"weights.{suffix}"
    write(trained, path)
    own, found = opened(path)
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))
    statistics = [trained[2].running_mean, trained[2].running_var]
    expected = torch.cat([t.detach().reshape(-1) for t in [*trained.parameters(), *statistics]])
    torch.testing.assert_close(own.theta, expected, rtol=0, atol=0)
    assert (own.name, own.path, own.rounds, own.classes, own.clients) == ("weights", tmp_path, [0], 3, [])
    inputs, labels = own.examples("test")
    error = own.objective("test").error(own.point(0))
    assert 1 - error == pytest.approx(float((trained.eval()(inputs).argmax(1) == labels).double().mean()))


def test_studies_work_on_it(tmp_path, trained):
    as_state(trained, tmp_path / "w.pt")
    own, _ = opened(tmp_path / "w.pt", limits=Limits(workers=1))
    found = ask("forgetting", [own], tmp_path)
    inputs, labels = own.examples("test")
    assert int(found["correct"].sum()) == int((trained.eval()(inputs).argmax(1) == labels).sum())
    assert plan("forgetting", [own], tmp_path).kept


def test_the_fingerprint_follows_weights_and_data(tmp_path, trained, mine):
    as_state(trained, tmp_path / "w.pt")
    first = opened(tmp_path / "w.pt")[0].fingerprint
    assert opened(tmp_path / "w.pt")[0].fingerprint == first
    mine.data = lambda: (examples(9, 2), examples(6, 1))
    assert opened(tmp_path / "w.pt")[0].fingerprint != first
    mine.data = lambda: (examples(9, 0), examples(6, 1))
    assert opened(tmp_path / "w.pt")[0].fingerprint == first
    with torch.no_grad():
        trained[1].bias[0] += 1
    as_state(trained, tmp_path / "w.pt")
    assert opened(tmp_path / "w.pt")[0].fingerprint != first


def test_one_pair_is_training_data(tmp_path, trained):
    as_state(trained, tmp_path / "w.pt")
    own, _ = opened(tmp_path / "w.pt", data="mine:pair")
    assert list(own.data) == ["train"]


def test_arrays_from_an_npz(tmp_path, trained):
    as_state(trained, tmp_path / "w.pt")
    (X, y), (U, v) = examples(9, 0), examples(6, 1)
    np.savez(tmp_path / "d.npz", x_train=X.double().numpy(), y_train=y.numpy().astype(np.int32), x_test=U, y_test=v)
    own, _ = opened(tmp_path / "w.pt", data=str(tmp_path / "d.npz"))
    torch.testing.assert_close(own.examples("train")[0], X)
    assert own.examples("train")[1].dtype == torch.int64
    assert len(own.examples("test")[1]) == 6
    np.savez(tmp_path / "half.npz", x_train=X, y_train=y, x_test=U)
    with pytest.raises(ValueError, match="expected x_train, y_train, x_test, y_test"):
        opened(tmp_path / "w.pt", data=str(tmp_path / "half.npz"))
    np.savez(tmp_path / "object.npz", x_train=np.array([{}], dtype=object), y_train=y)
    with pytest.raises(ValueError, match=r"not readable as an \.npz of plain arrays"):
        opened(tmp_path / "w.pt", data=str(tmp_path / "object.npz"))


def test_a_data_set_and_a_model_by_name(tmp_path):
    from training.models import networks

    model = networks.build("mlp", classes=10, channels=1, size=8, seed=5, hidden=(200, 200))
    as_state(model, tmp_path / "w.pt")
    own, _ = opened(tmp_path / "w.pt", model="mlp", data="digits")
    assert own.examples("train")[0].shape == (1437, 1, 8, 8)
    assert own.objective("train", limit=50).size == sum(p.numel() for p in model.parameters())
    with pytest.raises(ValueError, match="data set: unknown 'digit'; did you mean 'digits'"):
        opened(tmp_path / "w.pt", model="mlp", data="digit")


def test_wrong_weights_are_named(tmp_path, trained):
    state = trained.state_dict()
    state["4.weights"] = state.pop("4.weight")
    state["1.bias"] = torch.zeros(7)
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="these weights are not of this model") as caught:
        opened(tmp_path / "w.pt")
    text = str(caught.value)
    assert "'4.weight' is missing; did you mean '4.weights'?" in text
    assert "'4.weights' is unknown to the model; did you mean '4.weight'?" in text
    assert "'1.bias' has shape (7,), the model wants (5,)" in text
    with pytest.raises(ValueError, match="and 2 more"):
        load_weights(nn.Sequential(*(nn.Linear(1, 1) for _ in range(6))), {}, "file")


def test_tied_weights_may_be_there_once(tmp_path):
    model = Tied()
    save_file({"a.weight": model.a.weight.detach()}, tmp_path / "w.safetensors")
    own, _ = opened(tmp_path / "w.safetensors", model="mine:tied")
    torch.testing.assert_close(own.theta, model.a.weight.detach().reshape(-1))


def test_old_files_without_batch_counters(tmp_path, trained):
    state = {name: t for name, t in trained.state_dict().items() if not name.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "w.pt")
    assert opened(tmp_path / "w.pt")[0].theta.numel() == 25 + 10 + 10 + 18


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-executed",)


def test_nothing_in_a_file_is_executed(tmp_path, trained, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": trained.state_dict(), "extra": Evil()}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="without executing code"):
        opened(tmp_path / "w.pt")
    torch.save(trained, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match=r"Write torch.save\(model.state_dict\(\), FILE\)"):
        opened(tmp_path / "whole.pt")
    assert not (tmp_path / "was-executed").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 1, "weights": {}}, "no weights found. It holds epoch, weights"),
        (torch.zeros(3), r"expected a state dict \(name -> tensor\), got Tensor"),
        ({}, "no weights found. It holds nothing"),
    ],
)
def test_files_without_weights(tmp_path, content, message):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=message):
        opened(tmp_path / "w.pt")


def test_files_that_are_none(tmp_path, trained):
    with pytest.raises(ValueError, match="cannot be read"):
        opened(tmp_path / "nowhere.pt")
    for name, words in (("w.safetensors", "not a safetensors file"), ("w.pt", "without executing code")):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(ValueError, match=words):
            opened(tmp_path / name)
    as_state(trained, tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "cut.pt").read_bytes()[:-200])
    with pytest.raises(ValueError, match="without executing code"):
        opened(tmp_path / "cut.pt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong", "must return .* or one pair of tensors, got list"),
        ("pixels", "inputs are bytes; give them as the network sees them"),
        ("fractions", "labels must be whole numbers"),
        ("negative", "labels must start at 0, got -1"),
        ("fewer", "as many labels as inputs, and some; got 8 and 9"),
        ("dta", "did you mean 'data'"),
    ],
)
def test_wrong_data(tmp_path, trained, name, message):
    as_state(trained, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=message):
        opened(tmp_path / "w.pt", data=f"mine:{name}")


def test_wrong_models(tmp_path, trained, mine):
    as_state(trained, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"must return a torch.nn.Module, got int"):
        opened(tmp_path / "w.pt", model="mine:number")
    with pytest.raises(ValueError, match="model: unknown 'mpl'; did you mean 'mlp'"):
        opened(tmp_path / "w.pt", model="mpl")
    mine.network = lambda: network(2)
    as_state(network(2), tmp_path / "two.pt")
    with pytest.raises(ValueError, match=r"must give \(examples, 3 or more\) logits for these labels, got \(2, 2\)"):
        opened(tmp_path / "two.pt")
    mine.network = lambda: nn.Linear(3, 3)
    as_state(nn.Linear(3, 3), tmp_path / "narrow.pt")
    with pytest.raises(ValueError, match=r"cannot take inputs of shape \(1, 2, 2\)"):
        opened(tmp_path / "narrow.pt")
    trained[1].bias.data[0] = float("nan")
    mine.network = network
    as_state(trained, tmp_path / "nan.pt")
    with pytest.raises(ValueError, match="weights has 1 non-finite entries"):
        opened(tmp_path / "nan.pt")


def arrays(**changes):
    x, y = (part.numpy() for part in examples(9, 0))
    return {"x_train": x, "y_train": y, **changes}


def wide(count: int = 9) -> np.ndarray:
    return np.zeros((count, 1, 2, 2), dtype=np.float32)


ODD = {
    "string labels": ({"y_train": np.array(["a", "b", "c"] * 3)}, r"labels must be numbers, got <U1 \(9,\)"),
    "identifiers": ({"y_train": np.arange(9) + 2**40}, r"class numbers from 0 on, below 1000000; got 1099511627784"),
    "too large": ({"y_train": np.arange(9, dtype=np.uint64) + 2**63}, r"below 2\*\*63, got 9223372036854775816"),
    "one label": ({"y_train": np.asarray(1)}, r"one per example; got int64 \(\)"),
    "complex": ({"x_train": wide().astype(complex)}, r"inputs must be numbers, the examples on the first axis"),
    "one input": ({"x_train": np.asarray(1.0)}, r"inputs must be numbers, the examples on the first axis"),
    "words": ({"x_train": np.array(["a"] * 9)}, r"inputs must be numbers, got <U1"),
    "dates": ({"x_train": np.zeros(9, dtype="datetime64[D]")}, r"inputs must be numbers, got datetime64"),
    "objects": ({"x_train": np.array([{}] * 9, dtype=object)}, r"not readable as an .npz of plain arrays"),
    "not finite": ({"x_train": wide() + np.inf}, r"non-finite|nan"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_arrays_are_named_in_one_line(tmp_path, trained, name):
    changes, message = ODD[name]
    np.savez(tmp_path / "a.npz", **arrays(**changes))
    with pytest.raises(ValueError, match=message) as caught:
        with_data(tmp_path, trained, tmp_path / "a.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:300] + bytes(40) + b[340:], lambda b: b"PK" + b[::-1]],
    ids=["empty", "cut", "hole", "nonsense"],
)
def test_damaged_archives_are_named_in_one_line(tmp_path, trained, damage):
    np.savez(tmp_path / "a.npz", **arrays())
    (tmp_path / "a.npz").write_bytes(damage((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(ValueError, match=r"a\.npz: not readable as an \.npz of plain arrays"):
        with_data(tmp_path, trained, tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"none\.npz: no such file"):
        with_data(tmp_path, trained, tmp_path / "none.npz")


@pytest.mark.parametrize("dtype", [">f4", "<f8", "f2", ">f8", "longdouble"])
@pytest.mark.parametrize("labels", [">i8", "u2", "i1", "u8"])
def test_numbers_of_every_width_and_order(tmp_path, trained, dtype, labels):
    x, y = arrays()["x_train"].astype(dtype), arrays()["y_train"].astype(labels)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y)
    found = with_data(tmp_path, trained, tmp_path / "a.npz").examples("train")
    torch.testing.assert_close(found[0], torch.from_numpy(x.astype(np.float32)))
    assert found[1].tolist() == arrays()["y_train"].tolist()


def test_variances_below_zero_are_no_statistics(tmp_path, trained):
    trained[2].running_var[0] = -1.0
    with pytest.raises(ValueError, match=r"'2\.running_var' has variances below zero"):
        with_data(tmp_path, trained, "mine:data")


def with_data(tmp_path, model, data):
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    return open_model("mine:network", tmp_path / "weights.safetensors", data, out=tmp_path, say=lambda _: None)

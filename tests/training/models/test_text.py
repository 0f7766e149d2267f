"""Networks for text against plain loops and torch's own LSTM, and their Hessians against dense ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective, eigenpairs
from training.models.networks import build


def make_text_cnn(**settings: object) -> nn.Module:
    facts = {"classes": 3, "vocabulary": 6, "length": 7}
    given = {"embedding": 3, "filters": 2, "kernels": (2, 3), **settings}
    return build("text_cnn", **facts, seed=1, **given).double()


def make_texts() -> tuple[Tensor, Tensor]:
    texts = torch.tensor([[1, 2, 3, 4, 5, 0, 0], [5, 4, 0, 0, 0, 0, 0], [2, 2, 1, 3, 5, 1, 4], [0, 0, 0, 0, 0, 0, 0]])
    return texts, torch.tensor([0, 2, 1, 1])


def test_text_cnn_by_hand() -> None:
    model = make_text_cnn()
    w = model.state_dict()
    vectors = torch.cat([torch.zeros(1, 3, dtype=torch.float64), w["embedding.weight"]])  # row 0 is the padding
    expected = []
    for text in make_texts()[0].tolist():
        strongest = []
        for layer, length in enumerate((2, 3)):
            weight, bias = w[f"convolutions.{layer}.weight"], w[f"convolutions.{layer}.bias"]
            windows = [vectors[text[start : start + length]] for start in range(7 - length + 1)]
            for number in range(2):
                answers = [(weight[number].T * window).sum() + bias[number] for window in windows]
                strongest.append(max(torch.relu(answer) for answer in answers))
        expected.append(functional.linear(torch.stack(strongest), w["fc.weight"], w["fc.bias"]))
    torch.testing.assert_close(model(make_texts()[0]), torch.stack(expected))


def test_padding_is_zero_and_no_parameter() -> None:
    model = make_text_cnn()
    assert model.get_parameter("embedding.weight").shape == (5, 3)
    found = model.get_submodule("embedding")(torch.tensor([[0, 1]]))
    assert not bool(found[0, 0].any())
    assert torch.equal(found[0, 1], model.get_parameter("embedding.weight")[0])


def make_char_lstm() -> nn.Module:
    return build("char_lstm", classes=5, vocabulary=5, seed=1, embedding=2, hidden=3, layers=2).double()


def test_char_lstm_is_torchs_with_one_bias() -> None:
    model = make_char_lstm()
    w = model.state_dict()
    theirs = nn.LSTM(2, 3, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        for layer in range(2):
            getattr(theirs, f"weight_ih_l{layer}").copy_(w[f"lstm.{layer}.inputs.weight"])
            getattr(theirs, f"weight_hh_l{layer}").copy_(w[f"lstm.{layer}.recurrent.weight"])
            getattr(theirs, f"bias_ih_l{layer}").copy_(w[f"lstm.{layer}.inputs.bias"])
            getattr(theirs, f"bias_hh_l{layer}").zero_()
    tokens = torch.tensor([[0, 1, 2, 3, 4, 4], [3, 3, 1, 0, 2, 1]])
    hidden, _ = theirs(functional.embedding(tokens, w["embedding.weight"]))
    expected = functional.linear(hidden[:, -1], w["fc.weight"], w["fc.bias"])
    torch.testing.assert_close(model(tokens), expected)


def test_forget_gates_begin_open() -> None:
    bias = build("char_lstm", classes=5, vocabulary=5, seed=1, hidden=3).get_parameter("lstm.0.inputs.bias")
    assert bias.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["text_cnn", "char_lstm"])
def test_hessian_against_a_dense_one(name: str) -> None:
    model = make_text_cnn() if name == "text_cnn" else make_char_lstm()
    tokens, labels = make_texts()
    data = (tokens.clamp(max=4), labels)
    objective = Objective(model, data, functional.cross_entropy, dtype=torch.float64, chunk_size=3)
    names, shapes = zip(*((key, one.shape) for key, one in model.named_parameters()), strict=True)

    def loss(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        given = {key: part.view(shape) for key, part, shape in zip(names, parts, shapes, strict=True)}
        return functional.cross_entropy(torch.func.functional_call(model, given, (data[0],)), labels)

    dense = torch.autograd.functional.hessian(loss, objective.theta, vectorize=True)
    operator = objective.hessian(objective.theta)
    random = torch.Generator().manual_seed(0)
    for _ in range(3):
        v = torch.randn(len(objective.theta), generator=random, dtype=torch.float64)
        torch.testing.assert_close(operator @ v, dense @ v, rtol=1e-9, atol=1e-11)
    found = eigenpairs(operator, k=1, tol=1e-8)
    assert float(found.values[0]) == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-8)
    # finite differences see padding as gradients do: it is outside of theta
    step = 1e-5 * torch.randn(len(objective.theta), generator=random, dtype=torch.float64)
    change = objective.loss(objective.theta + step) - objective.loss(objective.theta - step)
    assert change == pytest.approx(2 * float(objective.gradient(objective.theta) @ step), rel=1e-6)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"kernels must be lengths of 1 to 7 words, as long as a text; got \[3, 9\]"):
        make_text_cnn(kernels=[3, 9])
    with pytest.raises(ValueError, match="vocabulary must be a whole number, at least 2; got 1"):
        build("text_cnn", classes=3, vocabulary=1, length=7, seed=1)

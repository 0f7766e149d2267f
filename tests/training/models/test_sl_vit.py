"""SL-ViT against loops over patches, tokens and heads, and its Hessian against a dense one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective
from training.models.networks import build

TINY = {"width": 3, "depth": 2, "heads": 2, "head_width": 2, "hidden": 4}


def make_model(size: int = 8, **settings: object) -> nn.Module:
    given = {**TINY, **settings}
    return build("sl_vit", classes=3, channels=2, size=size, seed=2, **given).double()


def make_images(count: int = 2, size: int = 8) -> Tensor:
    return torch.randn(count, 2, size, size, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def shift(image: Tensor, down: int, right: int) -> Tensor:
    """Move an image (C, H, W); what comes in is zero."""
    moved = torch.zeros_like(image)
    height, width = image.shape[1:]
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                moved[:, row, column] = image[:, row - down, column - right]
    return moved


def attend(x: Tensor, w: dict[str, Tensor], path: str) -> Tensor:
    """Locality self-attention of tokens (T, width), head by head and token by token."""
    joint = x @ w[f"{path}.qkv.weight"].T  # queries of all heads, then keys, then values
    temperature = math.exp(float(w[f"{path}.log_temperature"]))
    mixed = torch.zeros(len(x), 4, dtype=x.dtype)
    for head in range(2):
        q, k, v = (joint[:, 4 * part + 2 * head : 4 * part + 2 * head + 2] for part in range(3))
        for token in range(len(x)):
            others = [other for other in range(len(x)) if other != token]
            scores = torch.stack([q[token] @ k[other] * temperature for other in others])
            mixed[token, 2 * head : 2 * head + 2] = scores.softmax(0) @ v[others]
    return functional.linear(mixed, w[f"{path}.out.weight"], w[f"{path}.out.bias"])


def norm(x: Tensor, w: dict[str, Tensor], path: str) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], w[f"{path}.weight"], w[f"{path}.bias"])


def compute_by_hand(image: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Logits of one image (2, 8, 8) in patches of 2x2 pixels."""
    moved = [image, shift(image, 0, 1), shift(image, 0, -1), shift(image, 1, 0), shift(image, -1, 0)]
    beside = torch.cat(moved)  # (10, 8, 8)
    tokens = [w["token"][0, 0]]
    for row in range(0, 8, 2):
        for column in range(0, 8, 2):
            pixels = [beside[:, row + i, column + j] for i in range(2) for j in range(2)]
            patch = norm(torch.cat(pixels), w, "patches.norm")
            tokens.append(functional.linear(patch, w["patches.fc.weight"], w["patches.fc.bias"]))
    x = torch.stack(tokens) + w["position_embedding"][0]
    for block in range(2):
        path = f"blocks.{block}"
        x = x + attend(norm(x, w, f"{path}.norm1"), w, f"{path}.attention")
        hidden = functional.linear(norm(x, w, f"{path}.norm2"), w[f"{path}.mlp.0.weight"], w[f"{path}.mlp.0.bias"])
        x = x + functional.linear(functional.gelu(hidden), w[f"{path}.mlp.2.weight"], w[f"{path}.mlp.2.bias"])
    return functional.linear(norm(x[0], w, "norm"), w["fc.weight"], w["fc.bias"])


def test_forward_pass_by_hand() -> None:
    model, images = make_model(), make_images()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel()), dtype=one.dtype) / 3)
    w = model.state_dict()
    torch.testing.assert_close(model(images), torch.stack([compute_by_hand(image, w) for image in images]))


def test_temperature_begins_at_the_usual_scale() -> None:
    model = build("sl_vit", classes=10, channels=3, size=32, seed=0)
    found = model.get_parameter("blocks.8.attention.log_temperature")
    assert float(found.detach().exp()) == pytest.approx(64**-0.5)


@pytest.mark.parametrize(("size", "patch"), [(8, 2), (28, 7), (32, 8), (96, 16)])
def test_patches_are_a_quarter_of_the_image_and_at_most_16_pixels(size: int, patch: int) -> None:
    with torch.device("meta"):
        model = make_model(size)
    assert model.get_parameter("patches.fc.weight").shape == (3, 5 * 2 * patch * patch)
    assert model.get_parameter("position_embedding").shape == (1, (size // patch) ** 2 + 1, 3)


def test_hessian_against_a_dense_one() -> None:
    model = make_model(4, depth=1, patch=2)
    images, labels = make_images(5, 4), torch.tensor([0, 2, 1, 1, 0])
    objective = Objective(model, (images, labels), functional.cross_entropy, dtype=torch.float64, chunk_size=2)
    names, shapes = zip(*((key, one.shape) for key, one in model.named_parameters()), strict=True)

    def loss(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        given = {key: part.view(shape) for key, part, shape in zip(names, parts, shapes, strict=True)}
        return functional.cross_entropy(torch.func.functional_call(model, given, (images,)), labels)

    dense = torch.autograd.functional.hessian(loss, objective.theta, vectorize=True)
    v = torch.randn(len(objective.theta), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(objective.hessian(objective.theta) @ v, dense @ v, rtol=1e-9, atol=1e-11)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="patch must divide the image size 8, got 3: write one of 2, 4, 8"):
        make_model(patch=3)
    with pytest.raises(ValueError, match="heads must be a whole number, at least 1; got 0"):
        make_model(heads=0)

"""BiSeNetV2 against a plain forward pass on its state dict, and its Hessian against a dense block."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective
from training import config, testing
from training.clients.local_training import OWN_STATISTICS
from training.engine.federation import Federation
from training.models.networks import build


def make_model(classes: int = 3, **settings: object) -> nn.Module:
    facts = {"classes": classes, "channels": 3, "image_height": 32, "image_width": 64}
    model = build("bisenet_v2", **facts, seed=2, **{"divisor": 8, "dropout": 0.0, **settings}).double()
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():  # at init the norms' shifts are zero, so that many inputs of ReLU are, and gammas are
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                for one in (layer.weight, layer.bias, layer.running_mean):
                    one.copy_(torch.randn(one.shape, generator=random, dtype=one.dtype) / 2)
                layer.running_var.uniform_(0.5, 2, generator=random)
    return model


def make_images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 64, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


class Plain:
    """The network once more, from its state dict by the layers that Yu et al. 2021 and FedDrive describe."""

    def __init__(self, state: dict[str, Tensor]):
        self.state = state

    def conv(self, x: Tensor, path: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = self.state[f"{path}.weight"]
        padding = weight.shape[-1] // 2
        return functional.conv2d(x, weight, self.state.get(f"{path}.bias"), stride, padding, groups=groups)

    def norm(self, x: Tensor, path: str) -> Tensor:
        w = [self.state[f"{path}.{key}"][:, None, None] for key in ("running_mean", "running_var", "weight", "bias")]
        return (x - w[0]) / (w[1] + 1e-5).sqrt() * w[2] + w[3]

    def usual(self, x: Tensor, path: str, stride: int = 1) -> Tensor:
        return self.norm(self.conv(x, f"{path}.conv", stride), f"{path}.bn").relu()

    def expand(self, x: Tensor, path: str, stride: int) -> Tensor:
        inputs = x.shape[1]
        y = self.conv(self.usual(x, f"{path}.conv1"), f"{path}.depthwise.0", stride, groups=inputs)
        y = self.norm(y, f"{path}.depthwise.1")
        if stride == 2:
            y = self.norm(self.conv(y, f"{path}.depthwise.2", groups=6 * inputs), f"{path}.depthwise.3")
            x = self.norm(self.conv(x, f"{path}.shortcut.0", 2, groups=inputs), f"{path}.shortcut.1")
            x = self.norm(self.conv(x, f"{path}.shortcut.2"), f"{path}.shortcut.3")
        return (self.norm(self.conv(y.relu(), f"{path}.conv2.0"), f"{path}.conv2.1") + x).relu()

    def head(self, x: Tensor, path: str, factor: int) -> Tensor:
        y = self.conv(self.usual(x, f"{path}.0"), f"{path}.2")
        batch, channels, height, width = y.shape
        y = y.view(batch, channels // factor**2, factor, factor, height, width).permute(0, 1, 4, 2, 5, 3)
        return y.reshape(batch, channels // factor**2, factor * height, factor * width)

    def gate(self, detail: Tensor, meaning: Tensor) -> Tensor:
        def separable(x: Tensor, path: str) -> Tensor:
            return self.conv(self.norm(self.conv(x, f"{path}.0", groups=x.shape[1]), f"{path}.1"), f"{path}.2")

        def larger(x: Tensor) -> Tensor:  # bilinear, corners aligned: one axis after the other, as matrices
            for axis in (2, 3):
                old, new = x.shape[axis], 4 * x.shape[axis]
                places = torch.arange(new, dtype=x.dtype) * (old - 1) / (new - 1)
                matrix = (1 - (places[:, None] - torch.arange(old)).abs()).clamp(min=0)
                x = torch.movedim(torch.movedim(x, axis, -1) @ matrix.T, -1, axis)
            return x

        path = "aggregation"
        fine = separable(detail, f"{path}.left1")
        less = self.norm(self.conv(detail, f"{path}.left2.0", 2), f"{path}.left2.1")
        coarse = functional.avg_pool2d(less, 3, 2, 1)
        right = self.norm(self.conv(meaning, f"{path}.right1.0"), f"{path}.right1.1")
        fine = fine * larger(right).sigmoid()
        coarse = larger(coarse * separable(meaning, f"{path}.right2").sigmoid())
        return self.norm(self.conv(fine + coarse, f"{path}.conv.0"), f"{path}.conv.1").relu()

    def forward(self, images: Tensor) -> list[Tensor]:
        detail = images
        for layer in range(8):
            detail = self.usual(detail, f"detail.{layer}", 2 if layer in (0, 2, 5) else 1)
        x = self.usual(images, "stem.conv", 2)
        left = self.usual(self.usual(x, "stem.left.0"), "stem.left.1", 2)
        stages = [self.usual(torch.cat([left, functional.max_pool2d(x, 3, 2, 1)], 1), "stem.fuse")]
        for stage, layers in ((3, 2), (4, 2), (5, 4)):
            x = stages[-1]
            for layer in range(layers):
                x = self.expand(x, f"stage{stage}.{layer}", 2 if layer == 0 else 1)
            stages.append(x)
        mean = self.norm(x.mean((2, 3), keepdim=True), "context.bn")
        meaning = self.usual(self.usual(mean, "context.conv_gap") + x, "context.conv_last")
        found = [self.head(self.gate(detail, meaning), "head", 8)]
        factors = {"2": 4, "3": 8, "4": 16, "5": 32}
        pairs = zip(factors.items(), stages, strict=True)
        return found + [self.head(one, f"auxiliary.{stage}", factor) for (stage, factor), one in pairs]


def test_forward_pass_once_more() -> None:
    model, images = make_model().eval(), make_images()
    expected = Plain(model.state_dict()).forward(images)
    torch.testing.assert_close(model(images), expected[0])
    model.training = True  # the flag of the network alone: its norms still use their running statistics
    for ours, theirs in zip(model(images), expected, strict=True):
        assert ours.shape == (2, 3, 32, 64)
        torch.testing.assert_close(ours, theirs)


def test_heads_of_training_and_testing() -> None:
    model = make_model()
    assert len(model.train()(make_images())) == 5
    assert isinstance(model.eval()(make_images()), Tensor)
    assert isinstance(make_model(auxiliary=False).train()(make_images()), Tensor)


def test_a_gather_and_expansion_layer_begins_as_its_shortcut() -> None:
    model = build("bisenet_v2", classes=3, channels=3, image_height=32, image_width=32, seed=0, divisor=8)
    zero = [name for name, one in model.named_parameters() if name.endswith("conv2.1.weight") and not bool(one.any())]
    assert len(zero) == 8


def test_statistics_have_feddrives_names() -> None:
    """SiloBN as FedDrive has it goes by the name: 28 of 58 layers, 3,272 of 9,176 channels."""
    with torch.device("meta"):
        model = build("bisenet_v2", classes=19, channels=3, image_height=32, image_width=32, seed=0)
    means = {name: one.numel() for name, one in model.named_buffers() if name.endswith("running_mean")}
    chosen = {name: count for name, count in means.items() if "bn.running" in name}
    assert (len(means), sum(means.values())) == (58, 9176)
    assert (len(chosen), sum(chosen.values())) == (28, 3272)


def test_hessian_against_a_dense_block() -> None:
    """Of layers of the stem and of the deepest stage, on label maps with ignored pixels."""
    model = make_model(2, auxiliary=False).eval()
    images, maps = make_images(3), torch.randint(2, (3, 32, 64), generator=torch.Generator().manual_seed(1))
    maps[:, :5] = 255
    loss = partial(functional.cross_entropy, ignore_index=255)
    chosen = ("stem.left.1.*", "context.bn.*")
    objective = Objective(model, (images, maps), loss, dtype=torch.float64, chunk_size=2, parameters=chosen)
    names = objective.layout.names
    shapes = [model.get_parameter(name).shape for name in names]

    def compute(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        given = {key: part.view(shape) for key, part, shape in zip(names, parts, shapes, strict=True)}
        return loss(torch.func.functional_call(model, given, (images,)), maps)

    theta = objective.theta
    dense = torch.autograd.functional.hessian(compute, theta, vectorize=True)
    v = torch.randn(len(theta), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(objective.hessian(theta) @ v, dense @ v, rtol=1e-8, atol=1e-11)


def scenes() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Eight small images and their label maps: a data set of one's own."""
    random = torch.Generator().manual_seed(5)
    images = torch.rand(8, 3, 32, 64, generator=random)
    maps = (images.mean(dim=1) > 0.5).to(torch.uint8)
    maps[:, :2] = 255
    return (images, maps), (images[:2], maps[:2])


def test_a_federation_trains_it_with_silobn_as_feddrive_does() -> None:
    recipe = config.validate(
        {
            "data": {"name": f"{__name__}:scenes"},
            "partition": {"name": "iid", "clients": 2},
            "model": {"name": "bisenet_v2", "divisor": 8},
            "algorithm": {"name": "silobn+asam", "names": "bn.running"},
            "local": {"lr": 0.05, "batch_size": 4, "hard_pixels": 0.25},
            "rounds": {"count": 2, "participants": 2},
        }
    )
    federation = Federation(recipe)
    kept = federation.trainer.own_statistics
    assert 0 < int(kept.sum()) < len(kept)
    (state, record, _), _ = testing.play(federation, 2)
    assert math.isfinite(record["train_loss"])
    assert 0 <= record["miou"] <= 1
    own = [state.clients[client][OWN_STATISTICS] for client in (0, 1)]
    assert not torch.equal(own[0], own[1])
    torch.testing.assert_close(state.statistics, (own[0] + own[1]) / 2)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="height of images for bisenet_v2 must be a multiple of 32, got 40"):
        build("bisenet_v2", classes=3, channels=3, image_height=40, image_width=64, seed=0)
    with pytest.raises(ValueError, match="divisor must be 1, 2, 4 or 8, got 3"):
        make_model(divisor=3)
    with pytest.raises(ValueError, match="cannot be trained on a batch of one image"):
        make_model().train()(make_images(1))


def test_a_small_unet():
    given = {"seed": 0, "classes": 4, "channels": 1}
    model = build("unet", **given, image_height=64, image_width=32)
    assert sum(parameter.numel() for parameter in model.parameters()) == 29_644
    assert model(torch.zeros(2, 1, 64, 32)).shape == (2, 4, 64, 32)
    with pytest.raises(ValueError, match="height of images for unet, depth 3, must be a multiple of 8, got 20"):
        build("unet", **given, image_height=20, image_width=32, depth=3)


def test_images_can_be_tested_at_half_their_size():
    """As FedDrive tests IDDA: halved images, logits brought back to the size of the image."""
    given = {"seed": 0, "classes": 4, "channels": 3, "image_height": 64, "image_width": 128, "divisor": 8}
    whole = build("bisenet_v2", **given).eval()
    halved = build("bisenet_v2", **given, test_scale=0.5).eval()
    images = torch.randn(2, 3, 64, 128, generator=torch.Generator().manual_seed(0))
    resize = partial(functional.interpolate, mode="bilinear", align_corners=False)
    with torch.no_grad():
        wanted = resize(whole(resize(images, scale_factor=0.5)), scale_factor=2.0)
        torch.testing.assert_close(halved(images), wanted)
    assert halved.train()(images)[0].shape == (2, 4, 64, 128)

"""Models: published parameter counts, independent forward passes, weights that depend on the seed alone."""

import ast
import runpy
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from training.models import networks, torchvision_shim
from training.models.networks import MODELS, build, features, head

ROOT = Path(__file__).parents[3]

MAPS = ("bisenet_v2", "unet")  # a class for every pixel
COUNTS = [
    ("lenet64", 10, 3, 32, {}, 797_962),
    ("lenet64", 100, 3, 32, {}, 815_332),
    ("fsa_cnn", 10, 3, 32, {}, 2_806_602),
    ("fsa_cnn", 100, 3, 32, {}, 2_898_852),
    ("fsa_cnn", 10, 1, 28, {}, 1_258_798),
    ("fsa_cnn", 200, 3, 64, {}, 3_527_784),
    ("fsa_cnn", 10, 3, 32, {"variant": "fmnist"}, (4 * 75 + 4) + (12 * 100 + 12) + 300 * 1024 + 1024 + 1_059_850),
    ("fedavg_net", 10, 3, 32, {}, 2_156_490),
    ("fedavg_net", 10, 3, 28, {}, 1_664_970),
    ("resnet18_gn", 10, 3, 32, {}, 11_181_642),
    ("resnet18_gn", 100, 3, 32, {}, 11_227_812),
    ("resnet18_gn", 10, 1, 32, {}, 11_181_642 - 2 * 49 * 64),
    ("resnet18_gn_cifar", 10, 3, 32, {}, 11_173_962),
    ("resnet18_gn_cifar", 100, 3, 32, {}, 11_220_132),
    ("resnet18_bn", 10, 3, 32, {}, 11_173_962),
    ("resnet18_bn", 10, 3, 32, {"stem": "imagenet"}, 11_181_642),
    ("wrn28_4", 10, 3, 32, {}, 5_849_050),
    ("wrn28_4", 100, 3, 32, {"norm": "batch"}, 5_872_180),
    ("mobilenetv2_gn", 1000, 3, 32, {}, 3_504_872),  # torchvision's published count for BatchNorm
    ("mlp", 10, 1, 28, {}, 199_210),  # the 2NN of McMahan et al. 2017
    ("mlp", 10, 1, 8, {"hidden": []}, 650),
    ("digits_cnn", 10, 1, 8, {}, 160 + 4640 + 1290),
    ("vgg11", 10, 3, 32, {}, 9_220_480 + 2 * 262_656 + 5_130),
    ("vgg11", 10, 3, 28, {}, 9_220_480 + 2 * 262_656 + 5_130),
    ("vgg11", 10, 3, 64, {}, 9_220_480 + (2048 * 512 + 512) + 262_656 + 5_130),
    ("femnist_cnn", 62, 1, 28, {}, 6_603_710),  # LEAF's
    ("mobilenetv2_gn", 2028, 3, 224, {}, 4_821_740),  # of Landmarks-User-160k
    ("sl_vit", 10, 3, 32, {}, 6_176_275),
    ("sl_vit", 9, 3, 32, {}, 6_176_082),
    ("sl_vit", 9, 3, 28, {}, 6_132_432),  # patches of 7 pixels
    ("vit_small", 10, 3, 32, {}, 48 * 256 + 256 * (1 + 1 + 65) + 6 * 527_104 + 512 + 2570),
]


OTHERS = [  # not of square images: name, facts of the data, settings, parameters
    ("text_cnn", {"classes": 14, "vocabulary": 30_000, "length": 128}, {}, 3_124_514 - 100),  # row 0 is no parameter
    ("char_lstm", {"classes": 80, "vocabulary": 80}, {}, 817_872),  # one bias a gate; torch's two would be 819,920
    ("unet", {"classes": 4, "channels": 1, "image_height": 64, "image_width": 64}, {}, 29_644),
    ("bisenet_v2", {"classes": 19, "channels": 3, "image_height": 64, "image_width": 96}, {}, 8_196_416),
    (
        "bisenet_v2",
        {"classes": 19, "channels": 3, "image_height": 64, "image_width": 96},
        {"auxiliary": False},
        4_585_552,
    ),
    ("bisenet_v2", {"classes": 16, "channels": 3, "image_height": 32, "image_width": 64}, {}, 7_473_296),
    (
        "bisenet_v2",
        {"classes": 16, "channels": 3, "image_height": 32, "image_width": 64},
        {"auxiliary": False},
        4_388_752,
    ),
]
FACTS = {  # of small data for the conformance suite
    "bisenet_v2": {"channels": 3, "image_height": 32, "image_width": 64},
    "unet": {"channels": 3, "image_height": 32, "image_width": 64},
    "char_lstm": {"vocabulary": 80, "length": 9},
    "digits_cnn": {"channels": 1, "size": 8},
    "femnist_cnn": {"channels": 1, "size": 28},
    "text_cnn": {"vocabulary": 50, "length": 9},
}
SQUARE = {"channels": 3, "size": 32}


def small(name: str, seed: int = 0, **settings: object) -> nn.Module:
    return build(name, classes=7, **FACTS.get(name, SQUARE), seed=seed, **settings)


def batch(name: str, count: int = 3) -> torch.Tensor:
    facts, random = FACTS.get(name, SQUARE), torch.Generator().manual_seed(5)
    if "vocabulary" in facts:
        return torch.randint(facts["vocabulary"], (count, facts["length"]), generator=random)
    height, width = facts.get("image_height", facts.get("size")), facts.get("image_width", facts.get("size"))
    return torch.randn(count, facts["channels"], height, width, generator=random)


@pytest.mark.parametrize(("name", "classes", "channels", "size", "settings", "count"), COUNTS)
def test_parameter_counts(name, classes, channels, size, settings, count):
    with torch.device("meta"):  # shapes only: no time spent on numbers
        model = MODELS[name](classes, channels, size, **settings)
    assert sum(one.numel() for one in model.parameters()) == count
    assert model(torch.empty(2, channels, size, size, device="meta")).shape == (2, classes)


@pytest.mark.parametrize(("name", "facts", "settings", "count"), OTHERS)
def test_parameter_counts_of_other_data(name, facts, settings, count):
    with torch.device("meta"):
        model = build(name, **facts, seed=0, **settings)
    assert sum(one.numel() for one in model.parameters()) == count


def test_every_model_has_a_counted_size():
    assert {row[0] for row in [*COUNTS, *OTHERS]} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_conformance(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model = small(name)
    assert torch.equal(torch.get_rng_state(), before)
    state = model.state_dict()
    torch.manual_seed(2)
    again, other = small(name).state_dict(), small(name, seed=1).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in state.items())
    weights = [key for key, value in state.items() if value.ndim > 1 and (name, key) != ("vit_small", "token")]
    assert weights
    assert not any(torch.equal(state[key], other[key]) for key in weights)

    inputs = batch(name)
    outputs = model.eval()(inputs)
    assert outputs.shape == (3, 7, *inputs.shape[2:]) if name in MAPS else outputs.shape == (3, 7)
    assert outputs.isfinite().all()
    torch.testing.assert_close(model(inputs[1:2]), outputs[1:2], rtol=1e-4, atol=1e-5)

    names = head(model)
    parameters = dict(model.named_parameters())
    assert list(parameters)[-2:] == list(names)
    seen, last = features(model, inputs), [parameters[key] for key in names]
    if name == "bisenet_v2":
        torch.testing.assert_close(functional.pixel_shuffle(functional.conv2d(seen, *last), 8), outputs)
    elif name in MAPS:
        torch.testing.assert_close(functional.conv2d(seen, *last), outputs)
    else:
        assert [one.shape[0] for one in last] == [7, 7]
        torch.testing.assert_close(functional.linear(seen, *last), outputs)
    assert seen.requires_grad
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["digits_cnn", "lenet64", "fedavg_net", "vgg11"])
def test_pooling_before_relu_is_the_papers_network_bit_for_bit(name):
    model, inputs, labels = small(name), batch(name, 4), torch.tensor([0, 3, 6, 1])
    layers = list(model.named_children())
    for place in reversed(range(len(layers))):
        if layers[place][0].startswith("pool"):
            layers[place], layers[place + 1] = layers[place + 1], layers[place]
    paper = nn.Sequential(OrderedDict(layers))
    assert list(dict(paper.named_children())) != list(dict(model.named_children()))
    results = []
    for one in (model, paper):
        loss = functional.cross_entropy(one(inputs), labels)
        results.append([loss, *torch.autograd.grad(loss, list(one.parameters()))])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


def group_norms(module: nn.Module) -> nn.Module:
    for key, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, key, nn.GroupNorm(2, child.num_features))
        else:
            group_norms(child)
    return module


def test_resnet18_gn_is_torchvisions_with_its_norms_replaced():
    model = small("resnet18_gn")
    reference = group_norms(torchvision_shim.models.resnet18(weights=None, num_classes=7))
    reference.load_state_dict(model.state_dict())
    assert torch.equal(model(batch("resnet18_gn")), reference(batch("resnet18_gn")))


def test_cifar_stem_keeps_the_full_image():
    model = small("resnet18_gn_cifar")
    assert model.conv1(batch("resnet18_gn_cifar")).shape == (3, 64, 32, 32)
    assert isinstance(model.maxpool, nn.Identity)
    assert model.layer4(model.layer3(model.layer2(torch.zeros(1, 64, 32, 32)))).shape == (1, 512, 4, 4)


def test_batchnorm_without_running_statistics():
    with torch.device("meta"):
        model, plain = MODELS["resnet18_bn"](7, running_statistics=False), MODELS["resnet18_bn"](7)
    assert not dict(model.named_buffers())
    assert len(dict(plain.named_buffers())) == 3 * 20


def test_mobilenet_has_eight_groups_everywhere_and_no_dropout():
    model = MODELS["mobilenetv2_gn"](7, 1)
    norms = [one for one in model.modules() if isinstance(one, nn.GroupNorm)]
    assert len(norms) == 52
    assert {one.num_groups for one in norms} == {8}
    assert [one.p for one in model.modules() if isinstance(one, nn.Dropout)] == [0.0]
    assert not any(isinstance(one, nn.BatchNorm2d) for one in model.modules())
    assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 7)


def test_wide_resnet_against_a_plain_forward_pass():
    model = small("wrn28_4").double()
    w = model.state_dict()

    def norm(x, key):
        return functional.relu(functional.group_norm(x, 2, w[f"{key}.weight"], w[f"{key}.bias"]))

    x = functional.conv2d(batch("wrn28_4").double(), w["stem.weight"], padding=1)
    for block in range(12):
        path = f"blocks.{block}"
        stride = 2 if block in (4, 8) else 1
        active = norm(x, f"{path}.norm1")
        y = functional.conv2d(active, w[f"{path}.conv1.weight"], stride=stride, padding=1)
        y = functional.conv2d(norm(y, f"{path}.norm2"), w[f"{path}.conv2.weight"], padding=1)
        x = y + (functional.conv2d(active, w[f"{path}.shortcut.weight"], stride=stride) if block % 4 == 0 else x)
    expected = functional.linear(norm(x, "norm").mean((2, 3)), w["fc.weight"], w["fc.bias"])
    assert x.shape == (3, 256, 8, 8)
    torch.testing.assert_close(model(batch("wrn28_4").double()), expected)


def test_transformer_against_torchs_encoder_layer():
    model = small("vit_small", width=24, heads=3, depth=2, hidden=40, patch=8).double()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel()), dtype=one.dtype) / 3)
    w = model.state_dict()
    inputs = batch("vit_small").double()
    patches = inputs.view(3, 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).reshape(3, 16, 192)
    tokens = functional.linear(patches, w["patches.weight"].view(24, 192), w["patches.bias"])
    x = torch.cat([w["token"].expand(3, 1, 24), tokens], 1) + w["position_embedding"]
    renamed = {
        "self_attn.in_proj_": "attention.qkv.",
        "self_attn.out_proj.": "attention.out.",
        "linear1.": "mlp.0.",
        "linear2.": "mlp.2.",
        "norm1.": "norm1.",
        "norm2.": "norm2.",
    }
    for block in range(2):
        layer = nn.TransformerEncoderLayer(24, 3, 40, 0.0, "gelu", batch_first=True, norm_first=True).double()
        layer.load_state_dict(
            {
                new + part: w[f"blocks.{block}.{old}{part}"]
                for new, old in renamed.items()
                for part in ("weight", "bias")
            }
        )
        x = layer(x)
    x = functional.layer_norm(x, (24,), w["norm.weight"], w["norm.bias"])
    torch.testing.assert_close(model(inputs), functional.linear(x[:, 0], w["fc.weight"], w["fc.bias"]))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("lenet46", {}, "model: unknown 'lenet46'; did you mean 'lenet64'"),
        ("lenet64", {"width": 3}, "model 'lenet64' takes no settings, got 'width'"),
        ("mlp", {"hiden": [3]}, "setting of model 'mlp': unknown 'hiden'; did you mean 'hidden'"),
        ("mlp", {"hidden": [0]}, "hidden must be a whole number"),
        ("fsa_cnn", {"variant": "cifar10"}, "variant: unknown 'cifar10'; did you mean 'cifar'"),
        ("wrn28_4", {"norm": "layer"}, "norm: unknown 'layer'"),
        ("resnet18_gn", {"groups": 5}, "groups must divide the 64 channels of every layer, got 5"),
        ("vit_small", {"patch": 5}, "patch must divide the image size 32, got 5: write one of 2, 4, 8, 16, 32"),
        ("vit_small", {"heads": 5}, "heads must divide width=256, got 5"),
        (":net", {}, "write 'module:function'"),
        ("no_such_module_of_ours:net", {}, "cannot be imported .ModuleNotFoundError.*PYTHONPATH=FOLDER"),
    ],
)
def test_mistakes_are_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        build(name, classes=10, channels=3, size=32, seed=0, **settings)


def test_images_too_small():
    with pytest.raises(ValueError, match="8x8 images are too small, nothing is left after layer pool2"):
        build("lenet64", classes=10, channels=1, size=8, seed=0)
    with pytest.raises(ValueError, match="size of images for vgg11 must be a whole number, at least 16; got 8"):
        build("vgg11", classes=10, channels=1, size=8, seed=0)
    with pytest.raises(ValueError, match="classes must be a whole number, at least 1; got 0"):
        build("lenet64", classes=0, channels=1, size=32, seed=0)


USERS = """
from torch import nn
SIZES = (1, 2)
def net(classes, channels, size, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, width), nn.ReLU(), nn.Linear(width, classes))
def anything(**given):
    return nn.Linear(given["size"], given["classes"], bias=given["bias"])
def needy(classes, channels, size, depth):
    return nn.Linear(size, classes)
def flat(classes):
    return nn.Linear(1, classes)
def wordy(classes, vocabulary):
    return nn.Embedding(vocabulary, classes)
def oblong(classes, channels, image_height, image_width):
    return nn.Linear(image_height * image_width, classes)
def wide(classes, channels, size, width=4):
    return nn.Linear(width, classes)
def wrong(classes, channels, size):
    return "a network"
def headless(classes, channels, size):
    return nn.Flatten()
class Bypass(nn.Module):
    def __init__(self, classes, channels, size):
        super().__init__()
        self.fc = nn.Linear(1, classes)
    def forward(self, x):
        return x
"""


@pytest.fixture
def users_module(tmp_path, monkeypatch):
    (tmp_path / "users_models_for_test.py").write_text(USERS)
    (tmp_path / "users_broken_for_test.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    return "users_models_for_test"


def user(name, **settings):
    return build(name, classes=5, channels=2, size=3, seed=4, **settings)


def test_a_users_own_model(users_module):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = user(f"{users_module}:net", width=6), user(f"{users_module}:net", width=6)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[1].weight, second[1].weight)
    assert first(torch.zeros(2, 2, 3, 3)).shape == (2, 5)
    assert head(first) == ("3.weight", "3.bias")
    assert head(user(f"{users_module}:anything", bias=False)) == ("weight",)
    assert features(first, torch.zeros(2, 2, 3, 3)).shape == (2, 6)


def test_a_model_gets_the_facts_that_it_takes(users_module):
    facts = {"classes": 5, "channels": 2, "image_height": 3, "image_width": 7}
    for name, inputs in (("flat", 1), ("oblong", 21)):
        assert build(f"{users_module}:{name}", **facts, seed=0).in_features == inputs
    square = {**facts, "size": 3, "image_width": 3}
    assert build(f"{users_module}:wide", **square, seed=0).in_features == 4  # its width is a setting, not the images'
    assert build(f"{users_module}:wide", **square, seed=0, width=6).in_features == 6
    with pytest.raises(ValueError, match="needs the side of square images: a data set of square images; the data have"):
        build("lenet64", **facts, seed=0)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nett", {}, "model in module '.*': unknown 'nett'; did you mean 'net'"),
        ("SIZES", {}, "must be a function or a class, got tuple"),
        ("net", {"widht": 3}, "unknown 'widht'; did you mean 'width'"),
        ("needy", {}, "needs the setting depth"),
        ("wordy", {}, "needs a vocabulary: a data set of token sequences; the data have classes 5, channels 2, size 3"),
        ("wrong", {}, "must return a torch.nn.Module, got str"),
    ],
)
def test_mistakes_in_a_users_model(users_module, name, settings, message):
    with pytest.raises(ValueError, match=message):
        user(f"{users_module}:{name}", **settings)


def test_a_users_module_that_fails(users_module):
    with pytest.raises(ValueError, match=r"cannot be imported .ZeroDivisionError: division by zero"):
        user("users_broken_for_test:net")


def test_models_without_a_usable_head(users_module):
    with pytest.raises(ValueError, match=r"Flatten has no torch\.nn\.Linear or torch\.nn\.Conv2d layer"):
        head(user(f"{users_module}:headless"))
    bypass = user(f"{users_module}:Bypass")
    with pytest.raises(ValueError, match="never called layer 'fc'"):
        features(bypass, torch.zeros(1, 1))
    assert not bypass.fc._forward_pre_hooks


def test_hook_is_removed_after_an_error():
    model = small("mlp")
    with pytest.raises(RuntimeError):
        features(model, torch.zeros(2, 5))
    assert not networks.classifier(model)[1]._forward_pre_hooks


FAKE = {
    "__init__.py": "import torch\nLIBRARY = torch.library.Library('torchvision_stand_in', 'DEF')\n"
    "LIBRARY.define('nms(Tensor x) -> Tensor')\n",
    "datasets/__init__.py": "",
    "datasets/mnist.py": "",
    "datasets/utils.py": "",
    "models.py": "",
    "transforms/__init__.py": "",
    "transforms/functional.py": "",
}


@pytest.fixture
def fake_torchvision(tmp_path, monkeypatch):
    import sys

    for key, text in FAKE.items():
        path = tmp_path / "torchvision" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for key in [one for one in sys.modules if one.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, key)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "torchvision"
    for key in [one for one in sys.modules if one.split(".")[0] == "torchvision"]:
        del sys.modules[key]


def test_nothing_is_declared_where_torchvision_loads(fake_torchvision):
    names = runpy.run_path(str(ROOT / "training" / "models" / "torchvision_shim.py"))
    assert names["declared"] == []
    assert Path(names["datasets"].__file__).parent.parent == fake_torchvision


def test_other_failures_of_torchvision_are_not_hidden(fake_torchvision):
    (fake_torchvision / "__init__.py").write_text("raise RuntimeError('out of luck')")
    with pytest.raises(RuntimeError, match="out of luck"):
        runpy.run_path(str(ROOT / "training" / "models" / "torchvision_shim.py"))


def test_real_torchvision_works_here():
    assert torchvision_shim.datasets.CIFAR10.base_folder == "cifar-10-batches-py"
    image = torch.arange(12, dtype=torch.uint8).view(1, 3, 4)
    assert torch.equal(torchvision_shim.functional.hflip(image), image.flip(2))
    assert hasattr(torch.ops.torchvision, "nms")


def test_only_one_file_imports_torchvision():
    packages = ("landscape", "training", "analysis", "reports", "tests")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert ROOT / "training" / "models" / "torchvision_shim.py" in files
    importers = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "torchvision" for name in names):
                importers.add(path.relative_to(ROOT).as_posix())
    assert importers == {"training/models/torchvision_shim.py"}

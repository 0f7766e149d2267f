"""Augmentation: whole batches against one image at a time, and draws with the right distribution."""

import math

import pytest
import torch
from torch.nn import functional

from landscape.rng import torch_generator
from training.data.augment import augment, crop_and_flip, cut_out, draw, draw_mixup, mix, mixup
from training.data.dataset import make, normalise
from training.models import torchvision_shim
from training.recipe_tables import Augment
from training.settings import build

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def pixels(count, channels, height, width):
    shape = (count, channels, height, width)
    return torch.randint(1, 256, shape, generator=torch_generator(0, "pixels"), dtype=torch.uint8)


def augment_images(images: torch.Tensor, *given, **named) -> torch.Tensor:
    """The images alone: their labels stay as they are."""
    labels = torch.arange(len(images))
    found, kept = augment(images, labels, *given, **named)
    assert kept is labels
    return found


def dataset_of(images, mean=MEAN, std=STD):
    labels = torch.zeros(len(images), dtype=torch.int64)
    return make("test", (images, labels), (images[:0], labels[:0]), mean=mean, std=std)


@pytest.mark.parametrize("shape", [(7, 3, 32, 32), (5, 1, 9, 9), (4, 2, 6, 11), (1, 3, 1, 1)])
@pytest.mark.parametrize("padding", [1, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crop_and_flip_against_torchvision_one_by_one(shape, padding, dtype):
    images = pixels(*shape).to(dtype)
    count, _, height, width = shape
    chosen = draw(count, (height, width), torch_generator(1), Augment(padding=padding, flip=True))
    expected = []
    for image, (top, left), flip in zip(images, chosen.offsets.tolist(), chosen.flips.tolist(), strict=True):
        padded = torchvision_shim.functional.pad(image, [padding] * 4)
        window = torchvision_shim.functional.crop(padded, top, left, height, width)
        expected.append(torchvision_shim.functional.hflip(window) if flip else window)
    found = crop_and_flip(images, chosen.offsets, chosen.flips, padding)
    assert found.dtype == dtype
    assert torch.equal(found, torch.stack(expected))


def test_crop_alone_and_flip_alone():
    images = pixels(3, 2, 5, 5)
    flips = torch.tensor([True, False, True])
    flipped = torch.stack([images[0].flip(2), images[1], images[2].flip(2)])
    assert torch.equal(crop_and_flip(images, None, flips, 0), flipped)
    corner = torch.tensor([[0, 0], [2, 2], [4, 3]])
    found = crop_and_flip(images, corner, None, 2)
    assert torch.equal(found[0, :, 2:, 2:], images[0, :, :3, :3])
    assert found[0, :, :2].eq(0).all()
    assert found[0, :, :, :2].eq(0).all()
    assert torch.equal(found[1], images[1])
    assert torch.equal(found[2, :, :3, :4], images[2, :, 2:, 1:])
    assert found[2, :, 3:].eq(0).all()
    assert found[2, :, :, 4:].eq(0).all()


def test_works_on_a_channels_last_batch():
    images = pixels(4, 3, 6, 6)
    chosen = draw(4, (6, 6), torch_generator(2), Augment(padding=2, flip=True))
    plain = crop_and_flip(images, chosen.offsets, chosen.flips, 2)
    strided = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(crop_and_flip(strided, chosen.offsets, chosen.flips, 2), plain)


@pytest.mark.parametrize("side", [1, 4, 5, 30])
def test_cutout_against_slices(side):
    images = torch.randn(9, 3, 7, 10, generator=torch_generator(3))
    chosen = draw(9, (7, 10), torch_generator(4), Augment(cutout=side))
    expected = images.clone()
    for image, (row, column) in zip(expected, chosen.centres.tolist(), strict=True):
        top, left = row - side // 2, column - side // 2
        image[:, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0
    assert torch.equal(cut_out(images, chosen.centres, side), expected)
    assert int(cut_out(images, torch.full((9, 2), 4), 2)[0].eq(0).sum()) == 3 * 4


def test_the_whole_order_crop_flip_normalise_cut():
    images = pixels(6, 3, 8, 8)
    kept = images.clone()
    settings = Augment(padding=3, flip=True, cutout=4)
    dataset = dataset_of(images)
    found = augment_images(images, torch_generator(5), settings, dataset=dataset)
    chosen = draw(6, (8, 8), torch_generator(5), settings)
    for place in range(6):
        top, left = chosen.offsets[place].tolist()
        image = torchvision_shim.functional.crop(
            torchvision_shim.functional.pad(images[place], [3] * 4), top, left, 8, 8
        )
        image = torchvision_shim.functional.hflip(image) if chosen.flips[place] else image
        image = torchvision_shim.functional.normalize(torchvision_shim.functional.convert_image_dtype(image), MEAN, STD)
        row, column = chosen.centres[place].tolist()
        image[:, max(row - 2, 0) : row + 2, max(column - 2, 0) : column + 2] = 0
        assert torch.equal(found[place], image)
    assert torch.equal(images, kept)


def test_padding_is_black_not_the_mean_colour():
    images = pixels(1, 3, 4, 4)
    padded = crop_and_flip(images, torch.tensor([[0, 0]]), None, 1)
    black = torch.tensor([-mean / std for mean, std in zip(MEAN, STD, strict=True)])
    torch.testing.assert_close(normalise(padded, dataset_of(images))[0, :, 0, 0], black)


def test_default_is_normalisation_only_and_precision_follows():
    images = pixels(5, 3, 4, 4)
    dataset = dataset_of(images)
    plain = augment_images(images, torch_generator(0), Augment(), dataset=dataset)
    assert torch.equal(plain, normalise(images, dataset))
    assert plain.dtype == torch.float32
    assert (
        augment_images(images, torch_generator(0), Augment(), dataset=dataset, dtype=torch.float64).dtype
        == torch.float64
    )


def test_float_images_are_not_changed_in_place():
    images = torch.randn(4, 3, 4, 4, generator=torch_generator(1))
    kept = images.clone()
    augment_images(images, torch_generator(0), Augment(cutout=2), dataset=dataset_of(images))
    augment_images(images, torch_generator(0), Augment(padding=1, flip=True), dataset=dataset_of(images))
    assert torch.equal(images, kept)


def test_the_key_alone_decides():
    images = pixels(40, 3, 8, 8)
    settings, dataset = Augment(padding=2, flip=True, cutout=3), dataset_of(images)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (
        augment_images(images, torch_generator(9, "batch", step), settings, dataset=dataset) for step in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_later_setting_does_not_change_an_earlier_draw():
    draws = [
        draw(20, (8, 8), torch_generator(6), settings)
        for settings in (Augment(padding=2), Augment(padding=2, flip=True), Augment(padding=2, flip=True, cutout=4))
    ]
    assert all(torch.equal(draws[0].offsets, one.offsets) for one in draws)
    assert torch.equal(draws[1].flips, draws[2].flips)
    assert draws[0].flips is None
    assert draws[1].centres is None


def within(count, total, probability, deviations=5):
    return abs(count - total * probability) < deviations * math.sqrt(total * probability * (1 - probability))


def test_marginal_distributions():
    total = 40_000
    chosen = draw(total, (5, 9), torch_generator(7), Augment(padding=2, flip=True, cutout=3))
    joint = torch.bincount(chosen.offsets[:, 0] * 5 + chosen.offsets[:, 1], minlength=25)
    assert len(joint) == 25
    assert all(within(count, total, 1 / 25) for count in joint.tolist())
    assert within(int(chosen.flips.sum()), total, 0.5)
    for axis, side in enumerate((5, 9)):
        counts = torch.bincount(chosen.centres[:, axis], minlength=side)
        assert len(counts) == side
        assert all(within(count, total, 1 / side) for count in counts.tolist())
    both = chosen.flips & (chosen.offsets[:, 0] == 0)
    assert within(int(both.sum()), total, 0.1)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_mixup_weights_follow_beta(alpha):
    weights = torch.tensor([draw_mixup(1, torch_generator(8, step), alpha)[0] for step in range(4000)]).double()
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(float(weights.mean()) - 0.5) < 5 * math.sqrt(variance / 4000)
    assert abs(float(weights.var()) - variance) < 0.1 * variance


def test_mixup_by_hand():
    inputs = torch.randn(4, 2, 3, 3, generator=torch_generator(1), dtype=torch.float64)
    labels = torch.tensor([2, 0, 1, 2])
    partners = torch.tensor([1, 0, 3, 2])
    mixed, targets = mix(inputs, labels, 0.3, partners, 3)
    torch.testing.assert_close(mixed[0], 0.3 * inputs[0] + 0.7 * inputs[1])
    expected = torch.tensor([[0.7, 0, 0.3], [0.3, 0, 0.7], [0, 0.3, 0.7], [0, 0.7, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(targets, expected)
    logits = torch.randn(4, 3, generator=torch_generator(2), dtype=torch.float64)
    own, other = functional.cross_entropy(logits, labels), functional.cross_entropy(logits, labels[partners])
    torch.testing.assert_close(functional.cross_entropy(logits, targets), 0.3 * own + 0.7 * other)


def test_mixup_in_one_call():
    inputs = torch.randn(6, 1, 2, 2, generator=torch_generator(1))
    labels = torch.arange(6)
    same = mixup(inputs, labels, torch_generator(2), Augment(), classes=6)
    assert same[0] is inputs
    assert same[1] is labels
    mixed, targets = mixup(inputs, labels, torch_generator(2), Augment(mixup=0.4), classes=6)
    weight, partners = draw_mixup(6, torch_generator(2), 0.4)
    assert sorted(partners.tolist()) == list(range(6))
    expected = mix(inputs, labels, weight, partners, 6)
    assert torch.equal(mixed, expected[0])
    assert torch.equal(targets, expected[1])
    torch.testing.assert_close(targets.sum(1), torch.ones(6))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"padding": -1}, "augment: padding must be at least 0, got -1"),
        ({"cutout": 1.5}, "augment: cutout must be a whole number, got 1.5"),
        ({"flip": 0.5}, "flip must be true or false, got 0.5"),
        ({"mixup": -0.1}, "augment: mixup must be at least 0, got -0.1"),
        ({"mixup": float("nan")}, "augment: mixup must be finite"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        build(Augment, settings, "augment")

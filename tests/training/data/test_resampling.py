"""Random windows of images and label maps: against torchvision where nothing is interpolated, and by what must hold."""

import pytest
import torch

from landscape.rng import torch_generator
from tests.training.tasks.small_tasks import federation
from training import config
from training.data.augment import augment
from training.data.dataset import make
from training.data.resampling import RATIO, draw_boxes, jitter, resample
from training.models import torchvision_shim
from training.recipe_tables import Augment

SIZE = (12, 20)


def make_images(count=6, channels=3):
    generator = torch_generator(0, "pixels")
    return torch.randint(0, 256, (count, channels, *SIZE), generator=generator, dtype=torch.uint8)


def test_a_window_of_whole_pixels_is_cut_out():
    images = make_images()
    boxes = draw_boxes(len(images), SIZE, torch_generator(1), Augment(crop=(5, 9)))
    assert len({tuple(box) for box in boxes.tolist()}) > 1
    wanted = [
        torchvision_shim.functional.crop(image, *map(int, box))
        for image, box in zip(images, boxes.tolist(), strict=True)
    ]
    for nearest in (False, True):
        assert torch.equal(resample(images, boxes, (5, 9), nearest=nearest), torch.stack(wanted))


def test_a_box_is_enlarged_as_torchs_own_interpolation_does():
    images = make_images().float()
    boxes = torch.tensor([[0.0, 0.0, *SIZE]]).repeat(len(images), 1)
    wanted = torch.nn.functional.interpolate(images, (24, 40), mode="bilinear", align_corners=False)
    torch.testing.assert_close(resample(images, boxes, (24, 40)), wanted, rtol=1e-4, atol=1e-2)


def test_label_maps_follow_their_images_and_count_for_nothing_beyond_the_border():
    """Every pixel's brightness is its class: still so after scaling, where neighbours are equal."""
    blocks = (
        torch.randint(0, 4, (8, 3, 5), generator=torch_generator(2)).repeat_interleave(8, 1).repeat_interleave(8, 2)
    )
    images = (60 * blocks)[:, None].to(torch.uint8)
    data = make("blocks", (images, blocks), (images[:1], blocks[:1]), mean=[0.0], std=[1.0])
    settings = Augment(scale=(0.5, 1.5), flip=True)
    seen, maps = augment(images, blocks, torch_generator(3), settings, dataset=data)
    assert seen.shape == (8, 1, 24, 40)
    outside = maps == 255
    assert 0 < outside.float().mean() < 0.5
    classes = 255 * seen[:, 0] / 60
    inside = ~outside & (classes == classes.round())  # not on an edge between two classes
    assert inside.float().mean() > 0.4
    agree = (classes[inside].long() == maps[inside]).float().mean()
    assert agree > 0.98  # halfway between two classes there may be the brightness of a third
    assert (seen[:, 0][outside] == 0).all()


def test_areas_and_ratios_are_as_drawn_or_the_box_is_in_the_middle():
    area = (0.5, 2.0)
    boxes = draw_boxes(2000, (1024, 1856), torch_generator(4), Augment(area=area))
    middle = (boxes == torch.tensor([0.0, 246.0, 1024.0, 1365.0])).all(dim=1)
    assert 0.5 < middle.float().mean() < 0.7  # six of ten on images of IDDA's shape
    _, _, heights, widths = boxes[~middle].unbind(1)
    shares, ratios = heights * widths / (1024 * 1856), widths / heights
    assert shares.min() > 0.499
    assert shares.max() < 0.745
    assert RATIO[0] * 0.99 < ratios.min() < 1.0
    assert ratios.max() < RATIO[1] * 1.01
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= torch.tensor([1024, 1856])).all()


def test_colours_change_as_torchvision_changes_them():
    image = make_images(1)
    functional = torchvision_shim.functional
    changed = jitter(image, 0.4, torch_generator(5))
    factors = 1 + 0.4 * (2 * torch.rand(3, generator=torch_generator(5)) - 1)
    wanted = functional.adjust_brightness(image.float() / 255, float(factors[0]))
    wanted = functional.adjust_saturation(functional.adjust_contrast(wanted, float(factors[1])), float(factors[2]))
    assert (changed.float() - 255 * wanted).abs().max() <= 1.0
    assert not torch.equal(changed, image)
    with pytest.raises(ValueError, match=r"augment\.jitter is for images of bytes"):
        jitter(image.float(), 0.4, torch_generator(5))


def test_reflection_has_no_black_border():
    images = make_images().clamp(min=1)
    data = make("images", (images, torch.zeros(6, dtype=torch.int64)), (images[:1], torch.zeros(1, dtype=torch.int64)))
    plain = [
        augment(images, torch.zeros(6), torch_generator(6), Augment(padding=4, border=border), dataset=data)[0]
        for border in ("zeros", "reflect")
    ]
    black = -torch.tensor(data.mean) / torch.tensor(data.std)
    has_black = [bool((one == black[:, None, None]).all(dim=1).any()) for one in plain]
    assert has_black == [True, False]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scale": [1.5, 0.5]}, "a range of two positive numbers, the smaller first"),
        ({"area": 0.5}, "a range of two positive numbers"),
        ({"crop": [512]}, "a height and a width"),
        ({"border": "mirror"}, "border"),
    ],
)
def test_wrong_settings_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        config.validate({"augment": given})


def test_the_last_batch_can_be_left_out():
    """Five clients of eight images: three batches of three, or two."""
    whole, dropped = (federation("maps", local={"drop_last": drop, "epochs": 2}).trainer for drop in (False, True))
    assert [one.count_steps(0) for one in (whole, dropped)] == [6, 4]
    assert [len(batch) for batch in whole.draw_batches(0, 1)] == [3, 3, 2, 3, 3, 2]
    assert [len(batch) for batch in dropped.draw_batches(0, 1)] == [3, 3, 3, 3]
    assert federation("maps", local={"drop_last": True, "batch_size": 30}).trainer.count_steps(0) == 1

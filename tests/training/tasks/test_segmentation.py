"""Segmentation against plain loops: losses, hard pixels, mean IoU, and label maps that move with their images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from landscape.rng import torch_generator
from tests.training.tasks.small_tasks import federation, maps, read_all
from training.data.augment import augment, draw
from training.data.dataset import make
from training.engine.evaluation import Evaluator
from training.executors.serial import Serial
from training.recipe_tables import Augment
from training.tasks.segmentation import SEGMENTATION, compute_ious, count_correct, make_loss


def scores_and_labels(count=4, classes=3, height=3, width=5):
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(count, classes, height, width, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (count, height, width), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = 255
    return scores, labels


def pixel_losses(scores, labels):
    """image -> the loss of every pixel, 0 where it is ignored."""
    found = []
    for image, truth in zip(scores, labels, strict=True):
        own = []
        for row in range(truth.shape[0]):
            for column in range(truth.shape[1]):
                label = int(truth[row, column])
                numbers = image[:, row, column].tolist()
                total = sum(math.exp(number) for number in numbers)
                own.append(0.0 if label == 255 else -math.log(math.exp(numbers[label]) / total))
        found.append(own)
    return found


def test_the_loss_is_the_mean_over_valid_pixels():
    scores, labels = scores_and_labels()
    expected = sum(map(sum, pixel_losses(scores, labels))) / int((labels != 255).sum())
    assert float(SEGMENTATION.loss(scores, labels)) == pytest.approx(expected, rel=1e-13)
    assert float(make_loss(None)(scores, labels)) == pytest.approx(expected, rel=1e-13)
    nothing = torch.full_like(labels, 255)
    assert math.isnan(float(SEGMENTATION.loss(scores, nothing)))
    assert float(make_loss(None)(scores, nothing)) == 0.0


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 0.01])
def test_hard_pixels_are_chosen_image_by_image(share):
    scores, labels = scores_and_labels()
    count = max(int(share * 15), 1)
    expected = [sum(sorted(own, reverse=True)[:count]) / count for own in pixel_losses(scores, labels)]
    loss = make_loss(share)
    assert loss(scores, labels, reduction="none").tolist() == pytest.approx(expected, rel=1e-13)
    assert float(loss(scores, labels)) == pytest.approx(sum(expected) / 4, rel=1e-13)
    halves = (float(loss(scores[:3], labels[:3])) * 3 + float(loss(scores[3:], labels[3:]))) / 4
    assert halves == pytest.approx(sum(expected) / 4, rel=1e-13)  # a mean over images, however they are batched


def test_auxiliary_heads_are_added_with_weight_one_in_training_and_left_out_of_tests():
    fed = federation("maps", local={"hard_pixels": 0.25})
    images, labels = fed.trainer.load_batch(np.arange(1, 5), 0, 0, 0)
    module = fed.trainer.replica.module
    assert module.training
    loss = make_loss(0.25)
    with torch.no_grad():
        fed.trainer.replica.flat.copy_(fed.begin().w)
        main, auxiliary = module(images)
        output = fed.trainer.compute_output(module, images, False)
    expected = float(loss(main, labels) + loss(auxiliary, labels))
    assert float(fed.trainer.loss(output.heads, labels)) == pytest.approx(expected, rel=1e-14)
    inputs, truth = read_all(fed.dataset, "test")
    alone = functional.cross_entropy(module.eval()(inputs), truth, ignore_index=255)
    assert fed.objective.loss(fed.begin().w) == pytest.approx(float(alone.detach()), rel=1e-12)


def test_mean_iou_by_hand():
    truth = [[0, 0, 1, 1, 255, 0]]
    predicted = [[0, 1, 1, 2, 2, 0]]
    # class 0: 2 of 3 right, nothing else taken for it; class 1: 1 of 2 right, 2 predicted; class 2: never true
    confusion = torch.tensor([[2, 1, 0], [0, 1, 1], [0, 0, 0]])
    ious = compute_ious(confusion)
    assert ious[:2].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert np.isnan(ious[2])
    scores = functional.one_hot(torch.tensor(predicted), 3).permute(0, 2, 1)[..., None].double()
    assert count_correct(scores, torch.tensor(truth)[..., None]) == (3, 5)


@pytest.mark.parametrize("domains", [False, True])
def test_metrics_come_from_one_confusion_matrix_over_all_images(domains):
    fed = federation("maps", data={"domains": domains})
    w = fed.begin().w + 0.3 * torch.randn(len(fed.begin().w), generator=torch.Generator().manual_seed(0)).double()
    found = Evaluator.of(fed.objective, fed.dataset).measure(w)
    module = fed.trainer.replica.module.eval()
    with torch.no_grad():
        fed.trainer.replica.flat.copy_(w)

    def by_hand(places):
        inputs, truth = read_all(fed.dataset, "test", places)
        scores = module(inputs).detach()
        predicted, right, valid, ious = scores.argmax(1), 0, 0, []
        for label in range(3):
            mine, theirs, there = predicted == label, truth == label, truth != 255
            both, either = int((mine & theirs).sum()), int(((mine | theirs) & there).sum())
            right, valid = right + both, valid + int(theirs.sum())
            ious += [both / either] if bool(theirs.any()) else []
        loss = float(functional.cross_entropy(scores, truth, ignore_index=255))
        return {"test_loss": loss, "accuracy": right / valid, "miou": sum(ious) / len(ious)}

    expected = by_hand(range(14))
    if domains:
        for name, first in (("seen", lambda n: n % 3 > 0), ("unseen", lambda n: n % 3 == 0)):
            own = by_hand([n for n in range(14) if first(n)])
            expected |= {f"{metric}_{name}": value for metric, value in own.items()}
    assert found == pytest.approx(expected, rel=1e-12)


def test_label_maps_are_cropped_and_flipped_with_their_images():
    """An image that holds its own labels still does after any crop and flip; beyond the border pixels are ignored."""
    labels = torch.randint(0, 200, (9, 5, 7), generator=torch.Generator().manual_seed(1))
    data = make("own", (labels[:, None].to(torch.uint8), labels), (labels[:1, None].to(torch.uint8), labels[:1]))
    settings = Augment(padding=2, flip=True)
    inputs, targets = data.read("train", torch.arange(9))
    images, moved = augment(inputs, targets, torch_generator(4), settings, dataset=data, dtype=torch.float64)
    pixels = (images * data.std[0] + data.mean[0]).mul(255).round().long()[:, 0]
    beyond = moved == 255
    assert 0 < int(beyond.sum()) < beyond.numel()
    assert torch.equal(pixels[~beyond], moved[~beyond])
    assert not pixels[beyond].any()
    chosen = draw(9, (5, 7), torch_generator(4), settings)
    assert 0 < int(chosen.flips.sum()) < 9


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"augment": {"mixup": 0.2}}, "augment.mixup mixes labels of examples, but segmentation has label maps"),
        ({"algorithm": {"name": "fedcr"}}, "fedcr needs a network whose last layer is torch.nn.Linear, got Conv2d"),
        ({"evaluation": {"clients": True}}, "segmentation has no class of an example. Write data.pooled=true"),
        ({"model": {"name": "lenet64"}}, "model 'lenet64' needs the side of square images"),
    ],
)
def test_what_segmentation_cannot_have_is_named(tables, message):
    with pytest.raises(ValueError, match=message):
        federation("maps", **tables)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(3, 2, 2), "label maps must be whole numbers, got torch.float32"),
        (torch.zeros(3, 2, 5).long(), r"the size of their images, \(3, 2, 4\); got \(3, 2, 5\)"),
        (
            torch.full((3, 2, 4), 300),
            "class numbers from 0 on, and 255 where a pixel does not count; got values from 300",
        ),
        (torch.full((3, 2, 4), 2), r"class numbers in 0\.\.1.*got 2"),
    ],
)
def test_wrong_label_maps_are_named(labels, message):
    images = torch.zeros(3, 1, 2, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match=message):
        make("mine", (images, labels), (images, torch.zeros(3, 2, 4).long()), task="segmentation", classes=2)


def test_users_are_what_label_maps_are_dealt_by():
    data = maps()
    assert data.users.names == tuple(f"city{k}" for k in range(5))
    fed = federation("maps", partition={"name": "pathological", "classes_per_client": 1})
    for own in fed.client_indices[0], fed.client_indices[3]:
        assert len(set(data.users.index[own].tolist())) == 1


def test_clients_of_pooled_data_are_measured_on_their_own_maps():
    fed = federation("maps", data={"pooled": True}, evaluation={"clients": True})
    state, record, _ = fed.advance(fed.begin(), Serial(fed.trainer))
    module = fed.trainer.replica.module.eval()
    with torch.no_grad():
        fed.trainer.replica.flat.copy_(state.w)
    for own, accuracy, miou in zip(fed.tests, record["client_accuracies"], record["client_mious"], strict=True):
        inputs, truth = read_all(fed.dataset, "train", own)
        predicted, valid = module(inputs).argmax(1), truth != 255
        assert accuracy == pytest.approx(float((predicted == truth)[valid].double().mean()), rel=1e-12)
        pairs = [((predicted == label) & valid, truth == label) for label in range(3)]
        ious = [float((mine & theirs).sum() / (mine | theirs).sum()) for mine, theirs in pairs if bool(theirs.any())]
        assert miou == pytest.approx(sum(ious) / len(ious), rel=1e-6)

"""What the Flower app and fl-landscape share: the network, the data, and who holds which examples."""

import torch
from sklearn.datasets import load_digits
from torch import nn

TRAINED_ON = 1437  # the other 360 of the 1797 digits are for testing


def make_net(classes: int = 10) -> nn.Module:
    """Make a small network with BatchNorm for images of 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def load_data():
    """Load the digits: images and labels for training, then for testing."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    return (images[:TRAINED_ON], labels[:TRAINED_ON]), (images[TRAINED_ON:], labels[TRAINED_ON:])


def deal_examples() -> list[list[int]]:
    """Deal the training examples to two clients: one gets the digits 0 to 4, the other 5 to 9."""
    labels = load_data()[0][1]
    return [torch.where((labels < 5) == small)[0].tolist() for small in (True, False)]

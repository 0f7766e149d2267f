"""A U-Net (Ronneberger et al. 2015) of any width and depth: a small network for segmentation on a laptop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import whole


def _convolve_twice(inputs: int, outputs: int, norm: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for entering in (inputs, outputs):
        layers.append(nn.Conv2d(entering, outputs, 3, padding=1, bias=not norm))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if norm else [nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """An encoder and a decoder of convolutions, with skip connections between the same sizes."""

    def __init__(self, classes: int, channels: int, *, width: int, depth: int, norm: bool):
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _convolve_twice(inputs, outputs, norm) for inputs, outputs in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            _convolve_twice(fine + coarse, fine, norm)
            for fine, coarse in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.head = nn.Conv2d(width, classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # torch's own start is a long plateau

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes, H, W) of images (B, channels, H, W)."""
        x, seen = images, []
        for level, convolve in enumerate(self.down):
            x = convolve(functional.max_pool2d(x, 2) if level else x)
            seen.append(x)
        for convolve, before in zip(self.up, seen[-2::-1], strict=True):
            x = convolve(torch.cat([before, functional.interpolate(x, scale_factor=2)], dim=1))
        logits: Tensor = self.head(x)
        return logits


def unet(
    classes: int,
    channels: int = 1,
    image_height: int = 64,
    image_width: int = 64,
    *,
    width: int = 8,
    depth: int = 2,
    norm: bool = False,
) -> nn.Module:
    """A U-Net for small images; 29,644 parameters for images of one channel and 4 classes.

    width: channels at the size of the image; twice as many at every half of it.
    depth: how often the size is halved.
    norm: BatchNorm after every convolution, which then has no bias.
    """
    divisor = 2 ** whole("depth", depth)
    for name, side in (("height", image_height), ("width", image_width)):
        if side % divisor:
            raise ValueError(f"{name} of images for unet, depth {depth}, must be a multiple of {divisor}, got {side}")
    return UNet(classes, channels, width=whole("width", width), depth=depth, norm=norm)

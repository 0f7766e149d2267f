"""Networks of plain layers for a stack of clients, whose gradients are batched matrix products.

Each client of a stack has weights of its own. torch has no fast convolution for that: vmap makes a grouped one, and
small networks spend most of their time between the kernels. Here images are (C, B, H, W, channels) for C clients with B
examples each: a convolution or linear layer of all clients is one batched product, and torch's pooling is fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape.layout import Layout
from training.rules.vectors import Vectors

Kept = tuple[Tensor, ...]  # what the forward pass of a layer keeps for its backward pass


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """A layer of a network, applied to the inputs (C, B, ...) of C clients with B examples each.

    names: of its parameters, the weight and the bias, if there is one.
    """

    names: tuple[str, ...] = ()

    @abstractmethod
    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        """Compute the outputs of the layer, and what its backward pass needs.

        x: (C, B, ...) inputs. weights: its parameters, each (C, ...).
        """

    @abstractmethod
    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        """Compute the derivative of the loss by the inputs.

        slope: the derivative by the outputs. kept: of the forward pass. weights: as it took them.
        """

    def differentiate(self, slope: Tensor, kept: Kept) -> tuple[Tensor, ...]:
        """Compute the derivatives of the loss by the weight and by the bias; the arguments are those of `backward`."""
        return ()

    def follow(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Return the shape of the outputs for one example, and how many numbers are copied for it.

        shape: of the example's inputs.
        """
        return shape, 0


class Linear(Layer):
    """A linear layer of inputs (C, B, f)."""

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        return multiply(x, weights[0].transpose(1, 2), weights[1:]), (x,)

    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        return slope @ weights[0]

    def differentiate(self, slope: Tensor, kept: Kept) -> tuple[Tensor, ...]:
        return slope.transpose(1, 2) @ kept[0], slope.sum(dim=1)


@dataclass(frozen=True)
class Convolution(Layer):
    """A convolution of images (C, B, H, W, channels): the product of all patches of the images with its filters."""

    filters: int
    kernel: tuple[int, int]
    padding: tuple[int, int]  # smaller than the kernel

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        patches = copy_patches(x, self.kernel, self.padding)
        y = multiply(patches.flatten(1, 3).flatten(2), _arrange(weights[0]), weights[1:])
        return y.view(*patches.shape[:4], self.filters), (patches,)

    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        # a pixel meets each element of a filter once: this is the convolution with the filters turned round
        height, width = (kernel - 1 - padding for kernel, padding in zip(self.kernel, self.padding, strict=True))
        patches = copy_patches(slope, self.kernel, (height, width))
        turned = weights[0].flip(3, 4).transpose(1, 2)
        return (patches.flatten(1, 3).flatten(2) @ _arrange(turned)).view(*patches.shape[:4], turned.shape[1])

    def differentiate(self, slope: Tensor, kept: Kept) -> tuple[Tensor, ...]:
        flat, patches = slope.flatten(1, 3), kept[0]
        filters = (flat.transpose(1, 2) @ patches.flatten(1, 3).flatten(2)).view(*flat.shape[::2], *patches.shape[4:])
        return filters.permute(0, 1, 4, 2, 3), flat.sum(dim=1)

    def follow(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        height, width = (
            size + 2 * padding - kernel + 1
            for size, kernel, padding in zip(shape[:2], self.kernel, self.padding, strict=True)
        )
        channels = max(shape[2], self.filters)  # patches of the images, or of the slopes
        return (height, width, self.filters), height * width * self.kernel[0] * self.kernel[1] * channels


def copy_patches(x: Tensor, kernel: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """Copy the patch of images under every position of a kernel, (C, B, height, width, *kernel, channels).

    x: (C, B, H, W, channels). padding: zeros around the images.
    """
    padded = nn.functional.pad(x, (0, 0, *2 * padding[1:], *2 * padding[:1])).contiguous()
    clients, examples, rows, columns, channels = padded.stride()
    size = padded.shape[2] - kernel[0] + 1, padded.shape[3] - kernel[1] + 1
    strides = (clients, examples, rows, columns, rows, columns, channels)
    return padded.as_strided((*x.shape[:2], *size, *kernel, x.shape[4]), strides).contiguous()


def _arrange(filters: Tensor) -> Tensor:
    """Arrange filters (C, filters, channels, *kernel) as the matrix that patches are multiplied by."""
    return filters.permute(0, 3, 4, 2, 1).flatten(1, 3)


@dataclass(frozen=True)
class MaxPool(Layer):
    """The largest pixel of each square of images (C, B, H, W, channels)."""

    side: int

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        y, places = nn.functional.max_pool2d(_as_torch(x), self.side, return_indices=True)
        return _as_stack(y, x), (x, places)

    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        x, places = kept
        square = [self.side, self.side]
        found = torch.ops.aten.max_pool2d_with_indices_backward(
            _as_torch(slope), _as_torch(x), square, square, [0, 0], [1, 1], False, places
        )
        return _as_stack(found, x)

    def follow(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        size = shape[0] // self.side, shape[1] // self.side
        return (*size, shape[2]), 0


def _as_torch(x: Tensor) -> Tensor:
    """View the images of all clients as one batch (C * B, channels, H, W)."""
    return x.flatten(0, 1).permute(0, 3, 1, 2)


def _as_stack(y: Tensor, x: Tensor) -> Tensor:
    """View a batch of images as those of the clients that x belongs to."""
    images = y.permute(0, 2, 3, 1)
    return images.view(*x.shape[:2], *images.shape[1:])


class ReLU(Layer):
    """The positive part."""

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        y = x.relu()
        return y, (y,)

    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        found: Tensor = torch.ops.aten.threshold_backward(slope, kept[0], 0)
        return found


class Flatten(Layer):
    """Images as vectors, channel by channel, as torch has them."""

    def forward(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Kept]:
        return x.movedim(-1, 2).flatten(2), (x,)

    def backward(self, slope: Tensor, kept: Kept, weights: Sequence[Tensor]) -> Tensor:
        clients, examples, *size, channels = kept[0].shape
        return slope.view(clients, examples, channels, *size).movedim(2, -1).contiguous()


def multiply(x: Tensor, matrices: Tensor, biases: Sequence[Tensor]) -> Tensor:
    """Multiply inputs by each client's matrix, and add its bias.

    x: (C, n, f). matrices: (C, f, g). biases: (C, g), or none.
    """
    return torch.baddbmm(biases[0][:, None], x, matrices) if biases else x @ matrices


@dataclass(frozen=True)
class StackedNetwork:
    """A network of plain layers for a stack of clients, each with its own weights."""

    layers: tuple[Layer, ...]

    def forward(self, weights: Vectors, inputs: Tensor) -> tuple[Tensor, list[Kept]]:
        """Compute the outputs (C, B, classes), and what the backward pass needs.

        weights: the parameters of all clients by name, each (C, ...). inputs: (C, B, ...).
        """
        x, kept = inputs.movedim(2, -1).contiguous(), []
        for layer in self.layers:
            x, own = layer.forward(x, [weights[name] for name in layer.names])
            kept.append(own)
        return x, kept

    def backward(self, slope: Tensor, kept: Sequence[Kept], weights: Vectors, wanted: Collection[str]) -> Vectors:
        """Compute the derivatives of the loss by parameters.

        slope: (C, B, classes) the derivative by the outputs. kept, weights: of the forward pass.
        wanted: names of the parameters; the pass ends at the first layer that has one of them.
        Returns the derivatives by name.
        """
        first = min(place for place, layer in enumerate(self.layers) if set(layer.names) & set(wanted))
        found: Vectors = {}
        for place in range(len(self.layers) - 1, first - 1, -1):
            layer, own = self.layers[place], kept[place]
            if set(layer.names) & set(wanted):
                found |= zip(layer.names, layer.differentiate(slope, own), strict=False)  # there may be no bias
            if place > first:
                slope = layer.backward(slope, own, [weights[name] for name in layer.names])
        return {name: found[name].reshape(weights[name].shape) for name in wanted}

    def count_copied(self, shape: tuple[int, ...]) -> int:
        """Count the numbers that are copied for one example.

        shape: of the example's inputs.
        """
        shape, total = (*shape[1:], shape[0]), 0
        for layer in self.layers:
            shape, copied = layer.follow(shape)
            total += copied
        return total


def stack_network(module: nn.Module, layout: Layout) -> StackedNetwork | None:
    """Make the stacked form of a network; None if it is more than a sequence of plain layers that end in a linear one.

    module: the network of one client. layout: of its parameters.
    """
    if type(module) is not nn.Sequential or any(one._forward_hooks for one in module.modules()):
        return None
    layers = [_stack_layer(name, layer) for name, layer in module.named_children()]  # a layer used twice comes once
    found = tuple(layer for layer in layers if layer is not None)
    kinds = [type(layer) for layer in found]
    if len(found) < len(module) or kinds[-1:] != [Linear] or Flatten not in kinds[: kinds.index(Linear)]:
        return None
    names = [name for layer in found for name in layer.names]
    return StackedNetwork(found) if names == [entry.name for entry in layout.entries] else None


def _stack_layer(name: str, layer: nn.Module) -> Layer | None:
    """The stacked form of one layer; None if it has none."""
    make = LAYERS.get(type(layer))  # of a class derived from one of them nothing is known
    return None if make is None else make(layer, tuple(f"{name}.{own}" for own, _ in layer.named_parameters()))


def _stack_convolution(layer: nn.Module, names: tuple[str, ...]) -> Layer | None:
    assert isinstance(layer, nn.Conv2d)
    (height, width), padding = layer.kernel_size, layer.padding
    plain = (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
    if not plain or isinstance(padding, str) or padding[0] >= height or padding[1] >= width:
        return None
    return Convolution(layer.out_channels, (height, width), (padding[0], padding[1]), names=names)


def _stack_pool(layer: nn.Module, names: tuple[str, ...]) -> Layer | None:
    assert isinstance(layer, nn.MaxPool2d)
    side = layer.kernel_size
    beside = isinstance(side, int) and layer.stride == side and (layer.padding, layer.dilation) == (0, 1)
    return MaxPool(side) if isinstance(side, int) and beside and not layer.ceil_mode else None


def _stack_flatten(layer: nn.Module, names: tuple[str, ...]) -> Layer | None:
    assert isinstance(layer, nn.Flatten)
    return Flatten() if (layer.start_dim, layer.end_dim) == (1, -1) else None


LAYERS: dict[type[nn.Module], Callable[[nn.Module, tuple[str, ...]], Layer | None]] = {
    nn.Conv2d: _stack_convolution,
    nn.Flatten: _stack_flatten,
    nn.Linear: lambda layer, names: Linear(names=names),
    nn.MaxPool2d: _stack_pool,
    nn.ReLU: lambda layer, names: ReLU(),
}

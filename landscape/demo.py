"""The demo: two clients that see different digits, the flatness of their models, and of their average.

It shows the question of this project in small. Each client's model is flat on its own data and sharp on
everyone's; the numbers go to results.h5 and the picture to landscape.png.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective, barrier, directions, eigenpairs, plane
from landscape.bars import Bars, bars
from landscape.results import Barrier, Eigenpairs, Plane, Progress
from landscape.rng import torch_generator

CLIENTS = {"A": range(0, 5), "B": range(5, 10)}  # the digits that each client sees


@dataclass(frozen=True)
class Result:
    """What the demo measured, ready to be stored and drawn."""

    spectrum: Eigenpairs  # of the average model on all data
    sharpness: dict[str, tuple[float, float, float]]  # client -> lambda_1 on own data, on all data, worst residual
    surface: Plane
    path: Barrier  # from client A to client B
    error: float  # of the average model


def run(out: Path, seed: int = 0, steps: int = 31) -> Result:
    """Train, measure, store and draw."""
    console = Console()
    console.print("Two clients share a small convolutional network: A sees the digits 0-4, B sees 5-9.")
    with bars(console) as bar:
        result = measure(seed, steps, bar)
    out.mkdir(parents=True, exist_ok=True)
    store(result, out / "results.h5", seed)
    draw(result, out / "landscape.png")
    report(result, console)
    console.print(f"Numbers: {out / 'results.h5'}    Picture: {out / 'landscape.png'}")
    return result


def measure(seed: int, steps: int, bar: Bars) -> Result:
    """Top eigenvalues, one surface and one barrier."""
    images, labels = digits()
    start = network(seed)
    train(start, images, labels, 5, seed, bar("common start"))
    models = {}
    for name, seen in CLIENTS.items():
        own = torch.isin(labels, torch.tensor(list(seen)))
        models[name] = network(seed)
        models[name].load_state_dict(start.state_dict())
        train(models[name], images[own], labels[own], 10, seed, bar(f"client {name}"))

    everyone = Objective(start, (images, labels))
    thetas = {name: everyone.flatten(model) for name, model in models.items()}
    average = torch.stack(list(thetas.values())).mean(dim=0)
    spectrum = eigenpairs(everyone.hessian(average), k=5, progress=bar("top eigenvalues"))
    sharp = {}
    for name, seen in CLIENTS.items():
        own = torch.isin(labels, torch.tensor(list(seen)))
        local = Objective(start, (images[own], labels[own]))
        pairs = [eigenpairs(objective.hessian(thetas[name]), k=1) for objective in (local, everyone)]
        worst = max(float(pair.residuals[0]) for pair in pairs)
        sharp[name] = (float(pairs[0].values[0]), float(pairs[1].values[0]), worst)
    d1, d2 = directions.filter_normalized(everyone.layout, average, seed=seed)
    surface = plane(everyone, average, d1, d2, steps=steps, extent=1.0, progress=bar("surface"))
    path = barrier(everyone, thetas["A"], thetas["B"], progress=bar("barrier"))
    return Result(spectrum, sharp, surface, path, everyone.error(average))


def digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels; they come with the package."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    return images, torch.tensor(data.target)


def network(seed: int) -> nn.Module:
    """A convolutional network of 6,090 parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 48),
            nn.ReLU(),
            nn.Linear(48, 10),
        )


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, seed: int, progress: Progress) -> None:
    """Plain SGD with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=torch_generator(seed, "demo", epoch))
        for batch in torch.split(order, 64):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            torch.autograd.backward(loss)
            optimizer.step()
        progress(epoch + 1, epochs)


def store(result: Result, path: Path, seed: int) -> None:
    """Write the numbers, under a temporary name first, so that a killed run leaves no half file."""
    aside = path.with_suffix(".tmp")
    with h5py.File(aside, "w") as file:
        file.attrs.update(seed=seed, data="digits", loss="cross_entropy", batchnorm="none", dtype="float32")
        for name in ("values", "residuals"):
            file[f"spectrum/{name}"] = getattr(result.spectrum, name)
        for name, numbers in result.sharpness.items():
            file[f"sharpness/{name}"] = np.array(numbers)
            file[f"sharpness/{name}"].attrs["columns"] = "lambda_1 own data, lambda_1 all data, worst residual"
        for name in ("x", "y", "loss", "error"):
            file[f"surface/{name}"] = getattr(result.surface, name)
        for name in ("x", "loss", "error"):
            file[f"barrier/{name}"] = getattr(result.path.path, name)
        file["barrier/loss"].attrs.update(linear=result.path.loss.linear, mean=result.path.loss.mean)
    os.replace(aside, path)


def draw(result: Result, path: Path) -> None:
    """Surface, spectrum and path side by side."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    FigureCanvasAgg(figure)  # no pyplot: no window system is asked for, and no global state is left behind
    ax = figure.add_subplot(1, 3, 1, projection="3d")
    X, Y = np.meshgrid(result.surface.x, result.surface.y, indexing="ij")
    ax.plot_surface(X, Y, np.log10(result.surface.loss), cmap="viridis", rcount=60, ccount=60)
    ax.set(title="average model on all data: log10 loss", xlabel="direction 1", ylabel="direction 2")
    ax = figure.add_subplot(1, 3, 2)
    places = np.arange(len(result.sharpness))
    own, everyone, _ = np.array(list(result.sharpness.values())).T
    left = ax.bar(places - 0.2, own, 0.4, color="#0072B2", label="on its own data")
    right = ax.bar(places + 0.2, everyone, 0.4, color="#D55E00", label="on all data", hatch="//", edgecolor="white")
    for bars_of in (left, right):
        ax.bar_label(bars_of, fmt="%.1f")
    ax.set_ylim(0, 1.35 * everyone.max())
    ax.set_xticks(places, [f"client {name}" for name in result.sharpness])
    ax.set(title="sharpness of local models", ylabel=r"$\lambda_1$ of the Hessian")
    ax.legend(frameon=False, loc="upper center", ncols=2)
    ax = figure.add_subplot(1, 3, 3)
    height = result.path.loss
    line = result.path.path
    ax.plot(line.x, line.loss, color="#0072B2")
    ax.plot([0, 1], [line.loss[0], line.loss[-1]], color="grey", linestyle="--", label="chord")
    ax.axvline(0.5, color="#009E73", linestyle=":", label="their average")
    found = f"barrier {height.linear:.2f}" if height.linear > 0.005 else "no barrier, a valley"
    ax.set(title=f"path from A to B: {found}", xlabel="share of B", ylabel="loss on all data")
    ax.legend(frameon=False, loc="upper center")
    ax.set_ylim(0, 1.35 * line.loss.max())
    figure.savefig(path, dpi=110)


def report(result: Result, console: Console) -> None:
    """The numbers that matter."""
    table = Table("model", "lambda_1 on its own data", "lambda_1 on all data", "residual below")
    for name, (own, everyone, residual) in result.sharpness.items():
        table.add_row(f"client {name}", f"{own:.2f}", f"{everyone:.2f}", f"{residual:.1g}")
    top = result.spectrum
    table.add_row("their average", "", f"{top.values[0]:.2f}", f"{top.residuals[0]:.1g}")
    console.print(table)
    console.print(
        f"Average model: error {100 * result.error:.1f} %, lambda_1/lambda_5 = {top.values[0] / top.values[4]:.2f} "
        f"({top.products} products). Barrier between the clients: {result.path.loss.linear:.2f} in loss."
    )

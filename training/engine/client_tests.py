"""The test examples of every client, and the accuracy of models on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape import Objective
from landscape.losses.batches import Batch
from landscape.rng import numpy_generator
from landscape.runtime.replica import Replica
from training.data.dataset import Dataset
from training.data.dealing import ClientIndices, Ints
from training.storage.metrics import Record

Accuracy = float | None  # None: there are no test examples


def draw_by_class_shares(dataset: Dataset, own: Ints, *, client: int, seed: int, draw: int) -> Ints:
    """Draw test examples for a client: int(draw p_c) of every class c without replacement (FedSoL).

    dataset: its test images are drawn from.
    own: the client's training examples, in which class c has the share p_c.
    client, seed: the key of the draw.
    draw: how many in all; a class that has fewer gives all that it has.
    Returns indices of test images in increasing order.
    """
    train_labels, known = require_labels(dataset)
    counts = np.bincount(train_labels[own], minlength=dataset.classes)
    drawn = []
    for c in np.flatnonzero(counts):
        wanted = draw * int(counts[c]) // len(own)  # whole numbers: 100 * 0.57 would come to 56
        generator = numpy_generator(seed, "client test", client, int(c))
        drawn.append(generator.permutation(np.flatnonzero(known == c))[:wanted])
    return np.sort(np.concatenate(drawn))


def find_largest_draw(dataset: Dataset, indices: Iterable[Ints]) -> int:
    """Find the largest draw that leaves no class short of test examples; beyond it test sets are less skewed.

    dataset: its test images are drawn from.
    indices: the training examples of each client.

    On the digits, ten clients of about three classes, local models have 98.6 % with draw 30 and 75.7 % with 1000.
    """
    train_labels, test_labels = require_labels(dataset)
    there = np.bincount(test_labels, minlength=dataset.classes)
    fitting = []
    for own in indices:
        counts = np.bincount(train_labels[own], minlength=dataset.classes)
        held = counts > 0
        fitting.append(int((((there[held] + 1) * len(own) - 1) // counts[held]).min()))
    return min(fitting)


def require_labels(dataset: Dataset) -> tuple[Ints, Ints]:
    """Return the labels of training and test examples; ValueError if there are label maps instead."""
    if dataset.labels is None or dataset.test_labels is None:
        raise ValueError(
            f"data set '{dataset.name}': clients' test examples are drawn by the shares of their classes, but "
            f"{dataset.task.name} has no class of an example. Write data.pooled=true, which gives every client its own"
        )
    return dataset.labels.numpy(), dataset.test_labels.numpy()


@dataclass(frozen=True, eq=False)
class ClientTests:
    """The test objective of a federation, client by client.

    objective: on all test data: those of pooled data client after client, else the data set's own.
    dataset: where test examples are drawn from if data are not pooled.
    indices: the training examples of every client.
    places: where each client's own test examples are among these; None: they are drawn by class shares.
    seed: of the run.
    draw: how many are drawn for a client.
    """

    objective: Objective
    dataset: Dataset
    indices: ClientIndices
    places: ClientIndices | None
    seed: int
    draw: int

    def describe_shortage(self) -> str:
        """Describe a shortage of test examples in some classes; empty if there is none."""
        if self.places is not None:
            return ""
        largest = find_largest_draw(self.dataset, (self.indices[client] for client in range(len(self.indices))))
        if self.draw <= largest:
            return ""
        return (
            f"evaluation.draw={self.draw} exceeds the test examples of some classes, so clients' test sets are less "
            f"skewed than their training data. Up to evaluation.draw={largest} they follow them"
        )

    def find_places(self, client: int) -> Ints:
        """Find the numbers of a client's test examples in the objective."""
        if self.places is not None:
            return self.places[client]
        return draw_by_class_shares(self.dataset, self.indices[client], client=client, seed=self.seed, draw=self.draw)

    def score(self, client: int, w: Tensor, statistics: Tensor) -> Accuracy:
        """The accuracy of a model on one client's test examples.

        w: (d,) its weights.
        statistics: (b,) running statistics of its norm layers.
        """
        places = self.find_places(client)
        if not len(places):
            return None
        error = self.objective.take(torch.from_numpy(places)).evaluate(torch.cat([w, statistics])).error
        return None if error is None else 1 - error

    def score_all(self, w: Tensor, statistics: Tensor) -> list[Accuracy]:
        """The accuracy of one model on the test examples of every client; arguments as for `score`."""
        clients = range(len(self.indices))
        if self.objective.batchnorm == "batch":  # an example's prediction depends on those that it is computed with
            return [self.score(client, w, statistics) for client in clients]
        objective = self.objective

        def count_errors(replica: Replica, chunk: Batch) -> Tensor | None:
            return objective.chunk_loss.measure(replica, chunk, each=True).each_error

        parts = list(objective.map_chunks(torch.cat([w, statistics]), count_errors))
        if any(part is None for part in parts):
            return [None for _ in clients]
        wrong, labelled = torch.cat([part for part in parts if part is not None]).T.cpu().numpy()
        found: list[Accuracy] = []
        for client in clients:
            places = self.find_places(client)
            total = float(labelled[places].sum())
            found.append(1 - float(wrong[places].sum()) / total if total else None)
        return found


def average(accuracies: Iterable[Accuracy]) -> Accuracy:
    """Average over clients with equal weights, without those that have no test examples."""
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return float(np.mean(known)) if known else None


def collect_latest(records: Iterable[Record]) -> dict[int, Accuracy]:
    """Collect the accuracy of every client's latest own model from the metrics of a run.

    records: of every round, in order. Clients that never took part are not in the result.
    """
    return {int(client): found for one in records for client, found in one.get("own_accuracies", {}).items()}

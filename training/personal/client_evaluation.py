"""A single client: its test examples, plain training on its data, and the outputs of models on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from landscape.errors import choose, whole
from landscape.layout import Layout
from landscape.rng import key, numpy_generator
from landscape.runtime.dropout import draw_dropout
from training import config
from training.clients.local_training import DivergenceError, StepGradient, local_step
from training.clients.trainer import LocalTrainer, put_at_rest
from training.data import partition
from training.data.dataset import normalise
from training.data.dealing import Ints
from training.engine import client_tests
from training.engine.federation import Federation
from training.engine.saving import restore_state
from training.engine.state import State
from training.methods import catalog
from training.rules.base import ModelOutput
from training.rules.context import ClientContext
from training.rules.corrections import Correction, Plain
from training.rules.vectors import head
from training.storage import checkpoint, run_directory
from training.storage.checkpoint import Checkpoint
from training.storage.run_directory import list_rounds, require_run

MODELS = ("server", "mean", "swa")
CHUNK = 256  # examples at once: where norm layers go by the batch, what the run's own evaluation has


@dataclass(frozen=True)
class HeadOnly(Correction):
    """u = g~ of the head; the body stays where it is (the last step of FedFSA's evaluation)."""

    def __call__(self, gradient: Tensor, plain: Tensor | None, w: Tensor, context: ClientContext) -> Tensor:
        return gradient

    def find_frozen(self, layout: Layout) -> slice | None:
        return slice(0, head(layout).start)


@dataclass(frozen=True, eq=False)
class Subject:
    """What is personalised: one of the global models of a run after one of its rounds.

    run: its directory.
    federation: its data, method and network.
    state: after that round.
    model: which global model: server, mean or swa.
    w: (d,) the weights of that model.
    statistics: (b,) the running statistics of its norm layers.
    checkpoint: SHA-256 of the global models at that round.
    """

    run: Path
    federation: Federation
    state: State
    model: str
    w: Tensor
    statistics: Tensor
    checkpoint: str

    def find_model(self, client: int) -> Tensor:
        """Return the global model as a client has it (d,), with its private parts, such as FedCR's heads."""
        private = self.federation.method.correction.find_private(self.federation.trainer.layout)
        if private is None or client not in self.state.clients:
            return self.w
        w = self.w.clone()
        w[private] = self.state.clients[client]["head"]
        return w


def open_subject(
    run: Path,
    *,
    round: int | None = None,
    model: str = "server",
    data_root: Path | None = None,
    device: str | None = None,
    on_message: Callable[[str], object] = print,
) -> Subject:
    """Open a run after one of its rounds.

    run: its directory.
    round: by default the newest that has an intact checkpoint.
    model: server, mean or swa.
    data_root: the folder of the data; by default the one that the recipe names.
    device: where clients are trained and tested: auto, cpu, cuda, cuda:1 or mps.
    on_message: called with a sentence for each damaged checkpoint.
    """
    choose("model", model, MODELS)
    recipe = config.load(require_run(run) / "config.toml")[0]
    loaded = load_round(run, round) if round is not None else _load_newest(run, on_message)
    if data_root is not None:
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"root": str(data_root)})})
    federation = Federation(recipe, partition.load(run / "partition.npz"), device, begins=False)
    digest = federation.dataset.digest
    if run_directory.read_provenance(run).get("data_digest", digest) != digest:
        raise ValueError(f"{run} was trained on different data; give the folder of the right data with --data-root")
    if model not in loaded.models:
        available = ", ".join(name for name in MODELS if name in loaded.models)
        raise ValueError(f"{run}: no '{model}' model after round {loaded.round}; there is: {available}")
    if loaded.extra.get("forgotten") and federation.method.correction.find_private(federation.trainer.layout):
        raise ValueError(
            f"{run}: the checkpoint of round {loaded.round} no longer holds the heads that clients keep to themselves; "
            "take the last round, or train with checkpoints.keep_clients=all"
        )
    statistics = loaded.models["swa_statistics" if model == "swa" else "statistics"]
    files = run_directory.read_meta(run_directory.checkpoint_path(run, loaded.round))["files"]
    sha256 = files["global.safetensors"]["sha256"]
    return Subject(run, federation, restore_state(loaded), model, loaded.models[model], statistics, sha256)


def _load_newest(run: Path, on_message: Callable[[str], object]) -> Checkpoint:
    newest, problems = checkpoint.load_newest(run)
    for problem in problems:
        on_message(f"damaged, skipped: {problem}")
    if newest is None:
        raise ValueError(f"{run} has no checkpoint yet: train it first")
    return newest


def load_round(run: Path, round: int) -> Checkpoint:
    """Load the checkpoint of a round; if there is none, the ValueError lists the rounds that have one.

    run: its directory.
    round: the number of finished rounds.
    """
    rounds = run_directory.checkpoint_rounds(run)
    if round not in rounds:
        raise ValueError(f"{run} has no checkpoint of round {round}; there are rounds {list_rounds(rounds) or 'none'}")
    return checkpoint.load(run_directory.checkpoint_path(run, round))


def sample_clients(federation: Federation, sample: int | None) -> list[int]:
    """List all clients, or some of them drawn by the run's seed.

    federation: whose clients.
    sample: how many, None for all. A larger sample includes a smaller one.
    """
    if sample is None:
        return list(range(len(federation.client_indices)))
    whole("clients", sample, most=len(federation.client_indices))
    order = numpy_generator(federation.recipe.seed, "personal sample").permutation(len(federation.client_indices))
    return sorted(int(client) for client in order[:sample])


def draw_test_examples(federation: Federation, client: int, *, draw: int = 1000) -> Ints:
    """Draw the numbers of a client's own test examples: training examples of pooled data, else test examples.

    federation: whose data.
    client: its number.
    draw: size of the test set if the client has no test examples.

    Pooled data: the client's own split. Users with test examples of their own: these. Else by class shares: see
    `training.engine.client_tests`.
    """
    if federation.tests is not None:
        return federation.tests[client]
    if federation.users_tests is not None:
        return federation.users_tests[client]
    own, seed = federation.client_indices[client], federation.recipe.seed
    return client_tests.draw_by_class_shares(federation.dataset, own, client=client, seed=seed, draw=draw)


def find_largest_draw(federation: Federation, clients: Sequence[int]) -> int:
    """Find the largest draw that leaves none of these clients short of test examples of a class.

    federation: whose data.
    clients: those to be tested.
    """
    return client_tests.find_largest_draw(federation.dataset, [federation.client_indices[client] for client in clients])


def read_test_examples(federation: Federation, indices: Ints) -> tuple[Tensor, Tensor]:
    """Read normalised inputs and targets of test examples.

    federation: whose data.
    indices: of the examples, as `draw_test_examples` returns them.
    """
    dataset = federation.dataset
    inputs, targets = dataset.read("test" if federation.tests is None else "train", torch.from_numpy(indices))
    return normalise(inputs, dataset, federation.trainer.dtype), targets


def make_plain_trainer(
    federation: Federation,
    *,
    epochs: int,
    correction: Correction | None = None,
) -> LocalTrainer:
    """Make a trainer for plain SGD with the run's batches, momentum, decay, clipping and augmentation.

    federation: the run.
    epochs: of a client.
    correction: what keeps a part of the network fixed, if any.
    """
    recipe = federation.recipe
    local = recipe.local.model_copy(update={"epochs": whole("epochs", epochs), "steps": None})
    method = dataclasses.replace(catalog.ALGORITHMS["fedavg"], correction=correction or Plain())
    changed = recipe.model_copy(update={"local": local})
    return LocalTrainer(
        changed, federation.dataset, federation.client_indices, method, federation.trainer.model, federation.device
    )


def train_client(
    trainer: LocalTrainer,
    client: int,
    w: Tensor,
    statistics: Tensor,
    *,
    round: int,
    lr: float,
    lr_decay: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Train a client alone.

    trainer: trains one client of the run.
    client: its number.
    w: (d,) the weights to start from.
    statistics: (b,) running statistics of norm layers to start from.
    round: whose batches are used.
    lr: learning rate.
    lr_decay: its factor per epoch.
    Returns the client's weights and running statistics at the end.
    """
    w = w.to(trainer.device)
    context = ClientContext(
        layout=trainer.layout,
        start=w,
        message={},
        state={},
        lr=lr,
        momentum=trainer.recipe.local.momentum,
        steps=trainer.count_steps(client),
        round=round,
        seed=trainer.recipe.seed,
        clients=(client,),
    )
    velocity: Tensor | None = None
    per_epoch = trainer.count_batches(len(trainer.client_indices[client]))
    trainer.load_statistics(statistics)
    with draw_dropout(key(trainer.recipe.seed, "dropout", round, client), trainer.device):
        for step, chosen in enumerate(trainer.draw_batches(client, round)):
            context.lr = lr * lr_decay ** (step // per_epoch)
            batch = trainer.load_batch(chosen, client, round, step)
            w, velocity = local_step(
                trainer.method, StepGradient(trainer, context, *batch), w, velocity, context, trainer.recipe
            )
    if not bool(torch.isfinite(w).all()):
        raise DivergenceError(round + 1, client, context.step, context.lr)
    return w.cpu(), trainer.read_statistics().cpu()


def run_model(
    trainer: LocalTrainer, w: Tensor, statistics: Tensor, inputs: Tensor, features: bool = False
) -> ModelOutput:
    """Run a model on examples in eval mode.

    trainer: whose network.
    w: (d,) the weights.
    statistics: (b,) running statistics of norm layers.
    inputs: (n, ...) as the network sees them.
    features: whether to return what enters the classifier as well.
    """
    with put_at_rest(trainer, w, statistics) as network:
        inputs = inputs.to(trainer.device)
        inputs = inputs.contiguous(memory_format=trainer.format) if inputs.ndim == 4 else inputs
        chunks = [trainer.compute_output(network, chunk, features) for chunk in torch.split(inputs, CHUNK)]
    entered = [chunk.features for chunk in chunks if chunk.features is not None]
    return ModelOutput(
        torch.cat([chunk.outputs for chunk in chunks]).cpu(), torch.cat(entered).cpu() if features else None
    )

"""One round, three executors: the same bits from processes, the same numbers to rounding from vmap."""

import copy
import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.federations import COMPOSED, NAMES, batches, close, federation, made_up, play
from training.clients.local_training import DivergenceError
from training.engine.federation import Federation
from training.executors import stacked
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.rules.corrections import Plain
from training.testing import check_executors

pytestmark = pytest.mark.usefixtures("forked_workers")

EVEN = (6, 7, 10, 8, 11)  # no batch of one example, of which BatchNorm cannot learn


@pytest.fixture(scope="module")
def workers() -> Iterator[Processes]:
    """Two processes for the whole module: starting them takes seconds."""
    executor = Processes(federation().trainer, workers=2)
    yield executor
    executor.close()


def build(name: str, **tables: object) -> Federation:
    return made_up(**tables) if name == "made up" else federation(name, **tables)


def with_norms(name: str = "fedavg", sizes: tuple[int, ...] = EVEN, **tables: object) -> Federation:
    return federation(name, sizes=sizes, model={"name": "tests.training.federations:normed"}, **tables)


@pytest.mark.parametrize("name", [*NAMES, *COMPOSED, "made up"])
def test_processes_agree_to_the_bit(name: str, workers: Processes) -> None:
    fed = build(name, rounds={"participants": 5}, local={"momentum": 0.5})
    workers.assign(fed.trainer)
    check_executors(fed, workers, Serial(fed.trainer), tolerance=0.0)


@pytest.mark.parametrize("name", [*NAMES, *COMPOSED, "made up"])
def test_vmap_agrees_to_rounding(name: str) -> None:
    fed = build(name, rounds={"participants": 5})
    if name.startswith(("fedala", "fedcr")):
        with pytest.raises(ValueError, match=r"backend vmap: fed.* starts every client elsewhere; use serial"):
            Stacked(fed.trainer)
        return
    assert len({fed.trainer.count_steps(client) for client in fed.draw_cohort(0)}) > 1 or name == "perfedavg"
    check_executors(fed, Stacked(fed.trainer), Serial(fed.trainer), tolerance=1e-10)


@pytest.mark.parametrize(
    "tables",
    [
        {"local": {"momentum": 0.7, "weight_decay": 0.1, "clip": 0.5}},
        {"local": {"steps": 5}, "augment": {"padding": 1, "flip": True, "mixup": 0.4}},
        {"model": {"name": "digits_cnn"}, "data": {"shape": [1, 8, 8]}},
        {"rounds": {"participants": 1}},
    ],
    ids=["momentum", "mixup", "convolution", "alone"],
)
def test_vmap_agrees_under_other_settings(tables: dict) -> None:
    fed = federation("scaffold+sam", **tables)
    check_executors(fed, Stacked(fed.trainer), Serial(fed.trainer), tolerance=1e-10)


def test_vmap_works_in_groups_where_stacks_would_grow_large(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = build("scaffold", rounds={"participants": 5})
    monkeypatch.setattr(stacked, "LARGEST", 2 * 43 * 8)
    executor = Stacked(fed.trainer)
    groups: list[int] = []
    train = executor._train
    monkeypatch.setattr(executor, "_train", lambda sent, cohort: groups.append(len(cohort)) or train(sent, cohort))
    check_executors(fed, executor, Serial(fed.trainer), tolerance=1e-10)
    assert groups == [2, 2, 1, 2, 2, 1]


@pytest.mark.parametrize("kind", ["serial", "vmap", "processes"])
def test_what_is_kept_of_a_client_is_its_own(kind: str, workers: Processes) -> None:
    """A view into a stack, or into a worker's memory, would keep all of it for as long as the client is known."""
    fed = federation("scaffold")
    if kind == "processes":
        workers.assign(fed.trainer)
    executor = {"serial": Serial, "vmap": Stacked}[kind](fed.trainer) if kind != "processes" else workers
    state, _, ends = play(fed, 1, executor)[0]
    for vector in [*ends.values(), *(vectors["control"] for vectors in state.clients.values())]:
        assert vector.untyped_storage().nbytes() == 43 * 8
        assert not vector.is_shared()


def test_dropout_is_drawn_for_every_client_and_round(workers: Processes) -> None:
    fed = federation("fedsam", model={"name": "tests.training.federations:dropping"}, rounds={"participants": 5})
    workers.assign(fed.trainer)
    check_executors(fed, workers, Serial(fed.trainer), tolerance=0.0)
    assert not close(play(fed, 1)[0][0].w, play(federation("fedsam", rounds={"participants": 5}), 1)[0][0].w, 1e-3)


def normed_by_torch(fed: Federation, client: int, start: nn.Module) -> Tensor:
    """Running statistics of a client that torch trains on the same batches."""
    model = copy.deepcopy(start).double().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for X, y in batches(fed, client, 0):
        optimizer.zero_grad()
        functional.cross_entropy(model(X), y).backward()
        optimizer.step()
    return torch.cat([model[2].running_mean, model[2].running_var])


def test_batchnorm_statistics_are_averaged(workers: Processes) -> None:
    fed = with_norms()
    workers.assign(fed.trainer)
    check_executors(fed, workers, Serial(fed.trainer), tolerance=0.0)
    state, record, _ = play(fed, 1)[0]
    sizes = {client: EVEN[client] for client in fed.draw_cohort(0)}
    own = {client: normed_by_torch(fed, client, fed.trainer.model) for client in sizes}
    mean = sum(n * own[client] for client, n in sizes.items()) / sum(sizes.values())
    assert close(state.statistics, mean)
    assert record["bytes_up"] == (fed.trainer.layout.size + 10) * 8 * 3  # the ten statistics travel as well
    assert not close(state.statistics, fed.begin().statistics, 1e-2)


@pytest.mark.parametrize("momentum", [0.1, None], ids=["moving", "cumulative"])
def test_the_second_pass_of_sam_leaves_statistics_alone(momentum: float | None) -> None:
    fed = with_norms("fedsam", sizes=(7,), algorithm={"rho": 0.5}, local={"epochs": 1})
    fed.trainer.replica.norms[0].momentum = momentum
    model = copy.deepcopy(fed.trainer.model).double().train()
    model[2].momentum = momentum
    w = fed.begin().w
    for X, y in batches(fed, 0, 0):  # two batches, of 4 and 3
        nn.utils.vector_to_parameters(w, model.parameters())
        g = nn.utils.parameters_to_vector(
            torch.autograd.grad(functional.cross_entropy(model(X), y), list(model.parameters()))
        )
        kept = copy.deepcopy(model)
        nn.utils.vector_to_parameters(w + 0.5 * g / g.norm(), kept.parameters())
        w = w - 0.2 * nn.utils.parameters_to_vector(
            torch.autograd.grad(functional.cross_entropy(kept(X), y), list(kept.parameters()))
        )
    expected = torch.cat([model[2].running_mean, model[2].running_var])
    for _ in range(2):  # a second context starts from what was sent, not from what the first has left
        state = play(fed, 1)[0][0]
        assert close(state.w, w)
        assert close(state.statistics, expected)


def test_vmap_refuses_in_words() -> None:
    fed = federation("fedcr")
    fed.trainer.method = dataclasses.replace(fed.method, correction=Plain())
    with pytest.raises(ValueError, match="fedcr has its own loss; use serial or processes"):
        Stacked(fed.trainer)
    with pytest.raises(ValueError, match="BatchNorm statistics cannot be stacked; use serial or processes"):
        Stacked(with_norms().trainer)
    fed = federation()
    fed.trainer.model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 3))
    with pytest.raises(ValueError, match="dropout would differ from the serial draw; use serial or processes"):
        Stacked(fed.trainer)


@pytest.mark.parametrize("kind", ["serial", "vmap", "processes"])
def test_divergence_names_round_and_client(kind: str, workers: Processes) -> None:
    """Client 5 alone diverges, in the second round; afterwards the executor is as good as before."""
    fed = federation("scaffold", rounds={"participants": 7})
    if kind == "processes":
        workers.assign(fed.trainer)
    executor = {"serial": Serial, "vmap": Stacked}[kind](fed.trainer) if kind != "processes" else workers
    state = play(fed, 1)[0][0]
    broken = copy.deepcopy(state)
    broken.clients[5]["control"][:] = float("inf")
    with pytest.raises(DivergenceError, match=r"client 5 diverged in round 2, local step 2 \(lr 0.2\). Try a smaller"):
        fed.advance(broken, executor)
    tolerance = 1e-10 if kind == "vmap" else 0.0
    assert close(play(fed, 1, executor, state)[0][0].w, play(fed, 1, None, state)[0][0].w, tolerance)


def test_a_step_into_infinity_is_laid_at_the_clients_door() -> None:
    """The loss was finite to the end; it is the last step that leads out."""
    fed = federation("scaffold", rounds={"participants": 7}, local={"steps": 1})
    state = play(fed, 1)[0][0]
    state.clients[5]["control"][:] = float("inf")
    with pytest.raises(DivergenceError, match="client 5 diverged in round 2, local step 1"):
        fed.advance(state, Serial(fed.trainer))

"""Partitions: truly disjoint and complete, drawn from the published laws, and stored so that damage is seen."""

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln

from training.data import allocation, dealing
from training.data import partition as module
from training.data.dealing import ClientIndices
from training.data.partition import PARTITIONS, Partition, check, check_settings, load, partition, save, split_client

COARSE = [0, 1, 0, 2, 1, 2, 0]
SETTINGS = {
    "iid": [{}],
    "dirichlet_total": [{"alpha": 0.0}, {"alpha": 0.05}, {"alpha": 2.0}, {"alpha": 1e6}, {"alpha": float("inf")}],
    "dirichlet_per_class": [{"beta": 1e-4}, {"beta": 0.3}, {"beta": 100.0}],
    "dirichlet_by_class": [
        {"alpha": 0.01, "min_size": 1},
        {"alpha": 0.5, "balance": False, "min_size": 2},
        {"alpha": 50.0, "min_size": 2},
    ],
    "shards": [{"shards_per_client": 1}, {"shards_per_client": 2}],
    "pathological": [{"classes_per_client": 1}, {"classes_per_client": 2}],
    "pachinko": [{"coarse": COARSE}, {"coarse": COARSE, "alpha": 0.01, "beta": 0.01}],
}
CASES = [(name, chosen) for name, listed in SETTINGS.items() for chosen in listed]
EQUAL = ["iid", "dirichlet_total", "dirichlet_per_class", "shards", "pachinko"]

pytestmark = pytest.mark.filterwarnings("ignore:dirichlet_by_class")


@pytest.fixture(autouse=True, scope="module")
def few_attempts() -> Iterator[None]:
    """Settings that cannot succeed shall give up soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "ATTEMPTS", 20)
        yield


def balanced(classes: int, each: int) -> np.ndarray:
    return np.repeat(np.arange(classes), each)


def ragged(counts: list[int], seed: int) -> np.ndarray:
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(seed).permutation(labels)


def test_every_partition_has_settings_listed_here() -> None:
    assert {*SETTINGS, "natural", "file"} == set(PARTITIONS)  # those two are given: see test_given.py


@pytest.mark.parametrize(("name", "chosen"), CASES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    counts=st.lists(st.integers(9, 40), min_size=2, max_size=7),
    clients=st.integers(7, 9),
    seed=st.integers(0, 2**40),
)
def test_every_example_has_exactly_one_client(name, chosen, counts, clients, seed) -> None:
    labels = ragged(counts, seed)
    made = partition(name, labels, clients, seed=seed, **chosen)
    assert len(made.indices) == clients
    assert sorted(np.concatenate(made.indices).tolist()) == list(range(len(labels)))
    assert made.sizes.tolist() == [len(part) for part in made.indices]
    assert made.sizes.min() >= chosen.get("min_size", 1)
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in made.indices)
    if name in EQUAL:
        assert made.sizes.max() - made.sizes.min() <= 1
    expected = [[int((labels[part] == cls).sum()) for cls in range(len(counts))] for part in made.indices]
    assert made.histogram.tolist() == expected
    assert made.classes_per_client.tolist() == [len(set(labels[part].tolist())) for part in made.indices]
    again = partition(name, labels, clients, seed=seed, **chosen)
    assert again.digest == made.digest


@pytest.mark.parametrize(("name", "chosen"), CASES)
def test_the_seed_alone_changes_the_result(name, chosen) -> None:
    labels = balanced(6, 50)
    first, second = (partition(name, labels, 10, seed=seed, **chosen) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(first.indices, second.indices, strict=True))
    np.random.seed(5)
    assert partition(name, labels, 10, seed=1, **chosen).digest == first.digest


@pytest.mark.parametrize(("name", "chosen"), CASES)
def test_one_client_one_class_and_as_many_clients_as_examples(name, chosen) -> None:
    if name not in ("shards", "pathological") or 2 not in chosen.values():
        assert partition(name, [3] * 5, 1, seed=0, **({**chosen, "min_size": 1} if "min_size" in chosen else chosen))
    if name in EQUAL and chosen.get("shards_per_client") != 2:
        assert partition(name, [0, 2, 2, 5, 5, 5], 6, seed=0, **chosen).sizes.tolist() == [1] * 6


def expected_classes(concentration: float, classes: int, size: int) -> float:
    """Distinct classes among n draws from Dirichlet(a, ..., a): C (1 - E[(1 - q)^n]) with q ~ Beta(a, (C - 1) a)."""
    rest = (classes - 1) * concentration
    return classes * (1 - np.exp(betaln(concentration, rest + size) - betaln(concentration, rest)))


@pytest.mark.parametrize(
    ("name", "chosen", "classes", "published", "low", "high"),
    [
        # Served one by one, late clients choose among fewer classes: at most 0.5 of 5 classes and 3 of 98 below the
        # formula. The mean over 3 x 100 clients has a standard error below 0.1 (0.1 at 5 classes), hence the slack.
        ("dirichlet_total", {"alpha": 0.05}, 10, 1.30, -0.1, 0.2),
        ("dirichlet_total", {"alpha": 1.0}, 10, 4.97, -0.8, 0.1),
        ("dirichlet_total", {"alpha": 100.0}, 10, 10.0, -0.25, 0.0),
        ("dirichlet_total", {"alpha": 0.5}, 100, 4.01, -0.5, 0.3),
        ("dirichlet_total", {"alpha": 1000.0}, 100, 98.3, -3.5, 0.0),
        # Served in turns, everybody takes up a new class whenever an old one runs out: above the formula, the more so
        # the fewer classes each client began with.
        ("dirichlet_per_class", {"beta": 0.1}, 10, 4.97, 0.2, 1.2),
        ("dirichlet_per_class", {"beta": 0.3}, 10, 8.0, -0.2, 0.7),
        ("dirichlet_per_class", {"beta": 0.6}, 10, 9.36, -0.15, 0.3),
        ("dirichlet_per_class", {"beta": 0.1}, 100, 32.9, -0.5, 2.5),
    ],
)
def test_classes_per_client_follow_the_published_expectation(name, chosen, classes, published, low, high) -> None:
    concentration = chosen.get("beta", chosen.get("alpha", 0) / classes)
    assert expected_classes(concentration, classes, 500) == pytest.approx(published, abs=0.05)
    labels = balanced(classes, 50_000 // classes)
    mean = np.mean([partition(name, labels, 100, seed=seed, **chosen).classes_per_client for seed in range(3)])
    assert low <= mean - published <= high


@pytest.mark.parametrize("classes", [10, 100])
def test_alpha_zero_gives_one_class_per_client(classes: int) -> None:
    made = partition("dirichlet_total", balanced(classes, 50_000 // classes), 100, seed=4, alpha=0.0)
    assert set(made.classes_per_client.tolist()) == {1}
    assert set(made.sizes.tolist()) == {500}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), seed=st.integers(0, 2**40), data=st.data())
def test_alpha_zero_changes_class_only_when_one_runs_out(counts, seed, data) -> None:
    clients = data.draw(st.integers(1, sum(counts)))
    made = partition("dirichlet_total", ragged(counts, seed), clients, seed=seed, alpha=0.0)
    # Every (client, class) pair ends by filling the client or by exhausting the class.
    assert made.classes_per_client.sum() <= clients + len(counts) - 1


def textbook(shares: np.ndarray, turns: list[int], labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The definition word for word: one draw at a time, an exhausted class set to 0 for everybody and renormalised."""
    left = np.bincount(labels)
    counts = np.zeros((len(shares), len(left)), dtype=int)
    for client in turns:
        open_shares = np.where(left > 0, shares[client], 0.0)
        cls = generator.choice(len(left), p=open_shares / open_shares.sum())
        counts[client, cls] += 1
        left[cls] -= 1
    return counts


def statistics(counts: np.ndarray) -> list[float]:
    return [float((counts > 0).sum(axis=1).mean()), float((counts.astype(float) ** 2).sum(axis=1).mean())]


@pytest.mark.parametrize("name", ["dirichlet_total", "dirichlet_per_class", "pachinko"])
def test_laws_agree_with_a_textbook_simulation(name: str) -> None:
    """Mean classes per client and mean squared counts agree within five standard errors of both means."""
    labels, clients, size = ragged([60, 30, 30, 80, 40], 0), 12, 20
    generator = np.random.default_rng(1)
    truth, ours = [], []
    for repeat in range(80):
        if name == "dirichlet_total":
            shares = generator.dirichlet(3.0 * np.bincount(labels) / len(labels), size=clients)
            turns = [k for k in generator.permutation(clients) for _ in range(size)]
            chosen = {"alpha": 3.0}
        elif name == "dirichlet_per_class":
            shares = generator.dirichlet([0.7] * 5, size=clients)
            turns, sizes = [], np.zeros(clients)
            while len(turns) < len(labels):
                turns.append(generator.choice(np.flatnonzero(sizes < size)))
                sizes[turns[-1]] += 1
            chosen = {"beta": 0.7}
        else:  # each fine label its own coarse label: the coarse draw is then all there is
            shares = generator.dirichlet([0.5] * 5, size=clients)
            turns = [k for k in generator.permutation(clients) for _ in range(size)]
            chosen = {"alpha": 0.5, "beta": 2.0, "coarse": [4, 3, 2, 1, 0]}
        truth.append(statistics(textbook(shares, turns, labels, generator)))
        ours.append(statistics(partition(name, labels, clients, seed=repeat, **chosen).histogram))
    gap = np.abs(np.mean(truth, axis=0) - np.mean(ours, axis=0))
    error = np.sqrt((np.var(truth, axis=0) + np.var(ours, axis=0)) / len(truth))
    assert (gap < 5 * error).all(), (gap, error)


def test_total_mass_is_spread_in_proportion_to_the_classes() -> None:
    """A class of a tenth of the data has q ~ Beta(0.1 alpha, 0.9 alpha): Hsu's prior p, which is uniform on CIFAR."""
    labels = ragged([100, 900], 0)
    held = np.mean([partition("dirichlet_total", labels, 20, seed=s, alpha=2.0).histogram[:, 0] > 0 for s in range(10)])
    expected = 1 - np.exp(betaln(0.2, 1.8 + 50) - betaln(0.2, 1.8))
    # 0.54; late clients find the class exhausted. A uniform prior would hand it to the first fifth of the clients.
    assert expected - 0.15 < held < expected + 0.05


def test_late_and_larger_clients_are_chosen_at_random() -> None:
    made = [partition("dirichlet_total", balanced(10, 101), 20, seed=seed, alpha=1e4) for seed in range(6)]
    assert len({int(np.argmin(one.classes_per_client)) for one in made}) > 2
    assert len({one.sizes.tobytes() for one in made}) == 6


def test_examples_of_a_class_are_chosen_at_random() -> None:
    made = partition("shards", [0] * 4000, 4, seed=0, shards_per_client=1)
    # The mean of 1000 of 4000 numbers has a standard deviation of 32.
    assert all(abs(part.mean() - 1999.5) < 160 for part in made.indices)


def test_a_draw_of_exactly_zero_skips_exhausted_classes() -> None:
    stock, turns = np.array([0, 2, 1]), np.array([0, 1, 0])
    zeros = SimpleNamespace(random=np.zeros)
    counts = dealing.serve(lambda left: np.tile(1.0 * left, (2, 1)), turns, np.array([2, 1]), stock, zeros)
    assert counts.tolist() == [[0, 1, 1], [0, 1, 0]]


def test_per_class_and_total_are_different_scales() -> None:
    labels = balanced(100, 500)
    total = partition("dirichlet_total", labels, 100, seed=0, alpha=0.3).classes_per_client.mean()
    per_class = partition("dirichlet_per_class", labels, 100, seed=0, beta=0.3).classes_per_client.mean()
    assert total < 6
    assert per_class > 50


def test_pachinko_draws_few_coarse_labels_and_all_their_fine_ones() -> None:
    coarse = np.arange(100) // 5
    made = partition("pachinko", balanced(100, 500), 500, seed=0, coarse=coarse)
    assert set(made.sizes.tolist()) == {100}
    coarse_counts = made.histogram.reshape(500, 20, 5).sum(axis=2)
    held = (coarse_counts > 0).sum(axis=1).mean()
    # 6.9 by the formula; late clients choose among fewer, and the mean of 500 clients has a standard error of 0.08.
    assert -0.8 < held - expected_classes(0.1, 20, 100) < 0.2
    rich = coarse_counts >= 60  # with beta = 10 a client rich in a coarse label has nearly all of its five fine ones
    fine = (made.histogram.reshape(500, 20, 5) > 0).sum(axis=2)[rich]
    assert rich.sum() > 50
    assert fine.mean() > 4.5


def test_pachinko_renormalises_within_the_coarse_label_first() -> None:
    """With a flat coarse share the mass of an exhausted fine label stays with its sibling, not with everybody."""
    labels = np.repeat([0, 1, 2, 3], [2, 398, 200, 200])
    made = partition("pachinko", labels, 4, seed=0, coarse=[0, 0, 1, 1], alpha=1e6, beta=1e6)
    # Coarse labels are drawn half and half whatever is left of label 0; were its mass spread over labels 1, 2 and 3,
    # label 1 would make a third of the first three clients and the last client would hold nothing else.
    assert made.histogram[:, 1].max() < 130
    assert made.histogram[:, 1].min() > 70


@pytest.mark.parametrize("balance", [True, False])
def test_by_class_balance_stops_clients_at_their_fair_share(balance: bool) -> None:
    made = partition("dirichlet_by_class", balanced(10, 500), 20, seed=0, alpha=0.3, balance=balance)
    assert made.settings == {"alpha": 0.3, "balance": balance, "min_size": 10}
    assert made.sizes.min() >= 10
    assert len(set(made.sizes.tolist())) > 5
    had = np.cumsum(made.histogram, axis=1) - made.histogram  # before each class
    past = made.histogram[had >= 250]
    assert len(past) > 10
    assert (past.max() == 0) == balance


def test_by_class_large_alpha_cuts_every_class_evenly() -> None:
    made = partition("dirichlet_by_class", balanced(4, 700), 7, seed=0, alpha=1e9, balance=False)
    assert np.abs(made.histogram - 100).max() <= 1


@pytest.mark.filterwarnings("default:dirichlet_by_class")
def test_by_class_never_loops_for_ever() -> None:
    with pytest.warns(UserWarning, match=r"no attempt gave every client 10 examples; moved \d+ examples"):
        made = partition("dirichlet_by_class", balanced(3, 400), 100, seed=0, alpha=1e-3)
    assert made.sizes.min() == 10
    with pytest.warns(UserWarning, match="dirichlet_by_class"):
        tight = partition("dirichlet_by_class", balanced(3, 100), 30, seed=0, alpha=0.1, min_size=10)
    assert set(tight.sizes.tolist()) == {10}


@pytest.mark.parametrize(("clients", "count"), [(100, 2), (100, 3), (20, 5), (10, 10)])
def test_shards_hold_one_class_each_when_they_fit(clients: int, count: int) -> None:
    made = partition("shards", balanced(10, 1000), clients, seed=3, shards_per_client=count)
    assert made.classes_per_client.max() <= count
    assert made.sizes.max() - made.sizes.min() <= 1
    # Some client gets two shards of one class, as in the paper.
    assert made.classes_per_client.min() < count


def test_shards_of_ragged_classes_touch_few_classes() -> None:
    labels = ragged([174, 182, 177, 183, 181, 182, 181, 179, 174, 180], 0)
    made = partition("shards", labels, 17, seed=0, shards_per_client=2)
    assert made.classes_per_client.max() <= 4  # a shard crosses one border at most
    assert made.sizes.max() - made.sizes.min() <= 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=8), seed=st.integers(0, 2**40), data=st.data())
def test_pathological_gives_exactly_c_classes(counts, seed, data) -> None:
    count = data.draw(st.integers(1, len(counts)))
    clients = data.draw(st.integers(1, 12))
    labels = ragged(counts, seed)
    feasible = len(counts) <= clients * count <= sum(min(available, clients) for available in counts)
    if clients > len(labels) or not feasible:
        with pytest.raises(ValueError, match=r"classes_per_client|cannot each hold"):
            partition("pathological", labels, clients, seed=seed, classes_per_client=count)
        return
    made = partition("pathological", labels, clients, seed=seed, classes_per_client=count)
    assert set(made.classes_per_client.tolist()) == {count}


@pytest.mark.parametrize(("classes", "clients", "count"), [(10, 100, 2), (10, 100, 5), (100, 100, 15), (6, 9, 4)])
def test_pathological_sizes_are_equal_when_they_can_be(classes: int, clients: int, count: int) -> None:
    parts = clients * count // classes
    made = partition("pathological", balanced(classes, parts * 20), clients, seed=0, classes_per_client=count)
    assert set(made.sizes.tolist()) == {20 * count}
    assert set(made.histogram[made.histogram > 0].tolist()) == {20}
    # Classes go together at random, not in fixed blocks.
    assert len({tuple(row) for row in (made.histogram > 0).tolist()}) > min(clients, classes) // 2


@pytest.mark.parametrize(("each", "clients", "count"), [(507, 100, 4), (503, 100, 2), (501, 50, 3), (83, 40, 5)])
def test_pathological_roundings_do_not_add_up(each: int, clients: int, count: int) -> None:
    made = partition("pathological", balanced(10, each), clients, seed=0, classes_per_client=count)
    assert made.sizes.max() - made.sizes.min() <= 1


def test_pathological_shares_large_classes_among_more_clients() -> None:
    made = partition("pathological", ragged([600, 200, 200, 200], 0), 6, seed=0, classes_per_client=2)
    assert (made.histogram > 0).sum(axis=0).tolist() == [6, 2, 2, 2]
    assert set(made.sizes.tolist()) == {200}


def test_iid_is_a_random_split_in_equal_shares() -> None:
    made = partition("iid", balanced(10, 1000), 7, seed=0)
    assert sorted(made.sizes.tolist()) == [1428] * 3 + [1429] * 4
    expected = made.sizes[:, None] / 10
    # Hypergeometric counts: variance n p (1 - p) (T - n) / (T - 1), so 70 squared z-scores average to one.
    variance = expected * 0.9 * (10_000 - made.sizes[:, None]) / 9_999
    assert 0.6 < ((made.histogram - expected) ** 2 / variance).mean() < 1.5
    assert partition("dirichlet_total", balanced(10, 1000), 7, seed=0, alpha=float("inf")).sizes.max() == 1429


def test_labels_with_gaps_keep_their_column() -> None:
    made = partition("dirichlet_per_class", [1, 1, 1, 4, 4, 4], 2, seed=0, beta=1.0)
    assert made.histogram.sum(axis=0).tolist() == [0, 3, 0, 0, 3]


def test_very_many_clients() -> None:
    made = partition("iid", np.arange(500_001) % 7, 250_000, seed=0)
    assert np.bincount(made.sizes).tolist() == [0, 0, 249_999, 1]


@pytest.mark.parametrize(
    ("name", "labels", "clients", "chosen", "message"),
    [
        ("dirichlet_totl", [0, 1], 2, {}, "partition: unknown 'dirichlet_totl'; did you mean 'dirichlet_total'"),
        (
            "dirichlet_total",
            [0, 1],
            2,
            {"alfa": 1},
            "setting of partition 'dirichlet_total': unknown 'alfa'; did you mean",
        ),
        ("iid", [0, 1], 2, {"alpha": 1.0}, "partition 'iid' takes no settings, got 'alpha'"),
        ("dirichlet_total", [0, 1], 2, {}, "needs the setting 'alpha'; write alpha = "),
        ("dirichlet_total", [0, 1], 2, {"alpha": -0.1}, "alpha must be at least 0, got -0.1"),
        ("dirichlet_total", [0, 1], 2, {"alpha": float("nan")}, "alpha must be at least 0, got nan"),
        ("dirichlet_total", [0, 1], 2, {"alpha": "0.5"}, 'alpha must be a number, got "0.5"'),
        ("dirichlet_per_class", [0, 1], 2, {"beta": 0.0}, "beta must be above 0, got 0.0"),
        ("dirichlet_by_class", [0, 1], 2, {"alpha": 0.0, "min_size": 1}, "alpha must be above 0"),
        (
            "dirichlet_by_class",
            [0] * 25,
            3,
            {"alpha": 1.0},
            "needs 30 examples, there are 25; write min_size=8 or less",
        ),
        (
            "dirichlet_by_class",
            [0] * 25,
            3,
            {"alpha": 1.0, "min_size": 0},
            "min_size must be at least 1",
        ),
        ("dirichlet_by_class", [0] * 25, 3, {"alpha": 1.0, "balance": 1}, "balance must be true or false, got 1"),
        (
            "shards",
            [0, 1, 2],
            2,
            {"shards_per_client": 2},
            "more shards than the 3 examples; write shards_per_client=1",
        ),
        ("shards", [0, 1, 2], 2, {"shards_per_client": 1.5}, "shards_per_client must be a whole number, got 1.5"),
        (
            "pathological",
            [0, 1, 2],
            1,
            {"classes_per_client": 4},
            "classes_per_client must be .* between 1 and 3; got 4",
        ),
        ("pathological", [0, 1, 2, 3], 3, {"classes_per_client": 1}, "makes 3 parts of classes, .* allow 4 to 4"),
        ("pachinko", [0, 1, 2], 1, {}, "needs the setting 'coarse'"),
        ("pachinko", [0, 1, 2], 1, {"coarse": [0, 0]}, "coarse label for labels 0 to 2, got 2 entries"),
        ("pachinko", [0, 1], 1, {"coarse": "animals"}, 'coarse must be a list, got "animals"'),
        ("pachinko", [0, 1], 1, {"coarse": [0, 0], "alpha": 0.0}, "alpha must be above 0"),
        ("iid", [0, 1], 3, {}, "3 clients cannot each hold one of 2 examples; write 2 or fewer"),
        ("iid", [0, 1], 0, {}, "clients must be a whole number, at least 1; got 0"),
        ("iid", [], 1, {}, r"labels must be a vector .* got shape \(0,\)"),
        ("iid", [[0, 1]], 1, {}, r"labels must be a vector .* got shape \(1, 2\)"),
        ("iid", [0.5, 1.0], 1, {}, "labels must be whole numbers 0, 1, ..., got float64"),
        ("iid", [-1, 1], 1, {}, "labels must be whole numbers 0, 1, ..., got int64 with smallest -1"),
    ],
)
def test_mistakes_are_named(name, labels, clients, chosen, message) -> None:
    with pytest.raises(ValueError, match=message):
        partition(name, labels, clients, seed=0, **chosen)


def test_settings_are_plain_values_so_that_equal_ones_hash_alike() -> None:
    assert check_settings("pachinko", {"coarse": np.array([1, 0]), "alpha": 1}) == {
        "coarse": (1, 0),
        "alpha": 1.0,
        "beta": 10.0,
    }
    labels = balanced(3, 10)
    whole = partition("dirichlet_total", labels, 3, seed=0, alpha=1)
    assert whole.digest == partition("dirichlet_total", labels.astype(np.uint8), 3, seed=0, alpha=np.float32(1)).digest
    assert whole.digest != partition("dirichlet_total", labels, 3, seed=0, alpha=1.5).digest


def test_digest_covers_every_field() -> None:
    made = partition("dirichlet_total", balanced(3, 10), 3, seed=0, alpha=1.0)
    swapped = ClientIndices.of([made.indices[1], made.indices[0], made.indices[2]])
    changed = [
        replace(made, name="iid"),
        replace(made, seed=1),
        replace(made, settings={"alpha": 2.0}),
        replace(made, indices=swapped),
        replace(made, labels=made.labels[::-1]),
    ]
    assert len({made.digest, *(other.digest for other in changed)}) == 6
    cuts = (np.split(np.arange(3), [place]) for place in (1, 2))
    assert len({replace(made, indices=ClientIndices.of(parts)).digest for parts in cuts}) == 2


def test_arrays_cannot_be_written_to() -> None:
    made = partition("iid", balanced(3, 10), 3, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        made.indices[0][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        made.labels[0] = 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[0, 1], [1, 2]], r"example 1 is there several times \(allow_repeated\)"),
        ([[0], [2]], r"example 1 belongs to no client \(allow_unused\)"),
        ([[0, 1, 2], []], "client 1 has no examples"),
        ([[0, 1], [2, 3]], "example 3 does not exist, there are 3"),
        ([[0, 1], [2, -1]], "example -1 does not exist, there are 3"),
    ],
)
def test_check_names_what_is_wrong(parts, message) -> None:
    indices = ClientIndices.of([np.array(part, dtype=np.int64) for part in parts])
    with pytest.raises(ValueError, match=message):
        check(Partition("iid", {}, 0, indices, np.zeros(3, dtype=np.int64)), 3)


def test_a_scheme_that_loses_examples_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTITIONS, "iid", lambda labels, clients, generator: [np.arange(3), np.arange(3, 9)])
    with pytest.raises(ValueError, match="example 9 belongs to no client"):
        partition("iid", [0] * 10, 2, seed=0)


def test_a_scheme_may_return_its_examples_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [np.array([8, 1, 3]), np.array([9, 0, 2, 7, 6, 5, 4])]
    monkeypatch.setitem(PARTITIONS, "iid", lambda labels, clients, generator: drawn)
    assert [part.tolist() for part in partition("iid", [0] * 10, 2, seed=0).indices] == [
        [1, 3, 8],
        [0, 2, 4, 5, 6, 7, 9],
    ]


@pytest.mark.parametrize(("name", "chosen"), CASES)
def test_save_and_load_give_the_same_partition(name, chosen, tmp_path) -> None:
    made = partition(name, ragged([30, 21, 17, 25], 0), 7, seed=11, **chosen)
    path = tmp_path / "partition.npz"
    save(made, path)
    found = load(path)
    assert found.digest == made.digest
    assert (found.name, found.settings, found.seed) == (made.name, made.settings, made.seed)
    assert all(np.array_equal(a, b) for a, b in zip(found.indices, made.indices, strict=True))
    assert np.array_equal(found.histogram, made.histogram)
    assert os.listdir(tmp_path) == ["partition.npz"]
    first = path.read_bytes()
    save(made, path)
    assert path.read_bytes() == first


def test_any_flipped_byte_is_detected(tmp_path) -> None:
    made = partition("dirichlet_total", balanced(3, 10), 4, seed=0, alpha=0.5)
    path = tmp_path / "partition.npz"
    save(made, path)
    good = path.read_bytes()
    harmless = 0
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        try:
            found = load(path)
        except ValueError:
            continue
        harmless += 1  # dates and the like in the archive's own bookkeeping
        assert found.digest == made.digest
        assert np.array_equal(np.concatenate(found.indices), np.concatenate(made.indices))
    assert harmless < len(range(0, len(good), 7)) / 2


def test_a_changed_table_with_valid_checksums_is_detected(tmp_path) -> None:
    made = partition("iid", balanced(3, 10), 4, seed=0)
    path = tmp_path / "partition.npz"
    save(made, path)
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["labels"] = arrays["labels"][::-1]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"the digest does not match .* draw the partition again"):
        load(path)


def test_files_that_are_no_partition(tmp_path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ValueError, match=r"other.npz is not a partition file, or is damaged"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"other.npz is not a partition file"):
        load(path)
    np.savez(path, header=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="holds Python objects"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.npz")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(step, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "partition.npz"
    made = partition("iid", balanced(3, 10), 4, seed=0)
    save(made, path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module.os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        save(partition("iid", balanced(3, 10), 4, seed=1), path)
    assert os.listdir(tmp_path) == ["partition.npz"]
    assert load(path).digest == made.digest


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.integers(2, 60), fraction=st.floats(0.01, 0.99), client=st.integers(0, 10**6))
def test_client_split_is_disjoint_complete_and_keyed(size: int, fraction: float, client: int) -> None:
    indices = np.arange(100, 100 + 3 * size, 3)
    train, test = split_client(indices, fraction=fraction, seed=5, client=client)
    assert sorted([*train, *test]) == indices.tolist()
    assert abs(len(train) - fraction * size) <= 1
    assert min(len(train), len(test)) >= 1
    again = split_client(indices, fraction=fraction, seed=5, client=np.int64(client))
    assert np.array_equal(train, again[0])


def test_client_split_defaults_to_seventy_thirty_and_differs_between_clients() -> None:
    splits = [split_client(np.arange(600), seed=seed, client=client) for seed, client in ((0, 0), (0, 1), (1, 0))]
    assert [(len(train), len(test)) for train, test in splits] == [(420, 180)] * 3
    assert len({train.tobytes() for train, _ in splits}) == 3


def test_client_split_mistakes() -> None:
    with pytest.raises(ValueError, match=r"client 3 has 1 example\(s\); a train/test split needs at least 2"):
        split_client(np.array([4]), seed=0, client=3)
    with pytest.raises(ValueError, match=r"fraction of training examples must lie between 0 and 1, got 1.0"):
        split_client(np.arange(4), fraction=1.0, seed=0, client=0)

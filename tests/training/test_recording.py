"""What is recorded along the local steps: by hand, on every back-end, and without a trace in the training."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.federations import NAMES, batches, derivative, federation, gradient, play, scores
from training import config, recording
from training.clients.local_training import DivergenceError, StepGradient
from training.engine.run import train
from training.executors.processes import Processes
from training.executors.serial import Serial
from training.executors.stacked import Stacked
from training.methods import catalog
from training.recording import QUANTITIES, list_quantities
from training.rules.context import ClientContext
from training.storage import metrics

pytestmark = pytest.mark.usefixtures("forked_workers")


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm())) if float(a.norm() * b.norm()) else math.nan


def proximal(w: Tensor, sent: Tensor, X: Tensor, tau: float = 3.0) -> Tensor:
    """The gradient of mean KL(softmax(z_sent / tau) || softmax(z / tau)), written out."""
    if torch.equal(w, sent):
        return torch.zeros_like(w)
    p = (scores(sent, X) / tau).softmax(1)

    def divergence(point: Tensor) -> Tensor:
        return (p * (p.log() - (scores(point, X) / tau).log_softmax(1))).sum(1).mean()

    return derivative(divergence, w)


def alike(left: list[float | None], right: list[float | None]) -> bool:
    """Equal up to rounding, and undefined in the same places."""
    return all(
        one is other is None
        or (one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12))
        for one, other in zip(left, right, strict=True)
    )


def mean(values: list[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def test_a_step_of_fedsol_fedsam_and_fedavg_by_hand() -> None:
    """cos(grad L(w + e), grad L_p(w)) as in FedSoL's Figure 9b; at rho = 0, FedAvg, the first gradient is at w."""
    names = ["proximal_cosine", "perturbed_cosine", "gradient_norm", "update_norm", "perturbation_norm"]
    for name, rho in (("fedsol", 0.7), ("fedsam", 0.3), ("fedavg", 0.0)):
        own = names if rho else ["proximal_cosine", "gradient_norm", "update_norm"]
        fed = federation(name, algorithm={"rho": rho} if rho else {}, record=own)
        first, second = play(fed, 2)
        sent, wanted = first[0].w, {quantity: list[list[float]]() for quantity in own}
        for client in fed.draw_cohort(1):
            w, rows = sent, {quantity: list[float]() for quantity in own}
            for X, y in batches(fed, client, 1):
                g, g_p = gradient(w, X, y), proximal(w, sent, X)
                along = g_p if name == "fedsol" else g
                e = rho * along / along.norm() if float(along.norm()) and rho else torch.zeros_like(w)
                g_u = gradient(w + e, X, y)
                found = {
                    "proximal_cosine": cosine(g_u, g_p),
                    "perturbed_cosine": cosine(g_u, g),
                    "gradient_norm": float(g.norm()),
                    "update_norm": 0.2 * float(g_u.norm()),
                    "perturbation_norm": float(e.norm()),
                }
                for quantity in own:
                    rows[quantity].append(found[quantity])
                w = w - 0.2 * g_u
            for quantity in own:
                wanted[quantity].append(rows[quantity])
        recorded = second[1]["recorded"]
        assert set(recorded) == set(own)
        for quantity, series in wanted.items():
            longest = max(map(len, series))
            steps = [mean([row[step] for row in series if step < len(row)]) for step in range(longest)]
            assert alike(recorded[quantity]["by_step"], steps)
            assert recorded[quantity]["mean"] == pytest.approx(mean([value for row in series for value in row]))
        assert recorded["proximal_cosine"]["by_step"][0] is None  # the proximal gradient is zero at the sent point


def test_against_what_the_server_sent() -> None:
    """FedVSSAM's direction d: cos(g, d), ||g - d||, and the perturbation against the one along d."""
    names = ["server_cosine", "server_gap", "perturbation_gap", "direction_norm", "descent_norm"]
    fed = federation("fedvssam", record=names, algorithm={"a": 0.4, "rho": 0.3}, rounds={"participants": 1})
    before, _, _ = play(fed, 1)[0]
    _, record, _ = play(fed, 1, state=before)[0]
    d, (X, y) = before.server["direction"], next(batches(fed, fed.draw_cohort(1)[0], 1))
    g = gradient(before.w, X, y)
    v = 0.6 * d + 0.4 * g
    e = 0.3 * v / v.norm()
    g_u = gradient(before.w + e, X, y)
    first = {name: record["recorded"][name]["by_step"][0] for name in names}
    assert first["server_cosine"] == pytest.approx(cosine(g, d))
    assert first["server_gap"] == pytest.approx(float((g - d).norm()))
    assert first["perturbation_gap"] == pytest.approx(float((e - 0.3 * d / d.norm()).norm()))
    assert first["descent_norm"] == pytest.approx(float(g_u.norm()))
    assert first["direction_norm"] == pytest.approx(float((0.6 * d + 0.4 * g_u).norm()))


def test_the_proximal_loss_is_the_methods_own_where_it_has_one() -> None:
    """With the distance for L_p, g_p is w - w^t."""
    fed = federation("fedsol", algorithm={"proximal": "distance", "rho": 0.5}, record=["proximal_norm"])
    _, record, _ = play(fed, 1)[0]
    sent = fed.begin().w
    lengths = []
    for client in fed.draw_cohort(0):
        w = sent
        for X, y in batches(fed, client, 0):
            away = w - sent
            lengths.append(float(away.norm()))
            w = w - 0.2 * gradient(w + (0.5 * away / away.norm() if away.any() else 0.0), X, y)
    assert record["recorded"]["proximal_norm"]["mean"] == pytest.approx(sum(lengths) / len(lengths))


@pytest.mark.parametrize("name", ["naivefedgloss", "fedgloss"])
def test_the_error_of_fedgloss_perturbation(name: str) -> None:
    """Eq. 6; Delta^t is what the same cohort brings back from w^t itself, as it does with rho_s = 0."""
    fed = federation(name, record=["delta_epsilon"], algorithm={"rho_s": 0.3})
    (first, one, _), (second, two, _) = play(fed, 2)
    assert one["recorded"] == {"delta_epsilon": {"mean": None}}
    plain = federation("fedgloss", algorithm={"rho_s": 0.0})
    from_model = plain.advance(first, Serial(plain.trainer))[0]
    P_before, P = first.server["ascent"], first.w - from_model.mean
    wanted = 0.3 * (P_before / P_before.norm() - P / P.norm()).norm()
    assert two["recorded"]["delta_epsilon"]["mean"] == pytest.approx(float(wanted))
    without = federation(name, algorithm={"rho_s": 0.3})
    played = play(without, 2)
    assert torch.equal(played[1][0].w, second.w)
    assert played[1][1]["gradients"] == two["gradients"]


@pytest.mark.parametrize("name", [*NAMES, "scaffold+asam", "feddyn+fsa"])
def test_recording_changes_no_bit_of_training(name: str) -> None:
    every = list(list_quantities(catalog.find_method(name)))
    fed = federation(name, record=every)
    pairs = zip(play(federation(name), 3), play(fed, 3), strict=True)
    for (one, plain, ends), (two, record, others) in pairs:
        assert torch.equal(one.w, two.w)
        assert all(torch.equal(ends[client], others[client]) for client in ends)
        for client, vectors in one.clients.items():
            assert all(torch.equal(vector, two.clients[client][key]) for key, vector in vectors.items())
        recorded = record.pop("recorded")
        assert set(recorded) == set(every)
        assert {**plain, "seconds": 0} == {**record, "seconds": 0}
        steps = [quantity["by_step"] for key, quantity in recorded.items() if key in QUANTITIES]
        assert {len(series) for series in steps} == {max(map(fed.trainer.count_steps, fed.draw_cohort(one.round - 1)))}
        json.dumps(recorded, allow_nan=False)


@pytest.mark.parametrize("model", ["normed", "dropping"])
def test_extra_gradients_touch_neither_norm_layers_nor_dropout(model: str) -> None:
    tables = {"model": {"name": f"tests.training.federations:{model}"}, "sizes": (6, 7, 10, 8, 11)}
    every = list(
        list_quantities(catalog.find_method("fedavg"))
    )  # each of them needs gradients that FedAvg does not take
    plain, recorded = play(federation(**tables), 3), play(federation(record=every, **tables), 3)
    for (one, before, _), (two, after, _) in zip(plain, recorded, strict=True):
        assert torch.equal(one.w, two.w)
        assert torch.equal(one.statistics, two.statistics)
        assert before["gradients"] == after["gradients"]


def test_every_backend_records_the_same() -> None:
    names = ("fedsol", "fedvssam", "fedgloss", "moon")
    feds = [federation(name, record=list(list_quantities(catalog.find_method(name)))) for name in names]
    workers = Processes(feds[0].trainer, 2)  # starting them takes seconds: one pair serves all
    try:
        for fed in feds:
            workers.assign(fed.trainer)
            serial, apart, stacked = (
                [record["recorded"] for _, record, _ in play(fed, 2, executor)]
                for executor in (Serial(fed.trainer), workers, Stacked(fed.trainer))
            )
            assert apart == serial
            for one, other in zip(serial, stacked, strict=True):
                assert one.keys() == other.keys()
                for quantity, values in one.items():
                    assert alike([values["mean"]], [other[quantity]["mean"]])
                    assert alike(values.get("by_step", []), other[quantity].get("by_step", []))
    finally:
        workers.close()


def test_numbers_that_are_not_finite_end_only_runs_that_depend_on_them() -> None:
    fed = federation(record=["proximal_cosine"])
    w = fed.begin().w
    batch = fed.trainer.load_batch(fed.client_indices[1][:4], 1, 0, 0)
    context = ClientContext(fed.trainer.layout, w, {}, {}, lr=0.1, momentum=0.0, steps=1, round=0)
    gradient_at = StepGradient(fed.trainer, context, *batch)
    with pytest.raises(DivergenceError):
        gradient_at(1e200 * w)
    assert torch.isnan(gradient_at.make_silent_copy()(1e200 * w)).any()
    assert recording.summarise([{"a": [math.nan, 1.0]}, {"a": [math.inf]}]) == {
        "a": {"mean": 1.0, "by_step": [None, 1.0]}
    }


REFUSED = {
    '"gradient_norm"': 'record must be a list of quantities such as ["gradient_norm"], got "gradient_norm"',
    "[3]": "record must be a list of quantities",
    '["gradient_norm", "gradient_norm"]': "record names a quantity twice",
    '["gradient_nrom"]': "quantity to record: unknown 'gradient_nrom'; did you mean 'gradient_norm'?",
    '["perturbation_norm"]': "fedavg has no perturbation_norm; it has proximal_cosine, proximal_norm, gradient_norm",
    '["server_gap"]': "fedavg has no server_gap; it has",
    '["delta_epsilon"]': "fedavg has no delta_epsilon; it has",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_a_method_lacks_is_refused_before_training(given: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        config.load("digits_fedavg", [f"record={given}"])
    assert REFUSED[given] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_that_is_written_down_and_names_another_run(tmp_path: Path) -> None:
    plain, asked = (config.load("digits_fedavg", more)[0] for more in ([], ['record=["gradient_norm", "update_norm"]']))
    (tmp_path / "config.toml").write_text(config.dump(asked))
    again = config.load(tmp_path / "config.toml")[0]
    assert again == asked
    assert again.digest != plain.digest
    (tmp_path / "config.toml").write_text(config.dump(plain).replace("record = []\n", ""))
    assert config.load(tmp_path / "config.toml")[0].digest == plain.digest  # as a run from before this setting has it


def test_recorded_quantities_are_in_the_metrics_of_a_resumed_run(tmp_path: Path) -> None:
    content = {
        "data": {"name": "synthetic", "examples": 60, "test_examples": 20, "classes": 3, "shape": [1, 2, 2]},
        "model": {"name": "mlp", "hidden": [3]},
        "partition": {"name": "iid", "clients": 4},
        "algorithm": {"name": "fedsol"},
        "rounds": {"count": 4, "participants": 2},
        "checkpoints": {"every": 2},
        "record": ["proximal_cosine", "gradient_norm"],
    }
    recipe = config.validate(content)
    whole = train(recipe, tmp_path / "whole", backend="serial")

    class Stop(Exception):  # noqa: N818
        pass

    def watch(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise Stop

    with pytest.raises(Stop):
        train(recipe, tmp_path / "pieces", backend="serial", on_round=watch)
    pieces = train(recipe, tmp_path / "pieces", backend="serial")
    one, two = ([record["recorded"] for record in metrics.read(path)] for path in (whole, pieces))
    assert one == two
    assert all(a != b for a, b in pairwise(one))

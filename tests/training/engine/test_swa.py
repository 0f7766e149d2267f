"""Server-side SWA with its cyclic rate: by hand, in every variant that the paper and its code leave open."""

from pathlib import Path

import pytest
import torch

from tests.training.federations import close, federation, play
from training.engine.evaluation import evaluate_state
from training.engine.federation import Federation
from training.engine.saving import restore_state, save_state
from training.engine.swa import find_start
from training.storage import checkpoint, run_directory


def averaged(swa: dict, name: str = "fedavg", count: int = 12, **local: float) -> Federation:
    return federation(name, swa=swa, rounds={"count": count}, local=local)


def test_the_rate_is_cyclic_from_the_start_on() -> None:
    """Twelve rounds, from a half on in cycles of four: s = (round mod 4 + 1) / 4."""
    fed = averaged({"start": 0.5, "cycle": 4, "lr_end": 0.04}, lr=0.4)
    shares = [0.75, 1.0, 0.25, 0.5, 0.75, 1.0]  # rounds 6 to 11
    expected = [0.4] * 6 + [(1 - s) * 0.4 + s * 0.04 for s in shares]
    assert [fed.compute_lr(round) for round in range(12)] == pytest.approx(expected)
    assert [record["lr"] for _, record, _ in play(fed, 12)] == pytest.approx(expected)


def test_cycles_begin_at_the_rate_that_decay_has_reached() -> None:
    fed = averaged({"start": 0.5, "cycle": 2, "lr_end": 0.01}, lr=0.4, lr_decay=0.5)
    top = 0.4 * 0.5**6
    decayed = [0.4 * 0.5**round for round in range(6)]
    assert [fed.compute_lr(round) for round in range(12)] == pytest.approx(decayed + [(top + 0.01) / 2, 0.01] * 3)


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_cycles_of_one_round_keep_the_rate_and_average_everything(decay: float) -> None:
    fed = averaged({"start": 0.75, "cycle": 1, "lr_end": 1e-4}, lr_decay=decay)
    played = play(fed, 12)
    assert [fed.compute_lr(round) for round in range(9, 12)] == pytest.approx([0.2 * decay**9] * 3)
    models = [state.w for state, _, _ in played]
    for last in range(9, 12):
        assert close(played[last][0].swa, sum(models[9 : last + 1]) / (last - 8))
    assert played[8][0].swa is None
    if decay == 1.0:  # averaging does not touch training
        plain = play(federation(), 12)
        assert all(torch.equal(one.w, two.w) for (one, _, _), (two, _, _) in zip(played, plain, strict=True))


@pytest.mark.parametrize(("start", "count", "first"), [(0.29, 100, 29), (0.75, 10, 7), (0.0, 9, 0), (0.57, 100, 57)])
def test_the_start_is_a_share_of_the_rounds(start: float, count: int, first: int) -> None:
    """0.29 * 100 is 28.999... in floating point."""
    assert find_start(averaged({"start": start}, count=count).recipe) == first
    assert find_start(federation(rounds={"count": count}).recipe) == count


def test_capturing_at_the_end_of_each_cycle() -> None:
    played = play(averaged({"start": 0.25, "cycle": 3, "lr_end": 0.01}), 12)
    models = [state.w for state, _, _ in played]
    averages = [state.swa for state, _, _ in played]
    assert averages[2] is None
    assert torch.equal(averages[3], models[2])  # begun before the first round of SWA, nothing captured
    assert torch.equal(averages[4], models[2])
    assert torch.equal(averages[5], models[5])  # one capture is that model
    assert close(averages[8], (models[5] + models[8]) / 2)
    assert close(averages[11], (models[5] + models[8] + models[11]) / 3)
    assert [state.captured for state, _, _ in played][3:] == [0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_capturing_where_the_published_code_does() -> None:
    """(t - t0) mod c == 0 with t > t0: one round after the lowest rate."""
    played = play(averaged({"start": 0.25, "cycle": 3, "lr_end": 0.01, "capture": "after_start"}), 12)
    models = [state.w for state, _, _ in played]
    assert [state.captured for state, _, _ in played] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert torch.equal(played[6][0].swa, models[6])
    assert close(played[9][0].swa, (models[6] + models[9]) / 2)


def test_counting_from_the_papers_number() -> None:
    """n = t / c: the model that SWA starts from weighs as if it had been averaged from the first round."""
    played = play(averaged({"start": 0.25, "cycle": 3, "lr_end": 0.01, "count_from": "paper"}), 9)
    models = [state.w for state, _, _ in played]
    first = (2 * models[2] + models[5]) / 3
    assert close(played[5][0].swa, first)
    assert close(played[8][0].swa, (3 * first + models[8]) / 4)


@pytest.mark.parametrize("name", ["scaffold", "feddyn+sam"])
def test_averaging_goes_with_any_method(name: str) -> None:
    played = play(averaged({"start": 0.5, "cycle": 2, "lr_end": 0.05}, name), 12)
    models = [state.w for state, _, _ in played]
    assert close(played[-1][0].swa, (models[7] + models[9] + models[11]) / 3)
    assert {"swa_test_loss", "swa_accuracy"} <= played[6][1].keys()
    assert "swa_accuracy" not in played[5][1]


def test_statistics_are_averaged_with_the_weights() -> None:
    fed = federation(
        sizes=(6, 7, 10, 8, 11),
        model={"name": "tests.training.federations:normed"},
        swa={"start": 0.0, "cycle": 2, "lr_end": 0.1},
        rounds={"count": 4},
    )
    states = [state for state, _, _ in play(fed, 4)]
    assert close(states[3].swa_statistics, (states[1].statistics + states[3].statistics) / 2)
    assert not close(states[3].swa_statistics, states[3].statistics, 1e-3)
    assert fed.objective is not None
    vector = torch.cat([states[3].swa, states[3].swa_statistics])
    assert evaluate_state(fed.evaluator, states[3])["swa_test_loss"] == fed.objective.loss(vector)


@pytest.mark.parametrize("finished", [3, 4, 6, 7])
def test_an_average_survives_a_checkpoint(finished: int, tmp_path: Path) -> None:
    """Before the start, between start and first capture (where it equals the model itself), and after a capture."""
    fed = averaged({"start": 0.25, "cycle": 3, "lr_end": 0.01})
    played = play(fed, finished + 3)
    (tmp_path / "metrics.jsonl").touch()
    state, _, ends = played[finished - 1]
    save_state(tmp_path, fed, state, ends, list(ends))
    found = restore_state(checkpoint.load(run_directory.checkpoint_path(tmp_path, finished)))
    again = play(fed, 3, state=found)
    for (one, _, _), (two, _, _) in zip(again, played[finished:], strict=True):
        assert torch.equal(one.w, two.w)
        assert one.captured == two.captured
        assert one.swa is two.swa is None or torch.equal(one.swa, two.swa)

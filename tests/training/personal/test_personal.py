"""Personalised evaluation: test sets counted by hand, every strategy against plain torch, results kept, the command."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

from landscape import cli
from landscape.layout import running_statistics
from landscape.rng import normal
from tests.training.federations import SIZES, batches, examples, federation, hidden, play, scores
from training import config
from training.clients.local_training import DivergenceError
from training.console import personal_results
from training.data.dealing import ClientIndices
from training.data.partition import Partition
from training.engine.federation import Federation
from training.engine.run import train
from training.personal import client_evaluation, evaluation, strategies
from training.personal import scores as kept
from training.personal.client_evaluation import (
    Subject,
    draw_test_examples,
    find_largest_draw,
    open_subject,
    read_test_examples,
    sample_clients,
)
from training.personal.evaluation import STRATEGIES, evaluate, options_class
from training.personal.scores import ClientScore, PersonalResult
from training.personal.strategies import vote
from training.rules.vectors import head
from training.storage import checkpoint, run_directory
from training.storage.atomic_files import DamagedError
from training.storage.verified_files import seal as sealed

LOCAL = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.01, "clip": 2.0, "epochs": 3}


def subject_of(fed, state=None, run=Path("nowhere")):
    state = state or fed.begin()
    return Subject(run, fed, state, "server", state.w, state.statistics, "0" * 64)


def held(fed, counts):
    """A federation of one client that holds these many examples of each class."""
    labels = fed.dataset.train_targets.numpy()
    own = np.concatenate([np.flatnonzero(labels == c)[:count] for c, count in enumerate(counts)])
    rest = np.setdiff1d(np.arange(len(labels)), own)
    return Federation(fed.recipe, Partition("by hand", {}, 0, ClientIndices.of([np.sort(own), rest]), labels))


# test sets


def test_a_test_set_has_the_classes_of_its_client():
    fed = federation(data={"test_examples": 200})
    train, test = fed.dataset.train_targets.numpy(), fed.dataset.test_targets.numpy()
    for client, size in enumerate(SIZES):
        for draw in (40, 1000):
            places = draw_test_examples(fed, client, draw=draw)
            assert len(set(places.tolist())) == len(places)
            for c in range(3):
                share = int((train[fed.client_indices[client]] == c).sum())
                wanted = min(draw * share // size, int((test == c).sum()))
                assert (test[places] == c).sum() == wanted
            inputs, labels = read_test_examples(fed, places)
            assert np.array_equal(labels.numpy(), test[places])
            pixels = fed.dataset.test_inputs[torch.from_numpy(places)].double() / 255
            assert torch.allclose(inputs, (pixels - fed.dataset.mean[0]) / fed.dataset.std[0], atol=1e-15)


def test_shares_are_counted_in_whole_numbers():
    fed = held(federation(sizes=(200, 100), data={"test_examples": 300}, partition={"clients": 2}), (57, 43))
    assert int(100 * (57 / 100)) == 56
    labels = fed.dataset.test_targets.numpy()[draw_test_examples(fed, 0, draw=100)]
    assert np.bincount(labels).tolist() == [57, 43]


def test_a_draw_is_a_function_of_seed_and_client():
    fed = federation(data={"test_examples": 200})
    again = federation(data={"test_examples": 200})
    other = federation(data={"test_examples": 200}, seed=4)
    small, large = draw_test_examples(fed, 2, draw=30), draw_test_examples(fed, 2, draw=60)
    assert np.array_equal(draw_test_examples(again, 2, draw=30), small)
    assert set(small.tolist()) < set(large.tolist())
    assert not np.array_equal(draw_test_examples(other, 2, draw=60), large)
    labels = fed.dataset.train_targets.numpy()
    first, rest = np.flatnonzero(labels == 0), np.flatnonzero(labels)
    alike = Federation(fed.recipe, Partition("by hand", {}, 0, ClientIndices.of([first[:4], first[4:], rest]), labels))
    assert not np.array_equal(draw_test_examples(alike, 0, draw=30), draw_test_examples(alike, 1, draw=30))


def test_pooled_clients_are_tested_on_their_own_split():
    sizes = (12, 9, 21, 18)
    fed = federation(sizes=sizes, data={"pooled": True, "examples": 40, "test_examples": 20})
    for client, size in enumerate(sizes):
        places = draw_test_examples(fed, client)
        assert not set(places.tolist()) & set(fed.client_indices[client].tolist())
        assert set(places.tolist()) | set(fed.client_indices[client].tolist()) == set(
            fed.partition.indices[client].tolist()
        )
        assert len(places) == size - round(0.7 * size)
        assert torch.equal(read_test_examples(fed, places)[1], fed.dataset.train_targets[torch.from_numpy(places)])


def test_the_largest_draw_leaves_no_class_short():
    fed = federation(data={"test_examples": 50})
    there = np.bincount(fed.dataset.test_targets.numpy(), minlength=3)
    labels = fed.dataset.train_targets.numpy()

    def short(draw):
        own = [
            (labels[fed.client_indices[k]] == c).sum() * draw // SIZES[k] > there[c] for k in range(7) for c in range(3)
        ]
        return any(own)

    most = find_largest_draw(fed, range(7))
    assert not short(most)
    assert short(most + 1)


def test_a_sample_of_clients_holds_the_smaller_one():
    fed = federation()
    assert sample_clients(fed, None) == list(range(7))
    assert set(sample_clients(fed, 3)) < set(sample_clients(fed, 5))
    assert sample_clients(fed, 7) == list(range(7))
    with pytest.raises(ValueError, match="clients must be a whole number, between 1 and 7; got 8"):
        sample_clients(fed, 8)


# ways


def perceptron(w):
    """The network 4-5-3 with these weights, as torch makes it."""
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    nn.utils.vector_to_parameters(w, model.parameters())
    return model


def tuned_by_torch(fed, w, client, round, parts=(0, 2), lr=0.1, decay=1.0):
    """Fine-tuning with torch.optim on the batches of a round, clipped by hand; only layers in `parts` move."""
    model = perceptron(w.clone())
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    own = list(batches(fed, client, round))
    for step, (inputs, labels) in enumerate(own):
        optimiser.param_groups[0]["lr"] = lr * decay ** (step * fed.recipe.local.epochs // len(own))
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        factor = min(1.0, 2.0 / float(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()))
        for place in (0, 2):
            for parameter in model[place].parameters():
                moved = factor * parameter.grad + 0.01 * parameter.data
                parameter.grad = moved if place in parts else torch.zeros_like(moved)
        optimiser.step()
    return model


INPUTS = normal((11, 1, 2, 2), 0, "inputs")


@pytest.mark.parametrize(("part", "parts"), [("all", (0, 2)), ("head", (2,)), ("body", (0,))])
def test_finetuning_is_plain_sgd(part, parts):
    fed = federation("fedsam", local=LOCAL, algorithm={"rho": 0.5})
    state = play(fed, 2)[-1][0]
    predict = strategies.finetune(subject_of(fed, state), epochs=3, lr=0.1, part=part)
    for client in (2, 4, 6):
        wanted = tuned_by_torch(fed, state.w, client, 2, parts)(INPUTS.flatten(1)).detach()
        torch.testing.assert_close(predict(client, INPUTS), wanted, rtol=1e-11, atol=1e-13)


def test_finetuning_is_the_local_training_of_a_next_round():
    fed = federation(local=LOCAL)
    (state, _, _), (_, _, models) = play(fed, 2)
    predict = strategies.finetune(subject_of(fed, state), epochs=3, lr=0.1)
    for client, model in models.items():
        wanted = client_evaluation.run_model(fed.trainer, model, state.statistics, INPUTS).outputs
        assert torch.equal(predict(client, INPUTS), wanted)


def test_the_loss_of_finetuning_is_cross_entropy_whatever_the_run_had():
    found = []
    for name in ("fedavg", "fedntd", "fedprox", "perfedavg", "fedbabu"):
        fed = federation(name, local=LOCAL)
        found.append(strategies.finetune(subject_of(fed), epochs=2, lr=0.1)(1, INPUTS))
    assert all(torch.equal(one, found[0]) for one in found)


def test_what_is_asked_for_first_changes_nothing():
    subject = subject_of(federation())
    one = strategies.finetune(subject, epochs=2, lr=0.1)
    found = {client: one(client, INPUTS) for client in (4, 1, 0)}
    two = strategies.finetune(subject, epochs=2, lr=0.1)
    assert all(torch.equal(two(client, INPUTS), found[client]) for client in (0, 1, 4))
    assert not torch.equal(found[0], found[1])


def test_a_step_to_infinity_is_noticed_though_it_is_the_last():
    fed = federation(local={"weight_decay": 1000.0})
    predict = strategies.finetune(subject_of(fed), epochs=1, lr=1e308)
    with pytest.raises(DivergenceError, match="client 6 diverged in round 1, local step 1"):
        predict(6, INPUTS)


def fedcr(**tables):
    """FedCR after three rounds of two clients, and its state."""
    fed = federation("fedcr", algorithm={"dim": 4, "samples": 3}, rounds={"participants": 2}, **tables)
    return fed, play(fed, 3)[-1][0]


def test_clients_of_fedcr_have_heads_of_their_own():
    fed, state = fedcr()
    subject = subject_of(fed, state)
    own = head(fed.trainer.layout)
    absent = next(client for client in range(7) if client not in state.clients)
    assert torch.equal(subject.find_model(absent), state.w)
    for client, vectors in state.clients.items():
        model = subject.find_model(client)
        assert torch.equal(model, torch.cat([state.w[: own.start], vectors["head"]]))
        wanted = client_evaluation.run_model(fed.trainer, model, state.statistics, INPUTS).outputs
        assert torch.equal(strategies.use_global_model(subject)(client, INPUTS), wanted)
        assert not torch.equal(strategies.use_global_model(subject)(absent, INPUTS), wanted)


def test_tuning_the_head_of_fedcr_begins_at_the_clients_own():
    """One step of plain SGD at lr ~ 0 leaves the client's own model where it was."""
    fed, state = fedcr()
    subject, client = subject_of(fed, state), next(iter(state.clients))
    still = strategies.finetune(subject, epochs=1, lr=1e-12, part="head")(client, INPUTS)
    torch.testing.assert_close(still, strategies.use_global_model(subject)(client, INPUTS), rtol=0, atol=1e-9)
    moved = strategies.finetune(subject, epochs=1, lr=0.5, part="head")(client, INPUTS)
    assert not torch.allclose(moved, still)


def test_heads_that_a_checkpoint_has_forgotten_are_not_made_up(tmp_path):
    wanted = federation(
        "fedcr", algorithm={"dim": 4, "samples": 3}, checkpoints={"every": 1}, rounds={"count": 4}
    ).recipe
    run = train(wanted, tmp_path, backend="serial")
    assert open_subject(run).state.clients
    with pytest.raises(ValueError, match="round 1 no longer holds the heads that clients keep to themselves"):
        open_subject(run, round=1)


def normed_by_torch(fed, state, client):
    """Fine-tuning of the network with BatchNorm: training mode for steps, eval mode for what it says."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    nn.utils.vector_to_parameters(state.w.clone(), model.parameters())
    buffers = list(running_statistics(model).values())
    for buffer, value in zip(buffers, state.statistics.split(5), strict=True):
        buffer.copy_(value)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in batches(fed, client, state.round):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model.eval()(INPUTS.flatten(1)).detach()


def test_norm_layers_go_on_from_the_runs_statistics():
    normed = {"name": "tests.training.federations:normed"}
    fed = federation(sizes=(6, 7, 10, 8), model=normed, local={"lr": 0.1, "epochs": 2})
    state = play(fed, 2)[-1][0]
    subject = subject_of(fed, state)
    predict, before = strategies.finetune(subject, epochs=2, lr=0.1), strategies.use_global_model(subject)
    plain = before(0, INPUTS)
    for client in (2, 0, 3):
        torch.testing.assert_close(predict(client, INPUTS), normed_by_torch(fed, state, client), rtol=1e-11, atol=1e-13)
    assert torch.equal(before(0, INPUTS), plain)


def test_dropout_is_off_in_testing_and_keyed_in_training():
    fed = federation(model={"name": "tests.training.federations:dropping"})
    subject = subject_of(fed)
    torch.testing.assert_close(strategies.use_global_model(subject)(0, INPUTS), scores(subject.w, INPUTS.flatten(1)))
    predict = strategies.finetune(subject, epochs=2, lr=0.1)
    state = torch.get_rng_state()
    first = predict(2, INPUTS)
    torch.manual_seed(5)
    assert torch.equal(predict(2, INPUTS), first)
    torch.set_rng_state(state)


def test_neighbours_by_a_double_loop():
    features, known = normal((6, 4), 1), normal((9, 4), 2)
    known[3] = known[7]  # equally near: the first in order counts
    labels = torch.tensor([0, 1, 2, 2, 1, 0, 0, 1, 2])
    for k in (1, 3, 9, 20):
        found = vote(features, known, labels, k=k, scale=0.7, classes=4)
        for i in range(6):
            apart = [float(((features[i] - known[j]) ** 2).sum()) for j in range(9)]
            near = sorted(range(9), key=lambda j: (apart[j], j))[:k]
            weights = [math.exp(-apart[j] / (0.7 * 4)) for j in near]
            for c in range(4):
                wanted = sum(w for w, j in zip(weights, near, strict=True) if labels[j] == c) / sum(weights)
                assert float(found[i, c]) == pytest.approx(wanted, rel=1e-12)


def test_neighbours_far_away_still_vote():
    found = vote(torch.zeros(1, 1), torch.tensor([[1e4], [2e4]]), torch.tensor([1, 0]), k=2, scale=1.0, classes=2)
    assert found.tolist() == [[0.0, 1.0]]


def test_knn_mixes_the_vote_of_features_with_the_model():
    fed = federation()
    subject = subject_of(fed)
    inputs, own = INPUTS.flatten(1), examples(fed, fed.client_indices[2])
    near = vote(hidden(subject.w, inputs), hidden(subject.w, own[0]), own[1], k=5, scale=2.0, classes=3)
    plain = scores(subject.w, inputs).softmax(1)
    for lam in (0.0, 0.3, 1.0):
        found = strategies.ask_neighbours(subject, k=5, lam=lam, scale=2.0, lr=0.1)(2, INPUTS)
        torch.testing.assert_close(found, lam * near + (1 - lam) * plain, rtol=1e-11, atol=1e-13)


def test_knn_after_finetuning():
    fed = federation(local=LOCAL)
    subject = subject_of(fed)
    tuned = strategies.finetune(subject, epochs=3, lr=0.1)(2, INPUTS).softmax(1)
    found = strategies.ask_neighbours(subject, lam=0.0, epochs=3, lr=0.1)(2, INPUTS)
    torch.testing.assert_close(found, tuned)
    model = tuned_by_torch(fed, subject.w, 2, 0)
    own, labels = examples(fed, fed.client_indices[2])
    features, known = (model[:2](x).detach() for x in (INPUTS.flatten(1), own))
    wanted = vote(features, known, labels, k=3, scale=1.0, classes=3)
    found = strategies.ask_neighbours(subject, k=3, lam=1.0, epochs=3, lr=0.1)(2, INPUTS)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


# runs on disk


def recipe(name="feddyn", **tables):
    content = {
        "seed": 4,  # one client takes part in rounds 2 and 4
        "dtype": "float64",
        "data": {"name": "synthetic", "examples": 120, "test_examples": 90, "classes": 3, "shape": [1, 2, 2]},
        "partition": {"name": "dirichlet_total", "clients": 7, "alpha": 1.0},
        "model": {"name": "mlp", "hidden": [5]},
        "algorithm": {"name": name},
        "local": {**LOCAL, "batch_size": 4},
        "rounds": {"count": 4, "participants": 3},
        "checkpoints": {"every": 2, "keep_locals": "all"},
    }
    for key, table in tables.items():
        content[key] = {**content[key], **table}
    return config.validate(content)


def trained(folder, name="feddyn", **tables):
    return train(recipe(name, **tables), folder, backend="serial")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of four rounds; nothing may be written into it."""
    return trained(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "runs" / finished.name))


def test_accuracies_are_those_of_the_runs_own_evaluation(run):
    subject = open_subject(run)
    result = evaluate(subject, "global")
    assert [score.client for score in result.clients] == list(range(7))
    for score in result.clients:
        inputs, labels = read_test_examples(subject.federation, draw_test_examples(subject.federation, score.client))
        error = subject.federation.objective.on(inputs, labels).error(subject.w)
        assert score.after == score.before == pytest.approx(1 - error, abs=1e-12)
        assert score.examples == len(labels)


def test_before_and_after_count_what_is_right(run):
    subject = open_subject(run, model="mean", round=2)
    result = evaluate(subject, "finetune", {"epochs": 2, "draw": 20})
    state = checkpoint.load(run_directory.checkpoint_path(run, 2))
    predict = strategies.finetune(subject, epochs=2, lr=0.1)
    for score in result.clients:
        inputs, labels = read_test_examples(
            subject.federation, draw_test_examples(subject.federation, score.client, draw=20)
        )
        before = scores(state.models["mean"], inputs.flatten(1)).argmax(1)
        assert score.before == sum(int(a == b) for a, b in zip(before, labels, strict=True)) / len(labels)
        assert score.after == int((predict(score.client, inputs).argmax(1) == labels).sum()) / len(labels)
    assert (result.round, result.model, result.left_out) == (2, "mean", 0)
    assert result.options == {"draw": 20, "epochs": 2, "lr": 0.1, "part": "all"}


def test_local_models_start_from_the_first_checkpoint(run):
    subject = open_subject(run)
    fed, start = subject.federation, checkpoint.load(run_directory.checkpoint_path(run, 0)).models["server"]
    predict = strategies.train_alone(subject, epochs=3, lr=0.1, lr_decay=0.5)
    for client in (0, 3, 5):
        wanted = tuned_by_torch(fed, start, client, 0, decay=0.5)(INPUTS.flatten(1)).detach()
        torch.testing.assert_close(predict(client, INPUTS), wanted, rtol=1e-11, atol=1e-13)


def test_options_come_from_the_run_where_none_are_given(run):
    subject = open_subject(run)
    assert evaluation.complete_options(subject, "local", {}) == {
        "draw": 1000,
        "epochs": 5,
        "lr": 0.1,
        "lr_decay": 0.99,
    }  # 36 / 7
    fading = Subject(run, federation(local={"lr": 0.5, "lr_decay": 0.5}), *vars_of(subject))
    assert evaluation.complete_options(fading, "finetune", {"part": "head"})["lr"] == 0.5 * 0.5**3
    assert evaluation.complete_options(fading, "knn", {})["lr"] == 0.0625
    assert evaluation.complete_options(fading, "local", {})["epochs"] == 9  # 10 rounds of 2 epochs, 3 of 7 clients
    stepping = Subject(run, federation(local={"steps": 5}), *vars_of(subject))  # 41 examples: 41 / 28 steps an epoch
    assert evaluation.complete_options(stepping, "local", {})["epochs"] == round(5 * 28 / 41 * 10 * 3 / 7)


def vars_of(subject):
    return subject.state, subject.model, subject.w, subject.statistics, subject.checkpoint


def test_a_rate_that_floats_cannot_hold_is_refused(run):
    subject = open_subject(run)
    single = Subject(run, federation(dtype="float32"), *vars_of(subject))
    with pytest.raises(ValueError, match=r"lr must be at most 3\.40282e\+38, got 1e\+39"):
        evaluation.complete_options(single, "finetune", {"lr": 1e39})
    assert evaluation.complete_options(subject, "finetune", {"lr": 1e39})["lr"] == 1e39


def test_a_way_wants_a_rate():
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        strategies.finetune(subject_of(federation()))


def test_own_models_are_the_newest_that_were_kept(run):
    stored = {round: checkpoint.load(run_directory.checkpoint_path(run, round)).locals for round in (2, 4)}
    assert set(stored[4]) & set(stored[2])
    assert set(stored[2]) - set(stored[4])
    newest = {**stored[2], **stored[4]}
    subject = open_subject(run)
    result = evaluate(subject, "own")
    assert {score.client for score in result.clients} == set(newest)
    assert result.left_out == 7 - len(newest) > 0
    for score in result.clients:
        inputs, labels = read_test_examples(subject.federation, draw_test_examples(subject.federation, score.client))
        right = scores(newest[score.client], inputs.flatten(1)).argmax(1) == labels
        assert score.after == int(right.sum()) / len(labels)
    earlier = evaluate(open_subject(run, round=2), "own")
    assert {score.client for score in earlier.clients} == set(stored[2])


def test_own_models_of_fedala_are_what_it_remembers(tmp_path):
    run = trained(tmp_path, "fedala", checkpoints={"keep_locals": "none", "every": 1})
    remembered = checkpoint.load(run_directory.checkpoint_path(run, 4)).clients
    subject = open_subject(run)
    predict = strategies.use_last_own_model(subject)
    for client in range(7):
        if client in remembered:
            wanted = scores(remembered[client]["personal"], INPUTS.flatten(1))
            torch.testing.assert_close(predict(client, INPUTS), wanted)
        else:
            assert predict(client, INPUTS) is None
    assert evaluate(subject, "own").left_out == 7 - len(remembered)
    with pytest.raises(
        ValueError, match=r"after round 1; rounds that do: 3, 4\. Train with checkpoints\.keep_clients=all"
    ):
        strategies.use_last_own_model(open_subject(run, round=1))


def test_own_models_with_norm_layers_bring_their_statistics(tmp_path):
    normed = {"name": "tests.training.federations:normed"}
    tables = {"partition": {"alpha": 100.0}, "local": {"batch_size": 30, "epochs": 1}}
    content = recipe(**tables).model_dump(mode="python")
    run = train(
        config.validate({**content, "model": normed, "swa": False}), tmp_path, backend="serial", on_message=print
    )
    subject = open_subject(run)
    client, own = sorted(checkpoint.load(run_directory.checkpoint_path(run, 4)).locals.items())[0]
    d = subject.w.numel()
    assert own.numel() == d + 10
    wanted = client_evaluation.run_model(subject.federation.trainer, own[:d], own[d:], INPUTS).outputs
    found = strategies.use_last_own_model(subject)(client, INPUTS)
    assert torch.equal(found, wanted)
    assert not torch.equal(
        found, client_evaluation.run_model(subject.federation.trainer, own[:d], subject.statistics, INPUTS).outputs
    )


def test_a_run_that_kept_no_local_models_says_so(tmp_path):
    run = trained(tmp_path, checkpoints={"keep_locals": "none"})
    with pytest.raises(
        ValueError, match=r"after round 4; rounds that do: none\. Train with checkpoints\.keep_locals=all"
    ):
        evaluate(open_subject(run), "own")


def test_the_swa_model_comes_with_its_statistics(tmp_path):
    content = recipe().model_dump(mode="python")
    content = {**content, "model": {"name": "tests.training.federations:normed"}, "swa": {"start": 0.25, "cycle": 1}}
    content["local"] = {**content["local"], "batch_size": 30}
    content["partition"] = {**content["partition"], "alpha": 100.0}
    run = train(config.validate(content), tmp_path, backend="serial", on_message=print)
    models = checkpoint.load(run_directory.checkpoint_path(run, 4)).models
    subject = open_subject(run, model="swa")
    assert torch.equal(subject.w, models["swa"])
    assert torch.equal(subject.statistics, models["swa_statistics"])
    assert not torch.equal(subject.statistics, models["statistics"])


def test_pooled_runs_have_no_draw(tmp_path):
    run = trained(tmp_path, data={"pooled": True}, partition={"alpha": 100.0})
    subject = open_subject(run)
    result = evaluate(subject, "finetune", {"epochs": 1})
    assert [score.examples for score in result.clients] == [len(own) for own in subject.federation.tests]
    assert "draw" not in result.options
    with pytest.raises(ValueError, match="draw: pooled data have test examples of every client's own; leave it out"):
        evaluate(subject, "finetune", {"draw": 10})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_a_function_of_run_and_options(run, strategy):
    options = {
        key: 2 for key in ("rounds", "epochs", "dim", "samples", "k") if key in options_class(strategy).model_fields
    }
    everyone = evaluate(open_subject(run), strategy, options)
    path = run / "personal" / everyone.file
    assert kept.load(path) == everyone
    path.unlink()
    assert evaluate(open_subject(run), strategy, options) == everyone
    some = evaluate(open_subject(run), strategy, options, sample=4)
    known = {score.client: score for score in everyone.clients}
    assert all(score == known[score.client] for score in some.clients)
    assert len(some.clients) + some.left_out == 4
    assert len(list((run / "personal").iterdir())) == 2


# results


def result_of(*after, before=0.5):
    clients = tuple(ClientScore(k, 10, before, value) for k, value in enumerate(after))
    return PersonalResult("finetune", 4, "server", {"epochs": 5, "lr": 0.1}, None, "ab" * 32, 1, clients)


def test_means_and_spreads_by_hand():
    result = result_of(0.9, 0.5, 1.0, 0.6)
    assert result.mean == pytest.approx(0.75)
    assert result.std == pytest.approx(math.sqrt((0.15**2 + 0.25**2 + 0.25**2 + 0.15**2) / 4))
    assert (result.worst_tenth, result.mean_before) == (0.5, 0.5)
    many = result_of(*np.arange(11) / 10)
    assert many.worst_tenth == pytest.approx(0.05)  # two of eleven: 0 and 0.1


def test_a_result_survives_its_file(tmp_path):
    result = result_of(1 / 3, 0.1 + 0.2)
    kept.save(tmp_path / "personal" / "x.json", result)
    assert kept.load(tmp_path / "personal" / "x.json") == result
    assert [path.name for path in (tmp_path / "personal").iterdir()] == ["x.json"]
    stored = json.loads((tmp_path / "personal" / "x.json").read_text())
    assert stored["summary"]["mean"] == result.mean


def test_a_damaged_result_is_named(tmp_path):
    path = tmp_path / "personal" / "x.json"
    kept.save(path, result_of(0.5))
    text = path.read_text()
    for broken in (text.replace('"after": 0.5', '"after": 0.6'), text[:-9], "[]", ""):
        path.write_text(broken)
        with pytest.raises(DamagedError, match=r"personal/x\.json"):
            kept.load(path)
    path.write_text(sealed({"way": "finetune"}))
    with pytest.raises(DamagedError, match=r"personal/x\.json: not a personalised evaluation of this version"):
        kept.load(path)


def test_a_finished_result_is_kept(run, monkeypatch):
    subject = open_subject(run)
    first = evaluate(subject, "finetune", {"epochs": 1})
    path = run / "personal" / first.file
    written = path.stat().st_mtime_ns

    def never(*_, **__):
        raise AssertionError("made again")

    monkeypatch.setitem(STRATEGIES, "finetune", lambda subject, *, epochs=5, lr=None, part="all": never())
    assert evaluate(subject, "finetune", {"epochs": 1}) == first
    assert path.stat().st_mtime_ns == written
    for change in ({"epochs": 2}, {"epochs": 1, "draw": 50}):
        with pytest.raises(AssertionError, match="made again"):
            evaluate(subject, "finetune", change)
    for other in (open_subject(run, round=2), open_subject(run, model="mean")):
        with pytest.raises(AssertionError, match="made again"):
            evaluate(other, "finetune", {"epochs": 1})


def test_results_of_other_rounds_and_options_stand_beside_each_other(run):
    first, second = (evaluate(open_subject(run, round=round), "global") for round in (2, 4))
    third = evaluate(open_subject(run), "global", {"draw": 30})
    assert {path.name for path in (run / "personal").iterdir()} == {first.file, second.file, third.file}
    assert len({first.file, second.file, third.file}) == 3
    assert kept.load(run / "personal" / first.file) == first != second


def test_a_result_of_another_checkpoint_or_a_damaged_one_is_made_again(run):
    subject, told = open_subject(run), []
    first = evaluate(subject, "finetune", {"epochs": 1})
    path = run / "personal" / first.file
    text = path.read_text()
    path.write_text(text.replace("finetune", "finetuna", 1))
    assert evaluate(subject, "finetune", {"epochs": 1}, on_message=told.append) == first
    assert len(told) == 1
    assert told[0].startswith(f"damaged, computed again: {path}")
    assert path.read_text() == text
    elsewhere = Subject(run, subject.federation, *vars_of(subject)[:-1], "1" * 64)
    assert evaluate(elsewhere, "finetune", {"epochs": 1}).checkpoint == "1" * 64


def test_a_client_without_test_examples_is_left_out(tmp_path):
    fed = federation()
    labels = fed.dataset.train_targets.numpy()
    by_class = [np.flatnonzero(labels == c) for c in range(3)]
    even = np.sort(np.concatenate([places[:4] for places in by_class]))
    parts = (by_class[0][4:], even, by_class[1][4:], by_class[2][4:])  # of two examples none is a third of a class
    fed = Federation(fed.recipe, Partition("by hand", {}, 0, ClientIndices.of(parts), labels))
    result = evaluate(subject_of(fed, run=tmp_path), "global", {"draw": 2})
    assert result.left_out == 1
    assert [(score.client, score.examples) for score in result.clients] == [(0, 2), (2, 2), (3, 2)]


# the command


@pytest.fixture
def command(monkeypatch, capsys, run):
    """The command inside this process, beside the run's folder: (exit code, output, errors)."""
    monkeypatch.chdir(run.parents[1])
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["landscape", "personal", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err

    return call


def test_the_command_prints_one_table(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = [
        "--strategy",
        "global",
        "--strategy",
        "finetune",
        "--strategy",
        "own",
        "--set",
        "epochs=2",
        "--set",
        "draw=40",
    ]
    done = CliRunner().invoke(cli.app, ["personal", str(run), *words])
    assert done.exit_code == 0, done.output
    header, _, *rows = [line.rstrip() for line in done.output.splitlines() if line.strip()]
    assert header.split("  ")[0] == "run"
    stored = {path.name.partition("-")[0]: kept.load(path) for path in (run / "personal").iterdir()}
    assert set(stored) == {"global", "finetune", "own"}
    for way, row in zip(("global", "finetune", "own"), rows, strict=False):
        found = stored[way]
        wanted = [str(run), way, f"{100 * found.mean:.2f} ± {100 * found.std:.2f} %"]
        wanted += [f"{100 * found.worst_tenth:.2f} %", f"{100 * found.mean_before:.2f} %"]
        assert row.startswith(wanted[0])
        assert all(text in row for text in wanted)
        left = f"{len(found.clients)} ({found.left_out} left out)" if found.left_out else str(len(found.clients))
        assert f" {left} " in row
    assert stored["own"].left_out
    assert "epochs=2, lr=0.1, part=all" in rows[1]
    assert "epochs" not in rows[0]


def test_the_command_tells_when_a_draw_cannot_be_followed(command, run):
    code, out, err = command(run)
    assert (code, err) == (0, "")
    most = find_largest_draw(open_subject(run).federation, range(7))
    assert "draw=1000 exceeds the test examples of some classes" in out
    assert out.rstrip().endswith(f"Up to draw={most} they follow them")
    code, out, _ = command(run, "--set", f"draw={most}")
    assert code == 0
    assert "exceeds" not in out


def test_a_terminal_gets_a_bar_and_the_same_table(run):
    screen = io.StringIO()
    personal_results.evaluate_runs([run], ["global"], [], console=Console(file=screen, force_terminal=True, width=250))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert re.search(rf"{run.name} global +\S+ 7/7", shown)
    assert "mean ± std" in shown


def test_the_command_takes_rounds_models_and_samples(command, run):
    code, out, _ = command(run, "--round", 2, "--model", "mean", "--clients", 3)
    assert code == 0
    (path,) = (run / "personal").iterdir()
    found = kept.load(path)
    assert (found.round, found.model, found.sample, len(found.clients)) == (2, "mean", 3, 3)
    assert "model=mean" in out


def test_a_damaged_checkpoint_is_passed_over_in_words(command, run):
    broken = run_directory.checkpoint_path(run, 4) / "global.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    code, out, _ = command(run, "--set", "epochs=1")
    assert code == 0
    assert out.startswith(f"damaged, skipped: {broken}")
    assert kept.load(next((run / "personal").iterdir())).round == 2
    code, _, err = command(run, "--round", 4)
    assert code == 2
    assert str(broken) in err


MISTAKES = {
    ("--strategy", "finetun"): "strategy: unknown 'finetun'; did you mean 'finetune'?",
    ("--set", "epoch=5"): "option of finetune: unknown 'epoch'; did you mean 'epochs'?",
    ("--strategy", "knn", "--strategy", "global", "--set", "lamb=0.1"): "did you mean 'lam'?",
    ("--strategy", "global", "--set", "epochs=2"): "option of global: unknown 'epochs'",
    ("--set", "epochs"): "--set expects key=value, for example epochs=5; got 'epochs'",
    ("--set", "epochs=2.5"): "finetune: epochs must be a whole number, got 2.5",
    ("--set", "epochs=0"): "epochs must be at least 1, got 0",
    ("--set", "lr=fast"): 'finetune: lr must be a number, got "fast"',
    ("--set", "lr=-1"): "lr must be above 0, got -1",
    ("--set", "lr=1e200"): "diverged in local step",
    ("--set", "part=heads"): "part must be 'all', 'body' or 'head'",
    ("--set", "draw=0"): "draw must be at least 1, got 0",
    ("--set", "draw=1"): "has both test examples and a model; is draw too small?",
    ("--strategy", "local", "--set", "lr_decay=2"): "lr_decay must be at most 1",
    ("--strategy", "knn", "--set", "k=0"): "k must be at least 1",
    ("--strategy", "knn", "--set", "lam=1.5"): "lam must be at most 1",
    ("--model", "swaa"): "did you mean 'swa'?",
    ("--model", "swa"): "no 'swa' model after round 4; there is: server, mean",
    ("--round", "0", "--model", "mean"): "no 'mean' model after round 0; there is: server",
    ("--round", "3"): "has no checkpoint of round 3; there are rounds 0, 2, 4",
    ("--clients", "8"): "clients must be a whole number, between 1 and 7; got 8",
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.items(), ids=[" ".join(words) for words in MISTAKES])
def test_a_mistake_is_said_clearly(command, run, words, message):
    code, out, err = command(run, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert not (run / "personal").exists()


def test_what_is_no_run_is_said_clearly(command, run):
    code, _, err = command("runs/nowhere")
    assert code == 2
    assert "runs/nowhere does not exist; expected a run directory" in err
    (run / "checkpoints").rename(run / "gone")
    code, _, err = command(run)
    assert code == 2
    assert "has no checkpoint yet: train it first" in err


def test_other_data_are_refused(command, run):
    path = run / "provenance.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "data_digest": "0" * 64}))
    code, _, err = command(run)
    assert code == 2
    assert "was trained on different data" in err


def test_the_help_names_every_way():
    way = get_type_hints(cli.train.personal, include_extras=True)["strategy"]
    (option,) = way.__metadata__
    assert all(name in option.help for name in STRATEGIES)

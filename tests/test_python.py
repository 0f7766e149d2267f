"""Everything that the command can do, from Python and from the command line, on one tiny run of the digits."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tomllib

import h5py
import matplotlib
import pandas as pd
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

import analysis
import reports
import training
from landscape import cli
from landscape.cli import completion
from training import config
from training.cleaning import CHECKPOINT, DAMAGED, INTERRUPTED
from training.starting_files import make_schema, write_starting_recipe

matplotlib.use("Agg")
RECIPE = {
    "model": {"name": "mlp", "hidden": [4]},
    "partition": {"name": "dirichlet_total", "clients": 3, "alpha": 0.5},
    "local": {"lr": 0.1, "steps": 1},
    "rounds": {"count": 2, "participants": 2},
    "checkpoints": {"every": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("python") / "runs"


@pytest.fixture(scope="module")
def run(folder):
    return training.train(RECIPE, folder, backend="serial")


@pytest.fixture(scope="module")
def other(folder):
    settings = {"seed": 1, "algorithm": {"name": "fedsam", "rho": 0.1}}
    return training.train(RECIPE, folder, settings=settings, backend="serial")


@pytest.fixture(scope="module")
def curvature(run):
    return analysis.analyze(run, "curvature", rounds="all", top=2)


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # output that goes elsewhere than to a terminal is not cut

    def invoke(*words, **more):
        done = CliRunner().invoke(cli.app, [str(word) for word in words], **more)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout

    return invoke


@pytest.fixture
def copy(run, tmp_path):
    return training.load_run(shutil.copytree(run, tmp_path / "copies" / run.name))


def test_training_returns_a_run_and_prints_nothing_without_a_terminal(run, capsys):
    assert run.status["state"] == "finished"
    assert run.checkpoints == [0, 1, 2]
    assert run.settings["local.lr"] == 0.1
    assert list(run.metrics.index) == [1, 2]
    assert 0 <= run.metrics["accuracy"].iloc[-1] <= 1
    again = training.train(RECIPE, run.path.parent, backend="serial")
    assert again == run
    assert capsys.readouterr().out == ""


def test_runs_are_loaded_one_by_one_or_by_their_settings(run, other, folder):
    assert training.load_run(str(run.path)) == run
    assert set(training.load_runs(folder)) == {run, other}
    assert training.load_runs(folder, "algorithm=fedsam seed=1") == [other]
    assert training.load_runs(folder, {"alpha": 0.5, "algorithm": "fed*vg"}) == [run]
    assert training.load_runs(folder, "algorithm.rho=0.2") == []
    with pytest.raises(ValueError, match="holds 2 runs"):
        training.load_run(folder)
    with pytest.raises(ValueError, match="expected settings such as"):
        training.load_runs(folder, "fedsam")
    with pytest.raises(ValueError, match="no run has a setting 'algoritm'; did you mean 'algorithm'"):
        training.load_runs(folder, "algoritm=fedsam")
    assert training.load_runs(folder, "xyz=1") == []


def test_a_sweep_is_refused_where_one_run_comes_back(folder):
    swept = {**RECIPE, "sweep": {"seed": [0, 1]}}
    with pytest.raises(ValueError, match="sweeps over 2 runs"):
        training.train(swept, folder)
    assert [one.seed for one in training.read_recipes(swept)] == [0, 1]
    assert training.read_recipes(swept, ["seed=3"])[0].seed == 3


def test_notebooks_show_settings_metrics_and_checkpoints(run):
    shown = run._repr_html_()
    for said in (run.name, "fedavg", "after rounds 0, 1, 2", "server", "finished, 2 of 2 rounds"):
        assert said in shown


def test_a_study_is_a_dataset_and_its_file_opens_with_xarray(run, curvature):
    assert curvature["eigenvalue"].dims == ("round", "rank")
    assert curvature.attrs["settings.top"] == 2
    assert isinstance(curvature["eigenvalue"].to_pandas(), pd.DataFrame)
    ((study, (question,)),) = [(key, value) for key, value in analysis.list_answers(run).items() if key == "curvature"]
    opened = analysis.open_answer(run, "curvature")
    xr.testing.assert_identical(opened, curvature)
    path = run.path / "analysis" / study / f"{question}.h5"
    with xr.open_dataset(path, engine="h5netcdf") as plain:
        assert "eigenvalue" in plain
        assert plain.sizes["round"] == 3
    xr.testing.assert_identical(analysis.open_answer(path), opened)
    with pytest.raises(ValueError, match="study with an answer: unknown 'curvatur'; did you mean 'curvature'"):
        analysis.open_answer(run, "curvatur")


def test_what_studies_would_take_is_a_table(run, curvature, tmp_path):
    found = analysis.estimate(run, "curvature", rounds="all", top=2)
    assert found[["study", "of", "seconds"]].values.tolist() == [["curvature", run.name, 0.0]]  # it is there already
    left = analysis.estimate(run, "curvature", rounds="last", top=1).iloc[0]
    assert (left["pieces"], left["done"], left["advice"]) == (1, 0, "")
    assert left["seconds"] > 0
    assert "rounds-last-top1" not in analysis.list_answers(run)["curvature"]
    with pytest.raises(ValueError, match="settings belong to one study, and 2 are asked for"):
        analysis.estimate(run, ["curvature", "training"], top=1)
    with pytest.raises(ValueError, match="backend: unknown 'proceses'; did you mean 'processes'"):
        analysis.analyze(run, "curvature", backend="proceses")


def test_a_surface_of_another_program_becomes_an_answer(tmp_path):
    with h5py.File(tmp_path / "his.h5", "w") as file:
        for name, values in (("xcoordinates", [-1.0, 1.0]), ("ycoordinates", [-1.0, 1.0])):
            file[name] = values
        file["train_loss"] = [[1.0, 2.0], [3.0, 4.0]]
    found = reports.import_surface(str(tmp_path / "his.h5"), str(tmp_path / "ours.h5"))
    assert "loss" in found
    xr.testing.assert_identical(analysis.open_answer(tmp_path / "ours.h5")["loss"], found["loss"])
    with pytest.raises(ValueError, match="exists already"):
        reports.import_surface(tmp_path / "his.h5", tmp_path / "ours.h5")


def test_several_runs_are_joined(run, other):
    found = analysis.analyze([run, other], "training")
    assert found["run"].values.tolist() == [run.name, other.name]


def test_a_figure_and_tables_of_numbers(run, other, curvature):
    figure = reports.figure("eigenvalues", [run, other])
    assert isinstance(figure, Figure)
    assert len(reports.draw("accuracy", run)) == 1
    with pytest.raises(ValueError, match="surface cannot be drawn of these runs"):
        reports.figure("surface", run)
    with pytest.raises(ValueError, match="has 1 drawings"):
        reports.figure("eigenvalues", run, which=1)
    table = reports.collect([run, other])
    assert table.loc[run.name, "lambda_1"] == pytest.approx(float(curvature["eigenvalue"][-1, 0]))
    assert table.loc[other.name, "algorithm.rho"] == 0.1
    assert "curvature" in " ".join(reports.collect(run, everything=True).columns)


def test_a_figure_is_as_wide_as_a_column_of_a_paper(run, curvature, tmp_path):
    figure = reports.figure("eigenvalues", run, width="icml")
    assert figure.get_figwidth() == 3.25
    assert max(text.get_fontsize() for text in figure.findobj(Text)) <= 8
    assert reports.figure("eigenvalues", run, width=4.2).get_figwidth() == 4.2
    assert reports.figure("eigenvalues", run).get_figwidth() > 6
    figure.savefig(tmp_path / "figure.pdf")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in pdf  # which publishers refuse
    assert b"/FontFile2" in pdf
    with pytest.raises(ValueError, match="did you mean 'neurips'"):
        reports.figure("eigenvalues", run, width="neuripss")


def test_runs_side_by_side(run, other, command):
    found = reports.compare([run, other])
    assert found.loc[("settings", "algorithm.name")].tolist() == ["fedavg", "fedsam"]
    assert ("settings", "local.lr") not in found.index
    code, out = command("compare", run.path, other.path)
    assert code == 0
    assert "algorithm.rho" in out
    assert "test accuracy (%)" in out
    with pytest.raises(ValueError, match="needs two runs or more, got 1"):
        reports.compare(run)
    code, out = command("compare", run.path, other.path, "--json")
    assert json.loads(out)["settings"]["algorithm.rho"][other.name] == 0.1


def test_personal_models_are_a_table_of_clients(run):
    found = training.evaluate_personal(run, "global", draw=20)
    assert set(found["strategy"]) == {"global"}
    assert found["after"].between(0, 1).all()


def test_files_are_checked(run, copy, command):
    (sound,) = analysis.check(run)
    assert sound.problems == []
    assert sound.checkpoints == 3
    path = copy.path / "checkpoints" / "round_000001" / "global.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    (found,) = analysis.check(copy)
    assert "global.safetensors" in found.problems[0]
    code, out = command("check", copy.path, "--json")
    assert code == 1
    assert json.loads(out)[0]["problems"] == found.problems


def test_lists_are_tables_and_json(command):
    models = {one["name"]: one for one in training.list_entries("models")}
    assert "mlp" in models
    assert any("alpha" in setting["setting"] for setting in _find(training.list_entries("partitions"))["settings"])
    assert {"curvature", "plane"} <= {one["name"] for one in analysis.list_entries()}
    assert {"overlay", "plane"} <= {one["name"] for one in reports.list_entries("figures")}
    code, out = command("list", "studies", "curvature", "--json")
    assert code == 0
    assert "top" in {one["curvature."] for one in json.loads(out)}


def _find(entries):
    return next(one for one in entries if one["name"] == "dirichlet_total")


def test_runs_are_listed_and_shown(run, other, folder, command):
    code, out = command("runs", "seed=1", "--in", folder)
    assert code == 0
    assert other.name in out
    assert run.name not in out
    code, out = command("show", run.path, "--json")
    (found,) = json.loads(out)
    assert found["settings"]["algorithm"]["name"] == "fedavg"
    assert found["checkpoints"] == [0, 1, 2]
    assert command("runs", "seed=5", "--in", folder)[1] == "no run has seed=5\n"


def test_only_what_interrupted_work_left_is_deleted(copy, command):
    left = copy.path / "analysis" / "curvature" / ".default-0123"
    left.mkdir(parents=True)
    (left / "piece.nc").write_bytes(b"12345")
    moved = left.parent / "default.h5.damaged1"
    moved.write_bytes(b"123")
    found = training.find_removable(copy)
    assert {(one.path, one.why, one.bytes) for one in found} == {(left, INTERRUPTED, 5), (moved, DAMAGED, 3)}
    _, out = command("clean", copy.path, input="n\n")
    assert "nothing was deleted" in out
    assert moved.exists()
    code, out = command("clean", copy.path, "--yes")
    assert code == 0
    assert not left.exists()
    assert not moved.exists()
    assert command("clean", copy.path)[1] == "nothing to delete\n"
    assert analysis.check(copy)[0].problems == []


def test_old_checkpoints_are_deleted_only_if_asked_for_and_not_missed(copy):
    found = training.find_removable(copy, checkpoints=True)
    assert [one.why for one in found] == [CHECKPOINT] * 2
    training.remove_all(found)
    assert copy.checkpoints == [2]
    assert analysis.check(copy)[0].problems == []
    shutil.rmtree(copy.path / "checkpoints" / "round_000002")
    assert analysis.check(copy)[0].problems


def test_a_new_recipe_holds_every_setting_at_its_default(tmp_path, command):
    text = write_starting_recipe()
    assert config.validate(tomllib.loads(text)).digest == config.validate({}).digest
    assert "learning rate" in text
    assert command("new", "recipe")[0] == 0
    assert (tmp_path / "recipe.toml").read_text() == text
    assert command("new", "study", "own.py")[1] == "own.py\nnext: its first lines say how to measure runs with it\n"
    with pytest.raises(ValueError, match="exists already"):
        command("new", "recipe")
    schema = make_schema()
    assert set(config.Recipe.model_fields) - {"adopted"} < set(schema["properties"])
    assert "adopted" not in schema["properties"]  # landscape adopt writes it, nobody else
    assert schema["$defs"]["Local"]["properties"]["lr"]["description"] == "learning rate"


def test_names_are_completed(run, monkeypatch):
    assert completion.complete_study("cur") == ["curvature"]
    assert "digits_fedsam" in completion.complete_recipe("digits_")
    assert completion.complete_setting("algorithm.name=fedgl") == ["algorithm.name=fedgloss"]
    assert "local.lr=" in completion.complete_setting("local.")
    assert "overlay" in completion.complete_figure("o")
    assert "fedgloss/table3" in completion.complete_artefact("fedgloss/")
    assert str(run.path) in completion.complete_run(f"{run.path.parent}/")


def test_every_public_name_exists():
    for package in (training, analysis, reports):
        for name in package.__all__:
            assert getattr(package, name).__doc__
        assert dir(package) == package.__all__
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018


def test_a_file_that_hides_a_package_is_named(monkeypatch, tmp_path):
    assert cli.find_hidden_packages() == ""
    (tmp_path / "analysis.py").write_text("")
    found = importlib.util.spec_from_file_location("analysis", tmp_path / "analysis.py")
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "analysis" else known(name))
    assert cli.find_hidden_packages().startswith(f"{tmp_path / 'analysis.py'} hides the package 'analysis'")


def test_weights_are_one_file(command):
    with pytest.raises(ValueError, match="--weights takes one file, got 2"):
        command("analyze", "--model", "m:f", "--weights", "a.pt", "--weights", "b.pt", "--data", "digits")

"""Recipes: mistakes are told in a user's words, what was written comes back, and a run's name means its settings."""

from __future__ import annotations

import datetime
import itertools
import math
import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training import config
from training.config import Recipe, validate
from training.methods import catalog
from training.recipe_tables import Local
from training.storage import toml

JARGON = re.compile(r"Input should|valid (integer|string|number|dictionary)|instance of|extra|pydantic|\bloc\b|input_")


def refused(content) -> str:
    with pytest.raises(ValueError, match="recipe") as mistake:
        validate(content)
    assert type(mistake.value) is ValueError
    assert not JARGON.search(str(mistake.value)), mistake.value
    return str(mistake.value)


@pytest.fixture
def written(tmp_path):
    """Load a recipe from this text, with these overrides."""

    def load(text, *overrides):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return config.load(tmp_path / "mine.toml", overrides)

    return load


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"locl": {"lr": 1.0}},
            "setting of recipe: unknown 'locl'; did you mean 'local'? Known: adopted, algorithm, augment, check",
        ),
        ({"lr": 0.1}, "setting of recipe: unknown 'lr'; did you mean 'local.lr'?"),
        ({"nonsense": 1}, "setting of recipe: unknown 'nonsense'. Known: adopted, algorithm"),
        ({"local": {"lrr": 1.0}}, "setting of local: unknown 'lrr'; did you mean 'lr'? Known: batch_size, clip"),
        ({"rounds": {"cuont": 1}}, "setting of rounds: unknown 'cuont'; did you mean 'count'?"),
        ({"swa": {"cycl": 3}}, "setting of swa: unknown 'cycl'; did you mean 'cycle'?"),
        ({"evaluation": {"evry": 3}}, "setting of evaluation: unknown 'evry'; did you mean 'every'?"),
        ({"checkpoints": {"keep": "all"}}, "setting of checkpoints: unknown 'keep'"),
        ({"augment": {"flp": True}}, "setting of augment: unknown 'flp'; did you mean 'flip'?"),
        ({"data": {"name": "digit"}}, "data set: unknown 'digit'; did you mean 'digits'?"),
        ({"data": {"name": "synthetic", "exmples": 3}}, "setting of data set 'synthetic': unknown 'exmples'; did you "),
        ({"data": {"name": "synthetic", "rot": "x"}}, "setting of data set 'synthetic': unknown 'rot'"),
        ({"model": {"name": "lenet"}}, "model: unknown 'lenet'; did you mean 'lenet64'?"),
        ({"model": {"name": "mlp", "hiden": [3]}}, "setting of model 'mlp': unknown 'hiden'; did you mean 'hidden'?"),
        ({"model": {"name": "mlp", "classes": 3}}, "setting of model 'mlp': unknown 'classes'. Known: hidden"),
        ({"model": {"name": "lenet64", "hidden": [3]}}, "model 'lenet64' takes no settings, got 'hidden'"),
        ({"partition": {"name": "idd"}}, "partition: unknown 'idd'; did you mean 'iid'?"),
        ({"partition": {"name": "dirichlet_total", "alph": 1}}, "setting of partition 'dirichlet_total': unknown 'alp"),
        ({"partition": {"name": "dirichlet_total"}}, "partition 'dirichlet_total' needs the setting 'alpha'"),
        ({"algorithm": {"name": "fedsm"}}, "algorithm: unknown 'fedsm'; did you mean 'fedsam'?"),
        ({"algorithm": {"name": "fedsam", "rh": 1}}, "setting of fedsam: unknown 'rh'; did you mean 'rho'?"),
        ({"algorithm": {"name": "feddyn+sma"}}, "unknown 'sma'; did you mean 'sam'?"),
    ],
)
def test_unknown_names_at_every_level_come_with_the_nearest_known_one(content, words):
    assert words in refused(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": True}, "seed must be a whole number, got true"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": datetime.date(2024, 1, 2)}, "seed must be a whole number, got 2024-01-02"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', got \"float16\""),
        ({"local": 3}, "local must be a table of settings, got 3"),
        ({"augment": [1]}, "augment must be a table of settings, got [1]"),
        ({"swa": True}, "swa must be a table of settings, got true"),
        ({"algorithm": "fedsam"}, 'algorithm must be a table of settings, got "fedsam"'),
        ({"algorithm": {"name": 3}}, "algorithm.name must be text, got 3"),
        ({"data": {"download": "yes"}}, 'data.download must be true or false, got "yes"'),
        ({"local": {"lr": "fast"}}, 'local.lr must be a number, got "fast"'),
        ({"local": {"lr": 0}}, "local.lr must be above 0, got 0"),
        ({"local": {"lr": float("inf")}}, "local.lr must be finite, got inf"),
        ({"local": {"lr": float("nan")}}, "local.lr must be finite, got nan"),
        ({"local": {"lr": {"start": 1}}}, "local.lr must be a number, got {start = 1}"),
        ({"local": {"lr_decay": 1.5}}, "local.lr_decay must be at most 1, got 1.5"),
        ({"local": {"momentum": 1}}, "local.momentum must be below 1, got 1"),
        ({"local": {"steps": 0}}, "local.steps must be at least 1, got 0"),
        ({"local": {"steps": "x"}}, 'local.steps must be a whole number, got "x"'),
        ({"local": {"clip": 0.0}}, "local.clip must be above 0, got 0.0"),
        ({"rounds": {"sampling": "fixd"}}, "rounds.sampling must be 'fixed' or 'bernoulli', got \"fixd\""),
        ({"swa": {"start": 1.0}}, "swa.start must be below 1, got 1.0"),
        ({"partition": {"clients": 0}}, "partition.clients must be at least 1, got 0"),
        (
            {"partition": {"name": "dirichlet_total", "alpha": "x"}},
            "partition 'dirichlet_total': alpha must be a number, got \"x\"",
        ),
        ({"rounds": {"participants": 11}}, "rounds.participants (11) must not exceed partition.clients (10)"),
        ({"augment": {"flip": 1}}, "augment.flip must be true or false, got 1"),
        ({"augment": {"padding": "x"}}, 'augment.padding must be a whole number, got "x"'),
        ({"augment": {"padding": -1}}, "augment.padding must be at least 0, got -1"),
        ({"augment": {"mixup": "x"}}, 'augment.mixup must be a number, got "x"'),
        ({"algorithm": {"name": "fedsam", "rho": "x"}}, 'rho must be a number, got "x"'),
        ({"algorithm": {"name": "fedsam", "rho": -1.0}}, "rho"),
        ({"model": {"name": "mlp", "hidden": [datetime.date(2024, 1, 2)]}}, "model: hidden must be text, a number, tr"),
        ({"model": {"name": "a:b", "x": None}}, "model: x must be text, a number, true, false, a list or a table"),
    ],
)
def test_wrong_values_say_what_was_expected_and_what_came(content, words):
    assert words in refused(content)


def test_every_mistake_is_told_at_once():
    lines = refused({"local": {"lr": 0, "momentum": 2}, "sede": 1}).splitlines()
    assert [line.split(" ")[1] for line in lines] == ["local.lr", "local.momentum", "of"]


def test_a_recipe_cannot_be_changed():
    recipe = validate({})
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 1
    recipe.partition.settings["alpha"] = 3
    assert recipe == validate({})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", "not valid TOML: Invalid value"),
        ("seed = 1\nseed = 2", "not valid TOML: Cannot overwrite a value"),
        ("sweep = 3", "sweep must be a table"),
        ("sweep = [3]", "sweep must be a table"),
        ("sweep = []", "sweep must be a table"),
        ('[sweep]\n"local.lr" = 0.1', "sweep.local.lr must be a list of values such as [0.1, 0.2], got 0.1"),
        ('[sweep]\n"local.lr" = []', "sweep.local.lr must be a list of values such as [0.1, 0.2], got []"),
        ('[sweep]\n"local.lrr" = [1]', "setting of local: unknown 'lrr'; did you mean 'lr'?"),
        ('seed = 3\n[sweep]\n"seed.x" = [1]', "seed.x: 'seed' is a value, not a table"),
        ("seed = 2024-01-02", "seed must be a whole number, got 2024-01-02"),
    ],
)
def test_files_that_are_not_recipes(written, text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        written(text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"none\.toml: cannot be read"):
        config.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("# \xe9\nseed = 1".encode("latin1"))
    with pytest.raises(ValueError, match="cannot be read"):
        config.load(tmp_path / "latin.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ValueError, match="cannot be read"):
        config.load(tmp_path / "folder.toml")
    with pytest.raises(ValueError, match="recipe: unknown 'digits_fedavgg'; did you mean 'digits_fedavg'"):
        config.load("digits_fedavgg")


@pytest.mark.parametrize("name", sorted(path.stem for path in config.RECIPES.glob("*.toml")))
def test_shipped_recipes_load_by_name_and_survive_being_dumped(name, tmp_path):
    for recipe in config.load(name):
        (tmp_path / "config.toml").write_text(config.dump(recipe), encoding="utf-8")
        assert config.load(tmp_path / "config.toml") == [recipe]


def test_everything_is_spelled_out_in_a_dumped_recipe():
    content = tomllib.loads(
        config.dump(validate({"algorithm": {"name": "fedasam"}, "partition": {"name": "pachinko"}, "swa": {}}))
    )
    assert content["algorithm"] == {"name": "fedasam", **catalog.read_settings(catalog.find_method("fedasam"))}
    assert content["partition"] == {"name": "pachinko", "clients": 10, "alpha": 0.1, "beta": 10.0}
    assert set(content) == set(Recipe.model_fields) - {"device", "adopted"}  # where a run is trained is not what it is
    assert set(content["local"]) == set(Local.model_fields) - {
        "steps",
        "clip",
        "hard_pixels",
    }  # TOML has no word for none


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.one_of(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True), texts).filter(
    lambda name: name not in {"name", "root", "download", "pooled"} and not name.startswith("model_")
)
atoms = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), texts)
values = st.recursive(
    atoms, lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(texts, part, max_size=3)), max_leaves=5
)
recipes = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**40),
        "dtype": st.sampled_from(["float32", "float64"]),
        "data": st.builds(
            lambda extra, root: {"name": "own.module:function", **extra, **root},
            st.dictionaries(names, values, max_size=3),
            st.fixed_dictionaries({}, optional={"root": texts, "download": st.booleans()}),
        ),
        "partition": st.one_of(
            st.fixed_dictionaries(
                {"name": st.just("dirichlet_total"), "alpha": st.one_of(st.integers(0, 9), st.floats(0, 9))}
            ),
            st.fixed_dictionaries({"name": st.just("shards"), "shards_per_client": st.integers(1, 9)}),
            st.fixed_dictionaries({"name": st.just("pachinko")}, optional={"coarse": st.just([0, 0, 1])}),
        ),
        "algorithm": st.fixed_dictionaries(
            {"name": st.sampled_from(["fedsam", "mofedsam", "scaffold+sam"])}, optional={"rho": st.floats(0, 2)}
        ),
        "augment": st.fixed_dictionaries({}, optional={"flip": st.booleans(), "mixup": st.integers(0, 2)}),
        "local": st.fixed_dictionaries(
            {},
            optional={
                "lr": st.one_of(st.floats(0, 10, exclude_min=True), st.integers(1, 3)),
                "steps": st.one_of(st.none(), st.integers(1, 9)),
                "clip": st.one_of(st.none(), st.floats(1e-9, 1e9)),
            },
        ),
        "swa": st.one_of(st.none(), st.just(False), st.fixed_dictionaries({}, optional={"cycle": st.integers(1, 9)})),
    },
)


@given(recipes)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_what_is_dumped_loads_as_the_same_recipe(content):
    recipe = validate(content)
    again = validate(tomllib.loads(config.dump(recipe)))
    assert again == recipe
    assert (again.digest, again.slug) == (recipe.digest, recipe.slug)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}", recipe.slug), recipe.slug


@given(values)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_written_value_parses_to_itself(value):
    assert toml.parse_value(toml.show(value)) == value


def test_text_that_would_be_more_than_one_value_stays_text():
    assert toml.parse_value("1\nother = 2") == "1\nother = 2"


def test_sweep_is_the_cross_product_of_dotted_lists(written):
    found = written('seed = 7\n[sweep]\n"local.lr" = [0.1, 0.2]\n"algorithm.name" = ["fedavg", "fedsam", "scaffold"]')
    pairs = [(recipe.local.lr, recipe.algorithm.name) for recipe in found]
    assert pairs == list(itertools.product([0.1, 0.2], ["fedavg", "fedsam", "scaffold"]))
    assert {recipe.seed for recipe in found} == {7}
    assert len({recipe.slug for recipe in found}) == 6


def test_several_sweeps_follow_each_other(written):
    """For settings that belong together: this radius with that split, clipping for one method alone."""
    text = """
        [[sweep]]
        algorithm = [{name = "fedavg"}, {name = "fedsam", rho = 0.3}]
        seed = [1, 2]
        [[sweep]]
        algorithm = [{name = "feddyn"}]
        local.clip = [10.0]
        """
    found = written(text)
    told = [(recipe.algorithm.name, recipe.seed, recipe.local.clip) for recipe in found]
    assert told == [
        ("fedavg", 1, None),
        ("fedavg", 2, None),
        ("fedsam", 1, None),
        ("fedsam", 2, None),
        ("feddyn", 0, 10.0),
    ]
    assert [recipe.seed for recipe in written(text, "seed=7")] == [7, 7, 7]
    assert [recipe.seed for recipe in written(text, "sweep.seed=[4, 5]")] == [4, 5, 4, 5, 4, 5]
    assert {recipe.local.clip for recipe in written(text, "local.clip=3.0")} == {3.0}


def test_sweep_of_nested_tables_lists_and_whole_sections(written):
    found = written(
        """
        [model]
        name = "mlp"
        [sweep]
        algorithm = [{name = "fedavg"}, {name = "fedsam", rho = 0.3}]
        swa = [false, {cycle = 3}]
        [sweep.model]
        hidden = [[4], [4, 4]]
        """
    )
    assert len({recipe.digest for recipe in found}) == len(found) == 8
    assert found[0].swa is None
    assert found[0].model.settings == {"hidden": [4]}
    assert found[-1].swa.cycle == 3
    assert found[-1].algorithm.settings["rho"] == 0.3
    assert found[-1].model.settings == {"hidden": [4, 4]}


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("local.lr=0.5", ("local", "lr"), 0.5),
        ("local.lr = 1e-3", ("local", "lr"), 1e-3),
        ("seed=3", ("seed",), 3),
        ("data.download=true", ("data", "download"), True),
        ("data.root=/some/place", ("data", "root"), "/some/place"),
        ("data.root=a=b", ("data", "root"), "a=b"),
        ('data.root="3"', ("data", "root"), "3"),
        ("rounds.sampling=bernoulli", ("rounds", "sampling"), "bernoulli"),
        ("swa.cycle=4", ("swa", "cycle"), 4),
        ("augment.flip=true", ("augment", "flip"), True),
    ],
)
def test_overrides_are_toml_values_or_plain_words(written, override, place, value):
    (recipe,) = written('[algorithm]\nname = "fedsam"', override)
    found = recipe
    for part in place:
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)
    assert recipe.algorithm.name == "fedsam"


def test_overrides_reach_lists_tables_and_open_settings(written):
    (recipe,) = written("", "model.name=mlp", "model.hidden=[8, 4]", "algorithm={name = 'fedsam', rho = 1}")
    assert recipe.model.settings == {"hidden": [8, 4]}
    assert recipe.algorithm.settings["rho"] == 1.0


def test_the_last_of_two_overrides_counts(written):
    assert written("", "seed=1", "seed=2")[0].seed == 2


@pytest.mark.parametrize("override", ["local.lr", "=3", ".lr=3", "local.=3", "local..lr=3", ""])
def test_overrides_that_are_none(written, override):
    with pytest.raises(
        ValueError, match=re.escape(f"--set expects key=value, for example local.lr=0.1; got '{override}'")
    ):
        written("", override)


def test_overrides_are_checked_like_the_file(written):
    with pytest.raises(ValueError, match="setting of local: unknown 'epoch'; did you mean 'epochs'"):
        written("", "local.epoch=3")
    with pytest.raises(ValueError, match=r"mine\.toml: local\.lr must be a number, got \"fast\""):
        written("", "local.lr=fast")
    with pytest.raises(ValueError, match=r"local\.lr\.x: 'lr' is a value, not a table"):
        written("[local]\nlr = 0.1", "local.lr.x=3")


def test_an_override_fixes_a_swept_setting(written):
    swept = '[sweep]\n"local.lr" = [0.1, 0.2]\nseed = [0, 1, 2]'
    assert [(r.local.lr, r.seed) for r in written(swept, "local.lr=0.5")] == [(0.5, 0), (0.5, 1), (0.5, 2)]
    assert [r.local.lr for r in written(swept, "sweep.local.lr=[1.0]", "seed=0")] == [1.0]
    assert [r.seed for r in written("", "sweep.seed=[4, 5]")] == [4, 5]


def test_an_override_wins_over_a_swept_section(written):
    found = written('[sweep]\nalgorithm = [{name = "fedsam"}, {name = "mofedsam"}]', "algorithm.rho=0.7")
    assert [recipe.algorithm.settings["rho"] for recipe in found] == [0.7, 0.7]


def test_equal_recipes_have_one_name_however_they_are_written():
    one = validate({"partition": {"name": "dirichlet_total", "alpha": 1}, "local": {"lr": 1}, "augment": {"mixup": 1}})
    same = validate(
        {
            "augment": {"mixup": 1.0, "flip": False},
            "algorithm": {"name": "fedavg", "eta_g": 1},  # the default, spelled out
            "partition": {"alpha": 1.0, "name": "dirichlet_total", "clients": 10},
            "local": {"lr": 1.0},
            "swa": False,
        }
    )
    assert one == same
    assert one.slug == same.slug


def test_where_the_data_lie_is_not_part_of_the_name():
    here = validate({"data": {"name": "cifar10"}})
    there = validate({"data": {"name": "cifar10", "root": "/elsewhere", "download": True}})
    assert here.slug == there.slug
    assert here.digest == there.digest


CHANGES = [
    {"seed": 1},
    {"dtype": "float64"},
    {"data": {"name": "synthetic"}},
    {"data": {"name": "synthetic", "examples": 99}},
    {"data": {"pooled": True}},
    {"partition": {"clients": 11}},
    {"partition": {"name": "dirichlet_total", "alpha": 0.5}},
    {"partition": {"name": "dirichlet_total", "alpha": 0.50000001}},
    {"model": {"name": "mlp"}},
    {"model": {"name": "mlp", "hidden": [3]}},
    {"algorithm": {"name": "fedsam"}},
    {"algorithm": {"name": "fedsam", "rho": 0.06}},
    {"augment": {"flip": True}},
    {"local": {"lr": 0.02}},
    {"local": {"steps": 3}},
    {"local": {"clip": 10.0}},
    {"rounds": {"count": 11}},
    {"rounds": {"aggregation": "uniform"}},
    {"swa": {}},
    {"swa": {"cycle": 3}},
    {"evaluation": {"every": 2}},
    {"checkpoints": {"every": 2}},
]


def test_any_change_that_matters_changes_the_name():
    recipes = [validate(content) for content in [{}, *CHANGES]]
    assert len({recipe.digest for recipe in recipes}) == len(recipes)
    assert len({recipe.slug for recipe in recipes}) == len(recipes)


def test_the_name_is_readable():
    recipe = validate(
        {"algorithm": {"name": "feddyn+sam"}, "partition": {"name": "dirichlet_total", "alpha": 0.05}, "seed": 3}
    )
    assert re.fullmatch(r"digits_feddyn\+sam_alpha0\.05_seed3_[0-9a-f]{8}", recipe.slug)
    assert re.fullmatch(
        r"my-module-data_fedavg_iid_swa_seed0_[0-9a-f]{8}",
        validate({"data": {"name": "my/module:data"}, "swa": {}}).slug,
    )
    hidden = validate({"data": {"name": "../../x y:" + 300 * "z"}}).slug
    assert hidden.startswith("x-y-zzz")
    assert len(hidden) < 120


@pytest.mark.parametrize("name", ["..:x", "../../etc:x", ".:.", "a/b:c", "é:x", "-:-", "[red]:x", "x\n:y"])
def test_a_name_is_one_path_component(name):
    found = validate({"data": {"name": name}}).slug
    assert re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*", found)
    assert Path(found).name == found


def test_the_name_tells_what_was_asked_for():
    (recipe,) = config.load("digits_fedsam", ["algorithm.rho=0.05", "partition.alpha=0.1", "seed=1"])
    assert re.fullmatch(r"digits_fedsam_alpha0\.1_rho0\.05_seed1_[0-9a-f]{8}", recipe.name(["algorithm.rho"]))
    assert "rho" not in recipe.slug  # the method's own
    (recipe,) = config.load("digits_feddyn", ["local.lr=0.3", "rounds.count=7", "local.clip=2.0", "model.name=mlp"])
    told = recipe.name(["local.lr", "rounds.count", "local.clip", "model.name", "data.root", "nonsense"])
    assert re.fullmatch(r"digits_feddyn_alpha0\.5_feddyn-alpha0\.1_lr0\.3_rounds7_clip2_mlp_seed0_[0-9a-f]{8}", told)
    (recipe,) = config.load("digits_fedasam_swa", ["model={name='mlp', hidden=[5, 3]}", "data.pooled=true"])
    told = recipe.name(["model", "swa.cycle", "data.pooled", "local.clip"])
    assert re.fullmatch(
        r"digits_fedasam_alpha0\.5_swa_mlp_hidden-5-3_swa-cycle\d+_pooled_no-clip_seed0_[0-9a-f]{8}", told
    )
    (recipe,) = config.load("digits_fedavg", ["algorithm={name='fedsam', rho=0.2}"])
    assert re.fullmatch(r"digits_fedsam_alpha0\.5_rho0\.2_seed0_[0-9a-f]{8}", recipe.name(["algorithm"]))  # no eta_g
    assert "rho_start0.001" in recipe.name(["algorithm.rho_start"])  # asked for, and the default all the same
    everything = recipe.name(key for key in recipe.model_dump())
    assert len(everything) < 160
    assert everything.endswith(f"_seed0_{recipe.digest[:8]}")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000,
        "x = " + "[" * 400 + "]" * 400,
        "x = " + "{a=" * 50 + "1" + "}" * 50,
        ".".join("a" * 2000) + " = 1",
        "[" + ".".join("a" * 2000) + "]",
    ],
)
def test_deep_nesting_is_refused_in_words(tmp_path, text):
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ValueError, match=r"deep\.toml: not valid TOML: nested more than 20 deep"):
        config.load(tmp_path / "deep.toml")


@pytest.mark.parametrize("override", ["local.lr=" + "[" * 100_000, "local.lr=" + "[" * 50 + "]" * 50])
def test_a_deep_value_is_refused_in_words(override):
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        config.load("digits_fedavg", [override])
    with pytest.raises(ValueError, match="--set expects key=value"):
        config.load("digits_fedavg", [".".join("a" * 2000) + "=1"])


def test_a_sweep_that_is_too_large_is_refused_before_it_is_spread_out():
    axes = [f"sweep.{key}=[{', '.join(map(str, range(1, 1001)))}]" for key in ("seed", "local.epochs", "rounds.count")]
    with pytest.raises(ValueError, match=r"sweep: 1,000,000,000 combinations \(.*seed 1000.*\), at most 10,000"):
        config.load("digits_fedavg", axes)


def test_text_that_no_file_can_hold_is_refused():
    recipe = validate({"data": {"root": "caf\udce9"}})
    with pytest.raises(ValueError, match=r"caf\\udce9: not valid UTF-8; rename it"):
        config.dump(recipe)


def test_a_setting_that_a_later_version_adds_leaves_digests_as_they_are(monkeypatch):
    given = {"algorithm": {"name": "fedsam", "rho": 0.1}, "partition": {"name": "dirichlet_total", "alpha": 0.5}}
    recipes = [validate(one) for one in ({}, given, {**given, "swa": {}}, {"augment": {"flip": True}})]
    before = [recipe.digest for recipe in recipes]
    assert len(set(before)) == len(before)
    dump = Recipe.model_dump

    def later(self, **options):
        content = dump(self, **options)
        return content | {"device": "auto", "local": content["local"] | {"warmth": 1.0}}

    monkeypatch.setattr(Recipe, "model_dump", later)
    assert [recipe.digest for recipe in recipes] == before


def test_the_digest_of_a_recipe_never_changes():
    # runs are found by their digests: whoever changes these numbers makes every older run impossible to find
    assert validate({}).digest[:8] == "44136fa3"
    assert validate({"algorithm": {"name": "fedsam", "rho": 0.1}, "seed": 1}).digest[:8] == "d11d122c"


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("[sweep]\nseed = 3\n", []),
        ("[sweep]\nseed = [1, 2]\n", ["sweep.local.lr=3"]),
        ("local = 3\n[sweep]\n'local.lr' = [1, 2]\n", []),
        (f"[sweep]\nseed = {[*range(200)]}\n'local.lr' = {[*range(1, 201)]}\n", []),
    ],
)
def test_a_mistake_in_a_sweep_names_the_recipe(tmp_path, text, overrides):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"mine\.toml: ") as caught:
        config.load(path, overrides)
    assert "\n" not in str(caught.value)


def test_a_setting_that_is_not_utf8_is_refused():
    with pytest.raises(ValueError, match="--set expects text in UTF-8"):
        config.load("digits_fedavg", ["data.name=caf\udce9"])


@pytest.mark.parametrize("key", ["a", '"a"', "'a'"])
def test_a_key_of_endless_parts_is_refused_before_it_takes_memory(tmp_path, key):
    path = tmp_path / "mine.toml"
    path.write_text(f"[sweep]\n{' . '.join([key] * 100_000)} = [1, 2]\n")
    start = time.process_time()
    with pytest.raises(ValueError, match=r"mine.toml: not valid TOML: nested more than"):
        config.load(path)
    assert time.process_time() - start < 2  # tomllib alone takes minutes for these


def test_long_lists_and_texts_are_no_endless_keys():
    numbers = ", ".join(["0.25"] * 1000)
    assert toml.parse(f"a = [{numbers}]\nb = 'x.y.z'\n")["a"][-1] == 0.25


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400])
def test_whole_numbers_have_64_bits(tmp_path, number):
    path = tmp_path / "mine.toml"
    path.write_text(f"[partition]\nname = 'dirichlet_total'\nalpha = {number}\n")
    with pytest.raises(ValueError, match=r"mine\.toml: .* more than 64 bits"):
        config.load(path)
    with pytest.raises(ValueError, match=r"^--set: .* more than 64 bits"):
        config.load("digits_fedavg", [f"local.lr={number}"])


def test_an_infinite_mass_has_a_name() -> None:
    """JSON, from which names are made, has no infinity."""
    partition = {"name": "dirichlet_total", "clients": 5, "alpha": math.inf}
    recipe = config.validate({"data": {"name": "digits"}, "partition": partition})
    assert "_alphainf_" in recipe.slug

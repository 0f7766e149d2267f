"""Recipes: settings read from TOML, with every name in them checked, and identified by a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import model_validator

from landscape.errors import choose
from training import recipe_tables, recording, run_names, sweep_expansion
from training.data import datasets, partition
from training.methods import catalog
from training.models import networks
from training.models.weights import compute_digest
from training.plugins import ExtensionPoint, UnknownModuleError, takes_anything
from training.recipe_tables import RecipeTables, Swa
from training.settings import build, settings_of
from training.storage import toml
from training.storage.verified_files import Json

RECIPES = Path(__file__).parent / "recipes"
Thing = TypeVar("Thing")
NAMED = ("data", "partition", "model", "algorithm")  # tables with a name, whose settings follow from it
# where things lie on this machine: no part of what a run is; weights have a digest that is
LOCATIONS = (("data", "root"), ("data", "download"), ("model", "weights"))


class Data(recipe_tables.Data):
    """Which data set, with its settings checked."""

    @classmethod
    def resolve_name(cls, name: str) -> str:
        return datasets.SOURCES.resolve(name)

    def complete_settings(self, given: Json) -> Json:
        """Check the settings of a data set.

        given: the settings as the recipe states them.
        """
        constants = {key: value for key, value in given.items() if key not in ("mean", "std")}
        function = _find(datasets.SOURCES, self.name)
        if function is not None:
            _check("data set", self.name, constants, function, ("root", "download"))
        return given


class Partition(recipe_tables.Partition):
    """Which client holds which example, with its settings checked and completed."""

    @classmethod
    def resolve_name(cls, name: str) -> str:
        return partition.SCHEMES.resolve(name)

    def complete_settings(self, given: Json) -> Json:
        """Check the settings of a partition and fill in the defaults.

        given: the settings as the recipe states them.
        """
        # pachinko's coarse labels come with the data
        brought = {"coarse": [0]} if self.name == "pachinko" and "coarse" not in given else {}
        complete = partition.check_settings(self.name, {**brought, **given})
        return {key: value for key, value in complete.items() if key not in brought}


class Model(recipe_tables.Model):
    """Which network, with its settings checked."""

    @classmethod
    def resolve_name(cls, name: str) -> str:
        return networks.NETWORKS.resolve(name)

    def complete_settings(self, given: Json) -> Json:
        """Check the settings of a model.

        given: the settings as the recipe states them.
        """
        function = _find(networks.NETWORKS, self.name)
        if function is not None:
            _check("model", self.name, given, function, networks.list_facts(function))
        return given

    @model_validator(mode="before")
    @classmethod
    def _identify_weights(cls, given: object) -> object:
        """Compute the digest of the file of weights, unless the recipe states it: a stored one needs no file."""
        if not isinstance(given, Mapping) or not isinstance(given.get("weights"), str) or given.get("weights_digest"):
            return given
        return {**given, "weights_digest": compute_digest(given["weights"])}

    @model_validator(mode="after")
    def _check_digest(self) -> Model:
        if self.weights_digest is not None and self.weights is None:
            raise ValueError("weights_digest is of a file; write weights = FILE as well")
        return self


class Algorithm(recipe_tables.Algorithm):
    """Which federated method, with its settings checked and completed."""

    @classmethod
    def resolve_name(cls, name: str) -> str:
        return catalog.resolve(name)

    def complete_settings(self, given: Json) -> Json:
        """Check the settings of a method and fill in the defaults.

        given: the settings as the recipe states them.
        """
        return catalog.read_settings(catalog.find_method(self.name, given))


def _find(point: ExtensionPoint[Callable[..., Thing]], name: str) -> Callable[..., Thing] | None:
    """Find a function by name; None for a user's own that cannot be imported here, which is refused when it is called.

    A recipe that is only read, such as a stored run's, needs no module of a user's.
    """
    try:
        return point.find(name)
    except UnknownModuleError:
        return None


def _check(
    kind: str, name: str, given: Mapping[str, object], function: Callable[..., object], brought: Sequence[str]
) -> None:
    """Check settings against the parameters of a function; `brought` are those that do not come from the recipe.

    A user's function may take any keyword argument; its settings are then checked when it is called.
    """
    if not takes_anything(function):
        build(settings_of(function, exclude=brought), given, f"{kind} '{name}'")


class Recipe(RecipeTables):
    """Everything that determines a run."""

    data: Data = Data()
    partition: Partition = Partition()
    model: Model = Model()
    algorithm: Algorithm = Algorithm()

    @model_validator(mode="after")
    def _check_record(self) -> Recipe:
        recording.check_quantities(self.record, catalog.find_method(self.algorithm.name, self.algorithm.settings))
        return self

    @property
    def plugins(self) -> tuple[str, ...]:
        """The user's own functions and classes that the recipe names, as 'module:name'."""
        names = [self.data.name, self.partition.name, self.model.name, *self.algorithm.name.split("+")]
        return tuple(sorted({name for name in names if ":" in name}))

    @property
    def slug(self) -> str:
        """The name of the run's directory without further settings; see `name`."""
        return self.name()

    def name(self, keys: Iterable[str] = ()) -> str:
        """Make the name of the run's directory.

        keys: dotted keys of settings to mention beside data, method, partition and seed, as far as there is room.
        """
        return run_names.name_run(self.model_dump(mode="json"), self._defaults(), self.digest, keys)

    @property
    def digest(self) -> str:
        """SHA-256 of the settings that differ from their defaults, except for the location of data and weights.

        A setting that a later version adds has a default that changes nothing, so runs keep their digests.
        """
        content = self.model_dump(mode="json")
        for table, key in LOCATIONS:
            content[table].pop(key)
        return hashlib.sha256(
            json.dumps(_find_differences(content, self._defaults()), sort_keys=True).encode()
        ).hexdigest()

    def _defaults(self) -> Json:
        """Return the defaults of all settings, given the names of the method and the partition."""
        usual = Recipe.model_construct().model_dump(mode="json")
        usual["algorithm"] |= catalog.read_settings(catalog.find_method(self.algorithm.name, {}))
        usual["partition"] |= partition.default_settings(self.partition.name)
        return usual | {"swa": Swa().model_dump(mode="json") if self.swa else None}


def _find_differences(given: Mapping[str, object], usual: Mapping[str, object]) -> dict[str, object]:
    """Return what differs from the defaults, table by table; the optional table [swa] is kept even if nothing does."""
    differing: dict[str, object] = {}
    for key, value in given.items():
        default = usual.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            inner = _find_differences(value, default)
            differing |= {key: inner} if inner or key == "swa" else {}
        elif key not in usual or value != default:
            differing[key] = value
    return differing


def load(source: str | Path, overrides: Sequence[str] = ()) -> list[Recipe]:
    """Load the recipes of a file: one, or every combination of its [sweep].

    source: a .toml file, or the name of a shipped recipe.
    overrides: "key=value" with a dotted key; see `sweep_expansion.expand`.
    """
    path = Path(source)
    if path.suffix != ".toml":
        names = [shipped.stem for shipped in RECIPES.glob("*.toml")]
        path = RECIPES / f"{choose('recipe', str(source), names)}.toml"
    return [validate(single, str(path)) for single in sweep_expansion.expand(toml.read(path), overrides, str(path))]


def validate(content: Mapping[str, object], source: str = "recipe") -> Recipe:
    """Make a recipe from nested settings, or raise ValueError that names every mistake.

    content: the settings.
    source: where the settings come from, for messages.
    """
    return build(Recipe, content, source)


def dump(recipe: Recipe) -> str:
    """Return a recipe as TOML with every setting; loading it gives the same recipe.

    recipe: to write. Of an adopted run only what is known of it is written: defaults would look like facts.
    """
    content = recipe.model_dump(mode="python", exclude_none=True)
    if recipe.adopted is not None:
        known = recipe.model_dump(mode="python", exclude_none=True, exclude_unset=True)
        content = {key: content[key] if key in NAMED else value for key, value in known.items()}
    return toml.write(content)

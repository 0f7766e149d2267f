"""The tables of a recipe: every setting with its type, range and meaning. Imports no torch.

`RecipeTables` is what a stored config.toml says. `training.config.Recipe` is the same, with the names of methods,
models, data sets and partitions, and their settings, checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from training.settings import Count, Decay, NonNegative, Positive, Settings, Share, Whole, build
from training.storage import toml
from training.storage.run_directory import CONFIG, read_settings
from training.storage.verified_files import Json

MOST_TESTED = 100_000  # clients whose accuracies fit into a line of metrics.jsonl


def _as_span(given: object) -> object:
    """Require a range of two positive numbers, the smaller first."""
    if isinstance(given, (list, tuple)) and len(given) == 2 and all(isinstance(one, (int, float)) for one in given):
        low, high = given
        if 0 < low <= high:
            return tuple(float(one) for one in given)
    raise ValueError(f"must be a range of two positive numbers, the smaller first, such as [0.5, 1.5]; got {given}")


def _as_sides(given: object) -> object:
    """Require a height and a width."""
    if isinstance(given, (list, tuple)) and len(given) == 2 and all(type(one) is int and one > 0 for one in given):
        return tuple(given)
    raise ValueError(f"must be a height and a width, such as [512, 1024]; got {given}")


Span = Annotated[tuple[float, float], BeforeValidator(_as_span)]
Sides = Annotated[tuple[int, int], BeforeValidator(_as_sides)]


class OpenSettings(Settings):
    """A name, and the settings of what has that name.

    name: of a data set, a partition, a model or a method.
    """

    model_config = ConfigDict(extra="allow")
    name: str

    @property
    def settings(self) -> Json:
        """The settings of this entry, without those that every table of this kind has."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: object) -> object:
        if isinstance(given, dict) and isinstance(given.get("name"), str):
            return {**given, "name": cls.resolve_name(given["name"])}
        return given

    @classmethod
    def resolve_name(cls, name: str) -> str:
        """Return the name as recipes store it; subclasses write out registered names."""
        return name

    @model_validator(mode="after")
    def _complete(self) -> OpenSettings:
        assert self.model_extra is not None
        plain = {key: toml.require_plain(key, value) for key, value in self.model_extra.items()}
        self.model_extra.update(self.complete_settings(plain))
        return self

    def complete_settings(self, given: Json) -> Json:
        """Return the settings with defaults filled in where they are known; subclasses check them.

        given: the settings as the recipe states them.
        """
        return given


class Data(OpenSettings):
    """The table [data]: which data set."""

    name: str = Field("digits", description="a data set, or module:function")
    root: str | None = Field(None, description="folder of the data; default $LANDSCAPE_DATA, then data")
    download: bool = Field(False, description="download what is missing")
    pooled: bool = Field(False, description="pool train and test, then split every client 70/30 (FedFSA)")


class Partition(OpenSettings):
    """The table [partition]: which client holds which example."""

    name: str = Field("iid", description="a partition, or module:function")
    clients: Count = Field(10, description="number of clients")
    seed: Whole | None = Field(None, description="seed of the partition; default: that of the run")


class Model(OpenSettings):
    """The table [model]: which network."""

    name: str = Field("digits_cnn", description="a model, or module:function")
    weights: str | None = Field(
        None, description="file of initial weights, safetensors or torch.save; what fits by name and shape is loaded"
    )
    weights_digest: str | None = Field(
        None, description="SHA-256 of that file, which stands for it in the run's identity; computed if not given"
    )


class Algorithm(OpenSettings):
    """The table [algorithm]: which federated method."""

    name: str = Field("fedavg", description="a method")


class Augment(Settings):
    """The table [augment]: changes to training images, none by default. Usual for CIFAR: padding=4, flip=True."""

    scale: Span | None = Field(None, description="range of a random factor of the size; a random window is kept")
    area: Span | None = Field(
        None, description="range of the share of an image that is kept, stretched to its size (RandomResizedCrop)"
    )
    crop: Sides | None = Field(None, description="height and width of what is kept; default: the image's own")
    jitter: Decay = Field(0.0, description="largest change of brightness, contrast and saturation, as a share")
    padding: Whole = Field(0, description="pixels on every side before a random crop back to the image's size")
    border: Literal["zeros", "reflect"] = Field("zeros", description="what these pixels are")
    flip: bool = Field(False, description="mirror left and right with probability 1/2")
    cutout: Whole = Field(0, description="side of a square set to the mean colour; it may hang over the border")
    mixup: NonNegative = Field(0.0, description="alpha of the Beta(alpha, alpha) weight of two samples; 0 is off")


class Local(Settings):
    """The table [local]: local training of one participant."""

    lr: Positive = Field(0.01, description="learning rate")
    lr_decay: Share = Field(1.0, description="factor of the rate per round")
    batch_size: Count = Field(64, description="examples of a step")
    epochs: Count = Field(1, description="passes over the client's data")
    drop_last: bool = Field(
        False, description="leave out the last batch of an epoch if it is smaller, unless it is the only one (FedDrive)"
    )
    steps: Count | None = Field(None, description="a fixed number of local steps instead of epochs")
    momentum: Decay = Field(0.0, description="momentum, started anew for every client and round")
    weight_decay: NonNegative = Field(0.0, description="taken at the unperturbed weights")
    clip: Positive | None = Field(None, description="largest norm of the corrected direction")
    hard_pixels: Share | None = Field(
        None, description="segmentation: share of each image's pixels, those of largest loss, that is minimised"
    )


class Rounds(Settings):
    """The table [rounds]: how many rounds, and who takes part."""

    count: Count = Field(10, description="rounds")
    participants: Count = Field(5, description="clients of a round")
    sampling: Literal["fixed", "bernoulli"] = Field("fixed", description="exactly that many, or that many on average")
    aggregation: Literal["size", "uniform"] = Field("size", description="weights of the mean")
    # either way the server's model is tested with the mean of the last participants' statistics; with "own" nobody is
    # sent that mean: a client goes on with the statistics that it ended its last local training with
    statistics: Literal["averaged", "own"] = Field(
        "averaged",
        description="running statistics of norm layers: averaged like the weights, or every client keeps its own",
    )


class Swa(Settings):
    """The table [swa]: averaging the global model over the last rounds, with a cyclic rate (FedSAM, Algorithm 1)."""

    start: Decay = Field(0.75, description="fraction of the rounds after which it begins")
    cycle: Count = Field(10, description="rounds of a cycle")
    # a cycle starts at the rate that local.lr has decayed to
    lr_end: Positive = Field(1e-4, description="rate at the end of each cycle")
    capture: Literal["cycle_end", "after_start"] = Field(
        "cycle_end", description="captured round: the paper's, or the published code's"
    )
    # n in eq. 8. The paper says two things: "number of completed cycles", which begin with SWA (appendix A.2, and the
    # published code): "zero", n = captures so far, so that the result is the mean of the captured models; and n = t / c
    # with t counted from the first round of all (line 22 of Algorithm 1): "paper", which weighs the model that SWA
    # started from as heavily as all the cycles before it
    count_from: Literal["zero", "paper"] = Field("zero", description="where n of eq. 8 starts to count")


class Evaluation(Settings):
    """The table [evaluation]: when the global models are tested, and what else is."""

    every: Count = Field(1, description="rounds between evaluations, up to the last rounds")
    last: Count = Field(10, description="last rounds: each is evaluated, and their mean is the result")
    personal: bool = Field(
        False, description="every round, test each client's own latest model on its own test examples (FedFSA)"
    )
    clients: bool = Field(False, description="test the server's model on every client's own test examples as well")
    # FedDrive tests SiloBN so, eight images at a time
    batch_statistics: Count | None = Field(
        None,
        description="norm layers take the statistics of so many test images at a time, not the running ones (FedDrive)",
    )
    # FedDrive's rule for SiloBN on seen domains
    own_statistics: bool = Field(
        False, description="test a user's examples with the running statistics that this user's client keeps (FedDrive)"
    )
    draw: Count = Field(
        1000, description="test examples of a client, drawn by its class shares; pooled data have their own"
    )


class Checkpoints(Settings):
    """The table [checkpoints]: what is saved, and when."""

    every: Count = Field(5, description="rounds between checkpoints; the last round is always saved")
    keep_locals: Literal["none", "last", "all"] = Field(
        "last", description="checkpoints that hold every participant's model"
    )
    keep_clients: Literal["last", "all"] = Field(
        "last", description="checkpoints that hold the clients' own vectors: the newest two, or all"
    )


class Adopted(Settings):
    """The table [adopted]: only in the config.toml of a run that another framework trained. Nothing else is known."""

    framework: str = Field("", description="what trained the run")
    method: str = Field("", description="the method as it is printed, where it is none of ours")
    digest: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the adopted files and of the partition: what the run is"
    )


def _as_names(given: object) -> tuple[str, ...]:
    """Make a tuple of different names from a list."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
        raise ValueError(f'record must be a list of quantities such as ["gradient_norm"], got {toml.show(given)}')
    if len(set(given)) < len(given):
        raise ValueError(f"record names a quantity twice: {toml.show(given)}")
    return tuple(given)


class RecipeTables(Settings):
    """Everything that determines a run, as config.toml holds it."""

    seed: Whole = Field(0, description="seed of everything random")
    dtype: Literal["float32", "float64"] = Field("float32", description="of weights and data")
    # where a run is trained is not what it is: the setting is neither stored in config.toml nor part of the digest, so
    # that a run begun on one machine is the same run on another. provenance.json tells where it was trained
    device: str = Field(
        "auto",
        exclude=True,
        pattern=r"^[a-z]+(:[0-9]+)?$",
        description="where clients are trained and models tested: auto, cpu, cuda, cuda:1, mps",
    )
    record: Annotated[tuple[str, ...], BeforeValidator(_as_names)] = Field(
        (), description="quantities to record along the local steps"
    )
    data: Data = Data()
    partition: Partition = Partition()
    model: Model = Model()
    algorithm: Algorithm = Algorithm()
    augment: Augment = Augment()
    local: Local = Local()
    rounds: Rounds = Rounds()
    swa: Annotated[Swa | None, BeforeValidator(lambda given: None if given is False else given)] = None
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    adopted: Adopted | None = Field(None, description="written by landscape adopt; no setting of a recipe")

    @property
    def knows_local(self) -> bool:
        """Whether the settings of local training are known: those of an adopted run may not be."""
        return self.adopted is None or "local" in self.model_fields_set

    @model_validator(mode="after")
    def _check_participants(self) -> RecipeTables:
        if self.rounds.participants > self.partition.clients:
            raise ValueError(
                f"rounds.participants ({self.rounds.participants}) must not exceed "
                f"partition.clients ({self.partition.clients})"
            )
        if self.evaluation.clients and self.partition.clients > MOST_TESTED:
            raise ValueError(
                f"evaluation.clients is for {MOST_TESTED:,} clients at most, whose accuracies are one line of metrics; "
                f"there are {self.partition.clients:,}"
            )
        return self


def read(run: Path) -> RecipeTables:
    """Read the recipe of a run.

    run: its directory. ValueError that names every mistake in the file.
    """
    return build(RecipeTables, read_settings(run), str(run / CONFIG))

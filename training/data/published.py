"""Published data sets that are read from their files, and the small ones that come with the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from training.data.dataset import Dataset, make
from training.data.readers.contents import MEGABYTE, Contents
from training.data.readers.dbpedia import read_dbpedia
from training.data.readers.embedded import read_brain, read_plays, read_speeches
from training.data.readers.huggingface import read_huggingface
from training.data.readers.image_folders import read_cinic10, read_tiny_imagenet
from training.data.readers.landmarks import read_landmarks
from training.data.readers.leaf import read_femnist, read_shakespeare
from training.data.readers.medmnist import read_medmnist
from training.data.readers.street_scenes import read_cityscapes, read_idda
from training.settings import Count, Whole

HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Cache = Annotated[Whole, Field(description="megabytes of decoded images that stay in memory, in every process")]
Verify = Annotated[bool, Field(description="compare the checksum of the published file")]
Validation = Annotated[bool, Field(description="train on the validation part as well; else it is not used")]
Vocabulary = Annotated[int, Field(ge=3, description="words that are known, with padding and the unknown word")]
Length = Annotated[Count, Field(description="words of a text; longer ones are cut off")]
SplitFolder = Annotated[str, Field(description="folder of a federated split, relative to data.root (FedDrive)")]
Height = Annotated[Count, Field(description="height that images are resized to")]
Width = Annotated[Count, Field(description="width that images are resized to")]
ImageSize = Annotated[Count, Field(description="height and width of an image")]


def build(
    name: str,
    contents: Contents,
    *,
    task: str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    coarse: Sequence[int] | None = None,
) -> Dataset:
    """Make a Dataset of what files hold.

    name: of the data set.
    contents: what was read.
    task: what is asked of a model; by default what the shapes say.
    mean, std: of images, one number per channel.
    coarse: the superclass of each class, where there are superclasses.
    """
    return make(
        name,
        contents.train,
        contents.test,
        task=task,
        classes=contents.classes,
        mean=mean,
        std=std,
        coarse=coarse,
        class_names=contents.class_names,
        users=contents.users,
        test_users=contents.test_users,
        test_domains=contents.test_domains,
        vocabulary=contents.vocabulary,
        keys=contents.keys,
    )


def tiny_imagenet(root: Path, download: bool, *, cache: Cache = 1024, verify: Verify = True) -> Dataset:
    """Tiny-ImageNet-200, 100,000 + 10,000 of 3x64x64; the validation images are tested on."""
    contents = read_tiny_imagenet(root, download, verify, cache * MEGABYTE)
    return build("tiny_imagenet", contents, mean=HALF, std=HALF)


def cinic10(
    root: Path, download: bool, *, validation: Validation = False, cache: Cache = 1024, verify: Verify = True
) -> Dataset:
    """CINIC-10, 90,000 + 90,000 of 3x32x32, and 90,000 for validation; its test images hold those of CIFAR-10."""
    contents = read_cinic10(root, download, verify, cache * MEGABYTE, validation)
    mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
    return build("cinic10", contents, mean=mean, std=std)


def pathmnist(root: Path, download: bool, *, validation: Validation = False, verify: Verify = True) -> Dataset:
    """PathMNIST, 89,996 + 7,180 of 3x28x28, and 10,004 for validation: tissue of the colon."""
    contents = read_medmnist("pathmnist", root, download, verify, validation, rgb=False)
    return build("pathmnist", contents, mean=HALF, std=HALF)


def tissuemnist(
    root: Path,
    download: bool,
    *,
    validation: Validation = False,
    rgb: Annotated[bool, Field(description="three equal channels instead of one (FedSoL)")] = False,
    verify: Verify = True,
) -> Dataset:
    """TissueMNIST, 165,466 + 47,280 of 1x28x28, and 23,640 for validation: cells of the kidney."""
    contents = read_medmnist("tissuemnist", root, download, verify, validation, rgb)
    constants = HALF if rgb else HALF[:1]
    return build("tissuemnist", contents, mean=constants, std=constants)


def dbpedia14(
    root: Path,
    download: bool,
    *,
    vocabulary: Vocabulary = 30_000,
    length: Length = 128,
    train_per_class: Annotated[Whole, Field(description="training texts of each class, drawn; 0: all")] = 0,
    test_per_class: Annotated[Whole, Field(description="test texts of each class, drawn; 0: all")] = 0,
    seed: Annotated[Whole, Field(description="seed of these draws")] = 0,
    verify: Verify = True,
) -> Dataset:
    """DBpedia-14, 560,000 + 70,000 titles and abstracts in 14 classes."""
    contents = read_dbpedia(
        root,
        download,
        verify,
        vocabulary=vocabulary,
        length=length,
        train_per_class=train_per_class,
        test_per_class=test_per_class,
        seed=seed,
    )
    return build("dbpedia14", contents, task="text_classification")


def landmarks(
    root: Path,
    download: bool,
    *,
    size: ImageSize = 224,
    images: Annotated[str, Field(description="folder of the images, relative to data.root")] = "",
    skip_missing: Annotated[bool, Field(description="leave out images whose files are missing")] = False,
    cache: Cache = 1024,
    verify: Verify = True,
) -> Dataset:
    """Landmarks-User-160k, 164,172 + 19,526 photographs of 2,028 landmarks by 1,262 authors."""
    contents = read_landmarks(
        "landmarks",
        root,
        download,
        verify,
        size=size,
        images=images,
        skip_missing=skip_missing,
        cache=cache * MEGABYTE,
    )
    return build("landmarks", contents, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def gld23k(
    root: Path,
    download: bool,
    *,
    size: ImageSize = 224,
    images: Annotated[str, Field(description="folder of the images, relative to data.root")] = "",
    skip_missing: Annotated[bool, Field(description="leave out images whose files are missing")] = False,
    cache: Cache = 1024,
    verify: Verify = True,
) -> Dataset:
    """Landmarks in small, 23,080 photographs of 203 landmarks by 233 authors."""
    contents = read_landmarks(
        "gld23k", root, download, verify, size=size, images=images, skip_missing=skip_missing, cache=cache * MEGABYTE
    )
    return build("gld23k", contents, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def cityscapes(
    root: Path, *, split: SplitFolder = "", height: Height = 1024, width: Width = 2048, cache: Cache = 1024
) -> Dataset:
    """Cityscapes with fine labels, 2,975 + 500 street scenes with 19 classes of pixels; users are cities."""
    contents = read_cityscapes(root, split=split, height=height, width=width, cache=cache * MEGABYTE)
    return build("cityscapes", contents, mean=HALF, std=HALF)


def idda(
    root: Path, *, split: SplitFolder = "", height: Height = 512, width: Width = 928, cache: Cache = 1024
) -> Dataset:
    """IDDA, drawn street scenes with 16 classes of pixels, tested on seen and on unseen domains."""
    contents = read_idda(root, split=split, height=height, width=width, cache=cache * MEGABYTE)
    return build("idda", contents, mean=HALF, std=HALF)


def femnist(root: Path) -> Dataset:
    """FEMNIST as LEAF writes it, digits and letters 1x28x28 in 62 classes; users are writers."""
    return build("femnist", read_femnist(root))


def shakespeare(root: Path) -> Dataset:
    """Shakespeare as LEAF writes it, 80 characters and the one that follows; users are roles."""
    return build("shakespeare", read_shakespeare(root), task="next_character")


def speeches(
    *,
    vocabulary: Vocabulary = 5000,
    length: Length = 64,
    fold: Annotated[int, Field(ge=0, le=4, description="fifth of the passages that is tested on")] = 0,
) -> Dataset:
    """State-of-the-Union addresses, 1,280 + 320 passages by ten presidents: nothing to download."""
    return build("speeches", read_speeches(vocabulary, length, fold), task="text_classification")


def plays(
    *,
    stride: Annotated[Count, Field(description="characters from one window to the next")] = 10,
    fold: Annotated[int, Field(ge=0, le=9, description="tenth of a role that is tested on, from the end")] = 0,
) -> Dataset:
    """What 20 roles of Shakespeare say, 80 characters and the one that follows: nothing to download."""
    return build("plays", read_plays(stride, fold), task="next_character")


def brain(
    *,
    unseen: Annotated[
        Literal["", "axial", "coronal", "sagittal"],
        Field(description="orientation that is left out of training; tests are then on seen and unseen ones"),
    ] = "",
    fold: Annotated[int, Field(ge=0, le=3, description="quarter of the slices that is tested on")] = 0,
) -> Dataset:
    """Slices of an average brain, 108 + 36 of 1x64x64 with 4 classes of pixels: nothing to download."""
    return build("brain", read_brain(unseen, fold))


def huggingface(
    root: Path,
    *,
    path: Annotated[str, Field(description="folder of load_from_disk or of parquet files, or a name on the hub")],
    input: Annotated[str, Field(description="column of the images or texts")] = "image",
    label: Annotated[str, Field(description="column of the classes")] = "label",
    user: Annotated[str, Field(description="column of the users; empty: there are none")] = "",
    train: Annotated[str, Field(description="split for training")] = "train",
    test: Annotated[str, Field(description="split for testing; empty: no test examples")] = "test",
    vocabulary: Vocabulary = 30_000,
    length: Length = 128,
) -> Dataset:
    """Any data set of Hugging Face's `datasets`: images of one size, or texts, with one class each."""
    contents = read_huggingface(
        root, path, input=input, label=label, user=user, train=train, test=test, vocabulary=vocabulary, length=length
    )
    return build("huggingface", contents)


PUBLISHED: dict[str, Callable[..., Dataset]] = {
    "brain": brain,
    "cinic10": cinic10,
    "cityscapes": cityscapes,
    "dbpedia14": dbpedia14,
    "femnist": femnist,
    "gld23k": gld23k,
    "huggingface": huggingface,
    "idda": idda,
    "landmarks": landmarks,
    "pathmnist": pathmnist,
    "plays": plays,
    "shakespeare": shakespeare,
    "speeches": speeches,
    "tiny_imagenet": tiny_imagenet,
    "tissuemnist": tissuemnist,
}

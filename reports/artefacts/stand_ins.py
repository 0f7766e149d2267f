"""What stands in, at small scales, for data of the papers other than small images. Imports no torch.

Text is replaced by the embedded speeches, street scenes by slices of the embedded brain, and people who took
photographs by clients of unequal sizes. Which network and partition go with them is said here too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Content = dict[str, Any]  # the nested settings of a recipe

# FedDrive's splits -> whether clients are alike, and what of the brain is unseen in training where domains are
SPLITS = {
    "data/cityscapes/data/uniform": (True, ""),
    "data/cityscapes/data/heterogeneous": (False, ""),
    "data/idda/data/uniform/country": (True, "sagittal"),
    "data/idda/data/heterogeneous/country": (False, "sagittal"),
    "data/idda/data/uniform/rainy": (True, "coronal"),
    "data/idda/data/heterogeneous/rainy": (False, "coronal"),
}
PARTS = 4  # natural clients of each of the brain's three orientations
MOST_CLIENTS = 50  # people at scale digits, who share 2,000 examples


@dataclass(frozen=True)
class StandIn:
    """What replaces a published data set at a small scale.

    data: the table of the recipe. classes: how many there are, of how many published ones.
    model: the network, by scale. lr: the rate of plain SGD at which it learns. batch: examples of a step, at most.
    """

    data: Mapping[str, object]
    classes: tuple[int, int]
    model: Mapping[str, Mapping[str, object]]
    lr: float
    batch: int


TEXT = StandIn(
    {"name": "speeches"},
    (10, 14),
    {
        "digits": {"name": "text_cnn", "embedding": 32, "filters": 32, "kernels": [1, 2, 3]},
        "small": {"name": "text_cnn", "embedding": 50, "filters": 50},
    },
    lr=0.1,
    batch=16,
)
SCENES = StandIn(
    {"name": "brain"},
    (4, 19),
    {
        "digits": {"name": "unet", "width": 4, "norm": True},
        "small": {"name": "unet", "width": 8, "norm": True},
    },
    lr=0.1,
    batch=6,
)
STAND_INS = {"dbpedia14": TEXT, "cityscapes": SCENES, "idda": SCENES}


def find_stand_in(content: Content) -> StandIn | None:
    """Find what replaces the data set of a recipe; None for images with one label, which scales replace themselves.

    content: nested settings, as published.
    """
    return STAND_INS.get(str(content.get("data", {}).get("name")))


def replace_data(content: Content, scale: str, found: StandIn) -> None:
    """Replace data, network and partition of a recipe, which is changed.

    content: nested settings, as published.
    scale: digits or small.
    found: what stands in.
    """
    published, partition = content["data"], content.setdefault("partition", {})
    content["data"] = copy.deepcopy(dict(found.data))
    content["model"] = copy.deepcopy(dict(found.model[scale]))
    content.pop("augment", None)
    content.get("local", {}).pop("drop_last", None)  # the clients have hardly more than one batch
    if found is SCENES:
        alike, unseen = SPLITS[published["split"]]
        content["data"] |= {"unseen": unseen} if unseen else {}
        clients = PARTS * (2 if unseen else 3)
        content["partition"] = {"name": "iid" if alike else "natural", "clients": clients}
        content["rounds"]["participants"] = min(content["rounds"].get("participants", 5), clients)
    elif "classes_per_client" in partition:
        few, many = found.classes
        partition["classes_per_client"] = max(round(partition["classes_per_client"] * few / many), 1)


def replace_people(content: Content, most: int) -> None:
    """Replace natural clients of data that have none here by clients of unequal sizes; the recipe is changed.

    content: nested settings, as published.
    most: clients, at most.
    """
    partition = content.get("partition", {})
    if partition.get("name") == "natural":
        clients = min(partition["clients"], most)
        content["partition"] = {"name": "dirichlet_by_class", "clients": clients, "alpha": 0.5, "min_size": 2}

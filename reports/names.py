"""How methods and classes are called in print; files and settings keep their short names. Imports no torch."""

from __future__ import annotations

METHODS = {  # method, or what stands after a plus, as recipes write it -> as papers print it
    "adabest": "AdaBest",
    "fedacg": "FedACG",
    "fedadagrad": "FedAdagrad",
    "fedadam": "FedAdam",
    "fedala": "FedALA",
    "fedasam": "FedASAM",
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedbabu": "FedBABU",
    "fedcm": "FedCM",
    "fedcr": "FedCR",
    "feddyn": "FedDyn",
    "fedfsa": "FedFSA",
    "fedgamma": "FedGAMMA",
    "fedgf": "FedGF",
    "fedgloss": "FedGloSS",
    "fedgmt": "FedGMT",
    "fedlesam": "FedLESAM",
    "fedlesam-d": "FedLESAM-D",
    "fedlesam-s": "FedLESAM-S",
    "fednova": "FedNova",
    "fedntd": "FedNTD",
    "fedprox": "FedProx",
    "fedsam": "FedSAM",
    "fedsam-previous": "FedSAM-Previous",
    "fedsmoo": "FedSMOO",
    "fedsol": "FedSoL",
    "fedsol-nova": "FedSoL-Nova",
    "fedspeed": "FedSpeed",
    "fedvssam": "FedVSSAM",
    "fedwmsam": "FedWMSAM",
    "mofedsam": "MoFedSAM",
    "moon": "MOON",
    "naivefedgloss": "NaiveFedGloSS",
    "perfedavg": "Per-FedAvg",
    "scaffold": "SCAFFOLD",
    "silobn": "SiloBN",
}
RULES = {"sam": "SAM", "asam": "ASAM", "fsa": "FSA", "previous_sam": "SAM~"}  # what may stand after a plus
DIGITS = tuple(f"digit {number}" for number in range(10))
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
CLASSES = {  # data set -> its classes, in the order of their numbers
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "cifar100": tuple(name.replace("_", " ") for name in CIFAR100.split()),
    "digits": DIGITS,
    "fashion_mnist": (
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    "mnist": DIGITS,
    "svhn": DIGITS,
}


def name_method(name: str) -> str:
    """Return the printed name of a method; a name that is not known stays as it is.

    name: as recipes write it, perhaps with a rule or with SWA.

    >>> name_method("feddyn+sam + SWA")
    'FedDyn + SAM + SWA'
    """
    parts = [part.strip() for part in name.split("+")]
    if parts[0] not in METHODS:
        return name
    return " + ".join([METHODS[parts[0]], *(RULES.get(part, part) for part in parts[1:])])


def name_class(data: str, number: int) -> str:
    """Return the name of a class; "class 3" where the names are not known.

    data: the data set, as recipes write it.

    >>> name_class("cifar10", 3), name_class("own data", 3)
    ('cat', 'class 3')
    """
    known = CLASSES.get(data, ())
    return known[number] if 0 <= number < len(known) else f"class {number}"


def has_class_names(data: str) -> bool:
    """Whether the names of a data set's classes are known."""
    return data in CLASSES

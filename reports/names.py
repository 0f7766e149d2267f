"""How methods, partitions, settings and classes are called in print; files keep short names. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

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
PARTITIONS = {  # partition as recipes write it -> as figures print it, before its skew
    "dirichlet_by_class": "Dirichlet by class",
    "dirichlet_per_class": "Dirichlet per class",
    "dirichlet_total": "Dirichlet",
    "iid": "IID",
    "pachinko": "Pachinko",
    "pathological": "pathological",
    "shards": "shards",
}
DATA = {  # data set as recipes write it -> as papers print it; others keep their names
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cinic10": "CINIC-10",
    "cityscapes": "Cityscapes",
    "dbpedia14": "DBpedia-14",
    "fashion_mnist": "Fashion-MNIST",
    "idda": "IDDA",
    "landmarks": "Landmarks",
    "mnist": "MNIST",
    "pathmnist": "PathMNIST",
    "shakespeare": "Shakespeare",
    "svhn": "SVHN",
    "tiny_imagenet": "Tiny ImageNet",
    "tissuemnist": "TissueMNIST",
}
STRATEGIES = {"finetune": "fine-tuned", "knn": "kNN"}  # of personalisation, as recipes write them -> as figures do
SYMBOLS = {  # last part of a setting -> as figures print it
    "alpha": "α",
    "beta": "β",
    "rho": "ρ",
    "rho_s": "server ρ",
    "rho_larger": "larger ρ",
    "eta": "η",
    "gamma": "γ",
    "mu": "μ",
    "lr": "learning rate",
}
SETTINGS = {  # dotted settings whose last part alone would say too little
    "data.examples": "training examples",
    "evaluation.every": "rounds between evaluations",
    "local.batch_size": "batch size",
    "local.epochs": "local epochs",
    "local.steps": "local steps",
    "local.weight_decay": "weight decay",
    "partition.alpha": "Dirichlet α",
    "partition.classes_per_client": "classes per client",
    "partition.clients": "clients",
    "partition.shards_per_client": "shards per client",
    "rounds.count": "rounds",
    "rounds.participants": "clients per round",
    "seed": "seed",
    "swa.cycle": "rounds of an SWA cycle",
    "swa.start": "start of SWA",
}
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

    name: as recipes write it, perhaps with a rule or with SWA; of a user's own 'module:name' the module is left out.

    >>> name_method("feddyn+sam + SWA")
    'FedDyn + SAM + SWA'
    """
    parts = [part.strip().rpartition(":")[2] for part in name.split("+")]
    if parts[0] not in METHODS and ":" not in name:
        return name
    return " + ".join([METHODS.get(parts[0], parts[0]), *(RULES.get(part, part) for part in parts[1:])])


def name_data(name: str) -> str:
    """Return the printed name of a data set; a name that is not known stays as it is.

    name: as recipes write it.

    >>> name_data("fashion_mnist"), name_data("digits")
    ('Fashion-MNIST', 'digits')
    """
    return DATA.get(name, name)


def name_split(name: str) -> str:
    """Return what the data of a split are called in a sentence.

    name: train, test or own, as studies write it.

    >>> name_split("train"), name_split("test")
    ('training', 'test')
    """
    return "training" if name == "train" else name


def name_partition(name: str, skew: tuple[str, float] | None = None) -> str:
    """Return the printed name of a partition with its skew.

    name: as recipes write it. skew: the setting that measures it, and its value; None where it has none.

    >>> name_partition("dirichlet_total", ("alpha", 0.5)), name_partition("shards", ("shards_per_client", 2))
    ('Dirichlet α = 0.5', 'shards, 2 per client')
    """
    printed = PARTITIONS.get(name, name)
    if skew is None:
        return printed
    key, value = skew
    if key in SYMBOLS:
        return f"{printed} {SYMBOLS[key]} = {value:g}".strip()
    what = key.removesuffix("_per_client").replace("_", " ")
    return f"{printed}, {value:g}{'' if what == name else ' ' + what} per client"


def name_setting(key: str) -> str:
    """Return the printed name of a setting.

    key: dotted, as recipes write it.

    >>> name_setting("algorithm.rho"), name_setting("local.epochs"), name_setting("local.momentum")
    ('ρ', 'local epochs', 'momentum')
    """
    last = key.rpartition(".")[2]
    return SETTINGS.get(key, SYMBOLS.get(last, last.replace("_", " ")))


def name_strategy(name: str) -> str:
    """Return the printed name of a strategy of personalisation; a name that is not known stays as it is.

    name: as recipes write it, perhaps with options in brackets.

    >>> name_strategy("finetune (epochs = 5)"), name_strategy("knn"), name_strategy("global model")
    ('fine-tuned (epochs = 5)', 'kNN', 'global model')
    """
    word, blank, options = name.partition(" ")
    return f"{STRATEGIES.get(word, word)}{blank}{options}"


def name_class(data: str, number: int, given: Sequence[str] = ()) -> str:
    """Return the name of a class; "class 3" where the names are not known.

    data: the data set, as recipes write it.
    number: of the class.
    given: the names that the data set itself gives, if it does.

    >>> name_class("cifar10", 3), name_class("own data", 3)
    ('cat', 'class 3')
    """
    known = given or CLASSES.get(data, ())
    return known[number] if 0 <= number < len(known) else f"class {number}"


def has_class_names(data: str) -> bool:
    """Whether the names of a data set's classes are known."""
    return data in CLASSES

"""A compact federated-learning engine: recipes in, run directories out.

Train        train, train_sweep, read_recipes, Recipe
Adopt        adopt
Runs         load_run, load_runs, Run
Evaluate     evaluate_personal
Look up      list_entries
Keep order   find_removable, remove_all, write_new
Your own     register_method, register_perturbation, register_model, register_dataset, register_task, register_partition

Names are loaded when they are first used (PEP 562): `load_run` needs no torch.

    run = training.train("digits_fedsam", settings={"rounds.count": 5})
    run.metrics["accuracy"].plot()
"""

from typing import TYPE_CHECKING

from landscape.lazy_names import make_getattr

if TYPE_CHECKING:
    from training.cleaning import find_removable, remove_all
    from training.config import Recipe
    from training.interface import adopt, evaluate_personal, list_entries, read_recipes, train, train_sweep
    from training.registration import (
        register_dataset,
        register_method,
        register_model,
        register_partition,
        register_perturbation,
        register_task,
    )
    from training.runs import Run, load_run, load_runs
    from training.starting_files import write_new

HOMES = {  # where every public name is defined
    "Recipe": "training.config",
    "Run": "training.runs",
    "adopt": "training.interface",
    "evaluate_personal": "training.interface",
    "find_removable": "training.cleaning",
    "list_entries": "training.interface",
    "load_run": "training.runs",
    "load_runs": "training.runs",
    "read_recipes": "training.interface",
    "register_dataset": "training.registration",
    "register_method": "training.registration",
    "register_model": "training.registration",
    "register_partition": "training.registration",
    "register_perturbation": "training.registration",
    "register_task": "training.registration",
    "remove_all": "training.cleaning",
    "train": "training.interface",
    "train_sweep": "training.interface",
    "write_new": "training.starting_files",
}

__all__ = [
    "Recipe",
    "Run",
    "adopt",
    "evaluate_personal",
    "find_removable",
    "list_entries",
    "load_run",
    "load_runs",
    "read_recipes",
    "register_dataset",
    "register_method",
    "register_model",
    "register_partition",
    "register_perturbation",
    "register_task",
    "remove_all",
    "train",
    "train_sweep",
    "write_new",
]

__getattr__ = make_getattr("training", HOMES, globals())


def __dir__() -> list[str]:
    return __all__

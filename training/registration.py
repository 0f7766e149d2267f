"""Register users' own entries under short names; the first argument is the name, the second the entry.

The thing is 'module:name', or what has that name at the top of a module: see `plugins.ExtensionPoint.register`.
"""

from __future__ import annotations

from training.data import datasets, partition
from training.methods import catalog
from training.models import networks
from training.tasks import catalog as tasks

register_method = catalog.METHODS.register
register_perturbation = catalog.RULES.register
register_model = networks.NETWORKS.register
register_dataset = datasets.SOURCES.register
register_partition = partition.SCHEMES.register
register_task = tasks.KINDS.register

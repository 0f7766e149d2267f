"""The tasks by name."""

from __future__ import annotations

from dataclasses import replace

from training.plugins import ExtensionPoint
from training.tasks.classification import CLASSIFICATION
from training.tasks.segmentation import SEGMENTATION
from training.tasks.task import Task
from training.tasks.text import NEXT_CHARACTER, TEXT_CLASSIFICATION

TASKS: dict[str, Task] = {
    task.name: task for task in (CLASSIFICATION, SEGMENTATION, TEXT_CLASSIFICATION, NEXT_CHARACTER)
}


def accept_task(name: str, found: object) -> Task:
    """Return a user's own task; name: its 'module:name', for messages."""
    if not isinstance(found, Task):
        raise ValueError(f"task '{name}' must be a training.tasks.task.Task, got {type(found).__name__}")
    return replace(found, reference=name)


KINDS = ExtensionPoint("task", TASKS, accept_task)

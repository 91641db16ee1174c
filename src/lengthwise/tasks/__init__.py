"""Tasks that show how far a model reaches: one a file, with samples of any length and a score."""

from lengthwise.tasks.catalogue import TASKS, Task
from lengthwise.tasks.sample import Sample

__all__ = ["TASKS", "Sample", "Task"]

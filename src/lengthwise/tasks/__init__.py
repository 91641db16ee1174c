"""Tasks that show how far a model reaches: one a file, each with samples of any length and a score.

`catalogue.py` lists them; `material/` holds what prompts are made of; docs/evaluating.md says how to add one.
"""

from lengthwise.tasks.catalogue import GROUPS, TASKS, Task, find_task, scores_of_records, without_groups
from lengthwise.tasks.sample import VERSION, Sample

__all__ = ["GROUPS", "TASKS", "VERSION", "Sample", "Task", "find_task", "scores_of_records", "without_groups"]

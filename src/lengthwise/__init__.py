"""Let pretrained Transformers work past the length they were trained on, and prove it.

Names are imported when they are first asked for: `lengthwise --help` and a report need neither torch nor transformers.
"""

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lengthwise.errors import BadInput
from lengthwise.version import __version__

if TYPE_CHECKING:
    from lengthwise.analyse import analyse
    from lengthwise.bake import bake
    from lengthwise.calibrate import calibrate
    from lengthwise.evaluate import evaluate
    from lengthwise.extend import extend
    from lengthwise.hedge import Hedge, hedge
    from lengthwise.likelihood import token_nll
    from lengthwise.measure import AttentionStatistics, row_statistics
    from lengthwise.methods.temperature.aligned import Alignment
    from lengthwise.misaligned import Misalignment, misalignment
    from lengthwise.output_alignment.misalignment import misalignment_loss
    from lengthwise.output_alignment.trainer import MisalignmentTrainer
    from lengthwise.reach import Reach, reach
    from lengthwise.records import Record
    from lengthwise.records.analysis import Analysis
    from lengthwise.train import Trained, train

__all__ = [
    "Alignment",
    "Analysis",
    "AttentionStatistics",
    "BadInput",
    "Hedge",
    "Misalignment",
    "MisalignmentTrainer",
    "Reach",
    "Record",
    "Trained",
    "__version__",
    "analyse",
    "bake",
    "calibrate",
    "evaluate",
    "extend",
    "hedge",
    "misalignment",
    "misalignment_loss",
    "reach",
    "row_statistics",
    "token_nll",
    "train",
]

# Where each name is written
HOMES = {
    "Alignment": "methods.temperature.aligned",
    "Analysis": "records.analysis",
    "AttentionStatistics": "measure",
    "Hedge": "hedge",
    "Misalignment": "misaligned",
    "MisalignmentTrainer": "output_alignment.trainer",
    "Reach": "reach",
    "Record": "records",
    "Trained": "train",
    "analyse": "analyse",
    "bake": "bake",
    "calibrate": "calibrate",
    "evaluate": "evaluate",
    "extend": "extend",
    "hedge": "hedge",
    "misalignment": "misaligned",
    "misalignment_loss": "output_alignment.misalignment",
    "reach": "reach",
    "row_statistics": "measure",
    "token_nll": "likelihood",
    "train": "train",
}


class _Package(ModuleType):
    """A verb has the name of the file it is written in: here that name is always the verb, whoever imported the file."""

    def __setattr__(self, name: str, value: Any) -> None:
        verb = HOMES.get(name) == name and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if verb else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "MisalignmentTrainer" and importlib.util.find_spec("accelerate") is None:
        raise BadInput("training needs the package accelerate; pip install 'lengthwise[train]'")
    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Let pretrained Transformers work past the length they were trained on, and prove it."""

from typing import Any

from lengthwise.analyse import analyse
from lengthwise.bake import bake
from lengthwise.calibrate import calibrate
from lengthwise.errors import BadInput
from lengthwise.evaluate import evaluate
from lengthwise.extend import extend
from lengthwise.hedge import Hedge, hedge
from lengthwise.likelihood import token_nll
from lengthwise.measure import AttentionStatistics, row_statistics
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.misaligned import Misalignment, misalignment
from lengthwise.output_alignment.misalignment import misalignment_loss
from lengthwise.reach import Reach, reach
from lengthwise.records import Record
from lengthwise.records.analysis import Analysis
from lengthwise.train import Trained, train
from lengthwise.version import __version__

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


def __getattr__(name: str) -> Any:
    """The trainer needs the extra `train`, which nothing else does: it is imported when first asked for."""
    if name != "MisalignmentTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib.util

    if importlib.util.find_spec("accelerate") is None:
        raise BadInput("training needs the package accelerate; pip install 'lengthwise[train]'")
    from lengthwise.output_alignment.trainer import MisalignmentTrainer

    return MisalignmentTrainer

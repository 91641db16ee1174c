"""Let pretrained Transformers work past the length they were trained on, and prove it."""

from lengthwise.bake import bake
from lengthwise.calibrate import calibrate
from lengthwise.errors import BadInput
from lengthwise.evaluate import evaluate
from lengthwise.extend import extend
from lengthwise.likelihood import token_nll
from lengthwise.measure import AttentionStatistics, row_statistics
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.reach import Reach, reach
from lengthwise.records import Record
from lengthwise.version import __version__

__all__ = [
    "Alignment",
    "AttentionStatistics",
    "BadInput",
    "Reach",
    "Record",
    "__version__",
    "bake",
    "calibrate",
    "evaluate",
    "extend",
    "reach",
    "row_statistics",
    "token_nll",
]

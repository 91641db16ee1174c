"""Let pretrained Transformers work past the length they were trained on, and prove it.

Names are imported when they are first asked for: `lengthwise --help` and a report need neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lengthwise.errors import BadInput as BadInput
from lengthwise.version import __version__ as __version__

if TYPE_CHECKING:
    from lengthwise.analysis.analyse import analyse as analyse
    from lengthwise.analysis.records import Analysis as Analysis
    from lengthwise.calibration.bake import bake as bake
    from lengthwise.calibration.calibrate import calibrate as calibrate
    from lengthwise.calibration.export.export import Exported as Exported
    from lengthwise.calibration.export.export import export as export
    from lengthwise.calibration.measure import AttentionStatistics as AttentionStatistics
    from lengthwise.calibration.measure import row_statistics as row_statistics
    from lengthwise.evaluation.evaluate import evaluate as evaluate
    from lengthwise.evaluation.hedge import Hedge as Hedge
    from lengthwise.evaluation.hedge import hedge as hedge
    from lengthwise.evaluation.likelihood import token_nll as token_nll
    from lengthwise.evaluation.reach import Reach as Reach
    from lengthwise.evaluation.reach import reach as reach
    from lengthwise.evaluation.recommendation.recommend import recommend as recommend
    from lengthwise.methods.recipe import Recipe as Recipe
    from lengthwise.methods.temperature.aligned import Alignment as Alignment
    from lengthwise.models.accelerate import accelerate as accelerate
    from lengthwise.models.accelerate import restore as restore
    from lengthwise.models.extend import extend as extend
    from lengthwise.records import Record as Record
    from lengthwise.training.output_alignment.loss import misalignment_loss as misalignment_loss
    from lengthwise.training.output_alignment.misalignment import Misalignment as Misalignment
    from lengthwise.training.output_alignment.misalignment import misalignment as misalignment
    from lengthwise.training.output_alignment.trainer import MisalignmentTrainer as MisalignmentTrainer
    from lengthwise.training.train import Trained as Trained
    from lengthwise.training.train import train as train

# Where each public name is written
_HOMES = {
    "Alignment": "methods.temperature.aligned",
    "Analysis": "analysis.records",
    "AttentionStatistics": "calibration.measure",
    "Exported": "calibration.export.export",
    "Hedge": "evaluation.hedge",
    "Misalignment": "training.output_alignment.misalignment",
    "MisalignmentTrainer": "training.output_alignment.trainer",
    "Reach": "evaluation.reach",
    "Recipe": "methods.recipe",
    "Record": "records",
    "Trained": "training.train",
    "accelerate": "models.accelerate",
    "analyse": "analysis.analyse",
    "bake": "calibration.bake",
    "calibrate": "calibration.calibrate",
    "evaluate": "evaluation.evaluate",
    "export": "calibration.export.export",
    "extend": "models.extend",
    "hedge": "evaluation.hedge",
    "misalignment": "training.output_alignment.misalignment",
    "misalignment_loss": "training.output_alignment.loss",
    "reach": "evaluation.reach",
    "recommend": "evaluation.recommendation.recommend",
    "restore": "models.accelerate",
    "row_statistics": "calibration.measure",
    "token_nll": "evaluation.likelihood",
    "train": "training.train",
}

__all__ = ["BadInput", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

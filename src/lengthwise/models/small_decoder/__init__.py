"""A small decoder to train from scratch: Output Alignment's subject for synthetic tasks, and a language model of any size."""

from lengthwise.models.small_decoder.configuration import FAMILY, POSITIONS, SmallDecoderConfig
from lengthwise.models.small_decoder.modeling import (
    SmallDecoderForCausalLM,
    SmallDecoderForRegression,
    SmallDecoderModel,
)

__all__ = [
    "FAMILY",
    "POSITIONS",
    "SmallDecoderConfig",
    "SmallDecoderForCausalLM",
    "SmallDecoderForRegression",
    "SmallDecoderModel",
    "register",
]


def register() -> None:
    """Tells transformers' Auto classes of the family. Only `lengthwise.models.load` does, when it meets such a checkpoint."""
    import transformers

    transformers.AutoConfig.register(FAMILY, SmallDecoderConfig, exist_ok=True)
    transformers.AutoModel.register(SmallDecoderConfig, SmallDecoderModel, exist_ok=True)
    transformers.AutoModelForCausalLM.register(SmallDecoderConfig, SmallDecoderForCausalLM, exist_ok=True)

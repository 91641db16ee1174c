"""How long a model's training inputs were, and who says so.

Configs of decoders tell it. Those of T5s often do not, or keep T5's 512 through all later tuning, since nothing in the model
depends on it. Checkpoints whose makers told their length stand in `CHECKPOINTS`; a fine-tuned copy has another name, and is
taken for what its config or its family says.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from lengthwise.errors import BadInput, require

SWITCH = "switch_transformers"
T5_FAMILIES = ("t5", "mt5", "umt5", SWITCH)
T5, MT5, BYT5 = (512, "arXiv 1910.10683"), (1024, "arXiv 2010.11934"), (1024, "arXiv 2105.13626")
SIZES = "(small|base|large|xl|xxl)"
# The last part of a checkpoint's name, what it was last trained on, and where that is said
CHECKPOINTS = {
    "t5-(small|base|large|3b|11b)": T5,
    f"mt5-{SIZES}": MT5,
    f"byt5-{SIZES}": BYT5,
    f"flan-t5-{SIZES}": (2048, "github.com/google-research/FLAN, issue 36"),
    "ul2": (512, "model card of google/flan-ul2"),
    "flan-ul2": (2048, "model card of google/flan-ul2"),
    "aya-101": (1024, "arXiv 2402.07827"),
    f"pile-t5-{SIZES}": (512, "its model card"),
}
GIVEN, CONFIG = "as given", "as its config says"
BYTES = 384  # tokens of ByT5, whose family is T5's
# Rotations that models were trained on at their full length: Llama 3.1's and Phi-3's
TRAINED_STRETCHED = ("llama3", "longrope")


@dataclass(frozen=True)
class TrainLength:
    """A length in tokens and its source."""

    tokens: int
    source: str
    is_known: bool = True  # False where the model may have been tuned on another length since

    @property
    def said(self) -> str:
        """What was taken and why; empty where the user or the config told it."""
        if self.source in (GIVEN, CONFIG):
            return ""
        unsure = "" if self.is_known else ", and this one may have been tuned on another"
        return f"training length {self.tokens:,}: {self.source}{unsure}; --train-length gives another"


def train_length_of(config: Any, family: str) -> TrainLength:
    """The training length by the checkpoint's name, by its config, or by its family."""
    name = re.split(r"[/\\]", str(getattr(config, "_name_or_path", "")).rstrip("/\\"))[-1].lower()
    if family in T5_FAMILIES:
        for pattern, (tokens, source) in CHECKPOINTS.items():
            if re.fullmatch(pattern, name):
                return TrainLength(tokens, f"{name} was trained on it ({source})")
        if told := getattr(config, "n_positions", None):
            return TrainLength(_tokens(told), CONFIG, is_known=False)
        tokens, source = BYT5 if config.vocab_size == BYTES else MT5 if family == "mt5" else T5
        return TrainLength(tokens, f"its config does not tell; its family was pre-trained on it ({source})", is_known=False)
    # A rotation stretched by hand (yarn, ...) counts from the length before it was; one by type of layer, as Gemma 3's and
    # OLMo 3's are, was trained so
    rope = getattr(config, "rope_parameters", None) or {}
    stretched = isinstance(rope, dict) and rope.get("rope_type") not in TRAINED_STRETCHED
    original = rope.get("original_max_position_embeddings") if stretched else None
    for length in (original, getattr(config, "max_position_embeddings", None), getattr(config, "n_positions", None)):
        if length:
            return TrainLength(_tokens(length), CONFIG)
    raise BadInput(f"the config of this {family} model does not tell its training length; give it as train_length")


def _tokens(told: Any) -> int:
    is_length = isinstance(told, int | float) and told < math.inf
    require(is_length, f"the config tells {told!r:.40} as its training length, which is no number; give it as train_length")
    return int(told)

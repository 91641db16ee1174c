"""A T5 with an output layer of its own whose config scales the states as if that layer were the embedding.

Its likelihoods are sqrt(d_model) times too flat, though greedy answers stay the same. transformers 5.22 writes such a config
where `tie_word_embeddings` was set to false after the config was made.
"""

from __future__ import annotations

import warnings
from typing import Any

from lengthwise.models.anatomy import unwrapped

FLATTENED = "scales its decoder's output though its head is not the embedding, which flattens its likelihoods"


def warn_if_flattened(model: Any) -> None:
    if is_flattened(model):
        warnings.warn(f"the model {FLATTENED}; set model.config.scale_decoder_outputs = False", stacklevel=3)


def is_flattened(model: Any) -> bool:
    model = unwrapped(model)
    scaled = getattr(model.config, "scale_decoder_outputs", False)
    return bool(scaled) and model.get_output_embeddings() is not None and not head_is_the_embedding(model)


def head_is_the_embedding(model: Any) -> bool:
    """By the weights: transformers 5.22 calls every T5's head tied."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    return head is not None and head.weight.data_ptr() == embedding.weight.data_ptr()

"""What a model answers, greedily, to a batch of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import unwrapped
from lengthwise.text import padded


def check_answers(model: nn.Module) -> None:
    inner = unwrapped(model)
    can = getattr(inner, "can_generate", None)
    require(can is not None and can(), f"{type(inner).__name__} cannot write answers; give an encoder-decoder or a decoder")


def answers(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], most: int, processor: LogitsProcessor | None = None
) -> list[str]:
    """At most `most` tokens each; `prompts` are token ids of any lengths, `processor` has the last word on every token."""
    inner = unwrapped(model)
    ends_first = not inner.config.is_encoder_decoder
    settings = _greedy(inner, tokenizer, most)
    ids, mask = padded(prompts, settings.pad_token_id, left=ends_first)
    device = next(inner.parameters()).device
    was_training = inner.training
    inner.eval()
    try:
        with torch.inference_mode():
            output = model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                generation_config=settings,
                logits_processor=None if processor is None else LogitsProcessorList([processor]),
            )
    except torch.OutOfMemoryError as error:
        size = "x".join(map(str, ids.shape))
        raise BadInput(
            f"out of memory on a batch of {size} tokens; give a smaller --batch-tokens or a shorter length"
        ) from error
    finally:
        inner.train(was_training)
    # A decoder repeats its prompt
    rows = (output[:, ids.shape[1] :] if ends_first else output).tolist()
    return [str(tokenizer.decode(row, skip_special_tokens=True)) for row in rows]


def _greedy(model: Any, tokenizer: Any, most: int) -> GenerationConfig:
    """Every knob that would bend a greedy answer is named, because what is left out comes from the checkpoint."""
    own = model.generation_config
    end = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    pads = (tokenizer.pad_token_id, own.pad_token_id, end[0] if isinstance(end, list) else end, 0)
    return GenerationConfig(
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        encoder_no_repeat_ngram_size=0,
        min_length=0,
        temperature=1.0,
        top_p=1.0,
        top_k=50,
        eos_token_id=end,
        pad_token_id=next(pad for pad in pads if pad is not None),
    )

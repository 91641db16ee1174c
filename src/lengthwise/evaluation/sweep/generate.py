"""What a model answers, greedily, to a batch of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lengthwise.common.text import padded
from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import unwrapped
from lengthwise.models.patches import evaluating

# What an architecture needs of a checkpoint's generation config, beside where an answer ends
KEPT = ("bos_token_id", "decoder_start_token_id", "use_cache")


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
    try:
        with evaluating(inner), torch.inference_mode(), _in_force(settings, inner):
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
    # A decoder repeats its prompt
    rows = (output[:, ids.shape[1] :] if ends_first else output).tolist()
    return [str(tokenizer.decode(row, skip_special_tokens=True)) for row in rows]


def _greedy(model: Any, tokenizer: Any, most: int) -> GenerationConfig:
    """Of the checkpoint's own config only what its architecture needs; all else is as transformers would have it."""
    own = model.generation_config
    end = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    pads = (tokenizer.pad_token_id, own.pad_token_id, end[0] if isinstance(end, list) else end, 0)
    # A name that transformers does not know is read by an architecture's own code, if at all
    known = GenerationConfig().to_dict()
    kept = {name: value for name, value in own.to_dict().items() if name in KEPT or name not in known}
    told = {"eos_token_id": end, "pad_token_id": next(pad for pad in pads if pad is not None)}
    return GenerationConfig(**{**kept, **told}, max_new_tokens=most, do_sample=False, num_beams=1)


@contextmanager
def _in_force(settings: GenerationConfig, model: Any) -> Iterator[None]:
    """In the place of the checkpoint's own config, from which `generate` takes whatever it is not told."""
    own = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = own

"""Let a model answer prompts, greedily and a batch at a time; and cut prompts for the truncation baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lengthwise.common.sequences import pad_rows, text_span
from lengthwise.errors import BadInput, is_out_of_memory, require
from lengthwise.evaluation.sweep.chat import ChatTokenizer
from lengthwise.models.anatomy import unwrapped, vocabulary
from lengthwise.models.patches import evaluating
from lengthwise.tasks import Sample

# Generation settings that an architecture needs from its checkpoint, beside where an answer ends
FROM_CHECKPOINT = ("bos_token_id", "decoder_start_token_id", "use_cache")


def greedy_answers(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], most: int, processor: LogitsProcessor | None = None
) -> list[str]:
    """Answers of at most `most` tokens to `prompts`, lists of token ids of any lengths.

    `processor` may change the logits of every token before the likeliest is taken.
    """
    inner = unwrapped(model)
    is_decoder = not inner.config.is_encoder_decoder
    settings = _greedy_settings(inner, tokenizer, most)
    ids, mask = pad_rows(prompts, settings.pad_token_id, left=is_decoder)
    device = next(inner.parameters()).device
    try:
        with evaluating(inner), torch.inference_mode(), _generation_config(settings, inner):
            output = model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                generation_config=settings,
                logits_processor=None if processor is None else LogitsProcessorList([processor]),
            )
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        size = "x".join(map(str, ids.shape))
        smaller = "give a smaller --batch-tokens with another --out, or shorter lengths"
        raise BadInput(f"there is not enough memory for a batch of {size} tokens; {smaller}") from error
    # A decoder repeats its prompt
    rows = (output[:, ids.shape[1] :] if is_decoder else output).tolist()
    return [str(tokenizer.decode(row, skip_special_tokens=True)) for row in rows]


def truncated_prompt(tokenizer: Any, sample: Sample, length: int) -> list[int]:
    """The last tokens of a prompt, at most `length`, the question among them; special tokens at both ends stay."""
    ids = [int(token) for token in tokenizer(sample.prompt, verbose=False).input_ids]
    if len(ids) <= length:
        return ids
    is_chat = isinstance(tokenizer, ChatTokenizer)
    first, last = tokenizer.message_span(ids) if is_chat else text_span(ids, set(tokenizer.all_special_ids))
    room = length - first - (len(ids) - last)
    question = len(tokenizer(sample.question, add_special_tokens=False, verbose=False).input_ids)
    require(
        question <= room,
        f"truncate keeps the last {length} tokens, {room} of them text, but the question alone takes {question}; "
        "leave truncate and hedge out, or give a larger --train-length",
    )
    return [*ids[:first], *ids[last - room : last], *ids[last:]]


def _greedy_settings(model: Any, tokenizer: Any, most: int) -> GenerationConfig:
    """Greedy settings: from the checkpoint only what its architecture needs, else the defaults of transformers."""
    stored = model.generation_config
    end = stored.eos_token_id if stored.eos_token_id is not None else tokenizer.eos_token_id
    pads = (tokenizer.pad_token_id, stored.pad_token_id, end[0] if isinstance(end, list) else end, 0)
    # A name that transformers does not know is read by an architecture's own code, if at all
    known = GenerationConfig().to_dict()
    needed = {name: value for name, value in stored.to_dict().items() if name in FROM_CHECKPOINT or name not in known}
    # Tokenizers may have been given one that the model has no row for
    words = vocabulary(model)
    ends = {"eos_token_id": end, "pad_token_id": next(pad for pad in pads if pad is not None and 0 <= pad < words)}
    return GenerationConfig(**{**needed, **ends}, max_new_tokens=most, do_sample=False, num_beams=1)


@contextmanager
def _generation_config(settings: GenerationConfig, model: Any) -> Iterator[None]:
    """Replace the checkpoint's own config, from which `generate` takes whatever it is not told, for the time of the block."""
    stored = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = stored

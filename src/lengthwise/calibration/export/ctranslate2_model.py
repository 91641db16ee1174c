"""A model of CTranslate2, made by its own converter from the checkpoint.

| rope type        | in CTranslate2                                                             |
|------------------|----------------------------------------------------------------------------|
| default, linear  | computed as transformers does                                              |
| yarn, dynamic    | not known to it                                                            |
| longrope         | read for Phi-3 alone, with an attention factor of its own                  |
| llama3           | its converter loses the factor                                             |

A sliding window holds as long as no input is longer; beyond it answers differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from lengthwise.calibration.export.packages import needed
from lengthwise.calibration.export.plan import Plan
from lengthwise.calibration.export.verify import ends_of
from lengthwise.common.formats import read_json
from lengthwise.errors import BadInput, require
from lengthwise.models.load import reason_of

KNOWN_ROPES = ("default", "linear")
# Families whose exported answers were compared with those of the extended model (tests/engines)
FAMILIES = ("t5", "mt5", "llama", "qwen2", "mistral")


def _package() -> Any:
    return needed("ctranslate2", "ctranslate2", "--to ctranslate2")


def check(plan: Plan) -> None:
    """Refuse families and rotations that CTranslate2 computes otherwise, or not at all."""
    family = plan.anatomy.family
    known = f"--to ctranslate2 is for {', '.join(FAMILIES)}, not {family}; the nearest that can be had is --to transformers"
    require(family in FAMILIES, known)
    config: Any = plan.anatomy.stack.config
    own = {"rope_type": "default", **(getattr(config, "rope_parameters", None) or {})}
    rope, names = plan.rotation(own)
    problem = f"CTranslate2 does not know rotations of type {rope['rope_type']}, which {names} needs; the nearest that"
    computed = f"it computes is ntk:factor={plan.stretch} or interpolation:factor={plan.stretch}"
    nearest = computed if own["rope_type"] in KNOWN_ROPES else "can be had is --to transformers"
    require(rope["rope_type"] in KNOWN_ROPES, f"{problem} {nearest}")
    window = min((width for width in plan.anatomy.windows if width is not None), default=plan.length)
    hidden = f"CTranslate2 computes this model's sliding window of {window} tokens otherwise; give a --length up to it, or"
    require(plan.length <= window, f"{hidden} --to transformers")


def write(stock: Any, tokenizer: Any, plan: Plan, folder: Path) -> list[str]:
    """Let the converter read a checkpoint that is then removed; the tokenizer stands beside the model."""
    converters = _package().converters
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        stock.float().save_pretrained(name)
        tokenizer.save_pretrained(name)
        try:
            converters.TransformersConverter(name).convert(str(folder), force=True)
        except (ValueError, NotImplementedError, AttributeError) as error:
            raise BadInput(f"CTranslate2 cannot convert this {plan.anatomy.family} model: {reason_of(error)}") from error
    tokenizer.save_pretrained(folder)
    return []


def ask(folder: Path, prompts: Sequence[list[int]], greedy: dict[str, Any]) -> tuple[Tensor | None, list[list[int]]]:
    """Greedy answers; logits of the next token too, where a decoder gives them."""
    from transformers import AutoTokenizer

    package, tokenizer = _package(), AutoTokenizer.from_pretrained(folder)
    texts = [tokenizer.convert_ids_to_tokens(prompt) for prompt in prompts]
    answer, ends = greedy["max_new_tokens"], ends_of(greedy)
    if _is_translator(folder):
        options = {"beam_size": 1, "max_decoding_length": answer, "max_input_length": 0}
        translator = package.Translator(str(folder), device="cpu", intra_threads=torch.get_num_threads())
        pieces = [translator.translate_batch([text], **options)[0].hypotheses[0] for text in texts]
        return None, [tokenizer.convert_tokens_to_ids(tokens) for tokens in pieces]
    generator = package.Generator(str(folder), device="cpu", intra_threads=torch.get_num_threads())
    logits = [torch.from_numpy(numpy.array(generator.forward_batch([text])))[0, -1].float() for text in texts]
    options = {"beam_size": 1, "include_prompt_in_result": False, "max_length": answer, "end_token": ends}
    answers = [generator.generate_batch([text], **options)[0].sequences_ids[0] for text in texts]
    return torch.stack(logits), answers


def _is_translator(folder: Path) -> bool:
    """Whether the model reads with an encoder, which its config tells by a token to start the answer with."""
    return "decoder_start_token" in read_json(folder / "config.json")

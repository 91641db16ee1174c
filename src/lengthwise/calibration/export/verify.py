"""Run the exported model in its engine, and compare it with the extended model on the same prompts.

It is compared twice: with lengthwise on the frequencies and the one temperature that were written, from which an engine differs
by rounding alone; and with the method under `extend`, where each row of a decoder may have its own temperature.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from lengthwise.calibration.bake import FixedSharpness
from lengthwise.calibration.export.plan import Plan
from lengthwise.common.sequences import long_sequences
from lengthwise.common.text import text_or_prose
from lengthwise.errors import require
from lengthwise.methods.base import follows_length
from lengthwise.models.anatomy import unwrapped
from lengthwise.models.extend import Method, extend
from lengthwise.models.patches import evaluating

PROMPTS = 3
LONGEST = 4096  # tokens of a prompt: enough to see a difference, and soon read
ANSWER = 8  # tokens of a greedy answer


@dataclass(frozen=True)
class FrequenciesOnly:
    """A rotation without the temperature that it may bring along."""

    rotation: Any
    frozen_above: tuple[int, int] | None = None  # (training length, the length whose frequencies longer inputs get)

    @property
    def dynamic(self) -> bool:
        return follows_length(self.rotation)

    def frequencies(self, trained: Tensor, length: int) -> Tensor:
        if self.frozen_above is not None and length > self.frozen_above[0]:
            length = self.frozen_above[1]
        frequencies: Tensor = self.rotation.frequencies(trained, length)
        return frequencies


@dataclass(frozen=True)
class Expected:
    """The extended model's answers to a few prompts: with what the export carries, and with the method itself."""

    prompts: list[list[int]]
    greedy: dict[str, Any]  # what a generation needs to know
    written: Tensor  # logits of the next token [prompts, words]
    extended: Tensor
    answers: list[list[int]]  # greedy, as written


def expected(model: nn.Module, tokenizer: Any, method: Method, plan: Plan, force: bool) -> Expected:
    """Extend the model in both ways and ask it; prompts are prose that ships along."""
    name = type(unwrapped(model)).__name__
    require(unwrapped(model).can_generate(), f"--verify compares what a model generates, and {name} does not; leave it out")
    wide = copy.deepcopy(unwrapped(model)).float() if unwrapped(model).dtype != torch.float32 else unwrapped(model)
    _, text = text_or_prose(None, ())
    length = min(plan.length, LONGEST)
    prompts = long_sequences(tokenizer, text, length, PROMPTS, seed=0).tolist()
    trained, greedy = plan.anatomy.train_length, greedy_settings(wide)
    with extend(wide, _as_written(plan), train_length=trained):
        written, answers = _ask(wide, prompts, greedy)
    with extend(wide, method, train_length=trained, force=force):
        extended, _ = _ask(wide, prompts, None)
    return Expected(prompts, greedy, written, extended, answers)


def greedy_settings(model: Any, answer: int = ANSWER) -> dict[str, Any]:
    """A generation of the likeliest tokens, up to the end of an answer, without whatever else a checkpoint asks for."""
    names = ("eos_token_id", "pad_token_id", "decoder_start_token_id", "bos_token_id")
    # What the settings of a generation tell counts more than what the config tells
    settings = ((name, getattr(owner, name, None)) for owner in (model.config, model.generation_config) for name in names)
    known = {name: value for name, value in settings if value is not None}
    if model.config.is_encoder_decoder:
        known["decoder_start_token_id"] = model.config.decoder_start_token_id
    return {"do_sample": False, "max_new_tokens": answer, "pad_token_id": 0, **known}


def _as_written(plan: Plan) -> list[Any]:
    """The rotation and the one temperature that the export carries, as methods."""
    if plan.law is not None:
        return [plan.law]
    frozen = (plan.anatomy.train_length, plan.length) if plan.freezes else None
    rotation = [] if plan.rope is None else [FrequenciesOnly(plan.slots.rotation, frozen)]
    return [*rotation, FixedSharpness(plan.total)]


def _ask(model: Any, prompts: Sequence[list[int]], greedy: dict[str, Any] | None) -> tuple[Tensor, list[list[int]]]:
    """Logits of the next token, and greedy answers where they are asked for."""
    logits, answers = [], []
    with evaluating(model), torch.inference_mode():
        for prompt in prompts:
            inputs = {"input_ids": torch.tensor([prompt], device=model.device)}
            both = model.config.is_encoder_decoder
            start = (
                {"decoder_input_ids": inputs["input_ids"].new_tensor([[model.config.decoder_start_token_id]])} if both else {}
            )
            logits.append(model(**inputs, **start).logits[0, -1].float().cpu())
            if greedy is not None:
                made = model.generate(**inputs, generation_config=GenerationConfig(**greedy))[0].tolist()
                answers.append(made[1 if both else len(prompt) :])
    return torch.stack(logits), answers


def compare(told: tuple[Tensor | None, list[list[int]]], wanted: Expected) -> list[str]:
    """In words, how near the engine's answers and logits came."""
    logits, answers = told
    asked = f"{len(wanted.prompts)} prompts of {len(wanted.prompts[0]):,} tokens"
    ends = ends_of(wanted.greedy)
    same = sum(_until(ours, ends) == _until(theirs, ends) for ours, theirs in zip(answers, wanted.answers, strict=True))
    lines = [f"{same} of {asked} got the same answer of up to {ANSWER} tokens"]
    if logits is not None:
        error = f"relative error {_error(logits, wanted.written):.1e}"
        lines.append(f"logits of the next token: {error} from lengthwise with what was written")
        lines.append(f"and {_error(logits, wanted.extended):.1e} from the method under `extend`")
    return lines


def ends_of(greedy: dict[str, Any]) -> list[int]:
    """The tokens at which an answer ends; a model may have none, one or several."""
    ends = greedy.get("eos_token_id", [])
    return ends if isinstance(ends, list) else [ends]


def _until(tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
    """An answer without its end and what follows."""
    return [*itertools.takewhile(lambda token: token not in ends, tokens)]


def _error(ours: Tensor, theirs: Tensor) -> float:
    """Relative norm of the difference, of logits less their mean, which no answer depends on."""
    ours, theirs = (values.double() - values.double().mean(-1, keepdim=True) for values in (ours, theirs))
    return float((ours - theirs).norm() / theirs.norm())

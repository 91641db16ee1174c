"""A T5 as three graphs of ONNX: the encoder, the first step of the decoder, and its further steps with a cache.

Files and names are those of optimum's ORTModelForSeq2SeqLM. The relative bias is computed in the graph from the length of each
input; no table of a longest input is stored.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from lengthwise.calibration.export.packages import needed
from lengthwise.calibration.export.plan import Plan
from lengthwise.calibration.export.verify import ends_of
from lengthwise.common.progress import stage
from lengthwise.errors import require

FAMILIES = ("t5", "mt5")
OPSET = 18
ENCODER, FIRST, NEXT = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
MOST = 2**20  # tokens, for the shapes' sake


def check(plan: Plan) -> None:
    """Refuse other families."""
    written = f"--to onnx writes {' and '.join(FAMILIES)} models, not {plan.anatomy.family}"
    require(plan.anatomy.family in FAMILIES, f"{written}; use --to transformers, and optimum's exporter on what it writes")


class Encoder(nn.Module):
    """Token ids to hidden states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden


class FirstStep(nn.Module):
    """The first tokens of an answer to logits, and to all keys and values."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, encoder_attention_mask: Tensor, encoder_hidden_states: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache, EncoderDecoderCache

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        logits = _decode(self.model, input_ids, encoder_attention_mask, encoder_hidden_states, cache)
        return (logits, *_keys_and_values(cache, cross=True))


class NextStep(nn.Module):
    """One further token to logits, and to the keys and values of the answer so far."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, encoder_attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        from transformers import DynamicCache, EncoderDecoderCache

        own, cross = DynamicCache(), DynamicCache()
        layers = len(past) // 4
        for layer in range(layers):
            own.update(*past[4 * layer : 4 * layer + 2], layer)
            cross.update(*past[4 * layer + 2 : 4 * layer + 4], layer)
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(layers), True)
        # The keys of the input are in the cache: of its states only the shape is looked at
        states = torch.zeros(past[2].shape[0], past[2].shape[2], self.model.config.d_model)
        logits = _decode(self.model, input_ids, encoder_attention_mask, states, cache)
        return (logits, *_keys_and_values(cache, cross=False))


def _decode(model: Any, ids: Tensor, mask: Tensor, states: Tensor, cache: Any) -> Tensor:
    given = {"decoder_input_ids": ids, "attention_mask": mask, "encoder_outputs": (states,)}
    logits: Tensor = model(**given, past_key_values=cache, use_cache=True).logits
    return logits


def _keys_and_values(cache: Any, cross: bool) -> list[Tensor]:
    halves = (cache.self_attention_cache, cache.cross_attention_cache) if cross else (cache.self_attention_cache,)
    layers = zip(*(half.layers for half in halves), strict=True)
    return [tensor for layer in layers for half in layer for tensor in (half.keys, half.values)]


def _names(prefix: str, layers: int, halves: Sequence[str]) -> list[str]:
    """Optimum's names of keys and values, layer by layer."""
    return [f"{prefix}.{i}.{half}.{what}" for i in range(layers) for half in halves for what in ("key", "value")]


def write(stock: Any, tokenizer: Any, plan: Plan, folder: Path) -> list[str]:
    """Trace the three graphs in float32, and save config and tokenizer beside them."""
    model, layers = stock.float().eval(), stock.config.num_decoder_layers
    model.set_attn_implementation("eager")
    dimension = torch.export.Dim
    batch, tokens = dimension("batch", min=1, max=MOST), dimension("tokens", min=2, max=MOST)
    answer, past = dimension("answer", min=1, max=MOST), dimension("past", min=1, max=MOST)
    ids, mask = torch.randint(3, 50, (2, 24)), torch.ones(2, 24, dtype=torch.long)
    states, start = torch.randn(2, 24, model.config.d_model), torch.randint(3, 50, (2, 3))
    read = {0: batch, 1: tokens}
    both, given = ("decoder", "encoder"), ["input_ids", "encoder_attention_mask"]
    with torch.no_grad(), _quietly():
        _trace(
            Encoder(model), (ids, mask), (read, read), ["input_ids", "attention_mask"], ["last_hidden_state"], folder / ENCODER
        )
        presents = ["logits", *_names("present", layers, both)]
        first = FirstStep(model)
        inputs = (start, mask, states)
        _trace(first, inputs, ({0: batch, 1: answer}, read, read), [*given, "encoder_hidden_states"], presents, folder / FIRST)
        cached = [*first(*inputs)[1:]]
        held = [{0: batch, 2: past}, {0: batch, 2: past}, {0: batch, 2: tokens}, {0: batch, 2: tokens}] * layers
        names = [*given, *_names("past_key_values", layers, both)]
        presents = ["logits", *_names("present", layers, both[:1])]
        _trace(NextStep(model), (start[:, :1], mask, cached), ({0: batch}, read, held), names, presents, folder / NEXT)
    for part in (model.config, model.generation_config, tokenizer):
        part.save_pretrained(folder)
    return ["float32; the relative bias is computed in the graph from the length of each input"]


def _trace(module: nn.Module, inputs: Any, shapes: Any, names: list[str], outputs: list[str], path: Path) -> None:
    options: dict[str, Any] = {"dynamo": True, "opset_version": OPSET, "verbose": False}
    # It takes many seconds, and tells nothing
    stage(f"tracing {path.name}")
    program: Any = torch.onnx.export(
        module.eval(), inputs, input_names=names, output_names=outputs, dynamic_shapes=shapes, **options
    )
    program.save(str(path))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's progress and the warnings of its parts."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def ask(folder: Path, prompts: Sequence[list[int]], greedy: dict[str, Any]) -> tuple[Tensor | None, list[list[int]]]:
    """Logits of the first token and greedy answers, by ONNX Runtime."""
    sessions = Sessions(folder)
    start, count = greedy["decoder_start_token_id"], greedy["max_new_tokens"]
    answers = [sessions.answer(prompt, start, ends_of(greedy), count) for prompt in prompts]
    return torch.stack([logits for logits, _ in answers]), [tokens for _, tokens in answers]


class Sessions:
    """The three graphs in ONNX Runtime."""

    def __init__(self, folder: Path) -> None:
        runtime = needed("onnxruntime", "onnx", "running it")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        made = (runtime.InferenceSession(str(folder / name), options) for name in (ENCODER, FIRST, NEXT))
        self.encoder, self.first, self.next = made

    def answer(self, prompt: list[int], start: int, ends: Sequence[int], count: int) -> tuple[Tensor, list[int]]:
        """Logits of the first token, and the likeliest tokens up to the end or to `count`."""
        ids, mask = numpy.array([prompt]), numpy.ones((1, len(prompt)), dtype=numpy.int64)
        (states,) = self.encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        given = {"input_ids": numpy.array([[start]]), "encoder_attention_mask": mask}
        logits, *cached = self.first.run(None, {**given, "encoder_hidden_states": states})
        first = torch.from_numpy(logits[0, -1].copy())
        names = [node.name for node in self.next.get_inputs()][2:]
        past, tokens = dict(zip(names, cached, strict=True)), []
        grows = [name for name in names if ".decoder." in name]
        while True:
            tokens.append(int(logits[0, -1].argmax()))
            if len(tokens) == count or tokens[-1] in ends:
                return first, tokens
            given["input_ids"] = numpy.array([[tokens[-1]]])
            logits, *cached = self.next.run(None, {**given, **past})
            past.update(zip(grows, cached, strict=True))

"""Tiny models of every family, built from configs: no network, no files."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

# Before torch is imported: commands are tried in forks, which have none of the threads that their parent computed with
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

# Before anything imports Triton: without a GPU its interpreter runs the kernels
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import transformers as tf
import typer
from transformers import ByT5Tokenizer

from lengthwise.cli import run
from tests.helpers.byte_tokenizer import make_quick

# Off until all tests are collected: each of its looks through what was imported, a million objects, takes a third of a second
gc.disable()
make_quick()
# Waiting for the disk guards against a power cut alone, which no test makes
os.fsync = lambda descriptor: None
# The tree of all commands, which every call of the command line builds anew
typer.main.get_command = cache(typer.main.get_command)

TRAIN_LENGTH = 32
T5_SIZES = {
    "vocab_size": 384,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_heads": 4,
    "n_positions": TRAIN_LENGTH,
    "decoder_start_token_id": 0,
}
DECODER_SIZES = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": TRAIN_LENGTH,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
NEOX_SIZES = {k: v for k, v in DECODER_SIZES.items() if k not in ("num_key_value_heads", "head_dim")}
BERT_SIZES = {**NEOX_SIZES, "max_position_embeddings": 512}
SWITCH_SIZES = {
    **T5_SIZES,
    "num_experts": 2,
    "num_sparse_encoder_layers": 1,
    "num_sparse_decoder_layers": 1,
    "expert_capacity": 512,
}

ENCODERS: dict[str, Callable[[], Any]] = {
    "t5": lambda: tf.T5ForConditionalGeneration(tf.T5Config(**T5_SIZES)),
    "flan-t5": lambda: tf.T5ForConditionalGeneration(
        tf.T5Config(**T5_SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "t5 encoder": lambda: tf.T5EncoderModel(tf.T5Config(**T5_SIZES)),
    "mt5": lambda: tf.MT5ForConditionalGeneration(tf.MT5Config(**T5_SIZES)),
    "umt5": lambda: tf.UMT5ForConditionalGeneration(tf.UMT5Config(**T5_SIZES)),
    "switch": lambda: tf.SwitchTransformersForConditionalGeneration(tf.SwitchTransformersConfig(**SWITCH_SIZES)),
}
DECODERS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER_SIZES)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**DECODER_SIZES)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**DECODER_SIZES)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**DECODER_SIZES, sliding_window=None)),
    "mistral window": lambda: tf.MistralForCausalLM(tf.MistralConfig(**DECODER_SIZES, sliding_window=48)),
    "gemma": lambda: tf.GemmaForCausalLM(tf.GemmaConfig(**DECODER_SIZES)),
    "gemma3": lambda: tf.Gemma3ForCausalLM(
        tf.Gemma3TextConfig(
            **DECODER_SIZES, sliding_window=48, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
        )
    ),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**DECODER_SIZES)),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**NEOX_SIZES)),
    "olmo2": lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**DECODER_SIZES)),
    "smollm3": lambda: tf.SmolLM3ForCausalLM(tf.SmolLM3Config(**DECODER_SIZES)),
}
BIDIRECTIONAL: dict[str, Callable[[], Any]] = {
    "bert": lambda: tf.BertForMaskedLM(tf.BertConfig(**BERT_SIZES)),
    "roberta": lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**BERT_SIZES)),
    "modernbert": lambda: tf.ModernBertForMaskedLM(
        tf.ModernBertConfig(**BERT_SIZES, local_attention=96, cls_token_id=1, sep_token_id=2)
    ),
}
UNREACHABLE: dict[str, Callable[[], Any]] = {
    "falcon": lambda: tf.FalconForCausalLM(
        tf.FalconConfig(vocab_size=384, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    ),
    "bloom": lambda: tf.BloomForCausalLM(tf.BloomConfig(vocab_size=384, hidden_size=32, n_layer=2, n_head=4)),
    "gptj": lambda: tf.GPTJForCausalLM(tf.GPTJConfig(vocab_size=384, n_embd=32, n_layer=2, n_head=4, rotary_dim=4)),
    "mpt": lambda: tf.MptForCausalLM(tf.MptConfig(vocab_size=384, d_model=32, n_layers=2, n_heads=4, max_seq_len=512)),
    "longt5": lambda: tf.LongT5ForConditionalGeneration(tf.LongT5Config(**T5_SIZES, encoder_attention_type="local")),
}
FAMILIES = {**ENCODERS, **DECODERS, **BIDIRECTIONAL}


def make(name: str, seed: int = 0) -> Any:
    """A tiny model whose queries and biases are large enough for sharp attention."""
    torch.manual_seed(seed)
    model = {**FAMILIES, **UNREACHABLE}[name]().eval()
    for key, parameter in model.named_parameters():
        if any(part in key for part in (".q.", "q_proj", "query", "qkv", "relative_attention_bias")) and parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=1.0 if "bias" in key else 0.5)
        if "norm.weight" in key and "gemma" not in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


@cache
def shared(name: str) -> Any:
    """The model of `make(name)`, one for all tests of a process: for those that leave it as it was."""
    return make(name)


def tiny_t5(seed: int = 0, train_length: int = 512) -> Any:
    """A T5 encoder of four layers whose attention is sharp: large random queries, random biases."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sizes = {"vocab_size": 384, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 4, "num_heads": 4}
        config = tf.T5Config(**sizes, n_positions=train_length)
        model = tf.T5EncoderModel(config).eval()
        for block in model.encoder.block:
            torch.nn.init.normal_(block.layer[0].SelfAttention.q.weight, std=0.25)
        torch.nn.init.normal_(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight, std=1.0)
    return model


@pytest.fixture
def tokenizer() -> ByT5Tokenizer:
    return ByT5Tokenizer()


def tokens(length: int, batch: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 380, (batch, length), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """What the model says: decoder logits, or the encoder's hidden states."""
    inputs = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.full((len(ids), 3), 5)
    with torch.no_grad():
        output = model(**inputs)
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def pytest_collection_finish() -> None:
    """From here on the garbage collector looks at what tests make, once, and at nothing that was imported."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_pass_over_survivors)
    gc.enable()


def _pass_over_survivors(phase: str, info: dict[str, int]) -> None:
    """Modules that tests import late and fixtures, after each look at everything."""
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


def pytest_sessionfinish() -> None:
    if _pass_over_survivors in gc.callbacks:
        gc.callbacks.remove(_pass_over_survivors)
    gc.unfreeze()


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    status: int
    out: str
    err: list[str]


@pytest.fixture
def lengthwise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line in this process."""

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(status, captured.out, captured.err.splitlines())

    return call

"""What is patched where: the encoder alone, the reader of a model that sees, frequencies that follow the length."""

from __future__ import annotations

import copy

import torch
import transformers

import lengthwise as lw
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import (
    DECODER_SIZES,
    TRAIN_LENGTH,
    logits,
    make,
    tokens,
)
from tests.extended import LONG


def test_t5_generates_under_a_temperature_and_only_the_encoder_changes() -> None:
    model = make("t5")
    ids = tokens(LONG)
    decoder_config = model.decoder.config._attn_implementation
    with lw.extend(model, "log"):
        assert model.decoder.config._attn_implementation == decoder_config
        assert model.encoder.config._attn_implementation == "lengthwise"
        assert model.generate(ids, max_new_tokens=4).shape[1] <= 5


def test_frequencies_that_grew_with_the_input_shrink_again() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER_SIZES, rope_parameters=rope)).eval()
    longer, ids = tokens(LONG), tokens(TRAIN_LENGTH + 20)
    plain = logits(copy.deepcopy(model), ids)
    lw.row_statistics(model, longer)
    assert torch.equal(logits(model, ids), plain)


def test_a_model_that_sees_is_extended_where_it_reads() -> None:
    size = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    text = {**size, "vocab_size": 384, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8}
    sight = {**size, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8}
    config = transformers.Gemma3Config(text_config={**text, "max_position_embeddings": TRAIN_LENGTH}, vision_config=sight)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    reader, ids = model.model.language_model, tokens(LONG)
    assert anatomy_of(model).stack is reader
    with lw.extend(reader, "constant:tau=0.5"):
        expected = logits(model, ids)
    with lw.extend(model, "constant:tau=0.5"):
        assert torch.equal(logits(model, ids), expected)
    assert not torch.equal(logits(model, ids), expected)

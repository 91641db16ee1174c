"""Models that cannot be extended, and methods that do not suit a model, are refused in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.suitability import check_can_answer
from tests.conftest import (
    DECODER_SIZES,
    NEOX_SIZES,
    T5_SIZES,
    TRAIN_LENGTH,
    logits,
    make,
    tokens,
)
from tests.extended import LONG, alignment

TOLERANCE = 2e-5


TABLES = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": TRAIN_LENGTH, "bos_token_id": 1, "eos_token_id": 2},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": TRAIN_LENGTH, "bos_token_id": 1, "eos_token_id": 2},
    "opt": {**NEOX_SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "roberta": {**NEOX_SIZES, "max_position_embeddings": TRAIN_LENGTH + 1},
}


@pytest.mark.parametrize("name", TABLES)
def test_inputs_longer_than_a_table_of_positions_are_refused(name: str) -> None:
    config = transformers.AutoConfig.for_model(name, **{"vocab_size": 384, **TABLES[name]})
    make_it = transformers.AutoModelForMaskedLM if name == "roberta" else transformers.AutoModelForCausalLM
    model, ids = make_it.from_config(config).eval(), tokens(TRAIN_LENGTH + 1)
    plain = logits(model, ids[:, 1:])
    with lw.extend(model, "log", train_length=TRAIN_LENGTH):
        assert torch.equal(logits(model, ids[:, 1:]), plain)
        with pytest.raises(BadInput, match="a table of 32 absolute positions and was given 33 tokens"):
            logits(model, ids)
        if name != "roberta":
            with pytest.raises(BadInput, match="a table of 32 absolute positions and was given 33 tokens"):
                model.generate(ids[:, 1:30], max_new_tokens=8, min_new_tokens=8)
            # Packed sequences, each from position 0
            model(ids, position_ids=torch.arange(TRAIN_LENGTH + 1)[None] % 20)


OWN_BIAS: dict[str, tuple[str, dict[str, Any]]] = {
    "longt5": ("LongT5ForConditionalGeneration", {"encoder_attention_type": "transient-global"}),
    "udop": ("UdopForConditionalGeneration", {"image_size": 32}),
    "pop2piano": ("Pop2PianoForConditionalGeneration", {}),
}


@pytest.mark.parametrize("name", OWN_BIAS)
def test_a_bias_that_is_not_read_is_refused(name: str) -> None:
    kind, sizes = OWN_BIAS[name]
    model = getattr(transformers, kind)(transformers.AutoConfig.for_model(name, **{**T5_SIZES, **sizes}))
    with pytest.raises(BadInput, match="adds a position_bias of its own"), lw.extend(model, "none"):
        pass


def test_a_stack_without_a_config_is_refused() -> None:
    sizes = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    }
    config = transformers.FSMTConfig(**sizes, encoder_ffn_dim=32, decoder_ffn_dim=32, src_vocab_size=384, tgt_vocab_size=384)
    with (
        pytest.raises(BadInput, match="FSMTEncoder has no config"),
        lw.extend(transformers.FSMTForConditionalGeneration(config)),
    ):
        pass


def test_a_mask_that_a_layer_makes_of_its_values_is_refused() -> None:
    if not hasattr(transformers, "DogeConfig"):
        pytest.skip("this transformers has no Doge")
    model = transformers.DogeForCausalLM(transformers.DogeConfig(**DECODER_SIZES))
    with pytest.raises(BadInput, match="makes a mask of its own"), lw.extend(model, "log"):
        pass


def test_layers_that_choose_their_keys_are_refused() -> None:
    if "glm_moe_dsa" not in transformers.CONFIG_MAPPING:
        pytest.skip("this transformers has no GLM with an indexer")
    keys = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}
    config = transformers.AutoConfig.for_model("glm_moe_dsa", **{**DECODER_SIZES, **keys, **experts, "index_head_dim": 16})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(BadInput, match="GlmMoeDsaAttention chooses the keys that a row sees by an indexer"), lw.extend(model):
        pass


def test_a_decoder_that_shares_its_encoders_config_is_refused_by_name() -> None:
    of_each = {"layers": 1, "attention_heads": 2, "ffn_dim": 8}
    sizes = {f"{stack}_{what}": size for stack in ("encoder", "decoder") for what, size in of_each.items()}
    config = transformers.BartConfig(vocab_size=384, d_model=8, max_position_embeddings=128, **sizes)
    model = transformers.BartForConditionalGeneration(config)
    with pytest.raises(BadInput, match="encoder and the decoder of this bart share one config"), lw.extend(model, "log"):
        pass
    with lw.extend(model.model.encoder, "constant:tau=0.5", train_length=32):
        model.model.encoder(tokens(64))


def test_an_alignment_for_another_model_is_refused_unless_forced() -> None:
    from dataclasses import replace

    from lengthwise.models.fingerprint import model_fingerprint

    model, other = make("t5", seed=0), make("t5", seed=1)
    table = replace(alignment(model), model=model_fingerprint(anatomy_of(model)))
    with lw.extend(model, table):
        pass
    with pytest.raises(lw.BadInput, match="made for"), lw.extend(other, table):
        pass
    with lw.extend(other, table, force=True):
        pass


@pytest.mark.parametrize(
    ("scope", "tau", "has"),
    [
        ("layer", [0.5, 0.5], "2 layers"),
        ("layer", [0.5] * 4, "4 layers"),
        ("head", [[0.5] * 4] * 2, "2 layers of 4 heads"),
        ("head", [[0.5] * 2] * 3, "3 layers of 2 heads"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_table_that_does_not_fit_the_model_is_refused_even_by_force(scope: str, tau: Any, has: str, force: bool) -> None:
    model = make("t5")
    with pytest.raises(lw.BadInput, match=f"has temperatures for {has}, and this model has 3 layers of 4 heads; calibrate"):
        lw.extend(model, alignment(model, tau, scope), force=force).__enter__()


def test_facts_of_a_model_fill_what_a_spec_leaves_out() -> None:
    model = make("t5")
    ids = tokens(LONG)
    g = math.sqrt((1 - LONG ** (-2 / 8)) / (1 - TRAIN_LENGTH ** (-2 / 8)))
    with lw.extend(model, "infoscale"):
        given = logits(model, ids)
    with lw.extend(model, f"constant:tau={1 / g}"):
        torch.testing.assert_close(given, logits(model, ids), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["t5 encoder", "bert"])
def test_models_that_write_nothing_are_refused(family: str) -> None:
    with pytest.raises(lw.BadInput, match="cannot write answers; give an encoder-decoder or a decoder"):
        check_can_answer(make(family))


@pytest.mark.parametrize("start", [None, -1, 10**6])
def test_an_answer_must_begin_with_a_token_that_is_known(start: int | None) -> None:
    model = make("t5")
    model.generation_config.decoder_start_token_id = start
    with pytest.raises(lw.BadInput, match=rf"answers begin with token {start}, which it does not know"):
        check_can_answer(model)

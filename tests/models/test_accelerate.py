"""T5s whose attention is computed by lengthwise at every length: the same numbers, in everything a T5 is used for."""

from __future__ import annotations

import copy
import copyreg
import gc
import io
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.attention import dispatch
from lengthwise.errors import BadInput
from lengthwise.models.accelerate import accelerate
from lengthwise.models.patches import suspended
from lengthwise.models.snapshot import differences, state_of
from lengthwise.models.state import LAYER
from tests.conftest import ENCODERS, TRAIN_LENGTH, logits, make, shared, tokens

LENGTHS = (TRAIN_LENGTH // 2, 3 * TRAIN_LENGTH)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While a model is accelerated transformers knows our attention: after each test it must not."""
    accelerate, models = lw.accelerate, []

    def recorded(model: Any, **options: Any) -> Any:
        acceleration = accelerate(model, **options)
        models.append(model)
        return acceleration

    monkeypatch.setattr(lw, "accelerate", recorded)
    yield
    for model in models:
        lw.restore(model)


def batch(name: str, length: int, side: str = "both") -> dict[str, Tensor]:
    ids = tokens(length, batch=3)
    mask = torch.ones_like(ids)
    if side != "none":
        mask[0, -length // 3 :] = 0
        mask[1, : length // 4] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs if "encoder" in name else {**inputs, "decoder_input_ids": tokens(7, batch=3)}


def states(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Of an encoder what it says of real tokens."""
    output: Tensor = model(**inputs)[0]
    return output if "decoder_input_ids" in inputs else output * inputs["attention_mask"][..., None]


def error(found: Tensor, expected: Tensor) -> float:
    return float(((found.double() - expected.double()).norm() / expected.double().norm()).detach())


def skip_where_a_decoder_sees_the_future(model: Any) -> None:
    """As umT5's does in transformers 5.15, where nothing tells sdpa that it is causal; accelerated it does not."""
    decoder = getattr(model, "decoder", None)
    if decoder is not None and not decoder.block[0].layer[0].SelfAttention.is_causal:
        pytest.skip("this transformers lets umT5's decoder see the future")


def drop_nothing(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_a_padded_batch_gives_what_the_model_gives(name: str, length: int) -> None:
    model, inputs = shared(name), batch(name, length)
    skip_where_a_decoder_sees_the_future(model)
    expected = states(model, inputs)
    with lw.accelerate(model):
        found = states(model, inputs)
    assert error(found, expected) < 2e-5


@pytest.mark.parametrize("name", ["t5", "switch"])
@torch.no_grad()
def test_a_decoder_as_long_as_its_padded_encoder_sees_all_that_is_there(name: str) -> None:
    model, inputs = shared(name), batch(name, 7)
    expected = states(model, inputs)
    with lw.accelerate(model):
        assert error(states(model, inputs), expected) < 2e-5


@pytest.mark.parametrize("way", ["accelerate", "extend"])
@torch.no_grad()
def test_experts_of_a_switch_take_the_tokens_that_they_took(way: str) -> None:
    """Padding that stands before a text takes its part of what experts hold."""
    model, inputs = make("switch", seed=1), batch("switch", LENGTHS[1])
    for module in model.modules():
        if hasattr(module, "expert_capacity"):
            module.expert_capacity = 8
    expected = states(model, inputs)
    with lw.accelerate(model) if way == "accelerate" else lw.extend(model, exact=False):
        assert error(states(model, inputs), expected) < 2e-5


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["t5", "t5 encoder"])
@pytest.mark.filterwarnings("ignore:T5 was trained in bfloat16")
@torch.no_grad()
def test_in_half_precision_it_is_as_near_to_float32_as_the_model(name: str, dtype: torch.dtype) -> None:
    """The bound that docs/accelerate.md states: rounding errors of the model's own size, in every data type."""
    model, inputs = make(name), batch(name, LENGTHS[1])
    truth = states(model, inputs)
    model.to(dtype)
    stock = states(model, inputs)
    with lw.accelerate(model):
        found = states(model, inputs)
    assert found.dtype == dtype
    assert error(found, truth) < 1.25 * error(stock, truth)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")
@torch.no_grad()
def test_autocast_gives_what_it_gives_the_model() -> None:
    model, inputs = make("t5"), batch("t5", LENGTHS[1])
    truth = states(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        stock = states(model, inputs)
        with lw.accelerate(model):
            found = states(model, inputs)
    assert found.dtype == stock.dtype
    assert error(found, truth) < 1.25 * error(stock, truth)


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_a_training_step_has_the_models_gradients(name: str) -> None:
    model, inputs = make(name), batch(name, LENGTHS[1])
    skip_where_a_decoder_sees_the_future(model)

    def gradients(checkpointed: bool = False) -> dict[str, Tensor]:
        model.zero_grad()
        model.train(checkpointed)
        model(**inputs)[0].square().mean().backward()
        return {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}

    drop_nothing(model)
    expected = gradients()
    lw.accelerate(model)
    found = gradients()
    model.gradient_checkpointing_enable()
    again = gradients(checkpointed=True)
    assert expected.keys() == found.keys() == again.keys()
    assert "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in found
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(again[key], gradient, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_it_writes_the_same_tokens(name: str) -> None:
    """By every cache: a dynamic one, a static one with room behind its tokens, none, and with beams."""
    model, inputs = make(name), batch("encoder", LENGTHS[1])
    skip_where_a_decoder_sees_the_future(model)
    ways: list[dict[str, Any]] = [
        {},
        {"cache_implementation": "static", "disable_compile": True},
        {"use_cache": False},
        {"num_beams": 2},
    ]
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    expected = [model.generate(**inputs, **options, **way) for way in ways]
    with lw.accelerate(model):
        for way, sequence in zip(ways, expected, strict=True):
            assert torch.equal(model.generate(**inputs, **options, **way), sequence), way


def test_a_decoders_next_token_is_pytorchs_own_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """The equation, step by step, took half as long again."""
    model, calls = make("t5"), []
    solve = dispatch.attention
    monkeypatch.setattr("lengthwise.models.attention_interface.attention", lambda *a, **k: calls.append(a[0]) or solve(*a, **k))
    with lw.accelerate(model):
        model.generate(tokens(20), max_new_tokens=6, min_new_tokens=6, do_sample=False)
    assert len(calls) == len(model.encoder.block)


def test_a_model_is_restored_bit_for_bit() -> None:
    model = make("t5")
    before = state_of(model)
    with lw.accelerate(model) as inner:
        assert inner is model
        assert model.decoder.config._attn_implementation == "lengthwise"
        model(**batch("t5", 20))
    assert differences(before, state_of(model)) == []
    lw.accelerate(model)
    with lw.accelerate(model):
        pass
    assert model.config._attn_implementation == "sdpa"
    # The first one stays
    assert model.encoder.config._attn_implementation == "lengthwise"
    lw.restore(model)
    lw.restore(model)
    assert differences(before, state_of(model)) == []


def test_an_acceleration_that_has_ended_is_not_entered_again() -> None:
    model = make("t5 encoder")
    acceleration = lw.accelerate(model)
    with acceleration:
        pass
    with pytest.raises(BadInput, match="has ended"), acceleration:
        pass
    # One that found everything done has nothing to end
    lw.accelerate(model)
    second = lw.accelerate(model)
    for _ in range(2):
        with second:
            assert model.encoder.config._attn_implementation == "lengthwise"


def test_methods_come_on_top_and_must_end_first() -> None:
    model, ids = make("t5"), tokens(LENGTHS[1])
    with lw.extend(model, "log"):
        expected = logits(model, ids)
        with pytest.raises(BadInput, match="accelerate it first"):
            lw.accelerate(model)
    lw.accelerate(model)
    extension = lw.extend(model, "log")
    with extension:
        torch.testing.assert_close(logits(model, ids), expected, atol=1e-4, rtol=1e-4)
        with pytest.raises(BadInput, match="leave `extend` first"):
            lw.restore(model)
    assert lw.row_statistics(model, ids).p_max.isfinite().all()
    lw.restore(model)


def test_extend_takes_short_inputs_too_where_exactness_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, calls = make("t5 encoder"), tokens(16), []
    expected = logits(model, ids)
    solve = dispatch.attention
    monkeypatch.setattr("lengthwise.models.attention_interface.attention", lambda *a, **k: calls.append(1) or solve(*a, **k))
    with lw.extend(model, "log"):
        assert torch.equal(logits(model, ids), expected)
    assert not calls
    with lw.extend(model, "log", exact=False):
        torch.testing.assert_close(logits(model, ids), expected, atol=1e-5, rtol=1e-5)
    assert len(calls) == 3


class Embedder(nn.Sequential):
    """Built as a SentenceTransformer is: modules in a row, of which the first holds the model."""

    def __init__(self) -> None:
        first = nn.Module()
        first.auto_model = make("t5 encoder")
        super().__init__(first, nn.Identity())


def test_a_t5_is_found_inside_other_things() -> None:
    embedder, first, second = Embedder(), make("t5 encoder"), shared("bert")
    pipeline = SimpleNamespace(text_encoder=second, text_encoder_2=first, text_encoder_3=None, vae=nn.Identity())
    reader = tf.FeatureExtractionPipeline(first, ByT5Tokenizer())
    holders = ((embedder, embedder[0].auto_model), (pipeline, first), (reader, first), (nn.DataParallel(first), first))
    for holder, model in holders:
        with lw.accelerate(holder):
            assert model.encoder.config._attn_implementation == "lengthwise"
        assert model.encoder.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("what", ["llama", "longt5", "a word"])
def test_what_holds_no_t5_is_refused(what: str) -> None:
    model = what if " " in what else make(what)
    with pytest.raises(BadInput, match="holds no T5"):
        lw.accelerate(model)


def test_copies_pickles_and_saved_models_are_plain(tmp_path: Path) -> None:
    model, inputs = make("t5"), batch("t5", 40)
    expected, kept = model(**inputs)[0], io.BytesIO()
    lw.accelerate(model)
    model.save_pretrained(tmp_path)
    torch.save(model, kept)
    kept.seek(0)
    copies = [
        copy.deepcopy(model),
        torch.load(kept, weights_only=False),
        tf.T5ForConditionalGeneration.from_pretrained(tmp_path),
    ]
    for plain in copies:
        assert plain.encoder.config._attn_implementation == plain.decoder.config._attn_implementation == "sdpa"
        assert not plain.encoder._forward_hooks
        assert not plain.encoder._forward_pre_hooks
        assert torch.equal(plain(**inputs)[0], expected)
    assert b"lengthwise" not in kept.getvalue()
    # The model itself is none the worse
    assert error(model(**inputs)[0], expected) < 1e-5


def test_an_encoders_config_is_written_and_copied_as_it_was(tmp_path: Path) -> None:
    """The model and its only stack have one config, which a Trainer logs and `save_pretrained` writes."""
    model = make("t5 encoder")
    before = model.config.to_json_string(use_diff=False)
    with lw.accelerate(model):
        assert model.config.to_json_string(use_diff=False) == before
        model.save_pretrained(tmp_path)
        assert copy.deepcopy(model.config)._attn_implementation == "sdpa"
    assert tf.T5Config not in copyreg.dispatch_table


def test_models_of_one_config_may_be_restored_in_any_order() -> None:
    first = make("t5 encoder")
    second, before = tf.T5EncoderModel(first.config), dict(vars(first.config))
    lw.accelerate(first)
    lw.accelerate(second)
    lw.restore(first)
    lw.restore(second)
    assert vars(first.config) == before


def test_an_accelerated_model_that_is_dropped_is_freed() -> None:
    model = make("t5 encoder")
    accelerate(model)
    encoder, config = weakref.ref(model.encoder), model.config
    del model
    gc.collect()
    assert encoder() is None
    # The next model puts back what that one left
    with lw.accelerate(make("t5 encoder")):
        assert config._attn_implementation == "sdpa"


def test_float16_warns_once_and_an_overflow_raises() -> None:
    model = make("t5 encoder").half()
    for block in model.encoder.block:
        # transformers keeps it in float32 when it loads
        block.layer[-1].DenseReluDense.wo.float()
    with pytest.warns(UserWarning, match="trained in bfloat16"):
        lw.accelerate(model)
    assert states(model, batch("encoder", 20)).isfinite().all()
    model.encoder.final_layer_norm.weight.data.fill_(torch.inf)
    with pytest.raises(BadInput, match="encoder overflows in float16"):
        model(**batch("encoder", 20))
    with suspended(model):
        model(**batch("encoder", 20))
    lw.restore(model)
    with lw.accelerate(model, check_finite=False):
        model(**batch("encoder", 20))


def test_masks_of_callers_are_not_kept() -> None:
    model = make("switch")
    with lw.accelerate(model), torch.no_grad():
        for _ in range(4):
            model(**batch("switch", 20))
        for stack in (model.encoder, model.decoder):
            assert len(LAYER.on(stack.block[0].layer[0].SelfAttention).read) <= 2


def test_threads_may_share_an_accelerated_model() -> None:
    model, inputs = make("t5 encoder"), batch("encoder", 60)
    expected, found = model(**inputs)[0], []
    with lw.accelerate(model):
        threads = [threading.Thread(target=lambda: found.append(states(model, inputs))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 3
    assert all(error(one, expected * inputs["attention_mask"][..., None]) < 1e-5 for one in found)


@pytest.mark.parametrize("asked", ["in the call", "in the config"])
def test_attention_weights_are_refused_and_not_left_out(asked: str) -> None:
    model, call = make("t5 encoder"), {"output_attentions": True}
    if asked == "in the config":
        # Which none but eager attention lets one do
        model.set_attn_implementation("eager")
        model.config.output_attentions, call = True, {}
    with lw.accelerate(model):
        with pytest.raises(BadInput, match="attention weights are never kept"):
            model(**batch("encoder", 20), **call)
        model(**batch("encoder", 20), output_attentions=False)


@pytest.mark.sweep
def test_a_trainer_trains_it(tmp_path: Path) -> None:
    losses = []
    rows = [{"input_ids": [5, 6, 7, 8] * 10, "attention_mask": [1] * 40, "labels": [5, 6, 1]}] * 4
    for fast in (False, True):
        model = make("t5")
        if fast:
            lw.accelerate(model)
        arguments = tf.TrainingArguments(str(tmp_path), max_steps=2, report_to=[], seed=0, use_cpu=True, logging_steps=1)
        trainer = tf.Trainer(model.eval(), arguments, train_dataset=rows)
        drop_nothing(model)
        trainer.train()
        losses.append([step["loss"] for step in trainer.state.log_history if "loss" in step])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["t5 encoder", pytest.param("t5", marks=pytest.mark.sweep)])
@torch.no_grad()
def test_it_compiles_as_one_graph(name: str) -> None:
    torch._dynamo.reset()
    model, inputs = make(name), batch(name, 40)
    expected = states(model, inputs)
    lw.accelerate(model)
    assert error(states(torch.compile(model, fullgraph=True, backend="eager"), inputs), expected) < 1e-5


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_trains_in_parallel(tmp_path: Path) -> None:
    """By DDP, and by FSDP, whichever came first."""
    inputs = batch("t5", 40)

    def gradients(run: Any, model: Any) -> dict[str, Tensor]:
        run(**inputs)[0].square().mean().backward()
        found = {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}
        return {key: getattr(gradient, "full_tensor", lambda gradient=gradient: gradient)() for key, gradient in found.items()}

    def sharded(model: Any) -> Any:
        for block in (*model.encoder.block, *model.decoder.block):
            fully_shard(block)
        return fully_shard(model)

    plain, first, second, third = (make("t5") for _ in range(4))
    expected = gradients(plain, plain)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        lw.accelerate(first)
        found = [gradients(nn.parallel.DistributedDataParallel(first), first)]
        lw.accelerate(second)
        found.append(gradients(sharded(second), second))
        lw.accelerate(sharded(third))
        found.append(gradients(third, third))
    finally:
        distributed.destroy_process_group()
    for one in found:
        for key, gradient in expected.items():
            torch.testing.assert_close(one[key], gradient, atol=1e-4, rtol=1e-3)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_static_cache_writes_the_same_tokens_in_a_graph() -> None:
    torch._dynamo.reset()
    model, inputs = make("t5"), batch("encoder", 40)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "cache_implementation": "static"}
    expected = model.generate(**inputs, **options, disable_compile=True)
    lw.accelerate(model)
    model.forward = torch.compile(model.forward, fullgraph=True, backend="eager")
    assert torch.equal(model.generate(**inputs, **options, disable_compile=True), expected)

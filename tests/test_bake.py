"""Baked checkpoints, saved and loaded by plain transformers, against the extended model they were made from."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from tests.conftest import (
    BERT_SIZES,
    DECODER_SIZES,
    DECODERS,
    ENCODERS,
    FAMILIES,
    TRAIN_LENGTH,
    UNREACHABLE,
    logits,
    make,
    tokens,
)

LONG = 4 * TRAIN_LENGTH
TAU = 0.6
LAYERS, HEADS = 3, 4
WINDOWED = {"mistral window": 48, "gemma3": 48}
PER_LAYER = [0.9, 0.6, 0.7]
PER_HEAD = [[0.8, 0.8, 0.8, 0.8], [0.5, 0.6, 0.7, 0.8], [0.9, 0.5, 0.95, 0.6]]


def alignment(tau: Any = TAU, scope: str = "model") -> lw.Alignment:
    return lw.Alignment("pmax", scope, TRAIN_LENGTH, 0.5, (Calibrated(LONG, tau, 0.5, 3),))


@dataclass(frozen=True)
class Everywhere:
    """The temperatures of a table for every row, however few keys it sees."""

    tau: list[list[float]]  # [layers, heads]

    def inverse_temperature(self, visible: torch.Tensor, layer: int = 0) -> torch.Tensor:
        return (1 / torch.tensor(self.tau[layer]))[None, :, None].expand(visible.shape[0], -1, visible.shape[-1])


def extended_logits(model: Any, method: Any, ids: torch.Tensor) -> torch.Tensor:
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        return logits(model, ids)


def reloaded(baked: Any, folder: Path) -> Any:
    """Through a checkpoint on disk, with nothing of lengthwise on the way back."""
    baked.save_pretrained(folder)
    assert list(folder.glob("*.safetensors"))
    return type(baked).from_pretrained(folder).eval()


def assert_same_logits(model: Any, stock: Any, method: Any) -> None:
    """`stock` says what `model` says under `method`; what `model` says alone is a hundred times further off."""
    ids = tokens(LONG)
    expected = extended_logits(model, method, ids)
    error = relative_error(logits(stock, ids), expected)
    assert error < 1e-5
    assert error < 0.01 * relative_error(logits(model, ids), expected)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def assert_untouched(model: Any, before: dict[str, torch.Tensor]) -> None:
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert not hasattr(model.config, "lengthwise")


@pytest.mark.parametrize("name", [*ENCODERS, "bert", "roberta"])
def test_a_baked_encoder_is_the_extended_one_at_the_baked_length(name: str, tmp_path: Path) -> None:
    model = make(name)
    baked = lw.bake(model, alignment(), length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), alignment())


@pytest.mark.parametrize("name", DECODERS)
def test_a_baked_decoder_has_one_temperature_for_all_rows(name: str, tmp_path: Path) -> None:
    """That of the baked length; in a layer with a window that of the window, as no row sees more."""
    model = make(name)
    baked = lw.bake(model, alignment(), length=LONG)
    sharpness = 1 / TAU
    if name in WINDOWED:
        sharpness = 1 + (1 / TAU - 1) * math.log(WINDOWED[name] / TRAIN_LENGTH) / math.log(LONG / TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), f"constant:tau={1 / sharpness}")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_carry_a_constant_temperature(name: str, tmp_path: Path) -> None:
    model = make(name)
    baked = lw.bake(model, f"constant:tau={TAU}", length=LONG)
    assert_same_logits(model, reloaded(baked, tmp_path), f"constant:tau={TAU}")


def test_local_layers_that_see_no_more_than_before_are_left_alone(tmp_path: Path) -> None:
    """ModernBERT's rows see 31 keys in local layers at any length; only global layers take the temperature."""
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**BERT_SIZES, local_attention=30, cls_token_id=1, sep_token_id=2)
    model = transformers.ModernBertForMaskedLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.attn.Wqkv.weight, std=0.5)
    baked = lw.bake(model, alignment(), length=LONG, train_length=TRAIN_LENGTH)
    changed = [
        not torch.equal(a.attn.Wqkv.weight, b.attn.Wqkv.weight)
        for a, b in zip(model.model.layers, baked.model.layers, strict=True)
    ]
    assert changed == [kind == "full_attention" for kind in config.layer_types]
    assert_same_logits(model, reloaded(baked, tmp_path), alignment())


def test_layers_with_and_without_a_window_are_told_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    model = transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**DECODER_SIZES, sliding_window=16, layer_types=kinds)
    ).eval()
    baked = lw.bake(model, alignment(), length=LONG)
    assert_same_logits(model, reloaded(baked, tmp_path), Everywhere([[1.0] * 4, [TAU] * 4, [1.0] * 4]))


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "phi3", "olmo2", "gemma", "bert", "modernbert", "umt5"])
def test_a_temperature_a_head_is_baked(name: str, tmp_path: Path) -> None:
    model = make(name)
    everywhere = Everywhere(PER_HEAD)
    method: Any = everywhere if name == "modernbert" else alignment(PER_HEAD, "head")
    baked = lw.bake(model, method, length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), everywhere)


def test_a_temperature_a_head_is_baked_into_a_shared_bias_where_layers_agree(tmp_path: Path) -> None:
    model = make("t5")
    table = alignment([PER_HEAD[1]] * LAYERS, "head")
    assert_same_logits(model, reloaded(lw.bake(model, table, length=LONG), tmp_path), table)


@pytest.mark.parametrize("name", ["umt5", "llama", "qwen3", "gemma3", "bert"])
def test_a_temperature_a_layer_is_baked(name: str, tmp_path: Path) -> None:
    model = make(name)
    everywhere = Everywhere([[tau] * HEADS for tau in PER_LAYER])
    method: Any = everywhere if name in WINDOWED else alignment(PER_LAYER, "layer")
    baked = lw.bake(model, method, length=LONG, train_length=TRAIN_LENGTH)
    assert_same_logits(model, reloaded(baked, tmp_path), everywhere)


def test_a_law_is_baked_at_the_value_it_has_at_the_length(tmp_path: Path) -> None:
    model = make("t5")
    stock = reloaded(lw.bake(model, "log", length=LONG), tmp_path)
    assert_same_logits(model, stock, f"constant:tau={math.log(TRAIN_LENGTH) / math.log(LONG)}")


REFUSALS: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "layers that differ on a shared bias": ("t5", alignment(PER_LAYER, "layer"), {}, "T5Stack share one bias table"),
    "heads that differ between layers on a shared bias": ("mt5", alignment(PER_HEAD, "head"), {}, "share one bias table"),
    "heads behind a shared norm": ("qwen3", alignment(PER_HEAD, "head"), {}, "share the norm of their queries"),
    "heads behind a shared norm of Gemma": ("gemma3", Everywhere(PER_HEAD), {}, "share the norm of their queries"),
    "the training length": ("t5", alignment(), {"length": TRAIN_LENGTH}, "length 32 the temperature is 1"),
    "less than the training length": ("llama", alignment(), {"length": 5}, "length 5 the temperature is 1"),
    "no temperature": ("t5", "none", {}, "fills: nothing"),
    "another family's alignment": ("t5", replace(alignment(), model={"family": "llama"}), {}, "its family is llama"),
    "a half-precision T5": ("t5 half", alignment(), {}, "float16 overflows"),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize("inplace", [False, True])
def test_a_refusal_changes_nothing(case: str, inplace: bool) -> None:
    name, method, options, message = REFUSALS[case]
    model = make(name.removesuffix(" half"))
    model = model.half() if name.endswith(" half") else model
    before = weights_of(model)
    with pytest.raises(lw.BadInput, match=message) as caught:
        lw.bake(model, method, **{"length": LONG, **options}, inplace=inplace)
    assert "\n" not in str(caught.value)
    assert_untouched(model, before)


@pytest.mark.parametrize("name", UNREACHABLE)
def test_a_family_that_cannot_be_extended_is_not_baked_either(name: str) -> None:
    model = make(name)
    before = weights_of(model)
    with pytest.raises(lw.BadInput, match="attention"):
        lw.bake(model, f"constant:tau={TAU}", length=LONG, train_length=TRAIN_LENGTH, inplace=True)
    assert_untouched(model, before)


def test_what_stands_between_queries_and_softmax_is_refused() -> None:
    gemma2 = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER_SIZES)).eval()
    before = weights_of(gemma2)
    with pytest.raises(lw.BadInput, match="softcap"):
        lw.bake(gemma2, f"constant:tau={TAU}", length=LONG, inplace=True)
    assert_untouched(gemma2, before)


def test_a_copy_is_baked_unless_inplace_is_asked_for() -> None:
    model = make("t5")
    before = weights_of(model)
    baked = lw.bake(model, alignment(), length=LONG)
    assert baked is not model
    assert_untouched(model, before)
    assert lw.bake(model, alignment(), length=LONG, inplace=True) is model
    assert all(torch.equal(value, baked.state_dict()[key]) for key, value in model.state_dict().items())


def test_only_queries_and_biases_of_the_encoder_change() -> None:
    model = make("t5")
    baked = lw.bake(model, alignment(), length=LONG).state_dict()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, baked[key])}
    attention = "encoder.block.{}.layer.0.SelfAttention.{}.weight"
    assert changed == {*(attention.format(i, "q") for i in range(LAYERS)), attention.format(0, "relative_attention_bias")}
    for key in changed:
        torch.testing.assert_close(baked[key], model.state_dict()[key] / TAU, atol=0, rtol=1e-6)


def test_an_alignment_for_another_model_is_refused_unless_forced() -> None:
    model, other = make("t5", seed=0), make("t5", seed=1)
    table = replace(alignment(), model=fingerprint_of(anatomy_of(model)))
    lw.bake(model, table, length=LONG)
    with pytest.raises(lw.BadInput, match="made for"):
        lw.bake(other, table, length=LONG)
    assert_same_logits(other, lw.bake(other, table, length=LONG, force=True), alignment())


@pytest.mark.parametrize("name", ["t5", "llama", "qwen3"])
def test_an_alignment_is_not_baked_twice(name: str) -> None:
    model = make(name)
    table = replace(alignment(), model=fingerprint_of(anatomy_of(model)))
    once = lw.bake(model, table, length=LONG)
    before = copy.deepcopy(once.state_dict())
    with pytest.raises(lw.BadInput, match="made for another model: its weights is"):
        lw.bake(once, table, length=LONG, inplace=True)
    assert all(torch.equal(value, before[key]) for key, value in once.state_dict().items())


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("name", ["t5", "llama", "qwen3", "gemma3"])
def test_a_bfloat16_model_stays_bfloat16_and_close(name: str, tmp_path: Path) -> None:
    model = make(name).bfloat16()
    baked = lw.bake(model, f"constant:tau={TAU}", length=LONG)
    assert {parameter.dtype for parameter in baked.parameters()} == {torch.bfloat16}
    stock = reloaded(baked, tmp_path)
    assert stock.dtype == torch.bfloat16
    ids = tokens(LONG)
    wide = copy.deepcopy(model).float()
    expected = extended_logits(wide, f"constant:tau={TAU}", ids)
    # One more rounding of the queries must not cost more than bfloat16 itself does
    own_error = relative_error(extended_logits(model, f"constant:tau={TAU}", ids).float(), expected)
    assert relative_error(logits(stock, ids).float(), expected) < 2 * own_error
    assert 2 * own_error < relative_error(logits(wide, ids), expected)


def test_the_config_keeps_a_note_of_what_was_baked(tmp_path: Path) -> None:
    lw.bake(make("llama"), alignment(PER_LAYER, "layer"), length=LONG).save_pretrained(tmp_path)
    note = transformers.AutoConfig.from_pretrained(tmp_path).lengthwise
    assert note["baked_length"] == LONG
    assert note["tau"] == pytest.approx(PER_LAYER)
    assert note["per_head"] is False
    assert lw.bake(make("llama"), alignment(PER_HEAD, "head"), length=LONG).config.lengthwise["per_head"] is True


def test_wrappers_are_looked_through() -> None:
    model = make("t5")
    baked = lw.bake(torch.nn.DataParallel(model), alignment(), length=LONG)
    assert isinstance(baked, transformers.T5ForConditionalGeneration)
    assert_same_logits(model, baked, alignment())

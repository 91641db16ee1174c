"""Queries and keys rotated by frequencies that follow the length of each sequence."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import lengthwise as lw
from lengthwise.errors import BadInput
from tests.conftest import (
    DECODER_SIZES,
    TRAIN_LENGTH,
    shared,
    tokens,
)
from tests.helpers.sweep import crossed
from tests.positions import COLLATORS, ROTARY, ids, leaping, logits, reach


@pytest.mark.parametrize("method", ["ntk:factor=4,dynamic=true", "yarn:dynamic=true", "clex"])
def test_frequencies_that_follow_the_length_refuse_packed_sequences(method: str) -> None:
    model, ids = shared("llama"), tokens(4 * TRAIN_LENGTH)
    packed = torch.cat([torch.arange(4 * TRAIN_LENGTH - 20), torch.arange(20)])[None]
    with lw.extend(model, method):
        with pytest.raises(BadInput, match="packed, several to a row"):
            model(ids, position_ids=packed, use_cache=False)
        model(ids, position_ids=torch.arange(4 * TRAIN_LENGTH)[None], use_cache=False)


def test_a_temperature_that_follows_the_length_refuses_packed_sequences_of_one_frequency() -> None:
    """CLEX's frequencies change once a training length, its temperature with every token."""
    model, packed = shared("llama"), torch.cat([torch.arange(20), torch.arange(TRAIN_LENGTH)])[None]
    with lw.extend(model, "clex"), pytest.raises(BadInput, match="packed, several to a row"):
        model(tokens(20 + TRAIN_LENGTH), position_ids=packed, use_cache=False)
    with lw.extend(model, "clex:log_scale=false"):
        model(tokens(20 + TRAIN_LENGTH), position_ids=packed, use_cache=False)


class NtkAndLog:
    """NTK that follows the input, and a temperature of each row."""

    dynamic = True

    def frequencies(self, trained: torch.Tensor, length: int) -> torch.Tensor:
        return trained * max(1.0, length / TRAIN_LENGTH) ** -torch.linspace(0, 1, len(trained))

    def inverse_temperature(self, visible: torch.Tensor, layer: int = 0) -> torch.Tensor:
        return visible.clamp_min(2).log() / math.log(TRAIN_LENGTH)


def test_a_temperature_of_each_row_takes_packed_sequences_of_one_frequency() -> None:
    model, ids, ends = shared("llama"), tokens(20 + TRAIN_LENGTH), (20, TRAIN_LENGTH)
    with lw.extend(model, NtkAndLog()), torch.inference_mode():
        packed = model(ids, position_ids=torch.cat([torch.arange(end) for end in ends])[None], use_cache=False).logits
        alone = torch.cat([model(part, use_cache=False).logits for part in ids.split(ends, 1)], 1)
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "length", "collator"), crossed(ROTARY, [TRAIN_LENGTH // 2, TRAIN_LENGTH + 9], COLLATORS, every=2, whole={"llama"})
)
def test_frequencies_that_follow_the_length_turn_by_the_positions_given(name: str, length: int, collator: Any) -> None:
    """Against the same frequencies put into the model for good, which then rotates itself, by its own position_ids."""
    model, inputs = shared(name), leaping(collator, length, 3 * TRAIN_LENGTH)
    rows = [{key: value[row : row + 1] for key, value in inputs.items()} for row in range(2)]
    reaches = [reach(row["position_ids"]) for row in rows]
    assert max(reaches) > TRAIN_LENGTH
    assert reaches[0] != reaches[1]
    for moving, fixed in {
        "ntk:factor=2,dynamic=true": lambda far: f"ntk:factor={2 * max(far, TRAIN_LENGTH) / TRAIN_LENGTH - 1}",
        "yarn:dynamic=true,temperature=false": lambda far: f"yarn:factor={max(far / TRAIN_LENGTH, 1)},temperature=false",
        "clex:log_scale=false": lambda far: f"ntk:factor={2 * math.ceil(far / TRAIN_LENGTH) - 1}",
    }.items():
        expected = []
        with torch.inference_mode():
            for row, far in zip(rows, reaches, strict=True):
                with lw.extend(model, fixed(far)):
                    expected.append(model(**row, use_cache=False).logits)
            with lw.extend(model, moving):
                found = model(**inputs, use_cache=False).logits
        torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "method"),
    crossed(ROTARY, ["ntk:factor=2,dynamic=true", "yarn:dynamic=true", "clex:log_scale=false"], every=3, whole={"llama"}),
)
def test_frequencies_that_follow_the_length_follow_each_row_of_a_batch(name: str, method: str) -> None:
    model, lengths = shared(name), (3 * TRAIN_LENGTH, TRAIN_LENGTH + 9, TRAIN_LENGTH - 2)
    rows = [ids(length, seed=length) for length in lengths]
    together = torch.cat([torch.nn.functional.pad(row, (3 * TRAIN_LENGTH - row.shape[1], 0)) for row in rows])
    mask = torch.cat([torch.arange(3 * TRAIN_LENGTH)[None] >= 3 * TRAIN_LENGTH - row.shape[1] for row in rows]).long()
    with lw.extend(model, method), torch.inference_mode():
        alone = [model(row, use_cache=False).logits[0] for row in rows]
        places = (mask.cumsum(-1) - 1).clamp_min(0)
        padded = model(together, attention_mask=mask, position_ids=places, use_cache=False).logits
    for single, row, real in zip(alone, padded, mask.bool(), strict=True):
        torch.testing.assert_close(row[real], single, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", ["ntk:dynamic=true", "yarn:dynamic=true"])
def test_frequencies_and_temperature_follow_the_keys_that_a_window_leaves(method: str) -> None:
    model, long = shared("llama"), tokens(4 * TRAIN_LENGTH)
    windowed = logits(model, long, "window:size=9")
    torch.testing.assert_close(logits(model, long, f"window:size=9+{method}"), windowed, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", ["ntk:dynamic=true", "yarn:dynamic=true"])
@pytest.mark.parametrize("family", ["mistral", "qwen2", "gemma3_text"])
def test_dynamic_factors_leave_layers_with_a_narrow_window_of_their_own_alone(family: str, method: str) -> None:
    """Their rows meet no distance past it; gemma3 has frequencies for each type of layer, qwen2 the same for both."""
    kinds = ["sliding_attention", "full_attention"]
    sizes: dict[str, Any] = {} if family == "mistral" else {"layer_types": kinds, "use_sliding_window": True}
    sizes |= {**DECODER_SIZES, "sliding_window": TRAIN_LENGTH // 2, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()
    long = tokens(4 * TRAIN_LENGTH)
    plain = lw.row_statistics(model, long).l_max
    with lw.extend(model, method):
        window, last = (lw.row_statistics(model, long).l_max - plain).abs().flatten(1).amax(1)
    assert window < 1e-5
    assert (last < 1e-5) == (family == "mistral")

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import lengthwise as lw
from lengthwise.common.laws import alibi_slopes
from lengthwise.errors import BadInput
from lengthwise.models import small_decoder
from lengthwise.models.load import load
from lengthwise.models.small_decoder import (
    POSITIONS,
    SmallDecoderConfig,
    SmallDecoderForCausalLM,
    SmallDecoderForRegression,
    SmallDecoderModel,
)

TRAIN_LENGTH = 16
LONG = TRAIN_LENGTH + 11
SIZES = {
    "vocab_size": 384,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "max_position_embeddings": TRAIN_LENGTH,
    # Large, so that attention is sharp
    "initializer_range": 0.4,
}
CLOSE = {"atol": 3e-4, "rtol": 1e-4}


def tiny(positions: str, head: Any = SmallDecoderForCausalLM, **choices: Any) -> Any:
    torch.manual_seed(0)
    model = head(SmallDecoderConfig(**{**SIZES, "positions": positions, **choices})).eval()
    for name, weight in model.named_parameters():
        # Biases and norms as training leaves them, not as it finds them
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, 0.2)
    return model


def ids(length: int, batch: int = 1) -> Tensor:
    return torch.randint(3, 384, (batch, length), generator=torch.Generator().manual_seed(1))


def states_by_hand(model: Any, tokens: list[int], g: float = 1.0) -> Tensor:
    """The last states of one sequence in float64, key by key."""
    config = model.config
    weights = {name.removeprefix("model."): value.double() for name, value in model.state_dict().items()}
    heads, size = config.num_attention_heads, config.head_dim

    def normed(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        deviation = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def turned(x: Tensor, by: int) -> Tensor:
        """Components i and i + size/2 as one complex number."""
        own = torch.tensor([by * 10000.0 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
        turn = torch.complex(x[: size // 2], x[size // 2 :]) * torch.polar(torch.ones_like(own), own)
        return torch.cat([turn.real, turn.imag])

    x = weights["embed_tokens.weight"][tokens]
    if config.positions == "learned":
        x = x + weights["embed_positions.weight"][: len(tokens)]
    for at in range(config.num_hidden_layers):
        name = f"layers.{at}"
        inside = normed(x, f"{name}.attention_norm")
        q, k, v = (linear(inside, f"{name}.attention.{part}_proj") for part in "qkv")
        mixed = torch.zeros_like(v)
        for i in range(len(tokens)):
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                slope = (2 ** (-8 * 1 / 2), 2 ** (-8 * 2 / 2), 2 ** (-8 * 1 / 4))[h] if config.positions == "alibi" else 0.0
                row = []
                for j in range(i + 1):
                    query = turned(q[i, part], i - j) if config.positions == "rope" else q[i, part]
                    row.append(g * (float(query @ k[j, part]) / math.sqrt(size) - slope * (i - j)))
                share = torch.tensor(row, dtype=torch.float64).softmax(0)
                mixed[i, part] = share @ v[: i + 1, part]
        x = x + linear(mixed, f"{name}.attention.o_proj")
        inner = linear(normed(x, f"{name}.feed_forward_norm"), f"{name}.feed_forward.0")
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + linear(inner, f"{name}.feed_forward.2")
    return normed(x, "norm")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("length", [1, LONG])
def test_the_model_written_out_by_hand_gives_the_same(positions: str, length: int) -> None:
    model, tokens = tiny(positions), ids(length)
    expected = states_by_hand(model, tokens[0].tolist()) @ model.model.embed_tokens.weight.double().T
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            found = model(tokens).logits[0].double()
        torch.testing.assert_close(found, expected, **CLOSE)
    with torch.inference_mode(), lw.extend(model, "none", implementation="blockwise"):
        torch.testing.assert_close(model(tokens).logits[0].double(), expected, **CLOSE)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_temperature_multiplies_the_whole_logit(positions: str) -> None:
    class Twice:
        def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
            return torch.full_like(visible, 2.0, dtype=torch.float32)

    model, tokens = tiny(positions, SmallDecoderModel), ids(LONG)
    with torch.inference_mode(), lw.extend(model, Twice()):
        found = model(tokens).last_hidden_state[0].double()
    torch.testing.assert_close(found, states_by_hand(model, tokens[0].tolist(), g=2.0), **CLOSE)


@pytest.mark.parametrize("positions", ["learned", "alibi", "nope"])
def test_rotary_methods_are_refused_where_nothing_is_rotated(positions: str) -> None:
    with (
        pytest.raises(BadInput, match="changes rotary positions, and SmallDecoderModel has none"),
        lw.extend(tiny(positions), "interpolation:factor=2"),
    ):
        pass


def test_rotary_methods_work_on_rope_and_leave_the_model_as_it_was() -> None:
    model, tokens = tiny("rope"), ids(LONG)
    with torch.inference_mode():
        before = model(tokens).logits
        with lw.extend(model, "interpolation:factor=2"):
            inside = model(tokens).logits
        halved = model(tokens, position_ids=torch.arange(LONG)[None] / 2).logits
        after = model(tokens).logits
    torch.testing.assert_close(inside, halved, **CLOSE)
    assert not torch.allclose(inside, before, atol=1e-2)
    assert torch.equal(before, after)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("method", [None, "log", "none"])
def test_cached_generation_gives_the_tokens_that_whole_forwards_give(positions: str, method: str | None) -> None:
    model, tokens = tiny(positions), ids(TRAIN_LENGTH - 3)

    def generated(use_cache: bool) -> list[int]:
        found = model.generate(tokens, max_new_tokens=8, do_sample=False, use_cache=use_cache, pad_token_id=0)
        return found[0].tolist()  # type: ignore[no-any-return]

    if method is None:
        assert generated(True) == generated(False)
        return
    with lw.extend(model, method):
        assert generated(True) == generated(False)


def test_short_inputs_in_a_static_cache_are_bit_for_bit_as_before() -> None:
    model, ids = tiny("alibi"), torch.arange(1, 7)[None]

    def read() -> Tensor:
        with torch.no_grad():
            return model(ids, past_key_values=transformers.StaticCache(config=model.config, max_cache_len=12)).logits  # type: ignore[no-any-return]

    before = read()
    with lw.extend(model, "log"):
        assert torch.equal(read(), before)


def test_padding_on_either_side_changes_nothing() -> None:
    for positions in ("alibi", "nope", "rope"):
        model, tokens = tiny(positions), ids(7)
        with torch.inference_mode():
            alone = model(tokens).logits
            left = torch.cat([torch.zeros(1, 4, dtype=torch.long), tokens], 1)
            shown = torch.tensor([[0] * 4 + [1] * 7])
            torch.testing.assert_close(model(left, attention_mask=shown).logits[:, 4:], alone, **CLOSE)
            right = torch.cat([tokens, torch.zeros(1, 4, dtype=torch.long)], 1)
            torch.testing.assert_close(model(right).logits[:, :7], alone, **CLOSE)


def test_a_number_is_read_at_the_end_and_padding_behind_it_does_not_matter() -> None:
    model, tokens = tiny("nope", SmallDecoderForRegression), ids(6, batch=2)
    padded = torch.cat([tokens, torch.full((2, 3), 9)], 1)
    with torch.inference_mode():
        alone = model(tokens, labels=torch.zeros(2))
        found = model(padded, ends=torch.tensor([5, 5])).logits
    torch.testing.assert_close(found, alone.logits)
    assert alone.loss == pytest.approx(float((alone.logits**2).mean()))
    for row, number in zip(tokens.tolist(), alone.logits.tolist(), strict=True):
        weights = {name: value.double() for name, value in model.head.state_dict().items()}
        inner = states_by_hand(model, row)[-1] @ weights["0.weight"].T + weights["0.bias"]
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
        assert number == pytest.approx(float(inner @ weights["2.weight"][0] + weights["2.bias"][0]), abs=1e-3)


def test_labels_give_the_mean_cross_entropy_of_the_next_tokens() -> None:
    model, tokens = tiny("nope"), ids(6)
    with torch.inference_mode():
        output = model(tokens, labels=tokens)
    log_p = output.logits[0].double().log_softmax(-1)
    by_hand = -sum(float(log_p[at, int(tokens[0, at + 1])]) for at in range(5)) / 5
    assert float(output.loss) == pytest.approx(by_hand, rel=1e-5)


def test_alibi_slopes_are_those_of_its_paper() -> None:
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("head", [SmallDecoderForCausalLM, SmallDecoderForRegression])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_saved_model_is_loaded_with_its_head(head: Any, positions: str, tmp_path: Path) -> None:
    model = tiny(positions, head)
    model.save_pretrained(tmp_path)
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    found, _ = load(str(tmp_path))
    assert type(found) is head
    with torch.inference_mode():
        assert torch.equal(found(ids(9)).logits, model(ids(9)).logits)


def test_the_auto_classes_know_the_family_once_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*_: Any, **__: Any) -> None:
        raise AssertionError("importing must change nothing in transformers")

    with monkeypatch.context() as patch:
        patch.setattr(transformers.AutoConfig, "register", told)
        # A second copy: a reload would replace the classes that others have imported
        spec = importlib.util.find_spec(small_decoder.__name__)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        with pytest.raises(AssertionError):
            small_decoder.register()
    for _ in range(2):
        small_decoder.register()
    config = transformers.AutoConfig.for_model(small_decoder.FAMILY, positions="rope")
    assert type(transformers.AutoModelForCausalLM.from_config(config)) is SmallDecoderForCausalLM
    assert type(transformers.AutoModel.from_config(config)) is SmallDecoderModel


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"positions": "sinusoidal"}, "no positions 'sinusoidal'; take one of learned, alibi, rope, nope"),
        ({"num_attention_heads": 5}, "5 heads do not divide a width of 64"),
        ({"positions": "rope", "head_dim": 7}, "even head_dim, not 7"),
        ({"positions": "learned", "learned_positions": 8}, "8 learned_positions are fewer than the training length 12"),
        ({"positions": "alibi", "alibi_factors": [[1.5] * 4]}, "alibi_factors must be 2 lists, one a layer, of 4 numbers"),
    ],
)
def test_a_choice_that_makes_no_model_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        SmallDecoderConfig(**given)


def test_more_tokens_than_learned_positions_are_refused() -> None:
    with pytest.raises(BadInput, match="65 tokens are more than the 64 learned positions"):
        tiny("learned")(ids(65))


def test_no_input_and_two_inputs_are_refused() -> None:
    model = tiny("nope", SmallDecoderModel)
    with pytest.raises(BadInput, match="input_ids or inputs_embeds"):
        model()

"""Position methods on loaded models: against forwards written out by hand, against transformers, and with a cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor

import lengthwise as lw
from lengthwise.errors import BadInput
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make, shared
from tests.helpers.sweep import crossed
from tests.positions import DISTANCES, ROTARY, UNCHANGED, ids, logits

LONG = 3 * TRAIN_LENGTH


FREQUENCIES = ["interpolation:factor=4", "ntk:factor=4", "yarn:factor=4", "eabf", "nope", "clipped_rope"]


BY_HEAD = ["ms_poe:skip=1"]


MASKS_AND_BIASES = ["window", "window:size=9", "alibi", "nope+alibi"]


def turned(vector: Tensor, angles: Tensor) -> Tensor:
    """One head's vector, its pairs (i, i + d/2) turned by the angles."""
    a, b = vector.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def llama_by_hand(
    model: Any,
    tokens: Tensor,
    distance: Callable[[int, int], float | list[float] | None],
    bias: Callable[[int, int, int], float] | None = None,
    ratio: Callable[[int, int], float] = lambda layer, key_head: 1.0,
) -> Tensor:
    """A whole Llama in float64, row by row; `distance(i, j)` from query to key, or one a pair, None where it is not seen."""
    model = model.double()
    length, heads, size = tokens.shape[1], 4, 8
    own = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    hidden = model.model.embed_tokens(tokens)[0]
    for index, layer in enumerate(model.model.layers):
        normed = layer.input_layernorm(hidden)
        q = layer.self_attn.q_proj(normed).view(length, heads, size)
        k, v = (part(normed).view(length, 2, size) for part in (layer.self_attn.k_proj, layer.self_attn.v_proj))
        mixed = torch.zeros(length, heads, size, dtype=torch.float64)
        for h in range(heads):
            for i in range(length):
                seen = [(j, apart) for j in range(length) if (apart := distance(i, j)) is not None]
                keys, apart = zip(*seen, strict=True)
                at = torch.tensor(apart, dtype=torch.float64).view(len(keys), -1) / ratio(index, h // 2) * own
                rows = (turned(q[i, h].expand(len(keys), -1), at) * k[list(keys), h // 2]).sum(-1) / math.sqrt(size)
                if bias is not None:
                    rows = rows + torch.tensor([bias(h, i, j) for j in keys], dtype=torch.float64)
                mixed[i, h] = rows.softmax(0) @ v[list(keys), h // 2]
        hidden = hidden + layer.self_attn.o_proj(mixed.reshape(length, -1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    found = model.lm_head(model.model.norm(hidden))[None]
    model.float()
    return found  # type: ignore[no-any-return]


Rule = Callable[[int, int], float | list[float] | None]


def causal(rule: Rule) -> Rule:
    return lambda i, j: None if j > i else rule(i, j)


def sinks_before_window(i: int, j: int) -> float | None:
    """Three sinks, a window of ten: the distance in a rolling cache of thirteen."""
    if i - j < 10:
        return i - j
    return min(i, 12) - j if j < 3 else None


def chunks_of_eleven(i: int, j: int) -> float:
    """A window of five, and no row beyond 16."""
    return (i % 11, min(i % 11 + 11, 16), 16)[min(i // 11 - j // 11, 2)] - j % 11


RULES: dict[str, Rule] = {
    "none": lambda i, j: i - j,
    "nope": lambda i, j: 0,
    "interpolation:factor=4": lambda i, j: (i - j) / 4,
    "rerope:window=12": lambda i, j: min(i - j, 12),
    "rerope:window=12,leak=4": lambda i, j: i - j if i - j < 12 else 12 + (i - j - 12) / 4,
    "window:size=9": lambda i, j: i - j if i - j < 9 else None,
    "streaming_llm:sinks=3,window=10": sinks_before_window,
    "lm_infinite:sinks=3": lambda i, j: i - j if i - j < TRAIN_LENGTH else (TRAIN_LENGTH if j < 3 else None),
    "self_extend:group=3,window=10": lambda i, j: i - j if i - j < 10 else i // 3 - j // 3 + 7,
    "dual_chunk:chunk=16,window=5": chunks_of_eleven,
    "string:shift=12,window=4": lambda i, j: i - j if i - j < 12 else i - j - 8,
    "dpe:scales=2-3,window=10": lambda i, j: (
        [i - j] * 4 if i - j < 10 else [i // s - j // s + 10 - 10 // s for s in (2, 2, 3, 3)]
    ),
}


@pytest.mark.parametrize("method", RULES)
def test_a_llama_written_out_by_hand_gives_the_same(method: str) -> None:
    model, tokens = make("llama"), ids(TRAIN_LENGTH + 13)
    with torch.inference_mode():
        expected = llama_by_hand(model, tokens, causal(RULES[method]))
    found = logits(model, tokens, method)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)


def test_heads_that_share_keys_read_positions_divided_by_a_number_of_their_own() -> None:
    model, tokens = make("llama"), ids(TRAIN_LENGTH + 13)
    with torch.inference_mode():
        ratio = lambda layer, head: 1.0 if layer < 1 else (1.2, 1.5)[head]  # noqa: E731
        expected = llama_by_hand(model, tokens, causal(RULES["none"]), ratio=ratio)
    torch.testing.assert_close(logits(model, tokens, "ms_poe:skip=1"), expected, atol=2e-4, rtol=1e-4)


def test_alibi_without_rotation_is_a_slope_a_head() -> None:
    model, tokens = make("llama"), ids(20)
    slopes = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    with torch.inference_mode():
        expected = llama_by_hand(model, tokens, causal(lambda i, j: 0), lambda h, i, j: -slopes[h] * (i - j))
    torch.testing.assert_close(logits(model, tokens, "nope+alibi"), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "rope"),
    [
        ("interpolation:factor=4", {"rope_type": "linear", "factor": 4.0}),
        ("yarn:factor=4", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAIN_LENGTH}),
        ("yarn:factor=16", {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": TRAIN_LENGTH}),
    ],
)
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral"])
def test_frequencies_give_the_logits_of_transformers_own_rope_types(name: str, method: str, rope: dict[str, Any]) -> None:
    model, tokens = shared(name), ids(LONG)
    config = type(model.config)(**{**model.config.to_dict(), "rope_parameters": {"rope_theta": 10000.0, **rope}})
    theirs = type(model)(config).eval()
    theirs.load_state_dict(model.state_dict())
    with torch.inference_mode():
        expected = theirs(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(logits(model, tokens, method), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ROTARY)
def test_distances_that_change_nothing_give_what_every_family_gives(name: str) -> None:
    """The rotation is then ours and not the model's: unrotated keys, the family's own formula and tables, by head, by pair."""
    model, tokens = shared(name), ids(LONG, batch=2)
    expected = logits(model, tokens)
    for method in UNCHANGED:
        found = logits(model, tokens, method, implementation="blockwise")
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "method"), crossed([*ROTARY], [*DISTANCES, *FREQUENCIES, *BY_HEAD, *MASKS_AND_BIASES], every=5, whole={"llama"})
)
def test_prefill_and_cached_generation_agree(name: str, method: str) -> None:
    """A prompt beyond the training length, then token by token, with eviction where the method allows it."""
    model, tokens = shared(name), ids(TRAIN_LENGTH + 12)
    with lw.extend(model, f"{method}+log"), torch.inference_mode():
        whole = model(tokens, use_cache=False).logits
        cache, rows = tf.DynamicCache(config=model.config), []
        for part in torch.split(tokens, [TRAIN_LENGTH - 9, 7, 1, 1, 1, 1, 3, 1, 1, 5], 1):
            out = model(part, past_key_values=cache, use_cache=True)
            rows.append(out.logits)
    torch.testing.assert_close(torch.cat(rows, 1), whole, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", [*DISTANCES, "window:size=9"])
def test_short_inputs_are_bit_for_bit_the_old_model_also_from_a_cache(method: str) -> None:
    model, tokens = shared("llama"), ids(6, batch=2)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(tokens, **options)
    with torch.inference_mode():
        plain = model(tokens).logits
    with lw.extend(model, method):
        found = model.generate(tokens, **options)
        with torch.inference_mode():
            assert torch.equal(model(tokens).logits, plain)
    assert torch.equal(torch.stack(found.logits), torch.stack(expected.logits))


@pytest.mark.parametrize("name", ["llama", "mistral window"])
@pytest.mark.parametrize("padding", [slice(0), slice(3), slice(-3, None)])
def test_short_batches_whose_rows_share_positions_are_bit_for_bit_the_old_model(name: str, padding: slice) -> None:
    model, tokens = shared(name), ids(10, batch=2)
    mask = torch.ones_like(tokens)
    mask[1, padding] = 0
    with torch.inference_mode():
        plain = model(tokens, attention_mask=mask).logits
        with lw.extend(model, "lm_infinite:sinks=3"):
            assert torch.equal(model(tokens, attention_mask=mask).logits, plain)


@pytest.mark.parametrize("method", [*DISTANCES, *BY_HEAD, "yarn:factor=4", "window:size=9"])
def test_a_left_padded_batch_gives_what_single_inputs_give(method: str) -> None:
    model, length = shared("llama"), TRAIN_LENGTH + 9
    long, short = ids(length, seed=1), ids(length - 7, seed=2)
    batch = torch.cat((long, torch.cat((torch.zeros(1, 7, dtype=torch.long), short), 1)))
    mask = torch.ones_like(batch)
    mask[1, :7] = 0
    with lw.extend(model, method), torch.inference_mode():
        together = model(batch, attention_mask=mask, use_cache=False).logits
        torch.testing.assert_close(together[:1], model(long).logits, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(together[1:, 7:], model(short).logits, atol=1e-4, rtol=1e-3)
        tokens = model.generate(batch, attention_mask=mask, max_new_tokens=6, do_sample=False)
        alone = model.generate(short, attention_mask=torch.ones_like(short), max_new_tokens=6, do_sample=False)
    assert tokens[1, length:].tolist() == alone[0, length - 7 :].tolist()


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("method", ["self_extend:group=3,window=10", "dual_chunk:chunk=16,window=5"])
def test_groups_and_chunks_stay_where_they_were_when_a_window_has_left_the_start_behind(method: str, drops: bool) -> None:
    """In a cache that keeps only the model's own window of 48 tokens, and in one that keeps all of them."""
    model, tokens = shared("mistral window"), ids(64, batch=2)
    mask = torch.ones_like(tokens)
    mask[1, :7] = 0
    cache, rows = tf.DynamicCache(config=model.config) if drops else tf.DynamicCache(), []
    with lw.extend(model, method), torch.inference_mode():
        whole = model(tokens, attention_mask=mask, use_cache=False).logits
        for end, part in zip((30, 55, 62, 63, 64), torch.split(tokens, [30, 25, 7, 1, 1], 1), strict=True):
            rows.append(model(part, attention_mask=mask[:, :end], past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(rows, 1)[mask.bool()], whole[mask.bool()], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("method", ["streaming_llm", "lm_infinite"])
def test_sinks_are_refused_where_the_models_own_window_has_left_them_behind(method: str) -> None:
    """A window narrower than the method's stays as it is; a wider one must not be outgrown."""
    narrow = tf.MistralForCausalLM(tf.MistralConfig(**DECODER_SIZES, sliding_window=16)).eval()
    assert torch.equal(logits(narrow, ids(20), method), logits(narrow, ids(20)))
    model = shared("mistral window")
    logits(model, ids(48), method)
    with pytest.raises(BadInput, match="a window of its own of 48 tokens, which has left them behind at 49"):
        logits(model, ids(49), method)
    with lw.extend(model, method), pytest.raises(BadInput, match="left them behind at 49"):
        model.generate(ids(40), max_new_tokens=20, min_new_tokens=20, do_sample=False)


@pytest.mark.parametrize("method", [*DISTANCES, *FREQUENCIES, *BY_HEAD, *MASKS_AND_BIASES])
def test_a_model_is_restored_bit_for_bit(method: str) -> None:
    model, tokens = shared("llama"), ids(LONG)
    rotary = model.model.rotary_emb
    before, buffers, attributes = model(tokens).logits, dict(rotary._buffers), set(rotary.__dict__)
    changed = logits(model, tokens, method)
    assert not torch.allclose(changed, before.double(), atol=1e-3)
    assert torch.equal(model(tokens).logits, before)
    assert set(rotary.__dict__) == attributes
    assert all(rotary._buffers[key] is value for key, value in buffers.items())


def test_temperatures_see_the_keys_that_are_left() -> None:
    """A window leaves at most its own size, so that a law of n never wakes up beyond it."""
    model, tokens = shared("llama"), ids(LONG)
    assert torch.equal(logits(model, tokens, "window+log"), logits(model, tokens, "window"))
    assert not torch.allclose(logits(model, tokens, "rerope:window=12+log"), logits(model, tokens, "rerope:window=12"))


def test_nesting_adds_a_temperature_to_a_position_method() -> None:
    model, tokens = shared("llama"), ids(LONG)
    expected = logits(model, tokens, "rerope:window=12+constant:tau=0.8")
    with lw.extend(model, "rerope:window=12"):
        found = logits(model, tokens, "constant:tau=0.8")
    assert torch.equal(found, expected)
    with (
        lw.extend(model, "yarn:factor=4"),
        pytest.raises(BadInput, match="both fill the rotation slot"),
        lw.extend(model, "nope"),
    ):
        pass


def test_gradients_flow_through_parts() -> None:
    model, tokens = make("llama"), ids(TRAIN_LENGTH + 8)
    with lw.extend(model, "streaming_llm:sinks=3,window=10"):
        model(tokens, labels=tokens, use_cache=False).loss.backward()
    norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
    assert all(bool(norm.isfinite()) for norm in norms)
    assert len(norms) == len(list(model.parameters()))
    # One step down the gradient lowers the loss
    with torch.no_grad(), lw.extend(model, "streaming_llm:sinks=3,window=10"):
        before = float(model(tokens, labels=tokens, use_cache=False).loss)
        for parameter in model.parameters():
            parameter.sub_(1e-3 * parameter.grad)
        assert float(model(tokens, labels=tokens, use_cache=False).loss) < before


def test_statistics_are_those_of_what_a_row_sees() -> None:
    model, tokens = shared("llama"), ids(LONG)
    plain, windowed = (
        lw.row_statistics(model, tokens, method=method) for method in ("none", "streaming_llm:sinks=3,window=10")
    )
    assert bool((windowed.entropy < math.log(13) + 1e-6).all())
    assert bool((windowed.entropy < plain.entropy).all())


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("t5", "yarn:factor=4", "changes rotary positions, and T5Stack has none"),
        ("bert", "rerope:window=12", "changes rotary positions, and BertModel has none"),
        ("t5", "alibi", "fills the bias slot, and so does the learned bias"),
        ("llama", "yarn:factor=4+ntk:factor=4", "both fill the rotation slot"),
        ("llama", "streaming_llm+window", "both fill the visible slot"),
        ("llama", "interpolation:factor=0.5", "factor"),
        ("llama", "streaming_llm:window=100", "window"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, method: str, words: str) -> None:
    with pytest.raises(BadInput, match=words), lw.extend(shared(name), method):
        pass


def test_a_similarity_is_refused_unless_forced_and_then_meets_unrotated_keys() -> None:
    class Cosine:
        """Any similarity: here the dot product, with a scale of its own."""

        def similarity(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
            return query, 2 * key, query.shape[-1] ** -0.5 / 2

        def leaves_alone(self, length: int) -> bool:
            return False

    model, tokens = shared("gpt_neox"), ids(LONG)
    with pytest.raises(BadInput, match=r"was not trained with it; train one with it, or pass force=True"):
        lw.extend(model, Cosine()).__enter__()
    with lw.extend(model, Cosine(), force=True), torch.inference_mode():
        found = model(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(found, logits(model, tokens), atol=1e-5, rtol=1e-4)
    with lw.extend(model, "yarn:factor=4"), pytest.raises(BadInput, match="must meet in one spec"):
        lw.extend(model, Cosine(), force=True).__enter__()
    both = ["yarn:factor=4,temperature=false", Cosine()]
    with lw.extend(model, both, force=True), torch.inference_mode():
        found = model(tokens, use_cache=False).logits.double()
    torch.testing.assert_close(found, logits(model, tokens, "yarn:factor=4,temperature=false"), atol=1e-5, rtol=1e-4)

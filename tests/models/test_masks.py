"""Masks as runs of keys against the dense masks transformers makes of the same arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    eager_mask,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

import lengthwise as lw
from lengthwise.attention import DistanceBias, Visible
from lengthwise.errors import BadInput
from lengthwise.methods.positions.t5_bias import T5Bias
from lengthwise.models import masks
from lengthwise.models.masks import ForwardMask, build_mask, decode, encode, real_tokens
from lengthwise.models.state import LAYER
from tests.conftest import (
    logits,
    make,
    tokens,
)
from tests.extended import LONG

CPU = torch.device("cpu")
BATCH, LENGTH = 3, 14
PACKED = torch.tensor([[0] * 5 + [1] * 9, [0] * 14, [0] * 2 + [1] * 4 + [2] * 8])
RULES: dict[str, Callable[..., Tensor]] = {
    "causal": causal_mask_function,
    "bidirectional": bidirectional_mask_function,
    "window": sliding_window_causal_mask_function(5),
    "window of one": sliding_window_causal_mask_function(1),
    "window to both sides": sliding_window_bidirectional_mask_function(3),
    "chunks": chunked_causal_mask_function(4, torch.zeros(BATCH, dtype=torch.long)),
    "packed": and_masks(causal_mask_function, packed_sequence_mask_function(PACKED)),
}
# A whole input, one new token, several new tokens, and a window's cache that has dropped its first keys
SHAPES: dict[str, dict[str, int]] = {
    "whole": {"q_length": LENGTH, "kv_length": LENGTH},
    "one new": {"q_length": 1, "kv_length": LENGTH, "q_offset": LENGTH - 1},
    "several new": {"q_length": 4, "kv_length": LENGTH, "q_offset": LENGTH - 4},
    "keys dropped": {"q_length": 3, "kv_length": 8, "q_offset": LENGTH - 3, "kv_offset": LENGTH - 8},
}


def padding(*real: tuple[int, int]) -> Tensor:  # [batch, LENGTH]
    """True from first to last of each entry."""
    mask = torch.zeros(len(real), LENGTH, dtype=torch.bool)
    for row, (first, last) in zip(mask, real, strict=True):
        row[first:last] = True
    return mask


PADDINGS: dict[str, Tensor | None] = {
    "none": None,
    "all real": padding((0, 14), (0, 14), (0, 14)),
    "left": padding((0, 14), (4, 14), (9, 14)),
    "right": padding((0, 14), (0, 11), (0, 8)),
    "both": padding((0, 14), (3, 11), (7, 8)),
}


def dense(arguments: dict[str, Any]) -> Tensor:  # [batch, queries, keys]
    """transformers' own, with rows that stand on padding emptied: what they see is nobody's concern."""
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask = sdpa_mask(**arguments, **skips)[:, 0].clone()
    if (given := arguments.get("attention_mask")) is not None:
        first = arguments.get("q_offset", 0)
        mask &= given[:, first : first + arguments["q_length"], None]
    return mask


def shown(mask: ForwardMask, batch: int = BATCH) -> Tensor:
    return mask.visible.mask().expand(batch, -1, -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", RULES)
def test_runs_show_what_transformers_shows(rule: str, shape: str) -> None:
    sizes = SHAPES[shape]
    for pad, padding in PADDINGS.items():
        arguments = {"batch_size": BATCH, **sizes, "mask_function": RULES[rule], "attention_mask": padding}
        tensor = build_mask(**arguments, device=CPU)
        assert tensor.shape[:-1] == (BATCH, 1, sizes["q_length"])
        expected = dense(arguments)
        # As the object that travelled along, and as nothing but its numbers
        for carrier in (tensor, tensor.clone()):
            mask = decode(carrier, sizes["q_length"], sizes["kv_length"], False, CPU)
            assert torch.equal(shown(mask), expected), pad
            own = torch.arange(sizes["q_length"]) + sizes.get("q_offset", 0) - sizes.get("kv_offset", 0)
            assert torch.equal(mask.visible.position, own), pad
            assert torch.equal(mask.visible.count.expand(BATCH, -1), expected.sum(-1)), pad


def placed(rule: str, shape: str, real: Tensor | None, carry: Callable[[Tensor], Tensor]) -> Tensor:
    """Where real queries and the keys that they see stand in their own sequences, by the mask as it was or by its numbers."""
    sizes = SHAPES[shape]
    tensor = build_mask(batch_size=BATCH, **sizes, mask_function=RULES[rule], attention_mask=real, device=CPU)
    visible = decode(carry(tensor), sizes["q_length"], sizes["kv_length"], False, CPU).visible
    query, key = (place.expand(BATCH, -1) for place in visible.places)
    seen = visible.mask().expand(BATCH, -1, -1)
    return torch.where(seen, query[..., None] - 1000 * key[:, None], 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", RULES)
def test_a_copy_of_a_mask_tells_where_sequences_began(rule: str, shape: str) -> None:
    for pad, real in PADDINGS.items():
        expected = placed(rule, shape, real, lambda tensor: tensor)
        assert torch.equal(placed(rule, shape, real, torch.clone), expected), pad


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", [pytest.param(rule, marks=[] if rule == "window" else pytest.mark.sweep) for rule in RULES])
def test_a_mask_in_a_graph_tells_where_sequences_began(rule: str, shape: str) -> None:
    torch._dynamo.reset()
    in_graph = torch.compile(placed, backend="eager", fullgraph=True)
    for pad in ("none", "left"):
        expected = placed(rule, shape, PADDINGS[pad], lambda tensor: tensor)
        assert torch.equal(in_graph(rule, shape, PADDINGS[pad], torch.clone), expected), pad


def test_a_causal_mask_is_written_out_by_hand() -> None:
    mask = decode(build_mask(1, 3, 5, q_offset=2, device=CPU), 3, 5, True, CPU)
    assert shown(mask, 1).int().tolist() == [[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]


def test_an_entry_of_padding_alone_sees_nothing() -> None:
    arguments = {"batch_size": 2, **SHAPES["whole"], "attention_mask": padding((3, 14), (0, 0))}
    mask = decode(build_mask(**arguments, device=CPU), LENGTH, LENGTH, False, CPU)
    assert torch.equal(shown(mask, 2), dense(arguments))
    assert not shown(mask, 2)[1].any()


def test_a_cache_longer_than_the_mask_hides_what_is_not_there_yet() -> None:
    """A static cache has room for more keys than the attention mask has tokens."""
    arguments = {"batch_size": 2, "q_length": 3, "kv_length": 12, "mask_function": bidirectional_mask_function}
    arguments["attention_mask"] = torch.ones(2, 3, dtype=torch.bool)
    mask = decode(build_mask(**arguments, device=CPU), 3, 12, False, CPU)
    assert shown(mask, 2).sum(-1).tolist() == [[3, 3, 3]] * 2


@pytest.mark.parametrize("rule", ["causal", "bidirectional"])
def test_holes_in_the_padding_are_kept(rule: str) -> None:
    given = padding((0, 14), (2, 12))
    given[0, 5:8] = False
    arguments = {"batch_size": 2, **SHAPES["whole"], "mask_function": RULES[rule], "attention_mask": given}
    tensor = build_mask(**arguments, device=CPU)
    expected = dense(arguments)
    # Also where a copy of the tensor comes back, as from a reentrant checkpoint
    for carrier in (tensor, tensor.clone()):
        mask = decode(carrier, LENGTH, LENGTH, False, CPU)
        assert torch.equal(shown(mask, 2), expected)
        assert torch.equal(mask.visible.count, expected.sum(-1))
    # Runs cannot say this, so the tensor itself is the plain mask
    assert torch.equal(tensor[:, 0], expected)


@pytest.mark.parametrize("rule", RULES)
def test_the_stock_mask_is_the_one_transformers_would_have_made(rule: str) -> None:
    arguments = {"batch_size": BATCH, **SHAPES["whole"], "mask_function": RULES[rule], "attention_mask": PADDINGS["left"]}
    mask = decode(build_mask(**arguments, device=CPU, dtype=torch.float32), LENGTH, LENGTH, False, CPU)
    assert mask.stock is not None
    for name, make_mask in (("sdpa", sdpa_mask), ("eager", eager_mask)):
        made = mask.stock(name)
        assert made is not None
        assert torch.equal(made, make_mask(**arguments, dtype=torch.float32))


def test_what_a_forward_shares_is_made_once() -> None:
    mask = ForwardMask(Visible.build(2, 2))
    made = [mask.once("bias", object) for _ in range(3)]
    assert made[0] is made[1] is made[2]
    assert mask.once("other", object) is not made[0]


def test_what_carries_a_gradient_is_made_at_every_call() -> None:
    """A layer that is computed again in the backward pass, or for the first time without a gradient, does all of it again."""
    mask, weight = ForwardMask(Visible.build(2, 2)), torch.ones(2, 3, requires_grad=True)
    kinds: dict[str, Callable[[], Any]] = {
        "tensor": lambda: 2 * weight,
        "bias": lambda: DistanceBias(2 * weight),
        "tables": lambda: [("part", (2 * weight, 3 * weight))],
    }
    for kind, compute in kinds.items():
        with torch.no_grad():
            without = mask.once(kind, compute)
            assert mask.once(kind, compute) is without
        assert mask.once(kind, compute) is not without
        assert mask.once(kind, compute) is not mask.once(kind, compute)


@pytest.mark.parametrize("causal", [False, True])
def test_no_mask_means_everything_or_everything_so_far(causal: bool) -> None:
    mask = decode(None, 3, 5, causal, CPU)
    expected = torch.ones(3, 5, dtype=torch.bool).tril(2) if causal else torch.ones(3, 5, dtype=torch.bool)
    assert torch.equal(mask.visible.mask()[0], expected)
    assert mask.stock is None


@pytest.mark.parametrize("batch", [1, 2])
def test_encode_and_decode_are_inverse(batch: int) -> None:
    padding = torch.tensor([[True] * 9, [False] * 6 + [True] * 3])[:batch]
    visible = Visible.build(4, 9, causal=True, window=3, padding=padding)
    carried = decode(encode(ForwardMask(visible), batch), 4, 9, False, CPU)
    assert carried.visible is visible
    read = decode(encode(ForwardMask(visible), batch).clone(), 4, 9, False, CPU).visible
    for name in ("start", "stop", "position"):
        assert torch.equal(getattr(read, name), getattr(visible, name))
    assert read.keys == 9


def test_one_entry_serves_a_whole_batch() -> None:
    tensor = encode(ForwardMask(Visible.build(4, 4, causal=True)), 5)
    assert tensor.shape == (5, 1, 4, 3)
    assert torch.equal(tensor[0], tensor[4])


def test_a_four_dimensional_mask_of_the_callers_passes_through() -> None:
    given = torch.zeros(2, 1, 3, 3)
    assert build_mask(2, 3, 3, attention_mask=given) is given


def additive(seen: Tensor, dtype: torch.dtype, hidden: float | None = None) -> Tensor:
    """0 where seen, the smallest number (or `hidden`) elsewhere."""
    low = torch.finfo(dtype).min if hidden is None else hidden
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, low)


DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "boolean": lambda seen: seen,
    "float32": lambda seen: additive(seen, torch.float32),
    "bfloat16": lambda seen: additive(seen, torch.bfloat16),
    "float16": lambda seen: additive(seen, torch.float16),
    "infinite": lambda seen: additive(seen, torch.float32, -torch.inf),
}


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("rule", RULES)
def test_dense_masks_are_read(kind: str, rule: str) -> None:
    seen = dense({"batch_size": BATCH, **SHAPES["whole"], "mask_function": RULES[rule]})[:, None]
    tensor = DENSE[kind](seen)
    read: dict[Any, ForwardMask] = {}
    mask = decode(tensor, LENGTH, LENGTH, False, CPU, read)
    assert torch.equal(shown(mask), seen[:, 0])
    assert mask.stock is not None
    assert mask.stock("eager") is tensor
    assert decode(tensor, LENGTH, LENGTH, False, CPU, read) is mask
    # In another forward it is read anew, and the caller's tensor carries nothing from one to the other
    assert decode(tensor, LENGTH, LENGTH, False, CPU, {}) is not mask
    assert not vars(tensor)


def test_an_additive_mask_cast_from_bfloat16_hides() -> None:
    seen = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    mask = decode(additive(seen, torch.bfloat16).float(), 4, 4, False, CPU)
    assert mask.visible.count.tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("kind", DENSE)
def test_a_dense_row_for_all_queries_is_padding(kind: str) -> None:
    """Encoders' masks, [batch, 1, 1, keys]; holes and all."""
    real = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1]]).bool()
    mask = decode(DENSE[kind](real[:, None, None]), 6, 6, False, CPU)
    assert torch.equal(shown(mask), real[:, None] & real[:, :, None])


def test_a_dense_mask_wider_than_the_keys_is_cut() -> None:
    seen = torch.ones(2, 9, dtype=torch.bool).tril(2)[None, None]
    mask = decode(seen, 2, 5, False, CPU)
    assert mask.visible.mask().int().tolist() == [[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]]


def test_one_query_sees_what_its_dense_mask_shows_whatever_the_last_key() -> None:
    """A caller's own mask over a static cache that is not full yet."""
    seen = torch.arange(9)[None, None, None] < 4
    assert decode(seen, 1, 9, False, CPU).visible.mask().int().tolist() == [[[1, 1, 1, 1, 0, 0, 0, 0, 0]]]


@pytest.mark.parametrize("number", [-3.0, 0.5, 1.0])
def test_masks_that_add_numbers_are_refused(number: float) -> None:
    mask = torch.zeros(1, 1, 4, 4)
    mask[0, 0, 2, 1] = number
    with pytest.raises(BadInput, match="adds numbers to the logits"):
        decode(mask, 4, 4, False, CPU)


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 4), (2, 8, 4, 4), (2, 1, 4, 3)])
def test_masks_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"of shape \(.*\) cannot be read; give one of shape \[batch, tokens\]"):
        decode(torch.ones(shape, dtype=torch.bool), 4, 4, False, CPU)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
# As many keys as a row or a line of `encode` has numbers among them
@pytest.mark.parametrize(
    ("rows", "queries", "keys"), [(3, 3, 3), (4, 4, 4), (5, 5, 5), (1, 1, 5), (4, 4, 12), (1, 4, 12), (1, 1, 7), (4, 4, 13)]
)
def test_masks_of_whole_numbers_are_refused(dtype: torch.dtype, rows: int, queries: int, keys: int) -> None:
    with pytest.raises(BadInput, match=rf"an attention mask of {dtype} cannot be read; give truth values"):
        decode(torch.ones(1, 1, rows, keys, dtype=dtype), queries, keys, False, CPU)


@pytest.mark.parametrize("keys", [3, 4])
def test_a_row_of_32_bit_zeros_and_ones_is_no_line_of_ours(keys: int) -> None:
    with pytest.raises(BadInput, match=r"an attention mask of torch.int32 cannot be read"):
        decode(torch.ones(1, 1, 1, keys, dtype=torch.int32), 1, keys, True, CPU)


def test_a_row_with_separate_runs_is_refused() -> None:
    seen = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    seen[0, 0, 3, 1] = False
    with pytest.raises(BadInput, match="one run a row"):
        decode(seen, 4, 4, False, CPU)
    with pytest.raises(BadInput, match="one run a row"):
        build_mask(1, 6, 6, mask_function=lambda b, h, q, k: (q - k) % 2 == 0, device=CPU)


def test_of_a_longer_mask_the_last_tokens_count() -> None:
    real = real_tokens(torch.tensor([[0, 0, 1, 1]]), 2)
    assert real is not None
    assert real.tolist() == [[True, True]]


def test_padding_of_a_mask_made_ahead_is_known_in_a_graph() -> None:
    shown = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    # Room of a static cache behind the tokens
    ahead = build_mask(2, 5, 8, attention_mask=shown)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(real_tokens, backend="eager", fullgraph=True)(ahead, 5), shown.bool())


def test_masks_made_ahead_tell_which_tokens_are_real_also_one_for_each_kind_of_layer() -> None:
    made = build_mask(2, 3, 3, attention_mask=torch.tensor([[1, 1, 1], [0, 1, 1]]), device=CPU)
    for mask in (made, made.clone(), {"full_attention": made, "sliding_attention": made}):
        real = real_tokens(mask, 3)
        assert real is not None
        assert real.tolist() == [[True, True, True], [False, True, True]]
    assert real_tokens({}, 3) is None
    assert real_tokens(made.int(), 3) is None


TOLERANCE = 2e-5


def test_a_mask_with_holes_equals_transformers() -> None:
    model = make("t5")
    ids = tokens(LONG)
    mask = torch.ones_like(ids)
    mask[0, 20:40] = 0
    expected = logits(model, ids, mask)
    with lw.extend(model, "none", train_length=2):
        torch.testing.assert_close(logits(model, ids, mask), expected, atol=TOLERANCE, rtol=TOLERANCE)


def causal_mask(length: int) -> torch.Tensor:  # [1, 1, length, length]
    return torch.ones(length, length, dtype=torch.bool).tril()[None, None]


def test_a_callers_mask_is_read_once_a_forward_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, mask = make("llama"), tokens(LONG), causal_mask(LONG)
    reads: list[int] = []
    own = masks._runs_of_dense
    monkeypatch.setattr(masks, "_runs_of_dense", lambda *args: reads.append(1) or own(*args))
    method = T5Bias(heads=4)
    with lw.extend(model, method):
        before = logits(model, ids, mask)
        assert len(reads) == 1
        with torch.no_grad():
            method.table.copy_(torch.randn(method.table.shape, generator=torch.Generator().manual_seed(0)))
        after = logits(model, ids, mask)
        assert len(reads) == 2
        torch.testing.assert_close(after, logits(model, ids), atol=TOLERANCE, rtol=TOLERANCE)
        assert not torch.allclose(after, before, atol=1e-3)
        for _ in range(2):
            model(ids, attention_mask=mask, labels=ids, use_cache=False).loss.backward()
        layer = LAYER.on(model.model.layers[0].self_attn)
        assert layer is not None
        assert not layer.read
    assert not vars(mask)


def test_masks_of_fake_tensors_are_not_kept_for_real_ones() -> None:
    model, ids = make("t5 encoder"), tokens(33)
    with lw.accelerate(model):
        with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(Exception):
            model(input_ids=torch.ones(1, 33, dtype=torch.long))
        assert model(ids).last_hidden_state.isfinite().all()

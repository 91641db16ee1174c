"""The adaptive temperature by hand, and whole models against one that writes every weight down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import lengthwise as lw
from lengthwise.attention import RowStatistics
from lengthwise.methods.positions.shifted_sparse import ShiftedSparse
from lengthwise.methods.temperature.adaptive import Adaptive
from tests.conftest import TRAIN_LENGTH, make, tokens

LONG = 4 * TRAIN_LENGTH
QUARTIC = [-0.037, 0.481, -2.3, 4.917, -1.791]
NAME = "materialised"


def test_the_quartic_by_hand() -> None:
    g = Adaptive().adaptive_sharpness(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert g.tolist() == pytest.approx([1.27, 2.099, 2.25, 2.389, 2.294], abs=1e-6)
    assert g.dtype == torch.float32


def test_sharp_rows_and_the_flattest_stay_as_they_are() -> None:
    h = torch.tensor([0.0, 0.3, 0.5, 0.84, 0.86, 5.94, 5.95, 9.0])
    assert (Adaptive().adaptive_sharpness(h) > 1).tolist() == [False] * 4 + [True] * 2 + [False] * 2
    assert (Adaptive().adaptive_sharpness(h) >= 1).all()


def test_coefficients_and_threshold_are_arguments() -> None:
    line = Adaptive(a4=0, a3=0, a2=0, a1=2, a0=1, threshold=0.7)
    assert line.adaptive_sharpness(torch.tensor([0.5, 0.7, 0.75, 3.0])).tolist() == [1.0, 1.0, 2.5, 7.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a3": math.nan}, "adaptive needs a finite a3, not nan"),
        ({"a0": math.inf}, "adaptive needs a finite a0, not inf"),
        ({"threshold": -0.1}, "adaptive needs threshold >= 0, not -0.1"),
        ({"threshold": math.nan}, "adaptive needs threshold >= 0, not nan"),
    ],
)
def test_arguments_that_make_no_temperature_are_refused(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(lw.BadInput, match=f"^{words}$"):
        Adaptive(**arguments)


def test_a_row_of_logits_against_numpy() -> None:
    row = np.random.default_rng(0).normal(0, 1.5, 40)
    p = np.exp(row) / np.exp(row).sum()
    beta = max(np.polyval(QUARTIC, -(p * np.log(p)).sum()), 1.0)
    assert 1.5 < beta < 2.5
    g = Adaptive().adaptive_sharpness(RowStatistics.of_logits(torch.from_numpy(row)[None]).entropy)
    assert g.tolist() == pytest.approx([beta], rel=1e-6)


def test_only_rows_of_too_few_keys_to_be_flat_are_left_alone() -> None:
    assert Adaptive().leaves_alone(1)
    assert not Adaptive().leaves_alone(2)
    assert Adaptive(threshold=2.0).leaves_alone(7)
    assert not Adaptive(threshold=2.0).leaves_alone(8)


def log(n: Tensor) -> Tensor:
    return n.clamp_min(TRAIN_LENGTH).double().log() / math.log(TRAIN_LENGTH)


@dataclass
class Materialised:
    """Attention for transformers with all weights as one tensor, the adaptive temperature last."""

    law: Callable[[Tensor], Tensor] = torch.ones_like  # g of n; [batch, 1, queries] may become [batch, heads, queries]
    also: Tensor | None = None  # a mask besides the model's own
    weights: list[Tensor] = field(default_factory=list)

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))
        scores = (query @ key.mT).double() * kwargs["scaling"]
        if kwargs.get("position_bias") is not None:
            scores = scores + kwargs["position_bias"]
        seen = torch.ones_like(scores, dtype=torch.bool) if attention_mask is None else attention_mask > -1
        seen = (seen if self.also is None else seen & self.also).expand_as(scores)
        scores = (self.law(seen[:, :1].sum(-1))[..., None] * scores).masked_fill(~seen, -1e30)
        entropy = torch.special.entr(scores.softmax(-1)).sum(-1).detach().numpy()
        beta = np.where(entropy > 0.5, np.maximum(np.polyval(QUARTIC, entropy), 1.0), 1.0)
        weights = (torch.from_numpy(beta)[..., None] * scores).softmax(-1)
        self.weights.append(weights.detach())
        return (weights.to(value) @ value).transpose(1, 2).contiguous(), None


@pytest.fixture
def materialised() -> Iterator[Callable[..., Materialised]]:
    """Makes a model's stack compute attention with all weights at once."""

    def install(stack: Any, **options: Any) -> Materialised:
        function = Materialised(**options)
        ALL_ATTENTION_FUNCTIONS.register(NAME, function)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
        stack.set_attn_implementation(NAME)
        return function

    yield install
    for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        type(interface)._global_mapping.pop(NAME, None)


def stack_of(model: Any) -> Any:
    return model.encoder if hasattr(model, "encoder") else model.model


def said(model: Any, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return stack_of(model)(input_ids=ids, attention_mask=mask).last_hidden_state  # type: ignore[no-any-return]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("spec", ["adaptive", "adaptive+log", "log+adaptive"])
@pytest.mark.parametrize("name", ["t5", "llama"])
def test_every_row_of_a_model_is_that_of_weights_written_down(
    name: str, spec: str, padded: bool, materialised: Callable[..., Materialised]
) -> None:
    model, ids = make(name), tokens(LONG, batch=2)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, slice(90, None) if name == "t5" else slice(0, 38)] = 0
    plain = said(model, ids, mask)
    with lw.extend(model, spec, train_length=TRAIN_LENGTH):
        extended = said(model, ids, mask)
    materialised(stack_of(model), law=log if "log" in spec else torch.ones_like)
    expected, real = said(model, ids, mask), mask.bool()
    torch.testing.assert_close(extended[real], expected[real], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain[real], expected[real], atol=1e-2)


def test_short_inputs_adapt_as_well(materialised: Callable[..., Materialised]) -> None:
    model, ids = make("t5"), tokens(TRAIN_LENGTH // 2)
    plain = said(model, ids)
    with lw.extend(model, "adaptive"):
        extended = said(model, ids)
    materialised(stack_of(model))
    torch.testing.assert_close(extended, said(model, ids), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain, extended, atol=1e-2)


def test_what_is_measured_are_the_weights_that_ran(materialised: Callable[..., Materialised]) -> None:
    model, ids = make("llama"), tokens(LONG)
    measured = lw.row_statistics(model, ids, method="adaptive+log", train_length=TRAIN_LENGTH)
    written = materialised(stack_of(model), law=log)
    said(model, ids)
    weights = torch.cat(written.weights)  # [layers, heads, queries, keys]
    torch.testing.assert_close(measured.p_max.double(), weights.amax(-1).mean(-1), atol=1e-5, rtol=1e-5)
    entropy = torch.special.entr(weights).sum(-1).mean(-1)
    torch.testing.assert_close(measured.entropy.double(), entropy, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_the_entropy_is_read_without_a_gradient(name: str, materialised: Callable[..., Materialised]) -> None:
    model, ids = make(name), tokens(LONG)
    stack = stack_of(model)

    def gradients() -> dict[str, Tensor]:
        stack.zero_grad()
        stack(input_ids=ids).last_hidden_state.square().mean().backward()
        return {key: p.grad.clone() for key, p in stack.named_parameters() if p.grad is not None}

    with lw.extend(model, "adaptive", train_length=TRAIN_LENGTH):
        extended = gradients()
    materialised(stack)
    expected = gradients()
    assert extended.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(extended[key], gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-9, rtol=1e-3)


@dataclass(frozen=True)
class ByHead:
    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return torch.tensor([1.0, 1.2, 1.5, 0.7])[None, :, None].expand(1, 4, visible.shape[-1])


def test_segments_adapt_to_their_own_entropy(materialised: Callable[..., Materialised]) -> None:
    model, ids, half = make("llama"), tokens(40), 20
    with lw.extend(model, [ShiftedSparse(groups=2), ByHead(), Adaptive()]):
        extended = said(model, ids)
    place = torch.arange(40)
    group = torch.stack([(place + shift) // half for shift in (0, 0, half // 2, half // 2)])  # [heads, tokens]
    law = ByHead().inverse_temperature
    materialised(stack_of(model), law=law, also=group[:, :, None] == group[:, None])
    torch.testing.assert_close(extended, said(model, ids), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{"search": "grid"}, {"search": "solve"}, {"scope": "layer"}, {"scope": "head"}])
@pytest.mark.parametrize("method", ["adaptive", "log+adaptive"])
def test_nothing_is_calibrated_on_top_of_it(tokenizer: Any, method: str, options: dict[str, str]) -> None:
    with pytest.raises(lw.BadInput, match=r"^Adaptive answers to every other temperature, .*leave it out$"):
        lw.calibrate(make("t5"), tokenizer, LONG, method=method, show_progress=False, **options)


@pytest.mark.parametrize("method", ["adaptive", "adaptive+log"])
def test_it_cannot_be_baked(method: str) -> None:
    model = make("llama")
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    with pytest.raises(lw.BadInput, match=r"^Adaptive follows the entropy of every row, .*leave it out$"):
        lw.bake(model, method, length=LONG, inplace=True)
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())

"""Where a factor on the logits goes: norms of several kinds, windows, and steps that would swallow it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from lengthwise.attention import Equation, RowStatistics
from lengthwise.calibration.fold import fold, keys_seen
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.extend import extend
from tests.conftest import DECODER_SIZES, FAMILIES, TRAIN_LENGTH, logits, make, shared, tokens

LONG = 4 * TRAIN_LENGTH


class Widest:
    """An observer that notes how many keys the fullest row of each layer sees."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def before(self, layer: int, equation: Equation) -> Equation:
        self.keys.append(int(equation.visible.count.max()))
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None: ...


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("length", [20, LONG])
def test_keys_seen_is_what_a_forward_shows(name: str, length: int) -> None:
    model = shared(name)
    widest = Widest()
    with extend(model, "none", observer=widest):
        logits(model, tokens(length))
    assert keys_seen(anatomy_of(model), length) == widest.keys


def with_windows(name: str) -> Any:
    """Families whose modules and configs tell less, or more, of a window than is there."""
    experts = {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 2, "num_experts_per_tok": 1}
    hybrid = {"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
    own: dict[str, dict[str, Any]] = {
        "qwen2_moe": {**experts, "use_sliding_window": False},
        "exaone4": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
        "qwen3_next": {**experts, **hybrid, "layer_types": ["linear_attention", "full_attention"]},
    }
    config = transformers.AutoConfig.for_model(name, **{**DECODER_SIZES, "num_hidden_layers": 2, **own[name]})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("name", ["qwen2_moe", "exaone4", "qwen3_next"])
def test_keys_seen_looks_through_windows_that_are_not_there(name: str) -> None:
    model, widest = with_windows(name), Widest()
    with extend(model, "none", observer=widest):
        logits(model, tokens(LONG))
    assert keys_seen(anatomy_of(model), LONG) == widest.keys


class PlusOneNorm(nn.Module):
    """Qwen3-Next's kind, without Gemma in its name."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class GemmaLikeNameNorm(nn.RMSNorm):
    """Gemma3n's kind: the name is Gemma's, the weight multiplies as it is."""


def queries(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """What comes out of every layer's norm of q."""
    seen: list[torch.Tensor] = []
    hooks = [layer.q_norm.register_forward_hook(lambda *args: seen.append(args[2])) for layer in anatomy_of(model).layers]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("kind", [PlusOneNorm, GemmaLikeNameNorm, nn.RMSNorm, nn.LayerNorm])
def test_norms_of_every_kind_pass_the_factor_on(kind: type[nn.Module]) -> None:
    model = make("qwen3")
    for layer in anatomy_of(model).layers:
        layer.q_norm = kind(8)
        for parameter in layer.q_norm.parameters():
            nn.init.uniform_(parameter, 0.2, 0.9)
    ids = tokens(12)
    before = queries(model, ids)
    fold(anatomy_of(model), torch.full((3, 4), 1.7, dtype=torch.float64))
    # Deeper layers are fed differently by then
    torch.testing.assert_close(queries(model, ids)[0], 1.7 * before[0])


def test_a_norm_with_a_weight_for_every_head_takes_a_factor_a_head() -> None:
    """Cohere's shape, [heads, size]."""

    class HeadNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 8) + 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * self.weight

    model = make("qwen3")
    for layer in anatomy_of(model).layers:
        layer.q_norm = HeadNorm()
    g = torch.tensor([[1.0, 1.5, 2.0, 3.0]] * 3, dtype=torch.float64)
    ids = tokens(12)
    before = queries(model, ids)
    fold(anatomy_of(model), g)
    torch.testing.assert_close(queries(model, ids)[0], before[0] * g[0, :, None].float())


def test_a_norm_that_is_none_leaves_the_factor_to_the_projection() -> None:
    model = make("llama")
    for layer in anatomy_of(model).layers:
        layer.q_norm = nn.Identity()
    before = model.model.layers[0].self_attn.q_proj.weight.clone()
    fold(anatomy_of(model), torch.full((3, 4), 2.0, dtype=torch.float64))
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, 2 * before)


class Scaleless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


def clipped(model: Any) -> None:
    model.config.clip_qkv = 8.0


def normed_last(model: Any) -> None:
    model.model.layers[2].self_attn.qk_norm = Scaleless()


def scaleless(model: Any) -> None:
    model.model.layers[2].self_attn.q_norm = Scaleless()


def wider(model: Any) -> None:
    model.model.layers[2].self_attn.q_proj = nn.Linear(32, 64)


def renamed(model: Any) -> None:
    attention = model.model.layers[2].self_attn
    attention.make_queries = attention.q_proj
    del attention.q_proj


def quantised(model: Any) -> None:
    projection = model.model.layers[2].self_attn.q_proj
    projection.weight = nn.Parameter(projection.weight.to(torch.int8), requires_grad=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (clipped, "LlamaAttention clips q"),
        (normed_last, "what qk_norm of LlamaAttention does"),
        (scaleless, "normalises q without weights"),
        (wider, "where LlamaAttention makes its queries"),
        (renamed, "where LlamaAttention makes its queries"),
        (quantised, "int8 are quantised"),
    ],
)
def test_what_cannot_be_folded_is_refused_before_anything_changes(change: Any, message: str) -> None:
    model = make("llama")
    change(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(BadInput, match=message):
        fold(anatomy_of(model), torch.full((3, 4), 1.7, dtype=torch.float64))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_bias_that_no_checkpoint_would_keep_is_refused_before_anything_changes() -> None:
    model = make("t5")
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
    weight = table.weight.detach()
    del table.weight
    table.register_buffer("weight", weight, persistent=False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(BadInput, match="the bias of T5Attention is no weight of the checkpoint"):
        fold(anatomy_of(model), torch.full((3, 4), 1.7, dtype=torch.float64))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_fused_queries_of_grouped_heads_are_refused() -> None:
    """Falcon's layout is not GPT-NeoX's, though the name is the same."""
    model = make("falcon")
    with pytest.raises(BadInput, match="where FalconAttention makes its queries"):
        fold(anatomy_of(model, TRAIN_LENGTH), torch.full((2, 4), 1.7, dtype=torch.float64))


def test_biases_of_projections_are_scaled_with_their_weights() -> None:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER_SIZES, attention_bias=True)).eval()
    projection = model.model.layers[0].self_attn.q_proj
    nn.init.normal_(projection.bias)
    before = projection.weight.clone(), projection.bias.clone()
    g = torch.tensor([[1.0, 2.0, 4.0, 8.0]] * 3, dtype=torch.float64)
    fold(anatomy_of(model), g)
    for parameter, old in zip((projection.weight, projection.bias), before, strict=True):
        ratio = (parameter / old).reshape(4, -1)
        torch.testing.assert_close(ratio, g[0, :, None].float().expand_as(ratio))

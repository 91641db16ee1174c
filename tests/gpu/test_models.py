"""Whole models through the kernels on a GPU: extended, trained and calibrated as on any other path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import ByT5Tokenizer

import lengthwise
from lengthwise.attention import dispatch
from lengthwise.attention.triton import launch
from tests.conftest import DECODER_SIZES, tiny_t5, tokens

LENGTH = 700


def tiny_llama() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "head_dim": 32})).eval()


MODELS = {
    "t5": (tiny_t5, "constant:tau=0.7"),
    "llama": (tiny_llama, "log:train_length=32"),
    "llama sinks": (tiny_llama, "streaming_llm:window=20"),
    "llama rerope": (tiny_llama, "rerope:window=16"),
    "llama self_extend": (tiny_llama, "self_extend"),
    "llama dual_chunk": (tiny_llama, "dual_chunk"),
    "llama dpe": (tiny_llama, "dpe"),
    "llama ms_poe": (tiny_llama, "ms_poe"),
    "llama alibi": (tiny_llama, "alibi+nope"),
    "t5 adaptive": (tiny_t5, "adaptive"),
    "llama adaptive": (tiny_llama, "log:train_length=32+adaptive"),
}


def padded(batch: int = 2) -> dict[str, torch.Tensor]:
    ids = tokens(LENGTH, batch=batch).cuda()
    mask = torch.ones_like(ids)
    mask[0, 500:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def hidden(model: Any, inputs: dict[str, torch.Tensor], method: str, implementation: str) -> torch.Tensor:
    with lengthwise.extend(model, method, implementation=implementation):
        output = model(**inputs)
    states = output.logits if hasattr(output, "logits") else output.last_hidden_state
    return states * inputs["attention_mask"][..., None]


def loss(states: torch.Tensor) -> torch.Tensor:
    """Not their norm, which the last layer keeps constant."""
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
    return (states * weights.to(states)).sum() / states.shape[1]


class Named(TorchDispatchMode):
    """Keeps the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["none", "log", "window:size=20", "yarn:factor=2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("padding", [0, 133])
def test_a_token_needs_no_plan_of_cudnn(padding: int, dtype: torch.dtype, method: str) -> None:
    """Which PyTorch would make for every number of keys; grouped heads, slices of a cache, and a padded batch."""
    model, ids = tiny_llama().cuda().to(dtype), tokens(LENGTH, batch=2).cuda()
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    at = (mask.cumsum(-1) - 1).clamp_min(0)
    with lengthwise.extend(model, method), torch.no_grad():
        whole = model(ids, attention_mask=mask, position_ids=at).logits[:, -1].float()
        cache = tf.DynamicCache(config=model.config)
        model(ids[:, :-1], attention_mask=mask[:, :-1], position_ids=at[:, :-1], past_key_values=cache)
        with Named() as ran:
            last = {"attention_mask": mask, "position_ids": at[:, -1:], "past_key_values": cache}
            said = model(ids[:, -1:], **last).logits[:, -1].float()
    assert (said - whole).norm() / whole.norm() < (3e-2 if dtype == torch.bfloat16 else 1e-4)
    if dtype == torch.bfloat16:
        assert {"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"} & ran.names
    assert not any("cudnn" in name for name in ran.names)


@pytest.mark.parametrize("name", MODELS)
def test_an_extended_model_says_the_same_through_the_kernel(name: str) -> None:
    build, method = MODELS[name]
    model, inputs = build().cuda(), padded()
    with torch.no_grad():
        expected = hidden(model, inputs, method, "blockwise")
        found = hidden(model, inputs, method, "triton")
    assert (found - expected).norm() / expected.norm() < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_in_half_precision_the_kernel_is_as_near_to_the_truth_as_the_block_path(name: str) -> None:
    build, method = MODELS[name]
    model, inputs = build().cuda().bfloat16(), padded()
    with torch.no_grad():
        found = [hidden(model, inputs, method, way).float() for way in ("blockwise", "triton")]
        truth = hidden(model.float(), inputs, method, "blockwise")
    block, kernel = ((states - truth).norm() / truth.norm() for states in found)
    # Layers of 32 numbers make much of every rounding, and adaptive rows more; the kernel rounds weights, the block path none
    assert block < 0.2
    assert kernel < 1.5 * block


def test_auto_takes_the_kernel_for_a_t5(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    # Another test may have solved such an equation before
    monkeypatch.setattr(launch, "again", lambda *given: None)
    monkeypatch.setattr(launch, "triton", lambda *given: calls.append(given) or dispatch.blocks.blockwise(*given))
    with torch.no_grad():
        hidden(tiny_t5().cuda(), padded(), "constant:tau=0.7", "auto")
    assert len(calls) == 4


@pytest.mark.parametrize("name", ["t5", "llama", "llama rerope", "llama self_extend", "llama dual_chunk"])
def test_a_training_step_has_the_gradients_of_the_block_path(name: str) -> None:
    build, method = MODELS[name]
    model, inputs, found = build().cuda(), padded(), []
    for implementation in ("blockwise", "triton"):
        model.zero_grad()
        loss(hidden(model, inputs, method, implementation)).backward()
        found.append({key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, expected in found[0].items():
        error = (found[1][key] - expected).norm() / expected.norm().clamp_min(1e-8)
        assert error < 1e-3, f"{key} {error:.1e}"


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_checkpointed_layers_train_through_the_kernel(rate: float) -> None:
    model, inputs, found = tiny_t5().cuda().train(), padded(), []
    for block in model.modules():
        if isinstance(block, torch.nn.Dropout):
            block.p = rate
        if hasattr(block, "dropout") and isinstance(block.dropout, float):
            block.dropout = rate
    for again in (False, True):
        if again:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(0)
        # Layers are computed again while the model is still extended
        with lengthwise.extend(model, "constant:tau=0.7", implementation="triton"):
            loss(model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]).backward()
        found.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("scope", ["model", "layer", "head"])
def test_calibration_finds_what_it_finds_on_a_cpu(scope: str) -> None:
    taus = []
    for device in ("cpu", "cuda"):
        alignment = lengthwise.calibrate(
            tiny_t5().to(device), ByT5Tokenizer(), 1200, scope=scope, train_length=512, show_progress=False
        )
        taus.append(torch.tensor(alignment.temperatures[0].tau))
    torch.testing.assert_close(taus[1], taus[0], atol=2e-3, rtol=2e-3)


def test_a_cached_generation_writes_the_same_tokens() -> None:
    model, ids = tiny_llama().cuda(), tokens(100).cuda()
    said = []
    for implementation in ("blockwise", "auto", "triton"):
        with lengthwise.extend(model, "log:train_length=32", implementation=implementation):
            said.append(model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False).tolist())
    assert said[0] == said[1] == said[2]

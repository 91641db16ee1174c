"""The next token of a generation: the same numbers as the whole equation gives, by one call of PyTorch's attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from lengthwise.attention import fused
from lengthwise.models import next_token
from lengthwise.models.extend import extend
from tests.conftest import TRAIN_LENGTH, make, tokens


@pytest.mark.parametrize(
    "method", ["none", "log", "yarn:factor=4", "rerope:log_scale=true", "constant:tau=0.5", "streaming_llm", "window:size=12"]
)
@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3"])
def test_it_says_what_one_forward_says(family: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make(family), tokens(TRAIN_LENGTH + 9)
    quick = []
    plain = fused.one_sees_all

    def counted(*given: Any) -> torch.Tensor:
        quick.append(given)
        return plain(*given)

    monkeypatch.setattr(next_token, "one_sees_all", counted)
    with extend(model, method), torch.no_grad():
        whole = model(ids).logits[:, -1]
        cache = DynamicCache(config=model.config)
        model(ids[:, :-1], past_key_values=cache)
        said = model(ids[:, -1:], past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(said, whole, atol=1e-4, rtol=1e-4)
    assert quick


@pytest.mark.parametrize("method", ["alibi", "adaptive"])
def test_what_is_more_than_a_scale_is_left_to_the_equation(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_token, "one_sees_all", lambda *_: pytest.fail("was asked"))
    model, ids = make("llama"), tokens(TRAIN_LENGTH + 9)
    with extend(model, method), torch.no_grad():
        whole = model(ids).logits[:, -1]
        cache = DynamicCache(config=model.config)
        model(ids[:, :-1], past_key_values=cache)
        said = model(ids[:, -1:], past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(said, whole, atol=1e-4, rtol=1e-4)


def test_a_law_that_is_the_same_in_all_layers_is_asked_once() -> None:
    asked: list[int] = []

    class Law:
        layers_agree = True

        def inverse_temperature(self, visible: torch.Tensor, layer: int) -> torch.Tensor:
            asked.append(layer)
            return torch.full_like(visible, 1.5, dtype=torch.float32)

    model, ids = make("llama"), tokens(TRAIN_LENGTH + 9)
    with extend(model, Law()), torch.no_grad():
        cache = DynamicCache(config=model.config)
        model(ids[:, :-1], past_key_values=cache)
        asked.clear()
        model(ids[:, -1:], past_key_values=cache)
    assert asked == [0]


class Questions(TorchDispatchMode):
    """Counts the numbers that are read out of tensors."""

    asked = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "method", ["none", "log", "yarn:factor=4", "yarn:dynamic=true", "rerope", "self_extend", "dpe", "string"]
)
def test_layers_share_one_plan_and_no_gpu_is_waited_for(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a token needs follows from its sizes: a number that is read from a GPU waits for all that was begun there."""
    made: list[Any] = []
    plan = next_token._plan
    monkeypatch.setattr(next_token, "_plan", lambda *given: made.append(plan(*given)) or made[-1])
    model, ids = make("llama"), tokens(TRAIN_LENGTH + 9)
    with extend(model, method), torch.no_grad():
        cache = DynamicCache(config=model.config)
        model(ids[:, :-2], past_key_values=cache)
        model(ids[:, -2:-1], past_key_values=cache)
        made.clear()
        monkeypatch.setattr(torch.Tensor, "tolist", lambda _: pytest.fail("was asked"))
        with Questions() as questions:
            model(ids[:, -1:], past_key_values=cache)
    assert len(made) == 1
    # A temperature, which is computed in the host's memory
    assert questions.asked <= (method in ("log", "yarn:factor=4", "yarn:dynamic=true", "rerope", "string"))

"""Models under torch.compile as one graph on a GPU: by Inductor, and as a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lengthwise as lw
from tests.gpu.test_models import MODELS, loss, padded

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def near(found: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    error = (found - expected).norm() / expected.norm()
    assert error < limit, f"{error:.1e}"


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", ["t5", "llama"])
@torch.no_grad()
def test_a_forward_is_one_graph(name: str, mode: str) -> None:
    build, method = MODELS[name]
    model, inputs = build().cuda(), padded()
    with lw.extend(model, method, implementation="triton"):
        expected, compiled = model(**inputs)[0], torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(3):
            near(compiled(**inputs)[0].clone(), expected, 1e-4)
        # Other tokens through the same graph
        inputs["input_ids"] = inputs["input_ids"].flip(-1)
        near(compiled(**inputs)[0].clone(), model(**inputs)[0], 1e-4)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_step_is_one_graph(dropout: float, mode: str) -> None:
    model, inputs = MODELS["t5"][0]().cuda().train(dropout > 0), padded()
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = dropout

    def gradients(run: Any) -> dict[str, torch.Tensor]:
        model.zero_grad()
        loss(run(**inputs)[0] * inputs["attention_mask"][..., None]).backward()
        return {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}

    with lw.extend(model, "constant:tau=0.7", implementation="triton"):
        expected, compiled = gradients(model), torch.compile(model, fullgraph=True, mode=mode)
        # A CUDA graph is recorded at the second step and runs at the third
        found = [gradients(compiled) for _ in range(3)][-1]
    assert expected.keys() == found.keys()
    for key, gradient in found.items():
        assert torch.isfinite(gradient).all()
        if dropout == 0:
            near(gradient, expected[key], 1e-3)

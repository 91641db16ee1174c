"""Extended models under torch.compile as one graph, without a break."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lengthwise as lw
from lengthwise.errors import BadInput
from tests.conftest import make, tokens
from tests.extended import LONG

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def batch(name: str, length: int = LONG // 2) -> dict[str, Tensor]:
    ids = tokens(length, batch=2)
    mask = torch.ones_like(ids)
    mask[0, -5:] = 0
    decoder = {"decoder_input_ids": tokens(5, batch=2)} if name in ("t5", "umt5") else {}
    return {"input_ids": ids, "attention_mask": mask, **decoder}


def graph(model: Any, backend: str = "eager") -> Any:
    return torch.compile(model, fullgraph=True, backend=backend)


METHODS = {
    "t5 encoder": ["log"],
    "t5": ["constant:tau=0.7"],
    "umt5": ["infoscale"],
    "llama": ["log", "window:size=24"],
    "gemma3": ["log"],
}
CROSSED = [
    pytest.param(
        name, method, marks=pytest.mark.sweep if (name, method) not in {("t5 encoder", "log"), ("llama", "log")} else []
    )
    for name, methods in METHODS.items()
    for method in methods
]


@pytest.mark.parametrize(("name", "method"), CROSSED)
@torch.no_grad()
def test_a_forward_is_one_graph_and_is_compiled_once(name: str, method: str) -> None:
    model = make(name)
    with lw.extend(model, method):
        expected, compiled = model(**batch(name))[0], graph(model)
        torch.testing.assert_close(compiled(**batch(name))[0], expected, atol=1e-4, rtol=1e-4)
        with torch.compiler.set_stance("fail_on_recompile"):
            again = compiled(**batch(name))[0]
        torch.testing.assert_close(again, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("how", ["in place", "wrapped"])
@torch.no_grad()
def test_layers_may_be_compiled_one_by_one(how: str) -> None:
    model = make("t5 encoder")
    with lw.extend(model, "log"):
        expected = model(**batch(""))[0]
    blocks = model.encoder.block
    if how == "in place":
        for block in blocks:
            block.compile(backend="eager")
    else:
        model.encoder.block = torch.nn.ModuleList([graph(block) for block in blocks])
    with lw.extend(model, "log"):
        torch.testing.assert_close(model(**batch(""))[0], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("way", ["auto", pytest.param("triton", marks=pytest.mark.sweep)])
def test_a_training_step_is_one_graph(way: str) -> None:
    pytest.importorskip("triton")
    model, found = make("t5 encoder"), []
    with lw.extend(model, "log", implementation=way):
        for run in (model, graph(model, "aot_eager")):
            model.zero_grad()
            run(**batch(""))[0].square().mean().backward()
            found.append({key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert any("relative_attention_bias" in key for key in found[0])
    for key, expected in found[0].items():
        torch.testing.assert_close(found[1][key], expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_holes_between_tokens_are_hidden_in_a_graph() -> None:
    model, inputs = make("t5 encoder"), batch("")
    inputs["attention_mask"][1, 20:24] = 0
    with lw.extend(model, "log"):
        expected = model(**inputs)[0]
        torch.testing.assert_close(graph(model)(**inputs)[0], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["t5", "llama"])
@torch.no_grad()
def test_a_traced_graph_makes_no_tensor_on_another_device(name: str) -> None:
    """One on the CPU would keep the graph of a GPU from becoming a CUDA graph."""
    model, inputs = make(name).to("meta"), {key: value.to("meta") for key, value in batch(name).items()}
    devices = set()

    def look(graph: torch.fx.GraphModule, _: Any) -> Any:
        values = [node.meta.get("example_value") for node in graph.graph.nodes]
        devices.update(value.device.type for value in values if isinstance(value, Tensor))
        raise NotImplementedError

    with lw.accelerate(model) if name == "t5" else lw.extend(model, "log"), pytest.raises(Exception, match="NotImplemented"):
        torch.compile(model, fullgraph=True, backend=look)(**inputs, use_cache=False)
    assert devices == {"meta"}


@torch.no_grad()
def test_an_extended_model_is_exported_for_any_number_of_texts_of_any_length() -> None:
    model, inputs, sizes = make("t5 encoder"), batch(""), {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    with lw.extend(model, "log"):
        exported = torch.export.export(model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, sizes), strict=False)
        others = {key: value[:1, :-7] for key, value in inputs.items()}
        for given in (inputs, others):
            expected = model(**given)[0]
            torch.testing.assert_close(exported.module()(**given)[0], expected, atol=1e-4, rtol=1e-4)


def exported_llama(method: str, **more: Tensor) -> tuple[Any, dict[str, Any]]:
    """A llama and its graph for any input under a method, and the inputs it was traced with, padded on the right."""
    model, inputs = make("llama"), {**batch("llama"), **more}
    sizes = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    shapes = {**dict.fromkeys(inputs, sizes), "use_cache": None}
    with lw.extend(model, method):
        exported = torch.export.export(model, (), {**inputs, "use_cache": False}, dynamic_shapes=shapes, strict=False)
    return exported.module(), inputs


@pytest.mark.parametrize("method", [
    "rerope:window=12",
    pytest.param("self_extend:group=4,window=12", marks=pytest.mark.sweep),
    pytest.param("streaming_llm", marks=pytest.mark.sweep),
])  # fmt: skip
@torch.no_grad()
def test_a_position_method_is_exported_for_any_number_of_texts_of_any_length(method: str) -> None:
    graph, inputs = exported_llama(method)
    model = make("llama")
    for given in (inputs, {key: value[:1, :-7] for key, value in inputs.items()}, {k: v[:, :2] for k, v in inputs.items()}):
        with lw.extend(model, method):
            expected = model(**given, use_cache=False).logits
        found = graph(**given, use_cache=False).logits
        real = given["attention_mask"].bool()
        torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_an_exported_position_method_refuses_positions_that_leap() -> None:
    ids = batch("llama")["input_ids"]
    in_line = torch.arange(ids.shape[1]).expand_as(ids).contiguous()
    graph, inputs = exported_llama("rerope:window=12", position_ids=in_line)
    assert torch.isfinite(graph(**inputs, use_cache=False).logits).all()
    with pytest.raises(RuntimeError, match="these position_ids leap"):
        graph(**{**inputs, "position_ids": 2 * in_line}, use_cache=False)


@torch.no_grad()
def test_a_method_that_goes_by_the_length_is_not_exported() -> None:
    with pytest.raises(BadInput, match="Yarn goes by the length of each input"):
        exported_llama("yarn:dynamic=true")


@pytest.mark.sweep
def test_a_static_cache_generates_the_same_tokens_in_a_graph() -> None:
    model, ids = make("llama"), tokens(LONG // 2)
    options = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 4,
        "do_sample": False,
        "cache_implementation": "static",
    }
    with lw.extend(model, "log"):
        expected = model.generate(ids, **options, disable_compile=True)
        model.forward = torch.compile(model.forward, fullgraph=True, backend="eager")
        assert torch.equal(model.generate(ids, **options, disable_compile=True), expected)


@pytest.mark.sweep
@pytest.mark.parametrize(("method", "cache"), [("self_extend:group=4,window=12", "static"), ("dual_chunk", "dynamic")])
def test_a_window_that_has_left_keys_behind_generates_the_same_in_a_graph(method: str, cache: str) -> None:
    """Places count from the start of a sequence, which a graph must be told."""
    model, ids = make("mistral window"), tokens(60, batch=2)
    model.config.num_hidden_layers, model.model.layers = 1, model.model.layers[:1]
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    options = {"max_new_tokens": 2, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    options |= {"attention_mask": mask, "disable_compile": True, "cache_implementation": cache}
    with lw.extend(model, method):
        expected = model.generate(ids, **options).logits
        model.forward = torch.compile(model.forward, backend="eager")
        torch.testing.assert_close(model.generate(ids, **options).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.sweep
def test_a_padded_row_of_a_static_cache_is_known_in_a_graph() -> None:
    model, ids = make("llama"), tokens(LONG // 2, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    options = {"attention_mask": mask, "max_new_tokens": 2, "do_sample": False, "cache_implementation": "static"}
    with lw.extend(model, "self_extend:group=4,window=12"):
        expected = model.generate(ids, **options, disable_compile=True)
        model.forward = torch.compile(model.forward, backend="eager")
        assert torch.equal(model.generate(ids, **options, disable_compile=True), expected)

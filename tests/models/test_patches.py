"""Patches of a model: nested, shared between models, left in the wrong order, and always undone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.models.patches import suspended
from lengthwise.models.snapshot import differences, state_of
from tests.conftest import (
    TRAIN_LENGTH,
    logits,
    make,
    tokens,
)
from tests.extended import LONG


def test_a_model_is_restored_after_an_exception() -> None:
    model = make("t5")
    before = state_of(model)
    with pytest.raises(IndexError), lw.extend(model, "log"):
        logits(model, torch.full((1, LONG), 10**6))
    assert not differences(before, state_of(model))


def test_nesting_adds_methods_and_unwinds_in_order() -> None:
    model = make("t5")
    ids = tokens(LONG)
    with lw.extend(model, "constant:tau=0.8+log"):
        expected = logits(model, ids)
    with lw.extend(model, "log"):
        outer = logits(model, ids)
        middle = state_of(model)
        with lw.extend(model, "constant:tau=0.8"):
            torch.testing.assert_close(logits(model, ids), expected, atol=1e-6, rtol=1e-6)
        assert not differences(middle, state_of(model))
        assert torch.equal(logits(model, ids), outer)


LEFT_FIRST = r"^the outer `extend` of this model was left first, which ended the inner one; leave the inner one"


def test_an_extend_whose_outer_one_was_left_first_runs_nothing_more() -> None:
    model, ids = make("llama"), tokens(LONG)
    before, plain = state_of(model), logits(model, ids)
    outer, inner = lw.extend(model, "streaming_llm"), lw.extend(model, "constant:tau=0.5")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(BadInput, match=LEFT_FIRST):
        outer.__exit__(None, None, None)
    for _ in range(2):
        with pytest.raises(BadInput, match=LEFT_FIRST):
            logits(model, ids)
    with pytest.raises(BadInput, match=LEFT_FIRST), lw.extend(model, "log"):
        pass
    with pytest.raises(BadInput, match=LEFT_FIRST):
        inner.__exit__(None, None, None)
    assert not differences(before, state_of(model))
    assert torch.equal(logits(model, ids), plain)
    with lw.extend(model, "log"):
        logits(model, ids)


def test_an_exception_is_not_hidden_by_the_wrong_order() -> None:
    model = make("llama")
    before, outer = state_of(model), lw.extend(model, "log")
    outer.__enter__()

    def leave(mine: KeyError) -> None:
        with lw.extend(model, "constant:tau=0.5"):
            outer.__exit__(KeyError, mine, None)
            raise mine

    with pytest.raises(KeyError, match="mine"):
        leave(KeyError("mine"))
    assert not differences(before, state_of(model))


def test_tasks_that_extend_one_model_at_once_are_refused_by_name() -> None:
    model, ids = make("llama"), tokens(LONG)
    before = state_of(model)
    with lw.extend(model, "constant:tau=0.5"):
        expected = logits(model, ids)

    async def first(begun: asyncio.Event, go_on: asyncio.Event) -> torch.Tensor:
        with lw.extend(model, "constant:tau=0.5"):
            begun.set()
            await go_on.wait()
            return logits(model, ids)

    async def second() -> None:
        with lw.extend(model, "constant:tau=0.25"):
            logits(model, ids)

    async def both() -> torch.Tensor:
        begun, go_on = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(first(begun, go_on))
        await begun.wait()
        with pytest.raises(BadInput, match=r"^another task or thread has extended this model"):
            await asyncio.create_task(second())
        go_on.set()
        return await task

    assert torch.equal(asyncio.run(both()), expected)
    assert not differences(before, state_of(model))


def test_a_thread_that_extends_beside_another_is_refused_by_name() -> None:
    model, said = make("t5"), []

    def second() -> None:
        try:
            with lw.extend(model, "log"):
                pass
        except BadInput as error:
            said.append(str(error))

    thread = threading.Thread(target=second)
    with lw.extend(model, "log"):
        thread.start()
        thread.join()
    assert len(said) == 1
    assert said[0].startswith("another task or thread has extended this model")


def test_an_extend_that_is_dropped_before_it_is_left_ends_and_says_so() -> None:
    model = make("t5")
    before = state_of(model)
    with pytest.warns(UserWarning, match="an `extend` was dropped before it was left"):
        lw.extend(model, "log").__enter__()
    assert not differences(before, state_of(model))


def test_an_extend_that_outlives_the_modules_of_python_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("t5")
    before = state_of(model)
    extension = lw.extend(model, "log")
    extension.__enter__()
    with monkeypatch.context() as ending:
        ending.setattr("lengthwise.models.extend.sys", None)
        extension.__del__()
    assert differences(before, state_of(model)), "it was left alone"
    extension.__exit__(None)
    assert not differences(before, state_of(model))


def test_two_models_can_be_extended_at_once() -> None:
    first, second = make("t5"), make("llama")
    ids = tokens(LONG)
    with lw.extend(first, "log"):
        with lw.extend(second, "log"):
            expected = logits(second, ids)
        logits(first, ids)
    with lw.extend(second, "log"):
        assert torch.equal(logits(second, ids), expected)


def test_two_models_of_one_config_may_end_in_any_order() -> None:
    model = make("llama")
    twin = transformers.LlamaForCausalLM(model.config).eval()
    short, ids = tokens(TRAIN_LENGTH), tokens(LONG)
    plain, before = logits(twin, short), model.config._attn_implementation
    with lw.extend(twin, "log"):
        expected = logits(twin, ids)
    first, second = lw.extend(model, "log"), lw.extend(twin, "log")
    first.__enter__()
    second.__enter__()
    assert torch.equal(logits(twin, short), plain)
    first.__exit__(None, None, None)
    assert torch.equal(logits(twin, ids), expected)
    second.__exit__(None, None, None)
    assert model.config._attn_implementation == before
    assert torch.equal(logits(twin, short), plain)


def test_a_model_and_its_base_are_one() -> None:
    model, ids = make("llama"), tokens(LONG)
    plain = logits(model, ids)
    with lw.extend(model, "log+rerope"):
        both = logits(model, ids)
    with lw.extend(model, "log"), lw.extend(model.model, "rerope"):
        assert torch.equal(logits(model, ids), both)
        with suspended(model):
            assert torch.equal(logits(model, ids), plain)
    with lw.extend(model.model, "rerope"), suspended(model):
        assert torch.equal(logits(model, ids), plain)
    outer, inner = lw.extend(model, "log"), lw.extend(model.model, "window")
    outer.__enter__()
    inner.__enter__()
    for one in (outer, inner):
        with pytest.raises(BadInput, match=LEFT_FIRST):
            one.__exit__(None, None, None)
    assert torch.equal(logits(model, ids), plain)
    assert not any(key.startswith("_lengthwise") for module in model.modules() for key in vars(module))


@pytest.mark.parametrize("verb", ["evaluate", "reach", "misalignment", "analyse"])
def test_verbs_that_name_methods_are_refused_where_one_is_in_force(verb: str, tmp_path: Path) -> None:
    """Its numbers would stand under other names, and be kept so."""
    model, tokenizer = make("llama"), transformers.ByT5Tokenizer()
    options = {"analyse": {"lengths": [64], "out": tmp_path / "x"}, "evaluate": {"lengths": [64], "out": tmp_path / "x"}}
    with (
        lw.extend(model, "constant:tau=0.5"),
        pytest.raises(
            lw.BadInput, match=rf"^this model is extended already, and {verb} extends it itself; leave `extend` first"
        ),
    ):
        getattr(lw, verb)(model, tokenizer, show_progress=False, **options.get(verb, {}))
    assert not (tmp_path / "x").exists()


def test_an_extended_model_is_not_baked() -> None:
    model = make("t5")
    with lw.extend(model, "log"), pytest.raises(BadInput, match="this model is extended already, and bake extends it itself"):
        lw.bake(model, "constant:tau=0.8", length=LONG)

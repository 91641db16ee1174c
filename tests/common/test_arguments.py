"""Arguments of another type than a signature says are refused in its words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import lengthwise as lw
from lengthwise.common.arguments import typed
from tests.conftest import make, tokens


@typed
def function(
    count: int = 1,
    share: float | None = 0.5,
    path: str | Path | None = None,
    names: Sequence[str] = (),
    flag: bool = True,
    lengths: int | Sequence[int] = (),
    methods: Iterable[object] | Mapping[str, object] = (),
    called: Callable[[int], int] | None = None,
    anything: Any = None,
    **others: Any,
) -> tuple[Any, ...]:
    return count, share, path, names, flag, lengths, methods, called, anything, others


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 1.5}, "count must be a whole number, not 1.5"),
        ({"count": "1"}, "count must be a whole number, not '1'"),
        ({"count": torch.tensor(1.5)}, r"count must be a whole number, not tensor\(1.5000\)"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"count": make("llama")}, "count must be a whole number, not LlamaForCausa"),
        ({"count": []}, r"count must be a whole number, not \[\]"),
        ({"count": -(10**40)}, "count must be a whole number of at most 40 digits, not -1000"),
        ({"share": "half"}, "share must be a number or None, not 'half'"),
        ({"path": b"x"}, "path must be a string or a path or None, not b'x'"),
        ({"path": "a\0b"}, "path must be a path, and none has a null character"),
        ({"names": "passkey"}, "names must be a list, each a string, not 'passkey'"),
        ({"names": ["passkey", 1]}, "names must be a list, each a string, not"),
        ({"flag": "no"}, "flag must be True or False, not 'no'"),
        ({"flag": np.array([0, 1])}, r"flag must be True or False, not array\(\[0, 1\]\)"),
        ({"lengths": "512"}, "lengths must be a whole number or a list, each a whole number, not '512'"),
        ({"methods": "log"}, "methods must be a list or a mapping, not 'log'"),
        ({"called": 3}, "called must be a Callable or None, not 3"),
    ],
)
def test_another_type_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(lw.BadInput, match=rf"^{words}[^\n]*$"):
        function(**options)


@pytest.mark.parametrize("given", ["a/folder", SimpleNamespace(model=None)])
def test_what_is_no_model_is_told_where_one_is(given: Any) -> None:
    with pytest.raises(lw.BadInput, match=r"^model must be a loaded model \(a pipeline's is pipeline\.model\), not "):
        lw.extend(given, "log")


def test_what_the_signature_says_passes() -> None:
    given: dict[str, Any] = {
        "path": Path("x"),
        "names": ["a"],
        "flag": False,
        "methods": {"log": object()},
        "called": len,
        "other": 1,
    }
    assert function(**given)[2:5] == (Path("x"), ["a"], False)
    assert function(lengths=np.array([1, 2]), methods=["log"], share=None)[1] is None


def test_numbers_of_other_libraries_become_pythons() -> None:
    found = function(count=np.int64(3), share=np.float32(0.5), lengths=torch.tensor(4))
    assert (*map(type, (found[0], found[1], found[5])), found[5]) == (int, float, int, 4)


def test_every_public_function_is_checked() -> None:
    public = {name: getattr(lw, name) for name in lw.__all__ if inspect.isfunction(getattr(lw, name))}
    # Options of `train` are checked with those of a file; the others take tensors, or anything
    assert {name for name in public if not hasattr(public[name], "__wrapped__")} == {"misalignment_loss", "restore", "train"}


@pytest.mark.parametrize("length", ["32", 1.5, [32]])
def test_a_training_length_that_is_no_number_is_refused(length: Any) -> None:
    with pytest.raises(lw.BadInput, match="train_length must be a whole number or None"):
        lw.extend(make("llama"), "log", train_length=length)


@pytest.mark.parametrize("tokenizer", [None, "t5-small", 3])
def test_what_is_no_tokenizer_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    t5, llama, told = make("t5"), make("llama"), "tokenizer must be the model's own, as AutoTokenizer loads it, not"
    calls = [
        lambda: lw.evaluate(t5, tokenizer, lengths=64, samples=1),
        lambda: lw.reach(t5, tokenizer),
        lambda: lw.analyse(t5, tokenizer, 64, tmp_path / "analysis"),
        lambda: lw.misalignment(llama, tokenizer),
        lambda: lw.hedge(t5, tokenizer, tokens(8)),
    ]
    for call in calls:
        with pytest.raises(lw.BadInput, match=told):
            call()

"""`lengthwise.misalignment` and its command: against loops over the models' own logits, and what they refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.training.output_alignment import misalignment as misalignment_module
from lengthwise.training.output_alignment.views import drawn_extra
from tests.conftest import TRAIN_LENGTH, Said, make, tokens
from tests.helpers.answering import saved

PAIR = TRAIN_LENGTH + TRAIN_LENGTH // 2


def decided() -> Any:
    """A tiny model that is surer of some words than of others."""
    model = make("llama")
    model.lm_head.weight.data *= 20
    return model


def by_hand(model: Any, rows: list[torch.Tensor], seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """L_SCE and symmetric KL of every pair and position, in float64 from forwards of single rows."""
    sces, kls = [], []
    for pair, row in enumerate(rows):
        extra = drawn_extra("1..L/2", TRAIN_LENGTH, seed, pair)
        with torch.no_grad():
            long, short = (model(input_ids=row[None, s : s + TRAIN_LENGTH]).logits[0].double() for s in (0, extra))
        sce, kl = [], []
        for context in range(TRAIN_LENGTH // 2 + extra, TRAIN_LENGTH + 1):
            p, q = long[context - 1].softmax(-1), short[context - extra - 1].softmax(-1)
            sce.append(float(-(q * p.log()).sum() - (p * q.log()).sum()))
            kl.append(float((p * (p / q).log()).sum() + (q * (q / p).log()).sum()))
        sces.append(sce)
        kls.append(kl)
    return sces, kls


@pytest.mark.parametrize("method", ["none", "streaming_llm:window=8"])
def test_it_is_a_loop_over_pairs_and_positions(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misalignment_module, "LOGITS_AT_ONCE", 5 * 384)
    monkeypatch.setattr(misalignment_module, "TOKENS_AT_ONCE", 3 * 2 * TRAIN_LENGTH)
    model, ids = decided(), tokens(4 * PAIR)[0]
    # As many tokens as four pairs take: each has a quarter of what is left to move in
    found = lw.misalignment(model, ids, pairs=4, seed=5, method=method, show_progress=False)
    shift = np.random.default_rng(5).random(4)
    starts = [int(3 * PAIR * (k + shift[k]) / 4) for k in range(4)]
    with lw.extend(model, method):
        sces, kls = by_hand(model, [ids[start : start + PAIR] for start in starts], seed=5)
    assert found.sce == pytest.approx(np.mean(np.concatenate(sces)), rel=1e-5)
    assert found.kl == pytest.approx(np.mean(np.concatenate(kls)), rel=1e-4)
    assert found.positions == sum(map(len, sces))
    assert (found.pairs, found.length, found.train_length, found.method) == (4, TRAIN_LENGTH, TRAIN_LENGTH, method)
    assert found.interval[0] < found.sce < found.interval[1]
    assert found.model["family"] == "llama"


def test_both_readings_begin_with_the_first_token() -> None:
    model, read = decided(), []
    model.model.register_forward_pre_hook(lambda _module, _args, given: read.append(given["input_ids"]), with_kwargs=True)
    ids = tokens(2 * PAIR)[0]
    lw.misalignment(model, ids, pairs=2, first_token=9, show_progress=False)
    assert [set(rows[:, 0].tolist()) for rows in read] == [{9}, {9}]
    with pytest.raises(lw.BadInput, match="999"):
        lw.misalignment(model, ids, pairs=2, first_token=999, show_progress=False)


def test_the_interval_is_that_of_a_ratio_of_means() -> None:
    """Against the delta method for many pairs: sums over counts, with the spread of (sum - mean count) between pairs."""
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 60, size=400)
    sums = counts * (3 + generator.normal(size=400))
    mean, (low, high) = misalignment_module._mean(sums, counts)
    ratio = sums.sum() / counts.sum()
    half = 1.96 * math.sqrt(np.var(sums - ratio * counts, ddof=1) / 400) / counts.mean()
    assert mean == pytest.approx(ratio)
    assert (low, high) == pytest.approx((ratio - half, ratio + half), abs=0.15 * half)


def test_an_interval_begins_at_0_at_the_lowest() -> None:
    mean, (low, _) = misalignment_module._mean(np.array([0.0, 0.0, 3.0]), np.array([1, 1, 1]))
    assert (mean, low) == (1.0, 0.0)


def test_a_pair_costs_two_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = make("llama"), []
    model.model.register_forward_hook(lambda _module, _inputs, output: read.append(output[0].shape[:2]))
    lw.misalignment(model, tokens(8 * PAIR)[0], pairs=8, show_progress=False)
    assert sum(rows * length for rows, length in read) == 2 * 8 * TRAIN_LENGTH
    assert len(read) == 2


def test_a_model_that_forgets_is_aligned() -> None:
    """A window short enough that both readings see the same tokens at the same distances, in every layer."""
    model, ids = decided(), tokens(6 * PAIR)[0]
    forgets = lw.misalignment(model, ids, pairs=6, method="window:size=4", show_progress=False)
    plain = lw.misalignment(model, ids, pairs=6, show_progress=False)
    assert forgets.kl == pytest.approx(0, abs=1e-4)
    assert plain.kl > 0.1
    # What is left of the symmetric cross-entropy is how unsure the model is
    assert forgets.sce > 1


def test_length_and_seed_and_text_are_the_callers(tokenizer: ByT5Tokenizer) -> None:
    model = make("llama").train()
    found = [
        lw.misalignment(model, tokenizer, length=length, seed=seed, text=text, pairs=3, show_progress=False)
        for length, seed, text in ((16, 0, None), (16, 0, None), (16, 1, None), (64, 0, None), (16, 0, "What a day. " * 20))
    ]
    assert found[0] == found[1]
    assert len({one.sce for one in found}) == 4
    assert [one.length for one in found] == [16, 16, 16, 64, 16]
    assert found[4].text_tokens == 240
    assert model.training


def test_outputs_that_are_no_numbers_are_refused() -> None:
    model = make("llama")
    model.lm_head.weight.data[7] = torch.inf
    with pytest.raises(lw.BadInput, match="the model's outputs are NaN or infinite on this text; give a wider --dtype"):
        lw.misalignment(model, tokens(3 * PAIR)[0], pairs=2, show_progress=False)


def test_overlapping_pairs_are_told() -> None:
    with pytest.warns(UserWarning, match=f"8 pairs of {PAIR} tokens overlap in a text of 100"):
        found = lw.misalignment(make("llama"), tokens(100)[0], pairs=8, show_progress=False)
    assert (found.pairs, found.text_tokens) == (8, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 1}, "at least 2 pairs for an interval, not 1"),
        ({"pairs": 10**20}, f"{10**20} pairs begin at more places than a text of "),
        ({"length": 3}, "at least 4 tokens, not 3"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"train_length": 0}, "train_length|at least 4 tokens"),
        ({"train_length": 10**20, "length": 16}, "train_length must be below 2147483648 tokens, not 100000000000000000000"),
        ({"text": "short"}, f"the text has 5 tokens, and a pair at length {TRAIN_LENGTH} takes {PAIR}"),
        ({"text": ""}, "the text has 0 tokens"),
        ({"text": "a", "files": ["b"]}, "a text or files, not both"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str, tokenizer: ByT5Tokenizer) -> None:
    with pytest.raises(lw.BadInput, match=message):
        lw.misalignment(make("llama"), tokenizer, show_progress=False, **options)


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("llama", torch.full((200,), 384), "token 384, and the model knows 384 tokens only; this is another model's tokenizer"),
        ("llama", tokens(200), r"one stream of \[tokens\], not of shape \(1, 200\)"),
        ("llama", tokens(200)[0].float(), "token ids must be whole numbers, not torch.float32"),
        ("llama", tokens(200)[0] > 9, "token ids must be whole numbers, not torch.bool"),
        ("t5", tokens(900)[0], "T5ForConditionalGeneration does not tell the next token"),
    ],
)
def test_ids_and_models_that_do_not_fit_are_refused(name: str, ids: torch.Tensor, message: str) -> None:
    with pytest.raises(lw.BadInput, match=message):
        lw.misalignment(make(name), ids, show_progress=False)


def test_ids_may_be_of_any_type_of_whole_numbers() -> None:
    ids = tokens(200)[0]
    measured = [lw.misalignment(make("llama"), some, pairs=2, show_progress=False).sce for some in (ids, ids.short())]
    assert measured[0] == measured[1]


def test_a_smaller_models_tokenizer_is_refused(tokenizer: ByT5Tokenizer) -> None:
    wide = make("llama")
    wide.resize_token_embeddings(767)
    lw.misalignment(wide, tokenizer, train_length=16, pairs=2, show_progress=False)
    wide.resize_token_embeddings(768)
    with pytest.raises(lw.BadInput, match="the tokenizer has 384 tokens only, and the model knows 768; this is another"):
        lw.misalignment(wide, tokenizer, train_length=16, pairs=2, show_progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(make("llama"), tmp_path_factory.mktemp("misaligned") / "llama")


def test_the_command_prints_what_the_function_finds(folder: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Nobody on the quay had seen the boat come in. " * 12)
    common = ["misalignment", folder, "--text", text, "--train-length", 16, "--pairs", 4, "--method", "log"]
    said = lengthwise(*common, "--json")
    document = json.loads(said.out)
    expected = lw.misalignment(
        make("llama"), ByT5Tokenizer(), files=[text], train_length=16, pairs=4, method="log", show_progress=False
    )
    assert said.status == 0
    assert document["sce"] == pytest.approx(expected.sce, rel=1e-6)
    assert tuple(document["interval"]) == pytest.approx(expected.interval, rel=1e-6)
    assert (document["length"], document["train_length"], document["method"]) == (16, 16, "log")
    assert said.err == ["misalignment: 4 of 4 pairs"]
    table = lengthwise(*common).out.splitlines()
    low, high = expected.interval
    assert table[0].endswith(f" {expected.sce:.4f} nats (95 % interval {low:.4f} to {high:.4f})")
    assert table[2] == "contexts of 8 to 16 tokens, 4 pairs, method log"


def test_without_a_text_the_prose_of_the_package_serves(folder: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("misalignment", folder, "--pairs", 2, "--json")
    assert json.loads(said.out)["text_tokens"] > 100_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", 0), "at least 2 pairs"),
        (("--length", 200_000), "give a longer text"),
        (("--method", "nosuch"), "nosuch"),
        (("--text", "nosuch.txt"), "cannot read the text file nosuch.txt"),
        (("--train-length", "x"), "train-length"),
    ],
)
def test_the_command_refuses_with_status_2(
    folder: Path, options: tuple[Any, ...], message: str, lengthwise: Callable[..., Said]
) -> None:
    said = lengthwise("misalignment", folder, *options)
    assert said.status == 2
    assert message in said.err[-1]
    assert said.out == ""

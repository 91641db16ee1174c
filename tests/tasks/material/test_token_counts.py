"""Tokens of long texts from those of their words: exactly what the tokenizer says, for every kind of it."""

from __future__ import annotations

import gc
import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from lengthwise.common.text import shipped_prose
from lengthwise.tasks.material import token_counts
from lengthwise.tasks.material.code_files import standard_library
from lengthwise.tasks.material.token_counts import SHORT, added_tokens, token_count


def trained(model: str, across: bool = False) -> Any:
    """A small tokenizer of prose: BPE or unigram, with SentencePiece's spaces; `across` lets tokens go across them."""
    unigram = model == "unigram"
    tokenizer = Tokenizer(models.Unigram() if unigram else models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=not across)
    tokenizer.decoder = decoders.Metaspace()
    special = ["<unk>", "</s>"]
    options: dict[str, Any] = {"vocab_size": 600, "special_tokens": special, "show_progress": False}
    trainer = trainers.UnigramTrainer(**options, unk_token="<unk>") if unigram else trainers.BpeTrainer(**options)
    tokenizer.train_from_iterator([shipped_prose()[:20000]], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


@pytest.fixture(scope="module", params=["bytes", "pieces", "bpe", "unigram", "bpe across words"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "bytes":
        return ByT5Tokenizer()
    if request.param == "pieces":
        return request.getfixturevalue("pieces")
    return trained(request.param.split()[0], across=request.param.endswith("across words"))


@cache
def texts() -> dict[str, str]:
    randomness = random.Random(0)
    prose = shipped_prose()[: 3 * SHORT]
    code = "\n".join(randomness.choice(standard_library()).lines)[: 3 * SHORT].ljust(SHORT + 1, "x")
    odd = "".join(randomness.choices("ab  \n\t.,>\u00e9\u00a0\u4e2d<3", k=3 * SHORT))
    return {"prose": prose, "again": prose + " " + prose, "code": code, "odd": odd, "spaces": " \n " + prose + "  \n"}


@pytest.mark.parametrize("kind", ["prose", "again", "code", "odd", "spaces"])
def test_the_sum_over_words_is_what_the_tokenizer_says(kind: str, tokenizer: Any) -> None:
    text = texts()[kind]
    assert len(text) > SHORT
    for _ in range(2):
        assert token_count(tokenizer, text) == len(tokenizer(text, verbose=False).input_ids)
    before = len(tokenizer("a", add_special_tokens=False).input_ids)
    joined = len(tokenizer(f"a {text}", add_special_tokens=False, verbose=False).input_ids)
    assert added_tokens(tokenizer, f" {text}") == joined - before or not token_counts._counts_of(tokenizer).ends


def test_a_text_is_tokenised_whole_where_tokens_go_across_words() -> None:
    assert token_counts._word_ends(trained("bpe", across=True)) == frozenset()
    assert token_counts._word_ends(trained("bpe")) == token_counts.VISIBLE
    mine = trained("bpe")
    mine.add_tokens(["x>\u2581</"])
    assert token_counts._word_ends(mine) == token_counts.VISIBLE - {">"}


def test_special_tokens_in_a_text_and_new_ones_are_counted(pieces: Any) -> None:
    text = shipped_prose()[: 2 * SHORT].replace("the ", "the </s> ")
    assert token_count(pieces, text) == len(pieces(text, verbose=False).input_ids)
    mine = trained("bpe")
    for _ in range(2):
        assert token_count(mine, text) == len(mine(text, verbose=False).input_ids)
        mine.add_tokens([AddedToken("the", lstrip=True, rstrip=True)])


def test_words_are_kept_within_bounds_and_with_their_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counts, "MOST", 50)
    mine, prose = trained("bpe"), shipped_prose()
    kept = []
    for start in range(0, 20000, 4000):
        text = prose[start : start + 4000]
        assert token_count(mine, text) == len(mine(text, verbose=False).input_ids)
        counts = token_counts._counts_of(mine)
        kept.append(len(counts.tokens) + len(counts.met))
    assert max(kept) < 1000
    before = len(token_counts._COUNTS)
    del mine
    gc.collect()
    assert len(token_counts._COUNTS) < before


def test_what_tells_no_vocabulary_is_asked_for_the_whole_text() -> None:
    class Words:
        def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> SimpleNamespace:
            return SimpleNamespace(input_ids=text.split() + ["end"] * add_special_tokens)

    prose = shipped_prose()
    assert token_count(Words(), prose) == len(prose.split()) + 1
    assert added_tokens(Words(), prose) == len(prose.split())


def test_a_text_that_is_counted_again_with_a_small_change_is_not_tokenised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, text = trained("bpe"), " ".join(f"word{i * i}" for i in range(3 * SHORT))
    token_count(tokenizer, text)
    seen: list[int] = []
    sizes = token_counts._sizes
    monkeypatch.setattr(token_counts, "_sizes", lambda of, some: seen.append(sum(map(len, some))) or sizes(of, some))  # type: ignore[func-returns-value]
    for changed in (text[:-500], text[900:-500], text[900:], f"{text[900:9000]}x y{text[9000:]}", text[900:]):
        assert token_count(tokenizer, changed) == len(tokenizer(changed, verbose=False).input_ids)
    assert sum(seen) < len(text) // 4

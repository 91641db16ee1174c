"""The training of the embedded model, on the shipped prose cut into two novels and a LongEval of our own words."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, T5ForConditionalGeneration

from experiments._lib import bpe, held_out
from experiments._lib.export import export
from experiments.embedded_model import examples
from experiments.embedded_model import train as training_run
from experiments.embedded_model.data import LONGEST, Stock, learn_vocabulary, read_longeval, read_stock
from experiments.embedded_model.examples import Plan
from experiments.embedded_model.train import (
    MOST_BYTES,
    MOST_PARAMETERS,
    Options,
    build,
    config,
    plain_model,
    stock_weights,
    train,
)
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput

SMALL = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "num_decoder_layers": 1}
LATE = Plan(steps=100, curriculum=0.4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("gutenberg", "longeval/lines", "longeval/topics"):
        (folder / name).mkdir(parents=True)
    prose = shipped_prose()
    (folder / "gutenberg" / "novel_1.txt").write_text(prose[:60000])
    (folder / "gutenberg" / "pride_2.txt").write_text(prose[60000:])
    names = [f"{a}-{b}" for a in ("red", "blue", "green", "black", "white") for b in ("cup", "fork", "knife", "spoon", "plate")]
    lines = "".join(f"\nline {name}: REGISTER_CONTENT is <{at}>" for at, name in enumerate(names))
    line = {"prompt": f"A record:\n{lines}\n\nOver. What is in line red-cup? ", "random_idx": ["red-cup", 0]}
    labels = ["The age of trees", "The colour of bread", "The taste of rain", "The end of summer", "The love of maps"]
    talks = "USER: ".join(
        f"I would like to discuss the topic of {label.lower()}. \n ASSISTANT: Yes. \n USER: Great, this is the end of our "
        f"discussion on {label}, let's talk about the next topic."
        for label in labels
    )
    topic = {"prompt": f"A talk on 5 things. USER: {talks} Over. What is the first topic?", "topics": labels}
    (folder / "longeval" / "lines" / "25_lines.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "longeval" / "topics" / "5_topics.jsonl").write_text(json.dumps(topic) + "\n")
    return folder


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return learn_vocabulary(data, 2048)


@pytest.fixture(scope="module")
def training(data: Path, tokenizer: Tokenizer) -> Stock:
    return read_stock(data, tokenizer, train=True)


def test_tokenizer_keeps_every_text_and_splits_digits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    bpe.save(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The pass key is 40961.", "café  \n\n  日本 🙂\ttab", "line a-b: REGISTER_CONTENT is <77>\n"):
        ids = loaded(text).input_ids
        assert ids[-1] == loaded.eos_token_id == 1
        assert 2 not in ids
        assert loaded.decode(ids, skip_special_tokens=True) == text
    assert (loaded.pad_token_id, loaded.unk_token_id) == (0, 2)
    digits = loaded("40961", add_special_tokens=False).input_ids
    assert [loaded.decode([digit]) for digit in digits] == list("40961")


def test_examples_fit_are_tokenised_right_and_answered_by_their_text(training: Stock) -> None:
    randomness = random.Random(0)
    lengths = []
    for _ in range(500):
        one = examples.example(training, LATE, randomness, step=90)
        lengths.append(len(one.tokens))
        assert len(one.tokens) <= LONGEST
        assert one.tokens[-1] == 1
        if one.source != "text":
            assert all(part in one.text for part in (one.answer.split() if one.source == "line" else [one.answer]))
            assert one.tokens == training.pieces.tokenizer.encode(one.text).ids
            assert one.target == training.pieces.tokenizer.encode(one.answer).ids
        if one.source == "line" and "REGISTER_CONTENT" in one.text:
            numbers = dict(re.findall(r"line (\S+): REGISTER_CONTENT is <(\d+)>", one.text))
            assert [numbers[name] for name in _asked(one.text)] == one.answer.split()
    assert min(lengths) < 100
    assert sum(length > 400 for length in lengths) > 150


def _asked(text: str) -> list[str]:
    names = re.findall(r"[a-z]+(?:-[a-z]+)+", text.rpartition("REGISTER_CONTENT")[2])
    return names if "Which numbers belong" in text else names[-1:]


def test_curriculum_goes_from_few_plain_lines_to_all_that_fit() -> None:
    hard = [examples.difficulty(LATE, step) for step in (0, 10, 20, 30, 40, 99)]
    assert [one.most for one in hard] == [3, 10, 10, 25, 40, 40]
    assert [one.variety for one in hard] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]


def test_held_out_words_and_labels_stay_out_of_training(data: Path, tokenizer: Tokenizer, training: Stock) -> None:
    randomness = random.Random(1)
    plan = replace(LATE, weights={"line": 1.0})
    names = [
        name
        for _ in range(300)
        for name in re.findall(r"\b[a-z]+-[a-z]+\b", examples.example(training, plan, randomness, 90).text)
    ]
    assert len(names) > 2000
    assert not any(held_out.word(word) for name in names for word in name.split("-"))
    unseen = read_stock(data, tokenizer, train=False)
    assert not set(unseen.labels) & set(training.labels)
    assert all(held_out.word(word) for words in unseen.names for word in [*words.first, *words.second])
    assert unseen.books.sentences[0] not in training.books.sentences


def test_official_frames_are_read_without_their_cases(data: Path) -> None:
    frames = read_longeval(data)
    assert frames.line_introductions == ["A record:\n"]
    assert frames.line_questions == ["\n\nOver. What is in line {name}?", "\n\nOver. What is in line {name}? "]
    assert frames.topic_introductions == ["A talk on {count} things."]
    assert frames.topic_closings == [
        " \n USER: Great, this is the end of our discussion on {label}, let's talk about the next topic."
    ]
    assert frames.topic_questions == [" Over. What is the {which} topic?"]


def test_a_step_is_the_same_whatever_came_before(training: Stock) -> None:
    plan = Plan(batch=6, chunks=2, steps=5)
    whole = dict(examples.stream(training, plan, 0))
    resumed = dict(examples.stream(training, plan, 3))
    assert list(whole) == [0, 1, 2, 3, 4]
    assert list(resumed) == [3, 4]
    for mine, other in zip(whole[3], resumed[3], strict=True):
        assert torch.equal(mine.inputs, other.inputs)
        assert torch.equal(mine.labels, other.labels)
        assert mine.inputs.shape[1] % 64 == 0
    assert not torch.equal(whole[0][1].inputs, whole[1][1].inputs)


def test_scores_follow_the_tasks(data: Path, tokenizer: Tokenizer) -> None:
    cases = training_run.cases(read_stock(data, tokenizer, train=False), 2)
    assert list(cases) == list(training_run.MAKERS)
    for asked in cases.values():
        assert all(training_run.score(one, f"It is {one.answer.upper()}.") == 1 for one in asked)
        assert all(training_run.score(one, "It is 0.") == 0 for one in asked)


def test_the_model_fits_the_package() -> None:
    with torch.device("meta"):
        model = T5ForConditionalGeneration(config())
    assert sum(parameter.numel() for parameter in model.parameters()) <= MOST_PARAMETERS


def test_the_exported_model_is_stock_and_says_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = build(config(2048, **SMALL), seed=0).eval()
    inputs = {"input_ids": torch.randint(3, 2048, (2, 40)), "decoder_input_ids": torch.randint(3, 2048, (2, 5))}
    with torch.no_grad():
        expected = model(**inputs).logits
        # The factor is a power of two, so not a bit may change
        assert torch.equal(plain_model(model).eval()(**inputs).logits, expected)
    export(plain_model(model), tokenizer, tmp_path, MOST_BYTES)
    loaded = T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    rounded = {name: weight.bfloat16() for name, weight in stock_weights(model).items()}
    assert all(torch.equal(parameter, rounded[name]) for name, parameter in loaded.named_parameters())
    beside_a_model = AutoTokenizer.from_pretrained(tmp_path)
    assert beside_a_model("12 cups").input_ids == tokenizer.encode("12 cups").ids


def test_a_resumed_run_equals_an_undisturbed_one(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(batch=4, chunks=2, steps=6)
    common = {"warm_up": 2, "log_every": 1, "samples": 1, "workers": 0, "device": "cpu", "attention": "eager", "sizes": SMALL}
    whole = train(Options(data, tmp_path / "whole", plan, **common))
    undisturbed = _losses(capsys.readouterr().out)
    train(Options(data, tmp_path / "parts", plan, stop_after=3, **common))
    first = _losses(capsys.readouterr().out)
    parts = train(Options(data, tmp_path / "parts", plan, **common))
    assert first + _losses(capsys.readouterr().out) == undisturbed
    assert len(undisturbed) == 6
    assert all(torch.equal(mine, other) for mine, other in zip(whole.parameters(), parts.parameters(), strict=True))
    assert (tmp_path / "parts" / "export" / "model.safetensors").stat().st_size < 16_000_000
    with pytest.raises(BadInput, match="seed was 0, now 1"):
        train(Options(data, tmp_path / "parts", replace(plan, seed=1), **common))


def _losses(printed: str) -> list[str]:
    return re.findall(r"^step \d+ .* (loss .*)$", printed, re.M)

"""The training of one T5 and the tuning of another, on the shipped prose cut into two novels and a small LongEval."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from experiments._lib import bpe, code_rows, held_out, made_up, natural_questions, reader, t5_training
from experiments._lib.batches import IGNORED, Stream
from experiments._lib.t5_training import LONGEST, Material, Run, plain_model, warm_up_then_cosine
from experiments.embedded_model import data as embedded_data
from experiments.embedded_model import examples as embedded_examples
from experiments.embedded_model import train as embedded
from experiments.tuned_flan import data as tuned_data
from experiments.tuned_flan import train as tuned
from lengthwise.common.text import shipped_prose
from lengthwise.models.load import load
from lengthwise.models.t5_head import head_is_the_embedding, is_flattened
from lengthwise.tasks import code_key_retrieval, line, multi_document_qa, passkey, topic
from lengthwise.tasks.material import documents
from lengthwise.tasks.material.code_files import standard_library

# Whole runs, before a release
pytestmark = pytest.mark.sweep

SMALL = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "num_decoder_layers": 1}
LATE = embedded_examples.difficulty(90, 40)


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
    questions = []
    for number, city in enumerate("Abo Bern Calais Delft Essen Fulda Gent Hull Ivrea Jena Kiel Linz".split()):
        text = (
            f"It is an old town. The mayor of {city} in 19{number + 10} was Anna Smith{number}, who liked cats. It has a port."
        )
        gold = {"title": city, "text": text, "isgold": True}
        questions.append({"question": f"who was mayor of {city}", "answers": [f"Anna Smith{number}", "Queen"], "ctxs": [gold]})
    (folder / "nq.jsonl").write_text("".join(json.dumps(line) + "\n" for line in questions))
    return folder


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return embedded_data.learn_vocabulary(data, 2048)


@pytest.fixture(scope="module")
def lines_and_topics(data: Path, tokenizer: Tokenizer) -> embedded_data.Stock:
    return embedded_data.read_stock(data, tokenizer, train=True)


def test_a_vocabulary_keeps_every_character_and_splits_digits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    bpe.for_transformers(tokenizer).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    code, prose = "def f(x):\n\tif x:\n        return [x_1,  'é']\n\n", "It\u2019s <77> 1,024 .5\n   "
    for text in (code, prose, "café  \r\n  日本 🙂\x0c"):
        ids = loaded(text).input_ids
        assert ids[-1] == loaded.eos_token_id == 1
        assert 2 not in ids
        assert loaded.decode(ids, skip_special_tokens=True) == text
    assert (loaded.pad_token_id, loaded.unk_token_id) == (0, 2)
    split = [loaded.decode([token]) for token in loaded("40961", add_special_tokens=False).input_ids]
    assert split == list("40961")


def test_code_is_a_row_of_its_lines_and_asks_for_whole_ones(lines_and_topics: embedded_data.Stock) -> None:
    files, pieces = [file for file in standard_library() if len(file.lines) > 400][:2], lines_and_topics.pieces
    code, decode = code_rows.tokenised(files, pieces), pieces.tokenizer.decode
    lines = [line for file in files for line in (*file.lines, "")]
    ends = [*code.lines[1:].tolist(), len(code.tokens)]
    for at in random.Random(0).sample(range(len(lines)), 200):
        assert decode(code.tokens[code.lines[at] : ends[at]].tolist()) == lines[at] + "\n"
    assert len(code.asked) > 20
    for start, bare, end in code.asked.tolist():
        assert decode(code.tokens[bare:end].tolist()) == decode(code.tokens[start:end].tolist()).strip()


def test_a_copy_of_a_file_is_told_from_one_of_its_own() -> None:
    first, other, *_ = (file for file in standard_library() if len(file.lines) > 400)
    lines = code_rows.telling(first.lines)
    assert code_rows.copied(replace(first, lines=("# our copy", *first.lines)), lines)
    assert not code_rows.copied(other, lines)


def test_records_and_talks_fit_are_tokenised_right_and_answered_by_their_text(lines_and_topics: embedded_data.Stock) -> None:
    randomness = random.Random(0)
    lengths = []
    for _ in range(150):
        one = embedded_examples.example(lines_and_topics, LATE, randomness)
        lengths.append(len(one.tokens))
        assert len(one.tokens) <= LONGEST
        assert one.tokens[-1] == 1
        if one.source != "text":
            assert all(part in one.text for part in (one.answer.split() if one.source == "line" else [one.answer]))
            assert one.tokens == lines_and_topics.pieces.tokenizer.encode(one.text).ids
            assert one.target == lines_and_topics.pieces.tokenizer.encode(one.answer).ids
        if one.source == "line" and "REGISTER_CONTENT" in one.text:
            numbers = dict(re.findall(r"line (\S+): REGISTER_CONTENT is <(\d+)>", one.text))
            asked = re.findall(r"[a-z]+(?:-[a-z]+)+", one.text.rpartition("REGISTER_CONTENT")[2])
            asked = asked if "Which numbers belong" in one.text else asked[-1:]
            assert [numbers[name] for name in asked] == one.answer.split()
    assert min(lengths) < 100
    assert sum(length > 400 for length in lengths) > 45


def test_held_out_words_and_labels_stay_out_of_training(
    data: Path, tokenizer: Tokenizer, lines_and_topics: embedded_data.Stock
) -> None:
    randomness = random.Random(1)
    made = [embedded_examples.example(lines_and_topics, LATE, randomness, "line").text for _ in range(60)]
    names = [name for text in made for name in re.findall(r"\b[a-z]+-[a-z]+\b", text)]
    assert len(names) > 400
    assert not any(held_out.word(word) for name in names for word in name.split("-"))
    unseen = embedded_data.read_stock(data, tokenizer, train=False)
    assert not set(unseen.labels) & set(lines_and_topics.labels)
    assert all(held_out.word(word) for words in unseen.names for word in [*words.first, *words.second])
    assert unseen.books.sentences[0] not in lines_and_topics.books.sentences
    for exam in embedded.exams(unseen, 2).values():
        assert all(score(f"It is {score.args[0].answer.upper()}.") == 1 for score in exam.scores)  # type: ignore[attr-defined]
        assert all(score("It is 0.") == 0 for score in exam.scores)


def test_training_never_uses_a_name_that_evaluation_can_make() -> None:
    words = ["barton", "corford", "harbour", "window", "calabury"]
    randomness = random.Random(3)
    names = {made_up.made_up_name(randomness, words) for _ in range(4000)}
    middles = ["", *documents.MIDDLES, *map("".join, itertools.product(documents.MIDDLES, repeat=2))]
    tasks = {a + b + c for a, b, c in itertools.product(documents.BEGINNINGS, middles, documents.ENDS)}
    assert {"Barton", "Corford", "Calabury"} <= tasks
    assert "Harbour" in names
    assert not names & tasks


def test_pages_of_evaluation_are_not_trained_on(data: Path) -> None:
    trained = {one.question.gold.title for one in natural_questions.training_questions(data / "nq.jsonl")}
    asked = {question.gold.title for question in natural_questions.held_out_questions(data / "nq.jsonl")}
    assert asked
    assert not trained & asked
    assert len(trained | asked) == 12


def test_cut_passages_keep_to_their_text() -> None:
    text = "One two three four five six Anna Smith, seven eight nine ten."
    for seed in range(60):
        cut = natural_questions.window(random.Random(seed), text, "Anna Smith", 6)
        assert "Anna Smith" in cut
        assert cut in text
        assert 2 <= len(cut.split()) <= 8


def test_a_curriculum_begins_small_and_ends_with_everything() -> None:
    hard = [embedded_examples.difficulty(step, 40) for step in (0, 10, 20, 30, 40, 99)]
    assert [(one.most, one.variety) for one in hard] == [(3, 0), (10, 0), (10, 0), (25, 0.5), (40, 1), (40, 1)]


def test_a_step_is_the_same_whatever_came_before(lines_and_topics: embedded_data.Stock) -> None:
    batch = partial(embedded_examples.batch, lines_and_topics, 6, 2.5, 0)
    whole, resumed = dict(Stream(batch, 0, 5)), dict(Stream(batch, 3, 5))
    assert (list(whole), list(resumed)) == ([0, 1, 2, 3, 4], [3, 4])
    for mine, other in zip(whole[3], resumed[3], strict=True):
        assert all(torch.equal(getattr(mine, part), getattr(other, part)) for part in ("inputs", "labels", "bound"))
    assert not torch.equal(whole[0][1].inputs, whole[1][1].inputs)


def test_every_example_of_a_step_counts_alike(
    lines_and_topics: embedded_data.Stock, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(t5_training, "ENCODER", 0)
    monkeypatch.setattr(t5_training, "BINDING", 0)
    options = t5_training.Options(data=tmp_path, out=tmp_path, steps=5, device="cpu", attention="eager", sizes=SMALL)
    nothing = Material(lambda _: [], {}, torch.zeros(0), torch.zeros(0))
    run = Run(embedded.RECIPE, options, tokenizer, nothing)
    for step, count in ((0, 9), (3, 8)):
        chunks = embedded_examples.batch(lines_and_topics, count, 1, 0, step)
        assert sum(len(chunk.inputs) for chunk in chunks) == count
        with torch.no_grad():
            total = sum(run.loss(chunk, count) for chunk in chunks)
            pairs = (pair for chunk in chunks for pair in zip(chunk.inputs, chunk.labels, strict=True))
            alone = [
                float(run.model(input_ids=i[i != 0][None].long(), labels=t[t != IGNORED][None].long()).loss) for i, t in pairs
            ]
        assert float(total) == pytest.approx(sum(alone) / len(alone), rel=1e-5)
    places = ((0, 0), (3, 0), (4, 0), (9, 1 / 3), (9, 0.5), (9, 1))
    rates = [warm_up_then_cosine(step, 4, share, 8.0, 2.0) for step, share in places]
    assert rates == pytest.approx([2.0, 8.0, 8.0, 6.5, 5.0, 2.0])


def test_the_model_has_its_size_and_folds_the_queries_factor_exactly() -> None:
    recipe = embedded.RECIPE
    with torch.device("meta"):
        assert 5 < sum(p.numel() for p in T5ForConditionalGeneration(recipe.config(4096)).parameters()) / 1e6 < 8
    model = reader.add(reader.build(recipe.config(2048, **SMALL), seed=0)).eval()
    inputs = {"input_ids": torch.randint(3, 2048, (2, 40)), "decoder_input_ids": torch.randint(3, 2048, (2, 5))}
    with torch.no_grad():
        # The factor is a power of two, so not a bit may change
        assert torch.equal(plain_model(model).eval()(**inputs).logits, model(**inputs).logits)


def test_training_learns_resumes_and_exports_a_stock_t5(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "RECIPE", replace(embedded.RECIPE, warm_up=2, peak=3e-2))

    def train(name: str, **changes: Any) -> Any:
        given = {"steps": 8, "batch": 4, "log_every": 1, "samples": 1, "workers": 0, "device": "cpu", **changes}
        out = tmp_path / name
        return embedded.train(embedded.Options(data=data, out=out, attention="eager", sizes=SMALL, vocabulary=1024, **given))

    def losses() -> list[str]:
        return re.findall(r"^step \d+ .* (loss .*)$", capsys.readouterr().out, re.M)

    whole = train("whole")
    undisturbed = losses()
    assert len(undisturbed) == 8
    assert float(undisturbed[-1].split()[1]) < float(undisturbed[0].split()[1]) - 0.3
    # The answer, what the encoder's last token knows of it, and the names; a text that goes on has neither
    assert all(re.search(r"/0\.000/0\.000", line) for line in undisturbed if " text " in line)
    train("parts", stop_after=3)
    first = losses()
    parts = train("parts")
    assert first + losses() == undisturbed
    assert all(torch.equal(mine, other) for mine, other in zip(whole.parameters(), parts.parameters(), strict=True))
    model, tokenizer = load(str(tmp_path / "parts" / "export"), device="cpu")
    assert model.config.n_positions == LONGEST
    assert tokenizer("x = 12\n").input_ids[-1] == model.config.eos_token_id == 1
    loaded = T5ForConditionalGeneration.from_pretrained(tmp_path / "parts" / "export")
    assert loaded.dtype == torch.bfloat16
    rounded = {name: weight.bfloat16() for name, weight in plain_model(parts).named_parameters()}
    assert all(torch.equal(parameter, rounded[name]) for name, parameter in loaded.named_parameters())


WORDINGS = (
    passkey.INTRODUCTION,
    passkey.QUESTION,
    line.INTRODUCTION,
    "REGISTER_CONTENT",
    "Which number is on line",
    topic.INTRODUCTION[:40],
    topic.OPENING.partition("{")[0],
    multi_document_qa.INTRODUCTION,
    "Question:",
    "Document 1",
    code_key_retrieval.NAME,
)


def test_a_training_can_leave_out_the_wordings_of_evaluation(data: Path, tokenizer: Tokenizer) -> None:
    for without in (True, False):
        stock = embedded_data.read_stock(data, tokenizer, train=True, tests_wording=not without)
        made = [embedded_examples.example(stock, LATE, random.Random(at)) for at in range(300)]
        assert any(part in one.text for one in made for part in WORDINGS) != without
    assert embedded.Options(data=data, out=data, size="first").sizes == {"num_layers": 6, "d_kv": 64}


@pytest.fixture(scope="module")
def word_t5(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny T5 with a head of its own, whose tokenizer splits at white space as T5's does."""
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    tokenizer = bpe.learn([shipped_prose()], 2047, split)
    tokenizer.add_special_tokens(["<extra_id_0>"])
    folder = tmp_path_factory.mktemp("word_t5")
    bpe.for_transformers(tokenizer).save_pretrained(folder)
    sizes: dict[str, Any] = {**SMALL, "feed_forward_proj": "gated-gelu", "n_positions": 512, "decoder_start_token_id": 0}
    model = T5ForConditionalGeneration(T5Config(vocab_size=2048, pad_token_id=0, tie_word_embeddings=False, **sizes))
    model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn(2048, 32))
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    return folder


def test_tuning_reads_no_wording_and_no_material_of_evaluation(data: Path, word_t5: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(word_t5).backend_tokenizer
    stock = tuned_data.read_stock(data, data / "nq.jsonl", tokenizer)
    randomness = random.Random(0)
    for source in tuned_data.SOURCES:
        for _ in range(40):
            one = tuned_data.example(stock, randomness, source)
            text = one.text or tokenizer.decode(one.tokens)
            assert len(one.tokens) <= LONGEST
            assert one.tokens[-1] == 1
            assert not [part for part in WORDINGS if part in text]
            if one.text:
                assert one.tokens == tokenizer.encode(one.text).ids
                copied = re.sub(r"^(?:answer: |It is |\(\d+\) )|\.$", "", one.answer)
                assert copied in one.text or source == "summary"
    assert not any(held_out.code(file) for file in tuned_data.training_code())
    assert not any(held_out.word(word) for word in stock.names)


def test_tuning_learns_resumes_and_says_what_it_gained(
    data: Path, word_t5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuned, "RECIPE", replace(tuned.RECIPE, warm_up=2, peak=3e-2))
    given: dict[str, Any] = {"model": str(word_t5), "nq": data / "nq.jsonl", "steps": 8, "batch": 8, "samples": 1, "workers": 0}
    options = tuned.Options(data=data, out=tmp_path, device="cpu", log_every=1, **given)
    tuned.train(replace(options, stop_after=3))
    tuned.train(options)
    losses = [float(loss) for loss in re.findall(r"^step \d+ .*? loss (\S+)", capsys.readouterr().out, re.M)]
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.3
    document = json.loads((tmp_path / "training.json").read_text())
    assert (document["steps"], document["planned"], document["seed"]) == (8, 8, 0)
    assert document["held_out"]["as found"].keys() == document["held_out"]["tuned"].keys()
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["scale_decoder_outputs"]) == (False, False)
    exported, _ = load(str(tmp_path / "export"), device="cpu")
    assert not is_flattened(exported)
    assert not head_is_the_embedding(exported)
    assert "| code line, similarity |" in (tmp_path / "training.md").read_text()

"""The training of the larger T5, on the shipped prose cut into two novels, the package's own code and made-up questions."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import re
import shutil
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5ForConditionalGeneration

import lengthwise
from experiments._lib import bpe
from experiments._lib.batches import IGNORED
from experiments._lib.reader import Halfway
from experiments._lib.t5_training import Losses, warm_up_then_cosine
from experiments.larger_model import data as training_data
from experiments.larger_model import examples
from experiments.larger_model import train as training
from experiments.larger_model.data import Stock, Texts, learn_vocabulary, stock, texts
from experiments.larger_model.examples import LONGEST, SHORT, SOURCES, TARGET, Plan
from experiments.larger_model.train import Clock, Options, Run, config, train
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput
from lengthwise.models.load import load
from lengthwise.tasks import code_key_retrieval, multi_document_qa
from lengthwise.tasks.material import documents
from lengthwise.tasks.material.code_files import CodeFile, standard_library
from lengthwise.tasks.material.documents import Document

SMALL = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "num_decoder_layers": 1}
CODE = Path(lengthwise.__file__).parent / "tasks"
QUESTIONED = ("made-up qa", "nq", "cloze", "passkey prose")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "gutenberg").mkdir()
    prose = shipped_prose()
    (folder / "gutenberg" / "novel_1.txt").write_text(prose[:60000])
    (folder / "gutenberg" / "pride_2.txt").write_text(prose[60000:])
    lines = []
    for number, city in enumerate("Abo Bern Calais Delft Essen Fulda Gent Hull Ivrea Jena Kiel Linz".split()):
        text = (
            f"It is an old town. The mayor of {city} in 19{number + 10} was Anna Smith{number}, who liked cats. It has a port."
        )
        context = {"title": city, "text": text, "isgold": True}
        lines.append({"question": f"who was mayor of {city}", "answers": [f"Anna Smith{number}", "Queen"], "ctxs": [context]})
    (folder / "nq.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def read(data: Path) -> Texts:
    return texts(data, data / "nq.jsonl", [CODE])


@pytest.fixture(scope="module")
def tokenizer(read: Texts) -> Tokenizer:
    return learn_vocabulary(read.sample(), 2048)


@pytest.fixture(scope="module")
def material(read: Texts, tokenizer: Tokenizer) -> Stock:
    return stock(read, tokenizer, processes=1)


def test_tokenizer_keeps_every_character_and_is_loaded_by_transformers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    bpe.save(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in (
        "def f(x):\n\tif x:\n        return [x_1,  'é']\n\n",
        "café  \r\n  日本 🙂\x0c",
        "It\u2019s 1,024 'self' .5\n   ",
    ):
        ids = loaded(text).input_ids
        assert ids[-1] == loaded.eos_token_id == 1
        assert 2 not in ids
        assert loaded.decode(ids, skip_special_tokens=True) == text

    def split(text: str) -> list[str]:
        return [loaded.decode([token]) for token in loaded(text, add_special_tokens=False).input_ids]

    assert split("409") == ["4", "0", "9"]
    assert split("\n\n    \n        ") == ["\n", "\n", "    ", "\n", "        "]
    assert split("        return")[1:] == split("return")


def test_tokens_of_a_file_are_the_tokens_of_its_lines(read: Texts, material: Stock, tokenizer: Tokenizer) -> None:
    whole = "".join("\n".join(file.lines) + "\n\n" for file in read.files)
    assert material.code.tokens.tolist() == tokenizer.encode(whole, add_special_tokens=False).ids
    lines = [line for file in read.files for line in (*file.lines, "")]
    ends = [*material.code.lines[1:].tolist(), len(material.code.tokens)]
    for at in random.Random(0).sample(range(len(lines)), 200):
        assert tokenizer.decode(material.code.tokens[material.code.lines[at] : ends[at]].tolist()) == lines[at] + "\n"


def test_special_tokens_within_a_text_are_text(read: Texts, material: Stock) -> None:
    assert any("</s>" in line for file in read.files for line in file.lines)
    assert 1 not in material.code.tokens


def test_questions_fit_are_tokenised_right_and_answered_by_their_text(material: Stock, tokenizer: Tokenizer) -> None:
    randomness = random.Random(0)
    counts = []
    for source, length in itertools.product(QUESTIONED, (90, 200, 512)):
        for _ in range(12):
            one = examples.make(material, source, randomness, length, documents=12)
            text, answer = (tokenizer.decode(row, skip_special_tokens=True) for row in (one.tokens, one.target))
            assert one.source == source
            assert len(one.tokens) <= max(length, 160) + (4 if source == "passkey prose" else 0)
            assert one.tokens == tokenizer.encode(text).ids
            assert one.target == tokenizer.encode(answer).ids
            assert answer in text
            if source != "passkey prose":
                documents = re.findall(r"^Document \d+ (.*)$", text, re.M)
                question = re.search(r"^Question: (.*) Answer:$", text, re.M)
                assert question
                assert text == multi_document_qa.prompt_of(question[1], documents)
                counts.append(len(documents))
    assert min(counts) == 1
    assert max(counts) >= 5


def test_a_question_stands_over_its_own_passage_only(material: Stock, tokenizer: Tokenizer) -> None:
    randomness = random.Random(2)
    for _ in range(20):
        one = examples.make(material, "nq", randomness, 512, documents=12)
        text, answer = (tokenizer.decode(row, skip_special_tokens=True) for row in (one.tokens, one.target))
        told = [line for line in text.splitlines() if line.startswith("Document") and answer in line]
        city = re.search(r"who was mayor of (\w+)\?", text)
        assert city
        assert len(told) == 1
        assert f"({city[1]})" in told[0]


def test_code_completion_asks_for_a_line_of_a_file_behind_what_stands_before_it(material: Stock, read: Texts) -> None:
    randomness = random.Random(1)
    decode = material.pieces.tokenizer.decode
    whole = "".join("\n".join(file.lines) + "\n\n" for file in read.files)
    for length in (60, 300, 512):
        for _ in range(10):
            one = examples.make(material, "code completion", randomness, length, documents=12)
            prompt, answer = decode(one.tokens), decode(one.target)
            assert len(one.tokens) == length or whole.startswith(prompt)
            assert (one.tokens[-1], one.target[-1]) == (1, 1)
            places = [found.end() for found in re.finditer(re.escape(prompt), whole)]
            assert any(whole[place:].partition("\n")[0].strip() == answer for place in places)
            assert 10 <= len(answer) <= 60


def test_code_key_has_the_layout_of_the_task(material: Stock, read: Texts) -> None:
    randomness = random.Random(1)
    decode = material.pieces.tokenizer.decode
    whole = "".join("\n".join(file.lines) + "\n\n" for file in read.files)
    between = 0
    for length in (80, 256, 512) * 8:
        one = examples.make(material, "code key", randomness, length, documents=12)
        prompt, key = decode(one.tokens), decode(one.target)
        assert length - 1 <= len(one.tokens) <= length
        assert 1 <= int(key) <= 100
        head, tail = f"{code_key_retrieval.INTRODUCTION}\n", f"\n{code_key_retrieval.QUESTION}"
        function = f"\ndef pass_key():\n    return {key}\n\n\n"
        assert prompt.startswith(head)
        assert prompt.endswith(tail)
        assert prompt.count("def pass_key") == 1
        before, found, after = prompt[len(head) : -len(tail) + 1].partition(function)
        assert found
        assert before == "" or before.endswith("\n")
        # Without the function it is a piece of code; a cut line has got an end
        assert (before + after).rstrip("\n") in whole
        between += bool(before) and bool(after)
    assert between > 12


def test_training_never_uses_a_name_that_evaluation_can_make() -> None:
    randomness = random.Random(3)
    words = ["barton", "corford", "harbour", "window", "calabury"]
    names = {examples.made_up_name(randomness, words) for _ in range(4000)}
    middles = ["", *documents.MIDDLES, *map("".join, itertools.product(documents.MIDDLES, repeat=2))]
    tasks = {a + b + c for a, b, c in itertools.product(documents.BEGINNINGS, middles, documents.ENDS)}
    assert {"Barton", "Corford", "Calabury"} <= tasks
    assert "Harbour" in names
    assert not names & tasks
    facts = list(itertools.islice(examples.made_up_facts(random.Random(4), words), 30))
    for one in facts:
        assert one.question.answers[0] in one.question.gold.text
        subject = max(re.findall(r"[A-Z]\w+", one.question.text), key=len)
        assert sum(subject in other.question.gold.told for other in facts) == 1


def test_pages_of_evaluation_are_not_trained_on(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = {one.question.gold.title for one in training_data.training_questions(data / "nq.jsonl")}
    asked = {question.gold.title for question in training_data.held_out_questions(data / "nq.jsonl")}
    assert not trained & asked
    assert len(trained | asked) == 12
    assert asked
    assert training_data.main(["--nq", str(data / "nq.jsonl"), "--out", str(tmp_path / "held.jsonl")]) == 0
    assert f"{len(asked)} questions" in capsys.readouterr().out
    written = documents.read_questions(tmp_path / "held.jsonl")
    assert {question.gold.title for question in written} == asked
    assert training_data.main(["--nq", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "x")]) == 2


def test_a_cut_passage_keeps_its_answer() -> None:
    text = "One two three four five six Anna Smith, seven eight nine ten."
    for seed in range(40):
        cut = training_data.window(random.Random(seed), text, "Anna Smith", 6)
        assert "Anna Smith" in cut
        assert cut in text
        assert 2 <= len(cut.split()) <= 8


def test_cloze_leaves_out_a_name_or_a_number_of_the_document() -> None:
    document = Document("T", "Short one. In those days the old king of Spain met Peter Brown in 1702 near the river.")
    seen = set()
    for seed in range(60):
        made = examples.cloze_of(random.Random(seed), document)
        assert made is not None
        seen.add(made.answers[0])
        assert made.answers[0] not in made.text
        assert "what name" in made.text or "which number" in made.text
    assert seen == {"Spain", "Peter Brown", "1702"}
    assert examples.cloze_of(random.Random(0), Document("T", "it is all in small letters and there is nothing at all.")) is None


def test_the_standard_library_is_never_trained_on(tmp_path: Path) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    for folder in (library, library / "json", library.parent):
        with pytest.raises(BadInput, match="standard library"):
            training_data.read_code_files([folder])
    copied = next(file for file in standard_library() if file.name == "argparse.py")
    (tmp_path / "_vendored.py").write_text("\n".join(["# our copy", *copied.lines]))
    own = "\n".join(f"def number_{at}(value):\n    return compute_something_of_our_own({at}, value)\n" for at in range(30))
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "again.py").write_text(own)
    (tmp_path / "notes.txt").write_text("not code")
    (kept,) = training_data.read_code_files([tmp_path])
    assert kept.name in ("own.py", "again.py")
    assert training_data.read_code_files([tmp_path], most=len(own))
    with pytest.raises(BadInput, match="no Python file is left"):
        training_data.read_code_files([tmp_path], most=len(own) // 2)


def test_no_folder_has_more_than_its_share_of_the_code(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abcd"]
    for folder in folders:
        folder.mkdir()
        for at in range(20 if folder.name == "a" else 3):
            (folder / f"{at}.py").write_text(f"{folder.name}_{at:02} = {'1' * 93}")
    kept = training_data.read_code_files(folders, most=2000)
    assert sum(file.lines[0].startswith("a") for file in kept) == 5
    assert len(kept) == 5 + 3 * 3
    assert len(training_data.read_code_files(folders[:1], most=2000)) == 20


def test_prose_is_taken_from_docstrings_and_texts_but_not_tables(tmp_path: Path) -> None:
    said = "This tells at some length what the function does. " * 5
    (tmp_path / "README.md").write_text(said.upper())
    (tmp_path / "table.txt").write_text("1.5 2.5 3.5\n" * 50)
    file = CodeFile("a.py", ("def f():", f'    """{said}', "", '    More."""', '    """short"""'))
    assert training_data.prose_of([tmp_path], [file, file]) == [f"{said}\n\nMore.", said.upper().strip()]


def test_a_fact_tells_where_its_answer_stands_and_what_it_is_found_by() -> None:
    randomness = random.Random(5)
    facts = [one for _ in range(80) for one in itertools.islice(examples.made_up_facts(randomness, ["window", "mayor"]), 3)]
    for one in facts:
        assert one.sentence in one.question.gold.text
        assert one.sentence[one.at :].startswith(one.question.answers[0])
        assert one.name in one.sentence
        assert one.name in one.question.text
        assert one.name not in one.question.answers[0]
    forms = {re.sub(r"[A-Z]\w+|\d+", "", one.question.text) for one in facts}
    assert len(forms) > len(examples.FORMS)


def test_answers_in_made_up_documents_are_bound_to_their_places(material: Stock, tokenizer: Tokenizer) -> None:
    randomness = random.Random(6)
    sentence = re.compile(r"The (\w+) of (\w+) was \w+ by ([A-Z]\w+ [A-Z]\w+)\.")
    bound, cut = 0, 0
    for length in (90, 200, 512) * 12:
        one = examples.make(material, "made-up qa", randomness, length, documents=6)
        text = tokenizer.decode(one.tokens, skip_special_tokens=True)
        *inside, last = one.bound
        spans = [
            (tokenizer.decode(one.tokens[first.at : end.at + 1]), first.name)
            for first, end in zip(inside[::2], inside[1::2], strict=True)
            if first.name == end.name
        ]
        assert len(spans) == len(inside) // 2
        for _, place, person in sentence.findall(text):
            assert spans.count((f" {person}", _ends(tokenizer, place))) == 1
            bound += 1
        cut += len(spans) < len(re.findall("^Document", text, re.M))
        assert last.at == len(one.tokens) - 1
        asked = re.search(r"Question: Who \w+ the \w+ of (\w+)\?", text)
        if asked:
            assert last.name == _ends(tokenizer, asked[1])
    assert bound > 30
    assert cut > 3


def _ends(tokenizer: Tokenizer, name: str) -> tuple[int, ...]:
    ids = tokenizer.encode(f" {name}", add_special_tokens=False).ids
    return (*(ids * 2)[:2], *(ids * 2)[-2:]) if len(ids) == 1 else (*ids[:2], *ids[-2:])


def test_the_curriculum_begins_with_one_document_and_ends_with_all() -> None:
    stages = [examples.stage_of(step, 80) for step in (0, 9, 10, 29, 30, 79, 80, 100, 120, 160, 999)]
    assert [one.documents for one in stages] == [1, 1, 2, 3, 4, 4, 4, 6, 8, 12, 12]
    assert [one.early for one in stages] == [True] * 6 + [False] * 5
    assert [one.grown for one in stages] == [0, 0, 0, 0, 0, 0, 0, 0.25, 0.5, 1, 1]
    assert examples.stage_of(0, 0) == examples.Stage(early=False, documents=12, grown=1.0)
    half = examples.mixed_shares(examples.EARLY, examples.WEIGHTS, 0.5)
    assert half["passkey prose"] == pytest.approx(0.13)
    assert half["made-up qa"] == pytest.approx(0.24)
    for shares in (examples.EARLY, half, examples.WEIGHTS):
        assert sum(shares.values()) == pytest.approx(1)


def test_early_batches_are_short_and_mostly_retrieval(material: Stock, tokenizer: Tokenizer) -> None:
    plan = Plan(batch=64, curriculum=8, steps=5)
    sources = []
    for step, chunks in examples.stream(material, plan, 0):
        assert [tuple(chunk.inputs.shape) for chunk in chunks] == [(24, SHORT)] * 3
        for row in torch.cat([chunk.inputs for chunk in chunks]).tolist():
            documents = re.findall(r"^Document \d", tokenizer.decode(row), re.M)
            assert len(documents) <= min(4, 1 + step)
        sources += [SOURCES[source] for chunk in chunks for source in chunk.sources]
    counts = {name: sources.count(name) / len(sources) for name in SOURCES}
    assert counts == pytest.approx(examples.EARLY, abs=0.08)
    assert counts["prose of code"] == 0


def test_a_step_is_the_same_whatever_came_before_and_has_few_shapes(material: Stock) -> None:
    plan = Plan(batch=16, steps=7, curriculum=2)
    whole, resumed = dict(examples.stream(material, plan, 0)), dict(examples.stream(material, plan, 5))
    assert list(resumed) == [5, 6]
    for step, chunks in whole.items():
        shapes = [(6, SHORT)] * 3 if step < 2 else [(6, SHORT), (10, LONGEST)]
        assert [tuple(chunk.inputs.shape) for chunk in chunks] == shapes
        assert [tuple(chunk.labels.shape) for chunk in chunks] == [(rows, TARGET) for rows, _ in shapes]
        assert step < 2 or sum((chunks[1].inputs != 0).sum(1) > LONGEST - 30) >= 2
        assert all((chunk.labels != IGNORED).any(1).all() for chunk in chunks)
    for mine, other in zip(whole[5], resumed[5], strict=True):
        assert torch.equal(mine.inputs, other.inputs)
        assert torch.equal(mine.labels, other.labels)
        assert torch.equal(mine.bound, other.bound)
    assert not torch.equal(whole[0][1].inputs, whole[1][1].inputs)
    seen = torch.cat([chunk.sources for chunks in whole.values() for chunk in chunks])
    assert {SOURCES[source] for source in seen} > {"text", "code completion"}


def test_every_example_of_a_step_counts_alike(data: Path, material: Stock, tmp_path: Path) -> None:
    plan = Plan(batch=8, steps=5, curriculum=1, encoder=0.0, binding=0.0)
    options = Options(data, data / "nq.jsonl", (CODE,), tmp_path, plan, device="cpu", attention="eager", sizes=SMALL)
    model = training.build(options, 2048).eval()
    for step in (0, 3):
        chunks = examples.batch(material, plan, step)
        count = sum(len(chunk.inputs) for chunk in chunks)
        assert count == (9 if step == 0 else 8)
        seen = Losses(SOURCES, 3, "cpu")
        with torch.no_grad():
            total = sum(training.loss(model, Halfway(model), chunk, count, options, seen) for chunk in chunks)
            alone = [_alone(model, *pair) for chunk in chunks for pair in zip(chunk.inputs, chunk.labels, strict=True)]
        assert float(total) == pytest.approx(sum(alone) / len(alone), rel=1e-5)


def _alone(model: T5ForConditionalGeneration, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    given = {"input_ids": inputs[inputs != 0][None].long(), "labels": labels[labels != IGNORED][None].long()}
    return float(model(**given).loss)


def test_the_rate_follows_the_clock_from_the_end_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1000.0, 1030.0, 1090.0, 1150.0, 1300.0, 1500.0))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(times))
    clock = Clock(before=30.0, warm=60.0, began=1000.0)
    shares = [clock.share(3) for _ in range(5)]
    # 30, 60, 120, 180 and 330 seconds of 60 to 180
    assert shares == pytest.approx([0, 0, 0.5, 1, 1])
    assert Clock(began=1000.0).share(3) == 0
    places = ((0, 0), (3, 0), (4, 0), (9, 1 / 3), (9, 0.5), (9, 1))
    rates = [warm_up_then_cosine(step, 4, share, 8.0, 2.0) for step, share in places]
    assert rates == pytest.approx([2.0, 8.0, 8.0, 6.5, 5.0, 2.0])


def test_the_model_has_30_to_60_million_parameters() -> None:
    with torch.device("meta"):
        model = T5ForConditionalGeneration(config())
    assert 30e6 < sum(parameter.numel() for parameter in model.parameters()) < 60e6


def test_shares_are_given_by_name() -> None:
    given = ["--data", ".", "--nq", "nq.jsonl", "--out", "out", "--code", ".", "--steps", "3"]
    plan = training.options_from([*given, "--early", "made_up_qa=0.5,code_key=0", "--weights", "made-up_qa=0.25"]).plan
    assert plan.early == {**examples.EARLY, "made-up qa": 0.5, "code key": 0}
    assert plan.weights == {**examples.WEIGHTS, "made-up qa": 0.25}
    assert (plan.curriculum, plan.encoder, plan.binding) == (2000, 0.5, 0.5)
    with pytest.raises(SystemExit):
        training.options_from([*given, "--early", "made_up=0.5"])


def test_bad_input_ends_with_status_2(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    given = ["train", "--data", str(data), "--nq", str(data / "nq.jsonl"), "--out", str(tmp_path / "out"), "--code", str(CODE)]
    monkeypatch.setattr("sys.argv", given)
    assert training.main() == 2
    assert "give --schedule-minutes" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*given[:-1], str(tmp_path / "nowhere"), "--steps", "3"])
    assert training.main() == 2
    assert "is no folder" in capsys.readouterr().err
    for more, said in (
        (("--start-from", str(tmp_path)), "has no model.safetensors and no tokenizer.json"),
        (("--short", "0"), "leaves no short example"),
        (("--curriculum", "-1"), "--curriculum must be 0 or more steps, not -1"),
        (("--dropout", "1"), "--dropout must be at least 0 and below 1"),
    ):
        monkeypatch.setattr("sys.argv", [*given, "--steps", "3", *more])
        assert training.main() == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "tokenizer.json").exists()


PLAN = Plan(batch=4, steps=12, short=1.0, curriculum=4)
COMMON: dict[str, Any] = {"warm_up": 2, "log_every": 1, "samples": 1, "workers": 0, "device": "cpu", "attention": "eager"}
COMMON |= {"sizes": SMALL, "vocabulary": 1024, "peak": 3e-2}


@dataclass(frozen=True)
class Whole:
    """A run from beginning to end."""

    out: Path
    model: T5ForConditionalGeneration
    printed: str


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    out, printed = tmp_path_factory.mktemp("whole"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        model = train(Options(data, data / "nq.jsonl", (CODE,), out, PLAN, **COMMON))
    return Whole(out, model, printed.getvalue())


def test_training_learns_resumes_and_exports_a_stock_t5(
    data: Path, whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    undisturbed = _losses(whole.printed)
    assert float(undisturbed[-1]) < float(undisturbed[0]) - 0.5
    # The answer, what the encoder's last token knows of it, and the names
    assert re.search(r"  text \d\S+/0\.000/0\.000  ", whole.printed)
    assert re.search(r"  code key [1-9]\S+/[1-9]\S+/0\.000  ", whole.printed)
    assert re.search(r"  made-up qa [1-9]\S+/[1-9]\S+/[1-9]\S+", whole.printed)
    given = (data, data / "nq.jsonl", (CODE,), tmp_path)
    train(Options(*given, PLAN, stop_after=5, **COMMON))
    first = _losses(capsys.readouterr().out)
    parts = train(Options(*given, PLAN, **COMMON))
    assert first + _losses(capsys.readouterr().out) == undisturbed
    assert all(torch.equal(mine, other) for mine, other in zip(whole.model.parameters(), parts.parameters(), strict=True))
    with pytest.raises(BadInput, match="seed was 0, now 1"):
        train(Options(*given, replace(PLAN, seed=1), **COMMON))
    _check_export(tmp_path / "export", parts)


def test_a_run_begins_with_an_export(data: Path, whole: Whole, read: Texts, tmp_path: Path) -> None:
    given, export = (data, data / "nq.jsonl", (CODE,)), whole.out / "export"
    options = Options(*given, tmp_path / "next", replace(PLAN, seed=3), **COMMON, start_from=export)
    assert options.settings()["start_from"] == str(export)
    begun = Run(options)
    said = "def f(x):\n    return 12"
    assert begun.tokenizer.encode(said).ids == AutoTokenizer.from_pretrained(export)(said).input_ids
    loaded = AutoModelForSeq2SeqLM.from_pretrained(export, dtype=torch.float32, attn_implementation="eager").eval()
    inputs = {"input_ids": torch.randint(3, 1000, (2, 40)), "decoder_input_ids": torch.randint(3, 1000, (2, 5))}
    with torch.no_grad():
        assert torch.equal(begun.model.eval()(**inputs).logits, loaded(**inputs).logits)
    with pytest.raises(BadInput, match=r"other sizes .* give the --sizes"):
        training.build(replace(options, sizes={**SMALL, "num_layers": 2}), 1024)
    shutil.copytree(export, tmp_path / "other")
    learn_vocabulary(read.sample(), 1024 + 64).save(str(tmp_path / "other" / "tokenizer.json"))
    with pytest.raises(BadInput, match="vocabulary of its own"):
        training.load_tokenizer(replace(options, start_from=tmp_path / "other"), read)


def _check_export(folder: Path, trained: T5ForConditionalGeneration) -> None:
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert loaded.config.n_positions == 512
    inputs = {"input_ids": torch.randint(3, 1000, (2, 40)), "decoder_input_ids": torch.randint(3, 1000, (2, 5))}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, trained.eval()(**inputs).logits, atol=0.1, rtol=0.05)
    model, tokenizer = load(str(folder), device="cpu")
    assert tokenizer("x = 12\n").input_ids[-1] == model.config.eos_token_id == 1


def _losses(printed: str) -> list[str]:
    return re.findall(r"^step \d+ .* loss (\S+)", printed, re.M)

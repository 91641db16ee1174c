"""Cases out of files: what is read, and what is refused with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, Sample
from lengthwise.tasks.material.case_files import last_question

TOKENIZER = ByT5Tokenizer()
PROMPT = "The pass key is 77. So it goes. What is the pass key? The pass key is"


def file_of(folder: Path, *cases: Any) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_reads_prompts_with_targets(name: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, {"prompt": PROMPT, "target": "77"}, {"prompt": "A\u2028é: name it.", "target": 5, "depth": 1})
    assert TASKS[name].read(TOKENIZER, path) == [
        Sample(PROMPT, "77", len(PROMPT) + 1, None, "What is the pass key? The pass key is"),
        Sample("A\u2028é: name it.", "5", 17, 1.0, "A\u2028é: name it."),
    ]


@pytest.mark.parametrize("name", [name for name in TASKS if name != "answer"])
def test_samples_written_to_a_file_are_read_back(name: str, tmp_path: Path) -> None:
    # Its list of words, and the one that shows how to answer, take more
    length = 2000 if name == "ruler_cwe" else 700
    samples = TASKS[name].samples(TOKENIZER, length, n=3, seed=0)
    keys = ("prompt", "target", "question", "depth", *(["labels"] if samples[0].labels else []))
    path = file_of(tmp_path, *({key: getattr(sample, key) for key in keys} for sample in samples))
    assert TASKS[name].read(TOKENIZER, path) == samples
    shorter = file_of(tmp_path, *({key: getattr(sample, key) for key in keys[:2]} for sample in samples))
    again = TASKS[name].read(TOKENIZER, shorter)
    assert all(one.question.endswith(sample.question) for one, sample in zip(again, samples, strict=True))
    assert all(len(one.question) < len(one.prompt) / 2 for one in again)


@pytest.mark.parametrize("name", ["passkey", "babilong_qa1", "ruler_qa_1"])
def test_white_space_around_a_target_makes_no_answer_wrong(name: str, tmp_path: Path) -> None:
    (sample,) = TASKS[name].read(TOKENIZER, file_of(tmp_path, {"prompt": PROMPT, "target": " 77\n"}))
    assert TASKS[name].mark("77", sample) == 1.0


def test_compressed_files_and_unknown_depths_are_read(tmp_path: Path) -> None:
    plain = file_of(tmp_path, {"prompt": PROMPT, "target": "77", "depth": None})
    packed = tmp_path / "cases.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert TASKS["passkey"].read(TOKENIZER, packed) == TASKS["passkey"].read(TOKENIZER, plain)
    for content in (packed.read_bytes()[:30], b"no gzip"):
        packed.write_bytes(content)
        with pytest.raises(BadInput, match=r"cases\.jsonl\.gz is not what gzip wrote, or only a part of it"):
            TASKS["passkey"].read(TOKENIZER, packed)


def test_blank_lines_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    path = file_of(tmp_path, {"prompt": PROMPT, "target": "77"})
    path.write_text("\ufeff" + path.read_text(encoding="utf-8") + "\n\r\n", encoding="utf-8")
    assert len(TASKS["passkey"].read(TOKENIZER, path)) == 1


@pytest.mark.parametrize(
    ("prompt", "end"),
    [
        ("A text. Another one.\nWhat is it? It is", "What is it? It is"),
        ("Is this text? No. Who asks? Only give the name. Do not explain.", "Who asks? Only give the name. Do not explain."),
        ("Is this asked? One. Two. Three. Four. Name it.", "Name it."),
        ("A text.\nkey a =", "key a ="),
        ("A text. Which line? I need the number. ", "Which line? I need the number. "),
        ("A text.\nWhich one?\n\n", "Which one?\n\n"),
        ("x", "x"),
    ],
)
def test_the_end_of_a_prompt_is_taken_from_its_last_question_on(prompt: str, end: str) -> None:
    assert last_question(prompt) == end


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"target": "77"}, "line 2 of .* has no key 'prompt'; it should hold a text"),
        ({"prompt": 5, "target": "77"}, "line 2 of .*: 'prompt' should be a text, not '5'"),
        ({"prompt": "", "target": "77"}, "line 2 of .*: 'prompt' is empty"),
        ({"prompt": "P?"}, "line 2 of .* has no key 'target'; it should hold a text or a whole number"),
        ({"prompt": "P?", "target": ["77"]}, r"line 2 of .*: 'target' should be a text or a whole number, not \"\['77'\]\""),
        ({"prompt": "P?", "target": True}, "line 2 of .*: 'target' should be a text or a whole number, not 'True'"),
        ({"prompt": "P?", "target": ""}, "line 2 of .*: 'target' is empty"),
        ({"prompt": "P?", "target": " \n"}, "line 2 of .*: 'target' is blank"),
        ({"prompt": "P?", "target": "77", "question": "Q?"}, "line 2 of .*: the prompt does not end with its 'question' 'Q"),
        ({"prompt": "P?", "target": "77", "depth": 2}, "line 2 of .*: 'depth' is 2.0; it should be a number from 0 to 1"),
        ({"prompt": "P?", "target": "77", "depth": "0"}, "line 2 of .*: 'depth' should be a number from 0 to 1, not '0'"),
        (["P?"], "line 2 of .* is JSON, but no object; a file of cases has one JSON object a line"),
    ],
)
def test_a_case_that_lacks_something_is_refused_with_its_line(case: Any, complaint: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, {"prompt": PROMPT, "target": "77"}, case)
    with pytest.raises(BadInput, match=complaint):
        TASKS["passkey"].read(TOKENIZER, path)


def test_files_that_are_no_json_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    for content, complaint in (
        (b'{"prompt": "P?"', "line 1 of .* is not JSON .*; a file of cases has one JSON object a line"),
        (b"\n \n", "holds no cases; it should have one JSON object a line"),
        (b"", "holds no cases"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=complaint):
            TASKS["topic"].read(TOKENIZER, path)
    with pytest.raises(BadInput, match="cannot read the cases in"):
        TASKS["line"].read(TOKENIZER, tmp_path / "nothing.jsonl")
    with pytest.raises(BadInput, match="is a folder: give a file of cases, or --length beside it for a task made of folders"):
        TASKS["line"].read(TOKENIZER, tmp_path)

"""Prompts as messages of a chat: what a template adds counts within the length, and truncation keeps it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.chat import ChatTokenizer
from lengthwise.evaluation.sweep.generate import truncated_prompt
from lengthwise.models.load import load
from lengthwise.tasks import TASKS, passkey
from tests.conftest import Said
from tests.helpers.answering import answering_briefly, saved

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[answer] {% endif %}"
)


def chatting(template: str | None = TEMPLATE) -> ByT5Tokenizer:
    tokenizer = ByT5Tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def test_a_prompt_becomes_a_users_message() -> None:
    chat = ChatTokenizer(chatting())
    assert chat.decode(chat("Who?").input_ids) == "[user] Who?\n[answer] "
    assert chat.decode(chat("Who?", add_special_tokens=False).input_ids) == "Who?"
    assert (len(chat), chat.eos_token_id) == (len(ByT5Tokenizer()), ByT5Tokenizer().eos_token_id)
    assert pickle.loads(pickle.dumps(chat))("Who?").input_ids == chat("Who?").input_ids


def test_a_template_that_tells_the_date_tells_the_same_one_every_day() -> None:
    dated = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }} {% endif %}" + TEMPLATE
    chat = ChatTokenizer(chatting(dated))
    assert chat.decode(chat("Who?").input_ids) == "26 Jul 2024 [user] Who?\n[answer] "


@pytest.mark.parametrize("length", [400, 3000])
def test_the_template_counts_within_the_length(length: int) -> None:
    chat = ChatTokenizer(chatting())
    for sample in passkey.samples(chat, length, n=2, seed=0):
        assert sample.tokens == len(chat(sample.prompt).input_ids) == len(sample.prompt) + len(chat("").input_ids)
        assert 0.98 * length <= sample.tokens <= length


def test_long_prompts_in_a_chat_are_counted_exactly() -> None:
    model = load("embedded")[1]
    model.chat_template = TEMPLATE
    chat = ChatTokenizer(model)
    for name in ("passkey", "line", "code_completion"):
        (sample,) = TASKS[name].samples(chat, 9000, 1, 0)
        assert sample.tokens == len(chat(sample.prompt).input_ids)


def test_a_truncated_prompt_keeps_the_template_and_its_question() -> None:
    chat = ChatTokenizer(chatting())
    (sample,) = passkey.samples(chat, 400, n=1, seed=0)
    ids = truncated_prompt(chat, sample, 100)
    assert len(ids) == 100
    kept = sample.prompt[len(chat("").input_ids) - 100 :]
    assert chat.decode(ids) == f"[user] {kept}\n[answer] "


def test_a_truncated_prompt_has_no_word_of_the_beginning_where_a_space_of_the_template_melts_into_it() -> None:
    model = load("embedded")[1]
    model.chat_template = "[INST] {{ messages[0].content }} [/INST]"
    chat = ChatTokenizer(model)
    (sample,) = passkey.samples(chat, 400, n=1, seed=0)
    told = chat.decode(truncated_prompt(chat, sample, 100))
    message = told.removeprefix("[INST] ").removesuffix(" [/INST]")
    assert len(told) - len(message) == len("[INST]  [/INST]")
    assert sample.prompt.endswith(message)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        (None, "has no chat template, so there is no chat to ask in; leave --chat out"),
        ("{{ raise_exception('a system message first') }}", "chat template fails on a user's message: a system message first"),
        ("nothing", "does not write a user's message once"),
    ],
)
def test_what_has_no_chat_is_refused(template: str | None, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        ChatTokenizer(chatting(template))


def test_runs_with_and_without_a_chat_do_not_mix(tmp_path: Path) -> None:
    options: dict[str, Any] = {"lengths": [240], "samples": 1, "show_progress": False}
    model = answering_briefly("t5")
    for first in (True, False):
        out = tmp_path / str(first)
        (record,) = lw.evaluate(model, chatting(), chat=first, out=out, **options)
        assert record.tokens <= 240
        with pytest.raises(BadInput, match="was begun with another"):
            lw.evaluate(model, chatting(), chat=not first, out=out, **options)


def test_the_command_line_asks_in_a_chat(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    model = saved(answering_briefly("t5"), tmp_path / "model")
    for command in (("evaluate", model, "--task", "passkey", "--length", 240, "--out", tmp_path / "run"), ("reach", model)):
        refused = lengthwise(*command, "--chat")
        assert (refused.status, len([line for line in refused.err if "chat template" in line])) == (2, 1)

"""Held-out accuracy by the package's own tasks at the training length, and perplexity of held-out novels."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._lib import novels as books
from experiments._lib import t5_training
from experiments._lib.batches import padded
from experiments.larger_model import natural_questions
from experiments.larger_model.mixture import LONGEST, TARGET
from lengthwise.tasks import code_completion, code_key_retrieval, language_modelling, multi_document_qa, passkey
from lengthwise.tasks.sample import Sample, sentences

PIECE = 64  # samples generated for at once


@dataclass(frozen=True)
class Exam:
    samples: Callable[..., list[Sample]]
    score: Callable[..., float]
    answer_tokens: int  # that are generated


EXAMS = {
    "code completion": Exam(code_completion.samples, code_completion.exact_match, TARGET),
    "code key": Exam(code_key_retrieval.samples, code_key_retrieval.score, 16),
    "made-up qa": Exam(multi_document_qa.samples, multi_document_qa.score, 32),
    "nq": Exam(multi_document_qa.samples, multi_document_qa.score, 32),
    "passkey prose": Exam(passkey.samples, passkey.score, 16),
}


@dataclass(frozen=True)
class Held:
    """What the model is examined on; all of it unseen in training."""

    tokenizer: Any
    samples: dict[str, list[Sample]]
    prefixes: Tensor  # [passages, 512]
    continuations: Tensor  # [passages, 64]


def held(tokenizer: Any, data: Path, questions: Path, samples: int, seed: int = 1) -> Held:
    """Code is Python's standard library, as the tasks have it."""
    novels = [path.read_text(encoding="utf-8") for path in books.evaluation(data)]
    filler = [one for novel in novels for one in sentences(books.unwrapped(novel)) if len(one) < 400]
    material = {"nq": {"questions": natural_questions.evaluation(questions)}, "passkey prose": {"filler": filler}}
    calls = [(name, (tokenizer, LONGEST, samples, seed), material.get(name, {})) for name in EXAMS]
    with multiprocessing.get_context("fork").Pool(len(EXAMS)) as pool:
        made = pool.starmap_async(_samples, calls, chunksize=1)
        frame = language_modelling.frame_of(tokenizer, encoder_decoder=True, sentinel=False)
        passages = language_modelling.passages(tokenizer, "\n\n".join(novels), LONGEST - 1, TARGET, samples, seed)
        asked = dict(zip(EXAMS, made.get(), strict=True))
    return Held(tokenizer, asked, *language_modelling.framed(frame, passages, LONGEST, TARGET))


def accuracy(model: Any, held: Held, name: str) -> float:
    """Percent right."""
    samples, exam, right = held.samples[name], EXAMS[name], 0.0
    for at in range(0, len(samples), PIECE):
        some = samples[at : at + PIECE]
        inputs = padded(held.tokenizer([one.prompt for one in some]).input_ids, LONGEST, 0).long()
        out = t5_training.answers(model, inputs.to(model.device), exam.answer_tokens)
        said = held.tokenizer.batch_decode(out, skip_special_tokens=True)
        right += sum(score(exam, one, answer) for one, answer in zip(some, said, strict=True))
    return 100 * right / len(samples)


def score(exam: Exam, one: Sample, answer: str) -> float:
    return exam.score(answer, one.target, one.labels) if one.labels else exam.score(answer, one.target)


def perplexity(model: Any, held: Held) -> float:
    return t5_training.perplexity(model, _pieces(held, model.device))


def _samples(name: str, call: tuple[Any, ...], material: dict[str, Any]) -> list[Sample]:
    return EXAMS[name].samples(*call, **material)


def _pieces(held: Held, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    for at in range(0, len(held.prefixes), PIECE):
        yield held.prefixes[at : at + PIECE].to(device), held.continuations[at : at + PIECE].to(device)

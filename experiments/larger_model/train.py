"""Trains the larger T5 on one GPU.

    python -m experiments.larger_model.train --data data --nq nq.jsonl.gz --code SITE_PACKAGES/scipy ... \\
        --out runs/t5 --steps 7400 --compile

The same command again goes on where the last one stopped, with the same data and the same schedule. At times and at the end
held-out accuracy is printed; OUT/export then holds a model that plain transformers loads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

from experiments._lib import bpe, t5_training
from experiments._lib import novels as books
from experiments._lib.command import main, option
from experiments._lib.natural_questions import held_out_questions
from experiments._lib.t5_training import LONGEST, Exam, Material, Recipe
from experiments.larger_model.data import Texts, learn_vocabulary, stock, texts
from experiments.larger_model.examples import CONTINUED, SOURCES, TARGET, batch
from lengthwise.tasks import code_completion, code_key_retrieval, language_modelling, multi_document_qa, passkey
from lengthwise.tasks.sample import Sample

RECIPE = Recipe(
    sizes={
        "d_model": 512,
        "d_kv": 64,
        "num_heads": 8,
        "d_ff": 1024,
        "num_layers": 8,
        "num_decoder_layers": 4,
        "feed_forward_proj": "gated-gelu",
    },
    peak=7e-4,
    warm_up=300,
    sources=SOURCES,
    continued=CONTINUED,
)
# Module of each held-out task, its score, tokens of an answer
TASKS: dict[str, tuple[Any, Callable[..., float], int]] = {
    "code completion": (code_completion, code_completion.score, TARGET),
    "code key": (code_key_retrieval, code_key_retrieval.score, 16),
    "made-up qa": (multi_document_qa, multi_document_qa.score, 32),
    "nq": (multi_document_qa, multi_document_qa.score, 32),
    "passkey prose": (passkey, passkey.score, 16),
}


@dataclass(frozen=True, kw_only=True)
class Options(t5_training.Options):
    nq: Path = option(help="questions with passages: JSON lines, plain or .gz")
    code: tuple[Path, ...] = option(help="folders of installed packages; their .py is read")
    curriculum: int = option(1700, "steps of short inputs, mostly retrieval; over as many more they grow")


def train(options: Options) -> T5ForConditionalGeneration:
    material = texts(options.data, options.nq, options.code)
    return t5_training.train(
        RECIPE, options, lambda: learn_vocabulary(material.sample(), options.vocabulary), partial(read, options, material)
    )


def read(options: Options, material: Texts, tokenizer: Tokenizer) -> Material:
    """What the model is examined on is unseen in training; code is Python's standard library, as the tasks have it."""
    asker = bpe.for_transformers(tokenizer)
    prose = [path.read_text(encoding="utf-8") for path in books.evaluation(options.data)]
    unseen: dict[str, Any] = {
        "nq": {"questions": held_out_questions(options.nq)},
        "passkey prose": {"filler": books.filler(prose)},
    }
    exams = {}
    for name, (task, score, longest) in TASKS.items():
        samples = task.samples(asker, LONGEST, options.samples, 1, **unseen.get(name, {}))
        exams[name] = Exam(
            [asker(sample.prompt).input_ids for sample in samples], [partial(_score, score, one) for one in samples], longest
        )
    frame = language_modelling.frame_of(asker, encoder_decoder=True, sentinel=False)
    passages = language_modelling.passages(asker, "\n\n".join(prose), LONGEST - 1, TARGET, options.samples, 1)
    steps = partial(batch, stock(material, tokenizer), options.batch, options.curriculum, options.seed)
    return Material(steps, exams, *language_modelling.framed(frame, passages, LONGEST, TARGET))


def _score(score: Callable[..., float], sample: Sample, answer: str) -> float:
    return score(answer, sample.target, sample.labels) if sample.labels else score(answer, sample.target)


if __name__ == "__main__":
    sys.exit(main(Options, train, __doc__))

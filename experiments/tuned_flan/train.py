"""Tunes a T5 that others trained on inputs of at most 512 tokens, so that it can do what the experiments ask of it.

    python -m experiments.tuned_flan.train MODEL --data data --nq nq.jsonl.gz --out runs/tuned_flan --steps 2500 --minutes 8

Held-out tasks at 512 tokens, in wordings that the tuning never reads, are asked before and after; OUT/training.json holds both.
The same command again goes on where the last one stopped. OUT/export then holds a model that plain transformers loads.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import T5ForConditionalGeneration

from experiments._lib import checkpoint, held_out, novels, results, retrieval_tasks, t5_training
from experiments._lib.batches import Chunk
from experiments._lib.command import main, option
from experiments._lib.natural_questions import held_out_questions
from experiments._lib.reader import example_means, teacher_forced, token_losses
from experiments._lib.t5_training import LONGEST, Exam, Losses, Material, Recipe, Run, make_optimizer, say
from experiments.tuned_flan.data import SOURCES, TARGET, batch, read_stock
from experiments.tuned_flan.page import FORMAT, write_pages
from lengthwise.models.load import load
from lengthwise.models.t5_head import head_is_the_embedding
from lengthwise.tasks import code_completion, code_key_retrieval, language_modelling, multi_document_qa
from lengthwise.tasks.catalogue import TASKS
from lengthwise.tasks.material.code_files import standard_library
from lengthwise.tasks.sample import Sample

RECIPE = Recipe(sizes={}, peak=3e-4, warm_up=100, sources=SOURCES, continued=())
DOCUMENTS = 3  # the gold one and two distractors: about 512 tokens


@dataclass(frozen=True, kw_only=True)
class Options(t5_training.Options):
    model: str = option(help="directory of a T5 with its tokenizer", positional=True)
    nq: Path = option(help="questions with passages: JSON lines, plain or .gz")
    steps: int = option(2500, "in all; the learning rate falls over them")
    batch: int = option(128, "examples of a step")
    log_every: int = 50
    command: str = ""


def train(options: Options) -> None:
    """Tunes as far as there is time, asks what is held out, and writes the page."""
    began = time.monotonic()
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    # Forked processes must not meet the tokenizer's own threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    run = Tuning(options)
    first = options.out / "as_found.json"
    if not first.exists():
        results.write_json(first, run.examine(run.model))
    run.train(began + 60 * options.minutes)
    content = {
        "model": options.model,
        "steps": run.done,
        **{name: getattr(options, name) for name in ("batch", "seed")},
        "planned": options.steps,
        "seconds": round(time.monotonic() - began),
        "recipe": asdict(RECIPE),
        "samples": options.samples,
        "held_out": {"as found": results.read(first), "tuned": run.finish()},
    }
    command = f"python -m experiments.tuned_flan.train {options.command}"
    results.write(options.out / "training.json", FORMAT, command, content, options.device)
    write_pages(options.out, options.out)


class Tuning(Run):
    """A run that starts from a model's weights and asks for the answer alone."""

    def __init__(self, options: Options) -> None:
        self.recipe, self.options = RECIPE, options
        model, self.fast = load(options.model, "float32", options.device)
        torch.manual_seed(options.seed)
        # At 512 tokens plain attention is faster than the fused one, which a bias slows down
        model.set_attn_implementation("eager")
        self.model, self.tokenizer = model.train(), self.fast.backend_tokenizer
        self.optimizer, self.losses = make_optimizer(self.model, RECIPE.peak), Losses(SOURCES, 1, options.device)
        self.material = material(options, self.fast)
        self.done = checkpoint.restore(options.out, self.model, self.optimizer, options.settings())

    def loss(self, chunk: Chunk, examples: int) -> Tensor:
        inputs, labels, sources, _ = chunk.to(self.options.device)
        each = example_means(token_losses(teacher_forced(self.model, inputs, labels).logits, labels), labels)
        self.losses.add(sources, each)
        return each.sum() / examples

    def finish(self) -> dict[str, float]:
        """Exports in bf16, and examines the very files that were written."""
        folder = self.options.out / "export"
        self.model.config.tie_word_embeddings = head_is_the_embedding(self.model)
        self.model.to(torch.bfloat16).save_pretrained(folder)
        self.fast.save_pretrained(folder)
        say(f"exported after {self.done} steps to {folder}")
        exported: Any = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        return self.examine(exported.to(self.options.device))


def material(options: Options, tokenizer: Any) -> Material:
    """Batches of the tuning, and the report's own tasks at 512 tokens on what it never reads."""
    stock = read_stock(options.data, options.nq, tokenizer.backend_tokenizer)
    code = tuple(filter(held_out.code, standard_library()))
    ask = {"tokenizer": tokenizer, "n": options.samples, "seed": 1}
    lines = code_completion.samples(length=LONGEST, files=code, **ask)
    keys = code_key_retrieval.samples(length=LONGEST, files=code, **ask)
    passages = multi_document_qa.at_position(documents=DOCUMENTS, position=1, questions=held_out_questions(options.nq), **ask)
    exams = {
        "nq, 3 documents": exam(tokenizer, passages, multi_document_qa.score, 32),
        "made-up qa": exam(tokenizer, multi_document_qa.samples(length=LONGEST, **ask), multi_document_qa.score, 32),
        "code line, similarity": exam(tokenizer, lines, code_completion.edit_similarity, TARGET),
        "code key": exam(tokenizer, keys, code_key_retrieval.score, 16),
    }
    for asked in retrieval_tasks.asked((), options.data):
        score = TASKS[asked.task].score
        exams[asked.name] = exam(tokenizer, asked.make(tokenizer, LONGEST, options.samples, 1), score, 32)
    prose = "\n\n".join(path.read_text(encoding="utf-8") for path in novels.evaluation(options.data))
    frame = language_modelling.frame_of(tokenizer, encoder_decoder=True)
    places = language_modelling.passages(tokenizer, prose, frame.prefix_tokens(LONGEST, TARGET), TARGET, options.samples, 1)
    told = language_modelling.framed(frame, places, LONGEST, TARGET)
    return Material(partial(batch, stock, options.batch, options.seed), exams, *told)


def exam(tokenizer: Any, samples: list[Sample], score: Callable[..., float], longest: int) -> Exam:
    scores = [partial(_score, score, sample) for sample in samples]
    return Exam([tokenizer(sample.prompt, verbose=False).input_ids for sample in samples], scores, longest)


def _score(score: Callable[..., float], sample: Sample, answer: str) -> float:
    return score(answer, sample.target, sample.labels) if sample.labels else score(answer, sample.target)


if __name__ == "__main__":
    sys.exit(main(Options, train, __doc__))

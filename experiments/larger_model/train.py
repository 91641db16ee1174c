"""Trains the larger T5 on one GPU.

    python -m experiments.larger_model.train --data data --nq nq.jsonl.gz --code SITE_PACKAGES/scipy ... \\
        --out runs/t5 --compile --schedule-minutes 9

The same command again goes on where the last one stopped. The rate falls over --schedule-minutes of training, all calls of the
command together, or over --steps. At the end, and at every `--evaluate-every` steps, held-out accuracy is printed; OUT/export
then holds a model that plain transformers loads, and that another run may --start-from.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from experiments._lib import bpe, checkpoint, reader, scaled_queries, t5_training
from experiments._lib import novels as books
from experiments._lib.batches import Chunk, loader, padded
from experiments._lib.command import exit_status
from experiments._lib.export import export
from experiments._lib.reader import Halfway
from experiments._lib.t5_training import (
    Calls,
    Every,
    Losses,
    compile_stacks,
    examined,
    go_on,
    make_optimizer,
    read_options,
    say,
    step_of,
    warm_up_then_cosine,
)
from experiments.larger_model.data import VOCABULARY, Stock, Texts, held_out_questions, learn_vocabulary, stock, texts
from experiments.larger_model.examples import CONTINUED, LONGEST, SOURCES, TARGET, Plan, stream
from lengthwise.errors import require
from lengthwise.tasks import code_completion, code_key_retrieval, language_modelling, multi_document_qa, passkey
from lengthwise.tasks.sample import Sample, sentences


def config(vocabulary: int = 16384, dropout: float = 0.0, **changes: int) -> T5Config:
    sizes = {"d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 4, **changes}
    return T5Config(
        vocab_size=vocabulary,
        **sizes,
        n_positions=512,
        dropout_rate=dropout,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )


START_WEIGHTS, START_TOKENIZER = "model.safetensors", "tokenizer.json"


def check_start(folder: Path) -> None:
    missing = [name for name in (START_WEIGHTS, START_TOKENIZER) if not (folder / name).is_file()]
    require(not missing, f"--start-from {folder} has no {' and no '.join(missing)}; give the folder `export` of a run")


def start_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / START_TOKENIZER))


def check_vocabulary(folder: Path, own: Tokenizer, out: Path) -> None:
    """The export's weights mean the export's tokens."""
    require(
        start_tokenizer(folder).get_vocab() == own.get_vocab(),
        f"{out} has a vocabulary of its own, other than that of --start-from {folder}; give another --out",
    )


def put_start_weights(folder: Path, model: nn.Module) -> None:
    saved = load_file(folder / START_WEIGHTS)
    own = reader.left_out(scaled_queries.weights(model))
    other = sorted(
        name for name in {*saved, *own} if name not in saved or name not in own or saved[name].shape != own[name].shape
    )
    require(
        not other,
        f"--start-from {folder} holds a model of other sizes ({len(other)} weights differ, {', '.join(other[:2])} among them); "
        "give the --sizes that it was trained with",
    )
    scaled_queries.take(model, saved)


PIECE = 64  # samples generated for at once


@dataclass(frozen=True)
class Exam:
    samples: Callable[..., list[Sample]]
    score: Callable[..., float]
    answer_tokens: int  # that are generated


EXAMS = {
    "code completion": Exam(code_completion.samples, code_completion.score, TARGET),
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


def read_held(tokenizer: Any, data: Path, questions: Path, samples: int, seed: int = 1) -> Held:
    """Code is Python's standard library, as the tasks have it."""
    novels = [path.read_text(encoding="utf-8") for path in books.evaluation(data)]
    filler = [one for novel in novels for one in sentences(books.unwrapped(novel)) if len(one) < 400]
    material = {"nq": {"questions": held_out_questions(questions)}, "passkey prose": {"filler": filler}}
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


MOST_BYTES = 100_000_000


HELPS = {
    "data": "folder with gutenberg/*.txt",
    "nq": "questions with passages: JSON lines, plain or .gz",
    "code": "folders of installed packages; their .py is read",
    "out": "folder of the run",
    "curriculum": "steps of short inputs, mostly retrieval",
    "early": "shares of the sources in the curriculum, for example nq=0.2,code_key=0.1",
    "weights": "shares of the sources afterwards",
    "sizes": "other sizes of the model, for example num_layers=6,d_kv=64",
    "start_from": "an export: begin with its weights and its vocabulary",
}


@dataclass(frozen=True)
class Options:
    """One run."""

    data: Path
    nq: Path
    code: tuple[Path, ...]
    out: Path
    plan: Plan = field(default_factory=Plan)
    peak: float = 7e-4  # learning rate after the warm-up
    floor: float = 5e-5  # learning rate at the end
    warm_up: int = 300
    dropout: float = 0.0
    minutes: float = math.inf  # of this process; the checkpoint is written when they are over
    schedule_minutes: float = math.inf  # of all processes of the run, over which the rate falls; then it ends
    stop_after: int | None = None  # steps, in total
    evaluate_every: int = 5000
    save_every: int = 2500
    log_every: int = 100
    samples: int = 128  # of each task, at an evaluation
    vocabulary: int = VOCABULARY
    workers: int = 12
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    attention: str = "sdpa"
    compile: bool = False
    sizes: dict[str, int] = field(default_factory=dict)  # other sizes of the model than `model.config` has
    start_from: Path | None = None  # an export whose weights and vocabulary the run begins with

    def __post_init__(self) -> None:
        timed = self.schedule_minutes < math.inf
        require(self.schedule_minutes > 0, f"--schedule-minutes must be above 0, not {self.schedule_minutes}")
        require(0 <= self.dropout < 1, f"--dropout must be at least 0 and below 1, not {self.dropout}")
        if self.start_from:
            check_start(self.start_from)
        require(
            timed or self.plan.steps < Plan().steps,
            "the learning rate needs an end: give --schedule-minutes M, or --steps N for one that depends on nothing else",
        )

    def settings(self) -> dict[str, Any]:
        """What must not change between the parts of a run."""
        kept = ("peak", "floor", "warm_up", "dropout", "schedule_minutes", "vocabulary", "sizes")
        begun = str(self.start_from) if self.start_from else None
        return {**asdict(self.plan), **{name: getattr(self, name) for name in kept}, "start_from": begun}


@dataclass
class Clock:
    """Seconds of a run, over all its processes: reading, compiling and examining included."""

    before: float = 0.0  # of the processes before this one
    warm: float = math.inf  # when the warm-up was over
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def share(self, minutes: float) -> float:
        """The part of the way from the warm-up's end to so many minutes that is done."""
        return min(1.0, max(0.0, (self.seconds - self.warm) / max(1e-9, 60 * minutes - self.warm)))


class Run:
    """The state of a training."""

    def __init__(self, options: Options) -> None:
        self.options, self.clock = options, Clock()
        options.out.mkdir(parents=True, exist_ok=True)
        read = texts(options.data, options.nq, options.code)
        self.tokenizer = load_tokenizer(options, read)
        self.held = read_held(bpe.for_transformers(self.tokenizer), options.data, options.nq, options.samples)
        self.stock = self._tokenised(read)
        self.model = build(options, self.tokenizer.get_vocab_size())
        self.halfway = Halfway(self.model)
        self.optimizer = make_optimizer(self.model, options.peak)
        self.done = checkpoint.restore(options.out, self.model, self.optimizer, options.settings())
        earlier = checkpoint.more(options.out)
        self.clock.before, self.clock.warm = earlier.get("seconds", 0.0), earlier.get("warm", math.inf)
        self.last = min(options.plan.steps, options.stop_after or options.plan.steps)
        self.losses, self.rate = Losses(SOURCES, 3, options.device), 0.0

    def _tokenised(self, read: Texts) -> Stock:
        made = stock(read, self.tokenizer, max(1, self.options.workers))
        novels, prose = sum(map(len, made.books.texts)), len(made.prose)
        say(
            f"{novels:,} tokens of novels, {len(made.code.tokens):,} of {len(made.code.files):,} files of code with "
            f"{len(made.code.asked):,} lines to complete, {prose:,} of its prose, {len(made.questions):,} questions, "
            f"after {self.clock.seconds:.0f} s"
        )
        return made

    def train(self) -> None:
        options = self.options
        say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters, {self.done} steps done")
        if options.compile:
            compile_stacks(self.model)
        calls = Calls(self._update, self._note, self._save, partial(examine, self.model, self.held), self._over)
        # A finished run goes straight to its export
        batches = stream(self.stock, options.plan, options.plan.steps if self._over(self.done) else self.done)
        every = Every(options.log_every, options.save_every, options.evaluate_every)
        self.done = go_on(loader(batches, options.workers, options.device == "cuda"), self.done, every, calls)

    def finish(self) -> None:
        """Examines the very files that were written; in float32, for not every CPU computes in bf16."""
        out, device = self.options.out / "export", self.options.device
        plain = scaled_queries.stock(self.model.config, reader.left_out(scaled_queries.stock_weights(self.model)))
        size = export(plain, self.tokenizer, out, MOST_BYTES)
        say(f"exported after {self.done} steps: {size:,} bytes in {out}")
        examine(T5ForConditionalGeneration.from_pretrained(out, dtype=torch.float32).to(device), self.held)

    def _update(self, step: int, chunks: list[Chunk]) -> None:
        options = self.options
        if step >= options.warm_up:
            self.clock.warm = min(self.clock.warm, self.clock.seconds)
        self.rate = warm_up_then_cosine(step, options.warm_up, self._share(step), options.peak, options.floor)
        # Dropout, too, is a function of the step
        torch.manual_seed(options.plan.seed * 1_000_003 + step)
        examples = sum(len(chunk.inputs) for chunk in chunks)
        parts = [partial(loss, self.model, self.halfway, chunk, examples, options, self.losses) for chunk in chunks]
        step_of(self.model, self.optimizer, self.rate, parts)

    def _share(self, step: int) -> float:
        options = self.options
        if options.schedule_minutes < math.inf:
            return self.clock.share(options.schedule_minutes)
        return (step - options.warm_up) / max(1, options.plan.steps - options.warm_up)

    def _note(self, done: int, speed: float) -> None:
        minutes = self.clock.seconds / 60
        say(f"step {done}  {minutes:.2f} min  rate {self.rate:.1e}  {speed:.2f} steps/s  {self.losses.line()}")

    def _save(self, done: int) -> None:
        more = {"seconds": self.clock.seconds, **({"warm": self.clock.warm} if self.clock.warm < math.inf else {})}
        checkpoint.save(self.options.out, done, self.model, self.optimizer, self.options.settings(), more)

    def _over(self, done: int) -> bool:
        mine = self.clock.seconds - self.clock.before
        late = mine > 60 * self.options.minutes or self.clock.seconds > 60 * self.options.schedule_minutes
        return late or done >= self.last


def train(options: Options) -> T5ForConditionalGeneration:
    run = Run(options)
    run.train()
    run.finish()
    return run.model


def build(options: Options, tokens: int) -> T5ForConditionalGeneration:
    """A model for training with its reader, its weights new or of the export that the run begins with."""
    settings = config(tokens, options.dropout, **options.sizes)
    model = reader.add(scaled_queries.build(settings, options.plan.seed, options.attention))
    if options.start_from:
        put_start_weights(options.start_from, model)
    return model.to(options.device).train()


def load_tokenizer(options: Options, read: Texts) -> Tokenizer:
    """Learnt at the first start or taken from the export that the run begins with; kept with the run."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    begun = options.start_from
    tokenizer = bpe.kept(
        options.out / "tokenizer.json",
        lambda: start_tokenizer(begun) if begun else learn_vocabulary(read.sample(), options.vocabulary),
    )
    if begun:
        check_vocabulary(begun, tokenizer, options.out)
    # Forked processes must not meet the tokenizer's own threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return tokenizer


def loss(model: Any, halfway: Halfway, chunk: Chunk, examples: int, options: Options, losses: Losses) -> Tensor:
    """A chunk's part of its batch's loss, the batch having so many examples; with the answer, what the encoder has to tell."""
    inputs, labels, sources, bound = chunk.to(options.device)
    each, read, binding = reader.losses(model, halfway, inputs, labels, bound, asked=sources >= len(CONTINUED))
    losses.add(sources, each, read, binding)
    return (each + options.plan.encoder * read + options.plan.binding * binding).sum() / examples


def examine(model: Any, held: Held) -> None:
    with examined(model):
        for name, samples in held.samples.items():
            say(f"  held out  {name:15} {accuracy(model, held, name):5.1f} %  ({len(samples)} cases)")
        say(f"  held out  perplexity of novels {perplexity(model, held):.1f}")


def options_from(arguments: list[str] | None = None) -> Options:
    return read_options(Options, Plan, __doc__, HELPS, arguments)  # type: ignore[no-any-return]


def main() -> int:
    torch.set_float32_matmul_precision("high")
    return exit_status(lambda: train(options_from()))


if __name__ == "__main__":
    sys.exit(main())

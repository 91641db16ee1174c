"""Trains the embedded model on one GPU, or slowly on a CPU.

    python -m experiments.embedded_model.train --data data --out runs/embedded --minutes 9

The same command again goes on where the last one stopped, with the same data and the same schedule. At the end, and at every
`--evaluate-every` steps, held-out accuracy is printed; OUT/export then holds a model that plain transformers loads.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from experiments._lib import bpe, checkpoint, passkey_examples, reader, scaled_queries, t5_training
from experiments._lib.batches import Chunk, loader
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
from experiments.embedded_model.data import LONGEST, Example, Stock, learn_vocabulary, read_stock
from experiments.embedded_model.examples import (
    SOURCES,
    Plan,
    collate,
    continuation,
    line_official,
    line_ours,
    stream,
    topic_official,
    topic_ours,
)
from lengthwise.tasks import TASKS

MOST_PARAMETERS, MOST_BYTES = 8_000_000, 16_000_000  # of what ships


def config(vocabulary: int = 4096, **changes: int) -> T5Config:
    sizes = {"d_model": 256, "d_kv": 48, "num_heads": 4, "d_ff": 1024, "num_layers": 4, "num_decoder_layers": 2, **changes}
    return T5Config(
        vocab_size=vocabulary,
        **sizes,
        n_positions=512,
        dropout_rate=0.0,
        feed_forward_proj="relu",
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )


def build(settings: T5Config, seed: int, attention: str = "sdpa") -> T5ForConditionalGeneration:
    """A new model for training, with its reader."""
    model = scaled_queries.build(settings, seed, attention)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"the model has {parameters:,} parameters, more than the {MOST_PARAMETERS:,} that ship with the package"
        )
    return reader.add(model)


def stock_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the plain T5 that computes the same."""
    return reader.left_out(scaled_queries.stock_weights(model))


def plain_model(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A plain T5 that computes the same, on the CPU in float32."""
    return scaled_queries.stock(model.config, stock_weights(model))


Maker = Callable[[Stock, random.Random, int], Example]
MAKERS: dict[str, Maker] = {
    "passkey filler": passkey_examples.in_filler,
    "passkey prose": passkey_examples.in_prose,
    "line": line_ours,
    "line official": line_official,
    "topic": topic_ours,
    "topic official": topic_official,
}
PIECE = 32  # examples generated for at once


def cases(stock: Stock, samples: int, seed: int = 1) -> dict[str, list[Example]]:
    """The same examples at every call; official layouts only where the data folder has them."""
    wanted = {name: make for name, make in MAKERS.items() if stock.official.labels or "official" not in name}
    return {name: [_case(stock, name, make, seed, at) for at in range(samples)] for name, make in wanted.items()}


def _case(stock: Stock, name: str, make: Maker, seed: int, at: int) -> Example:
    made = make(stock, random.Random(f"evaluation {name} {seed} {at}"), LONGEST)
    assert len(made.tokens) <= LONGEST, f"{name} case {at} takes {len(made.tokens)} tokens"
    return made


def texts(stock: Stock, samples: int, seed: int = 1) -> list[Example]:
    return [continuation(stock, random.Random(f"evaluation text {seed} {at}"), LONGEST, 64) for at in range(samples)]


def accuracy(model: Any, tokenizer: Any, examples: list[Example]) -> float:
    """Percent right."""
    right = 0.0
    for at in range(0, len(examples), PIECE):
        some = examples[at : at + PIECE]
        inputs, *_ = collate(some).to(model.device)
        longest = max(len(one.target) for one in some) + 4
        said = tokenizer.decode_batch(t5_training.answers(model, inputs, longest), skip_special_tokens=True)
        right += sum(score(one, answer) for one, answer in zip(some, said, strict=True))
    return 100 * right / len(examples)


def score(one: Example, answer: str) -> float:
    return TASKS[one.source.split()[0]].score(answer, one.answer)


def perplexity(model: Any, examples: list[Example]) -> float:
    pieces = (collate(examples[at : at + PIECE]).to(model.device) for at in range(0, len(examples), PIECE))
    return t5_training.perplexity(model, ((inputs, labels) for inputs, labels, *_ in pieces))


# Workers are forked, each with one thread
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


HELPS = {
    "data": "folder with gutenberg/*.txt and longeval/",
    "out": "folder of the run",
    "weights": "shares of the sources, for example line=0.6,passkey_prose=0.1",
    "sizes": "other sizes of the model, for example num_layers=6,d_kv=64",
    "attention": "sdpa, or eager, which is faster on a CPU",
}


@dataclass(frozen=True)
class Options:
    """One run."""

    data: Path
    out: Path
    plan: Plan = field(default_factory=Plan)
    peak: float = 1e-3  # learning rate after the warm-up
    floor: float = 5e-5  # learning rate at the end
    warm_up: int = 500
    minutes: float = math.inf  # of this process; the checkpoint is written when they are over
    stop_after: int | None = None  # steps, in total
    evaluate_every: int = 2000
    save_every: int = 1000
    log_every: int = 100
    samples: int = 128  # of each task, at an evaluation
    workers: int = 12
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    attention: str = "sdpa"
    compile: bool = False
    sizes: dict[str, int] = field(default_factory=dict)  # other sizes of the model than `model.config` has

    def settings(self) -> dict[str, Any]:
        """What must not change between the parts of a run."""
        own = {"peak": self.peak, "floor": self.floor, "warm_up": self.warm_up, "sizes": self.sizes}
        return {**asdict(self.plan), **own}


@dataclass
class Held:
    """What the model is examined on."""

    cases: dict[str, list[Example]]
    texts: list[Example]


def train(options: Options) -> T5ForConditionalGeneration:
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = bpe.kept(options.out / "tokenizer.json", lambda: learn_vocabulary(options.data))
    model = build(config(tokenizer.get_vocab_size(), **options.sizes), options.plan.seed, options.attention).to(options.device)
    optimizer = make_optimizer(model, options.peak)
    done = checkpoint.restore(options.out, model, optimizer, options.settings())
    material, held = prepare(options, tokenizer)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, {done} of {options.plan.steps} steps done")
    last = min(options.plan.steps, options.stop_after or options.plan.steps)
    losses, halfway = Losses(SOURCES, 3, options.device), Halfway(model)
    if options.compile:
        compile_stacks(model)

    def update(step: int, chunks: list[Chunk]) -> None:
        parts = [partial(loss, model, halfway, chunk, options, losses) for chunk in chunks]
        step_of(model, optimizer, learning_rate(options, step), parts)

    def note(done: int, speed: float) -> None:
        say(f"step {done}  rate {learning_rate(options, done - 1):.1e}  {speed:.2f} steps/s  {losses.line()}")

    calls = Calls(
        update=update,
        note=note,
        save=lambda done: checkpoint.save(options.out, done, model, optimizer, options.settings()),
        examine=lambda: examine(model, tokenizer, held),
        over=lambda done: time.monotonic() - began > 60 * options.minutes or done >= last,
    )
    # A finished run goes straight to its export
    batches = stream(material, options.plan, done if done < last else options.plan.steps)
    every = Every(options.log_every, options.save_every, options.evaluate_every)
    done = go_on(loader(batches, options.workers, options.device == "cuda"), done, every, calls)
    finish(options, model, tokenizer, held, done)
    return model


def finish(options: Options, model: T5ForConditionalGeneration, tokenizer: Tokenizer, held: Held, done: int) -> None:
    """Examines the very files that were written; in float32, for not every CPU computes in bf16."""
    size = export(plain_model(model), tokenizer, options.out / "export", MOST_BYTES)
    say(f"exported after {done} steps: {size:,} bytes in {options.out / 'export'}")
    written = T5ForConditionalGeneration.from_pretrained(options.out / "export", dtype=torch.float32).to(options.device)
    examine(written, tokenizer, held)


def prepare(options: Options, tokenizer: Tokenizer) -> tuple[Stock, Held]:
    unseen = read_stock(options.data, tokenizer, train=False)
    held = Held(cases(unseen, options.samples), texts(unseen, options.samples))
    return read_stock(options.data, tokenizer, train=True), held


def learning_rate(options: Options, step: int) -> float:
    share = (step - options.warm_up) / max(1, options.plan.steps - options.warm_up)
    return warm_up_then_cosine(step, options.warm_up, share, options.peak, options.floor)


def loss(model: Any, halfway: Halfway, chunk: Chunk, options: Options, losses: Losses) -> Tensor:
    """A chunk's part of its batch's loss; with the answer, what the encoder's last token and its digits have to tell."""
    inputs, labels, sources, bound = chunk.to(options.device)
    asked = sources != SOURCES.index("text")  # a novel's continuation cannot be known beforehand
    each, read, binding = reader.losses(model, halfway, inputs, labels, bound, asked)
    losses.add(sources, each, read, binding)
    plan = options.plan
    return (each + plan.encoder * read + plan.binding * binding).sum() / plan.batch


def examine(model: Any, tokenizer: Tokenizer, held: Held) -> None:
    with examined(model):
        for name, cases in held.cases.items():
            say(f"  held out  {name:15} {accuracy(model, tokenizer, cases):5.1f} %  ({len(cases)} cases)")
        say(f"  held out  perplexity of novels {perplexity(model, held.texts):.1f}")


def options_from(arguments: list[str] | None = None) -> Options:
    return read_options(Options, Plan, __doc__, HELPS, arguments)  # type: ignore[no-any-return]


def main() -> None:
    torch.set_float32_matmul_precision("high")
    train(options_from())


if __name__ == "__main__":
    main()

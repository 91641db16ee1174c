"""Trains the embedded model on one GPU, or slowly on a CPU.

    python -m experiments.embedded_model.train --data data --out runs/embedded --minutes 9

The same command again goes on where the last one stopped, with the same data and the same schedule. At the end, and at every
`--evaluate-every` steps, held-out accuracy is printed; OUT/export then holds a model that plain transformers loads.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

# Workers are forked, each with one thread
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration

from experiments.common import checkpoint
from experiments.embedded_model import evaluation, mixture, vocabulary
from experiments.embedded_model.example import Example, Stock, stock
from experiments.embedded_model.export import export
from experiments.embedded_model.mixture import IGNORED, SOURCES, Chunk, Plan
from experiments.embedded_model.model import READ, READER, Halfway, build, config


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
    device: str = "cuda"
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
    tokenizer = load_tokenizer(options)
    model = build(config(tokenizer.get_vocab_size(), **options.sizes), options.plan.seed, options.attention).to(options.device)
    optimizer = make_optimizer(model, options.peak)
    done = checkpoint.restore(options.out, model, optimizer, options.settings())
    material, held = prepare(options, tokenizer)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, {done} of {options.plan.steps} steps done")
    last = min(options.plan.steps, options.stop_after or options.plan.steps)
    losses, halfway = Losses(options.device), Halfway(model)
    if options.compile:
        compile_stacks(model)
    started, counted = time.monotonic(), done
    # A finished run goes straight to its export
    start = done if done < last else options.plan.steps
    for step, chunks in mixture.loader(material, options.plan, start, options.workers, options.device == "cuda"):
        rate = learning_rate(options, step)
        update(model, halfway, optimizer, chunks, rate, options, losses)
        done = step + 1
        if done % options.log_every == 0 or done == last:
            speed = (done - counted) / (time.monotonic() - started)
            say(f"step {done}  rate {rate:.1e}  {speed:.2f} steps/s  {losses.line()}")
        over = time.monotonic() - began > 60 * options.minutes or done >= last
        if over or done % options.save_every == 0:
            checkpoint.save(options.out, done, model, optimizer, options.settings())
        if over:
            break
        if done % options.evaluate_every == 0:
            examine(model, tokenizer, held)
            started, counted = time.monotonic(), done
    finish(options, model, tokenizer, held, done)
    return model


def finish(options: Options, model: T5ForConditionalGeneration, tokenizer: Tokenizer, held: Held, done: int) -> None:
    """Examines the very files that were written; in float32, for not every CPU computes in bf16."""
    size = export(model, tokenizer, options.out / "export")
    say(f"exported after {done} steps: {size:,} bytes in {options.out / 'export'}")
    written = T5ForConditionalGeneration.from_pretrained(options.out / "export", dtype=torch.float32).to(options.device)
    examine(written, tokenizer, held)


def load_tokenizer(options: Options) -> Tokenizer:
    """Learnt at the first start, kept with the run."""
    file = options.out / "tokenizer.json"
    if not file.exists():
        fresh = file.with_suffix(".unfinished")
        vocabulary.learn(options.data).save(str(fresh))
        fresh.rename(file)
    return Tokenizer.from_file(str(file))


def prepare(options: Options, tokenizer: Tokenizer) -> tuple[Stock, Held]:
    unseen = stock(options.data, tokenizer, train=False)
    held = Held(evaluation.cases(unseen, options.samples), evaluation.texts(unseen, options.samples))
    return stock(options.data, tokenizer, train=True), held


def compile_stacks(model: T5ForConditionalGeneration, backend: str = "inductor") -> None:
    """Four times as many steps a second, after a minute of compiling each of a batch's few shapes."""
    torch._dynamo.config.recompile_limit = 64
    for stack in (model.encoder, model.decoder):
        stack.compile(dynamic=False, backend=backend)


def make_optimizer(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """No decay on norms and on the table of relative positions."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if p.dim() < 2 or "relative_attention_bias" in name]
    kept = {id(p) for p in plain}
    decayed = [p for _, p in named if id(p) not in kept]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=named[0][1].is_cuda)


def learning_rate(options: Options, step: int) -> float:
    """Linear warm-up, then half a cosine down to the floor."""
    if step < options.warm_up:
        return options.peak * (step + 1) / options.warm_up
    share = (step - options.warm_up) / max(1, options.plan.steps - options.warm_up)
    return options.floor + (options.peak - options.floor) * 0.5 * (1 + math.cos(math.pi * share))


class Losses:
    """Mean losses of each source since the last line that was printed; they stay on the device until then."""

    def __init__(self, device: str) -> None:
        self.sums = torch.zeros(4, len(SOURCES), device=device)

    def add(self, sources: Tensor, each: Tensor, *readers: Tensor) -> None:
        for row, values in zip(self.sums, (torch.ones_like(each), each, *readers), strict=True):
            row.index_add_(0, sources, values.detach())

    def line(self) -> str:
        """A source's loss and, after strokes, what the encoder's last token and its digits have to tell."""
        count, *rows = self.sums.cpu().clone()
        self.sums.zero_()
        seen = [(at, name) for at, name in enumerate(SOURCES) if count[at] > 0]
        means = [f"{name} " + "/".join(f"{float(row[at] / count[at]):.3f}" for row in rows) for at, name in seen]
        return f"loss {float(rows[0].sum() / count.sum()):.4f}  " + "  ".join(means)


def update(
    model: Any,
    halfway: Halfway,
    optimizer: torch.optim.Optimizer,
    chunks: list[Chunk],
    rate: float,
    options: Options,
    losses: Losses,
) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    for chunk in chunks:
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.device == "cuda"):
            total = loss(model, halfway, chunk, options, losses)
        total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def loss(model: Any, halfway: Halfway, chunk: Chunk, options: Options, losses: Losses) -> Tensor:
    """A chunk's part of its batch's loss. Each example counts alike: else long continuations drown the digits of retrieval."""
    inputs, labels, sources, bound = chunk.to(options.device)
    reader, embedding = model.get_submodule(READER), model.get_input_embeddings().weight
    tokens, last = evaluation.both_losses(model, inputs, labels)
    each = tokens.sum(1) / (labels != IGNORED).sum(1)
    asked = (sources != SOURCES.index("text")).float()  # a novel's continuation cannot be known beforehand
    answers = labels[:, :READ]
    read = evaluation.token_losses(reader.answer(last, embedding), answers).sum(1) / (answers != IGNORED).sum(1) * asked
    example, place, *names = bound.unbind(1)
    told = reader.name(halfway.states[example, place], embedding)
    named = evaluation.token_losses(told, torch.stack(names, 1)).mean(1)
    # Each line example counts alike here, too
    share = torch.bincount(example, minlength=len(inputs)).clamp_min(1)
    binding = torch.zeros_like(each).index_add(0, example, named / share[example])
    losses.add(sources, each, read, binding)
    plan = options.plan
    return (each + plan.encoder * read + plan.binding * binding).sum() / plan.batch


def examine(model: Any, tokenizer: Tokenizer, held: Held) -> None:
    # Generation has a new shape at every token
    with evaluating(model), torch.compiler.set_stance("force_eager"):
        for name, cases in held.cases.items():
            say(f"  held out  {name:15} {evaluation.accuracy(model, tokenizer, cases):5.1f} %  ({len(cases)} cases)")
        say(f"  held out  perplexity of novels {evaluation.perplexity(model, held.texts):.1f}")


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def say(text: str) -> None:
    print(text, flush=True)


def read_weights(text: str) -> dict[str, float]:
    """`line=0.6,text=0.1`: other shares than usual; the rest keep theirs."""
    changed = {
        name.replace("_", " "): float(share) for name, _, share in (part.partition("=") for part in text.split(",") if part)
    }
    unknown = set(changed) - set(SOURCES)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no source {', '.join(sorted(unknown))}; there are {', '.join(SOURCES)}")
    return {**mixture.WEIGHTS, **changed}


def read_sizes(text: str) -> dict[str, int]:
    """`num_layers=6,d_kv=64`: fields of T5Config."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(size) for name, _, size in pairs}


def options_from(arguments: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    plan, usual = Plan(), Options(Path(), Path())
    parser.add_argument("--data", type=Path, required=True, help="folder with gutenberg/*.txt and longeval/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--steps", type=int, default=plan.steps)
    parser.add_argument("--batch", type=int, default=plan.batch)
    parser.add_argument("--chunks", type=int, default=plan.chunks, help="parts of a batch that are padded by themselves")
    parser.add_argument("--curriculum", type=float, default=plan.curriculum, help="share of the steps until records are full")
    parser.add_argument("--many", type=float, default=plan.many, help="share of the records with several questions")
    parser.add_argument("--binding", type=float, default=plan.binding, help="weight of the names that digits must know")
    parser.add_argument("--encoder", type=float, default=plan.encoder, help="weight of the encoder's own answer")
    parser.add_argument("--weights", type=read_weights, default=plan.weights, help="for example line=0.6,passkey_prose=0.1")
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument(
        "--sizes", type=read_sizes, default={}, help="other sizes of the model, for example num_layers=6,d_kv=64"
    )
    for name in ("peak", "floor", "minutes"):
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name))
    for name in ("warm_up", "stop_after", "evaluate_every", "save_every", "log_every", "samples", "workers"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(usual, name))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attention", default=usual.attention, choices=["sdpa", "eager"], help="eager is faster on a CPU")
    parser.add_argument("--compile", action="store_true")
    given = vars(parser.parse_args(arguments))
    own = {one.name: given.pop(one.name) for one in fields(Plan)}
    return Options(plan=Plan(**own), **given)


def main() -> None:
    torch.set_float32_matmul_precision("high")
    train(options_from())


if __name__ == "__main__":
    main()

"""How a T5 is trained here, whatever it reads: steps, checkpoints, held-out questions, the export.

    rate = peak * (step + 1) / warm_up                                   while step < warm_up
         = FLOOR + (peak - FLOOR) * (1 + cos(pi * share)) / 2            then, share from 0 to 1

Each example's loss is averaged before the batch's: else long continuations drown the few digits of retrieval.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from experiments._lib import bpe, checkpoint, reader
from experiments._lib.batches import IGNORED, Chunk, Stream, loader, padded
from experiments._lib.command import option
from experiments._lib.reader import Halfway, teacher_forced, token_losses
from lengthwise.models.patches import evaluating

LONGEST = 512  # tokens of an input
FLOOR = 5e-5  # learning rate at the end
ENCODER, BINDING = 0.5, 0.5  # weights of what the encoder must tell by itself (reader.py)
SAVE_EVERY, EXAMINE_EVERY = 1000, 2500  # steps
PIECE = 128  # held-out questions answered at once


@dataclass(frozen=True, kw_only=True)
class Options:
    """What both trainings take; fields without a help have no flag."""

    data: Path = option(help="folder with gutenberg/*.txt")
    out: Path = option(help="folder of the run; the same command goes on there")
    steps: int = option(help="in all; the learning rate falls over them")
    minutes: float = option(math.inf, "of this call, after which it saves, exports and ends")
    seed: int = option(0)
    workers: int = option(12, "processes that make batches")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu")
    compile: bool = option(False, "four times as many steps a second, after minutes of compiling")
    batch: int = 256
    curriculum: float = 0
    samples: int = option(128, "of each held-out task")
    log_every: int = 100
    stop_after: int | None = None  # steps
    attention: str = "sdpa"
    vocabulary: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)  # that differ from the recipe's

    def settings(self) -> dict[str, Any]:
        """What must not change between the parts of a run."""
        return {name: getattr(self, name) for name in ("seed", "batch", "steps", "curriculum", "sizes")}


@dataclass(frozen=True)
class Recipe:
    """What tells one training from another, but for its data."""

    sizes: Mapping[str, Any]  # fields of T5Config
    peak: float  # learning rate after the warm-up
    warm_up: int  # steps
    sources: tuple[str, ...]  # of examples
    continued: tuple[str, ...]  # those whose targets cannot be known beforehand

    def config(self, vocabulary: int, **changes: Any) -> T5Config:
        special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "tie_word_embeddings": True}
        return T5Config(vocab_size=vocabulary, n_positions=LONGEST, dropout_rate=0.0, **special, **{**self.sizes, **changes})


@dataclass(frozen=True)
class Exam:
    """Held-out questions of one task."""

    prompts: list[list[int]]
    scores: list[Callable[[str], float]]  # what an answer is worth, question by question
    longest: int  # tokens of an answer


@dataclass(frozen=True)
class Material:
    """What a run reads."""

    batch: Callable[[int], list[Chunk]]  # of a step
    exams: dict[str, Exam]
    prefixes: Tensor  # [passages, length] of held-out novels
    continuations: Tensor  # [passages, target length]


def train(
    recipe: Recipe, options: Options, learn: Callable[[], Tokenizer], read: Callable[[Tokenizer], Material]
) -> T5ForConditionalGeneration:
    """A whole run, or the rest of it: learns or loads the vocabulary, reads the data, trains, exports, examines the export."""
    began = time.monotonic()
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = bpe.kept(options.out / "tokenizer.json", learn)
    # Forked processes must not meet the tokenizer's own threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    run = Run(recipe, options, tokenizer, read(tokenizer))
    run.train(began + 60 * options.minutes)
    run.finish()
    return run.model


class Run:
    """The state of a training."""

    def __init__(self, recipe: Recipe, options: Options, tokenizer: Tokenizer, material: Material) -> None:
        self.recipe, self.options, self.tokenizer, self.material = recipe, options, tokenizer, material
        config = recipe.config(tokenizer.get_vocab_size(), **options.sizes)
        model = reader.add(reader.build(config, options.seed, options.attention))
        self.model = model.to(options.device).train()
        self.halfway, self.optimizer = Halfway(self.model), make_optimizer(self.model, recipe.peak)
        self.losses = Losses(recipe.sources, 3, options.device)
        self.done = checkpoint.restore(options.out, self.model, self.optimizer, options.settings())

    def train(self, until: float) -> None:
        """All steps that are left, or as many as there is time for."""
        options, last = self.options, min(self.options.steps, self.options.stop_after or self.options.steps)
        say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters, {self.done} of {options.steps} steps done")
        if options.compile:
            compile_stacks(self.model)
        started, counted = time.monotonic(), self.done
        for step, chunks in loader(Stream(self.material.batch, self.done, last), options.workers, options.device == "cuda"):
            rate = self.update(step, chunks)
            self.done = step + 1
            over = self.done >= last or time.monotonic() > until
            if over or self.done % options.log_every == 0:
                speed = (self.done - counted) / (time.monotonic() - started)
                say(f"step {self.done}  rate {rate:.1e}  {speed:.2f} steps/s  {self.losses.line()}")
            if over or self.done % SAVE_EVERY == 0:
                checkpoint.save(options.out, self.done, self.model, self.optimizer, options.settings())
            if over:
                break
            if self.done % EXAMINE_EVERY == 0:
                self.examine(self.model)
                started, counted = time.monotonic(), self.done

    def update(self, step: int, chunks: Sequence[Chunk]) -> float:
        """One step on the mean over the batch's examples, chunk after chunk; bf16 on a GPU. Returns the learning rate."""
        recipe, examples = self.recipe, sum(len(chunk.inputs) for chunk in chunks)
        share = (step - recipe.warm_up) / max(1, self.options.steps - recipe.warm_up)
        rate = warm_up_then_cosine(step, recipe.warm_up, share, recipe.peak, FLOOR)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        for chunk in chunks:
            with half(self.options.device):
                total = self.loss(chunk, examples)
            total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return rate

    def loss(self, chunk: Chunk, examples: int) -> Tensor:
        """A chunk's part of the loss of a batch of so many examples; with the answer, what the encoder has to tell."""
        inputs, labels, sources, bound = chunk.to(self.options.device)
        continued = torch.tensor([name in self.recipe.continued for name in self.recipe.sources], device=inputs.device)
        each, read, binding = reader.losses(self.model, self.halfway, inputs, labels, bound, asked=~continued[sources])
        self.losses.add(sources, each, read, binding)
        return (each + ENCODER * read + BINDING * binding).sum() / examples

    def examine(self, model: Any) -> dict[str, float]:
        """Held-out accuracy and perplexity, uncompiled: generation has a new shape at every token."""
        found = {}
        with evaluating(model), torch.compiler.set_stance("force_eager"):
            for name, exam in self.material.exams.items():
                found[name] = accuracy(model, self.tokenizer, exam)
                say(f"  held out  {name:15} {found[name]:5.1f} %  ({len(exam.prompts)} cases)")
            found["perplexity of novels"] = perplexity(model, self.material.prefixes, self.material.continuations)
            say(f"  held out  perplexity of novels {found['perplexity of novels']:.1f}")
        return found

    def finish(self) -> dict[str, float]:
        """Exports and examines the very files that were written; in float32, for not every CPU computes in bf16."""
        folder = self.options.out / "export"
        plain = plain_model(self.model).to(torch.bfloat16)
        plain.generation_config.decoder_start_token_id = 0
        plain.save_pretrained(folder)
        bpe.for_transformers(self.tokenizer).save_pretrained(folder)
        size = (folder / "model.safetensors").stat().st_size
        say(f"exported after {self.done} steps: {size:,} bytes in {folder}")
        return self.examine(T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).to(self.options.device))


def plain_model(model: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A plain T5 that computes the same, without the reader, on the CPU in float32."""
    return reader.stock(model.config, reader.left_out(reader.stock_weights(model)))


def warm_up_then_cosine(step: int, warm_up: int, share: float, peak: float, floor: float) -> float:
    """The learning rate; `share` is the part of the way after the warm-up that is done."""
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * share))


def make_optimizer(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW without decay on norms and on the table of relative positions."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[parameter.dim() >= 2 and "relative_attention_bias" not in name].append(parameter)
    decay = [{"params": groups[decayed], "weight_decay": 0.01 * decayed} for decayed in (True, False)]
    return torch.optim.AdamW(decay, lr=rate, betas=(0.9, 0.98), fused=groups[True][0].is_cuda)


def compile_stacks(model: T5ForConditionalGeneration) -> None:
    """After a minute of compiling each of a batch's few shapes."""
    torch._dynamo.config.recompile_limit = 64
    for stack in (model.encoder, model.decoder):
        stack.compile(dynamic=False)


def half(device: str) -> torch.autocast:
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def perplexity(model: Any, prefixes: Tensor, continuations: Tensor) -> float:
    total = 0.0
    for at in range(0, len(prefixes), PIECE):
        inputs, labels = (part[at : at + PIECE].to(model.device).long() for part in (prefixes, continuations))
        with torch.inference_mode(), half(inputs.device.type):
            total += float(token_losses(teacher_forced(model, inputs, labels).logits, labels).sum())
    return math.exp(min(20.0, total / int((continuations != IGNORED).sum())))


def accuracy(model: Any, tokenizer: Tokenizer, exam: Exam) -> float:
    """Percent right, answering greedily."""
    right = 0.0
    for at in range(0, len(exam.prompts), PIECE):
        inputs = padded(exam.prompts[at : at + PIECE], 128, 0).long().to(model.device)
        how: Any = {"attention_mask": (inputs != 0).long(), "max_new_tokens": exam.longest, "do_sample": False, "num_beams": 1}
        with torch.inference_mode(), half(inputs.device.type):
            answers = tokenizer.decode_batch(model.generate(input_ids=inputs, **how).tolist(), skip_special_tokens=True)
        right += sum(score(answer) for score, answer in zip(exam.scores[at : at + PIECE], answers, strict=True))
    return 100 * right / len(exam.prompts)


class Losses:
    """Mean losses of each source since the last line that was printed; they stay on the device until then."""

    def __init__(self, sources: Sequence[str], kinds: int, device: str) -> None:
        self.sources = sources
        self.sums = torch.zeros(1 + kinds, len(sources), device=device)

    def add(self, sources: Tensor, *kinds: Tensor) -> None:
        for row, values in zip(self.sums, (torch.ones_like(kinds[0]), *kinds), strict=True):
            row.index_add_(0, sources, values.detach())

    def line(self) -> str:
        """A source's loss, the answer's own first; further kinds after strokes."""
        count, *rows = self.sums.cpu().clone()
        self.sums.zero_()
        seen = [(at, name) for at, name in enumerate(self.sources) if count[at] > 0]
        means = [f"{name} " + "/".join(f"{float(row[at] / count[at]):.3f}" for row in rows) for at, name in seen]
        return f"loss {float(rows[0].sum() / count.sum()):.4f}  " + "  ".join(means)


def say(text: str) -> None:
    print(text, flush=True)

"""Trains the models of Entropy Invariance: 6-layer GAU-alpha on Chinese prose, 64 tokens long.

    python -m experiments.entropy_invariance.train --data DATA --out OUT --cos-scale none 128 16 --minutes 9

Every --cos-scale is a model of its own, trained one after the other in OUT/<name>; the same command again goes on where the
last one stopped. --pose and --method tune the finished base model of the same --cos-scale. OUT/<name>/losses.jsonl holds the
curves, OUT/<name>/export a model that `lengthwise.models.load` reads.

Batches are a function of the step, on any device: windows of a chapter between [CLS] and [SEP]; 15 % of their tokens are asked
for, the same number in each, of which 80 % are hidden, 10 % replaced by any token and 10 % left as they are (BERT).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from experiments._lib import checkpoint
from experiments._lib.chinese_novels import Chapter, Special, chapters, tokenizer_of
from experiments._lib.command import main, option
from experiments._lib.minutes import say
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.methods.positions import pose
from lengthwise.models.gau_alpha import POSITIONS, GAUAlphaConfig, GAUAlphaForMaskedLM
from lengthwise.records.append_only import AppendOnly

LAYERS, LENGTH = 6, 64
ASKED, HIDDEN, REPLACED = 0.15, 0.8, 0.1
LOSSES = "losses.jsonl"
# Which batch a generator is for, besides the seed and the step
TRAINING, EXAM, PLACES = 0, 1, 2


@dataclass(frozen=True)
class Configuration:
    """One run; a tuned one, by PoSE or under a method, starts from the weights of its base."""

    cos_scale: float | None = None
    positions: str = "rope"
    pose: int | None = None  # PoSE's target length
    method: str | None = None  # a spec that is in place while the model is trained
    alibi_slope: float | None = None  # another one than ALiBi's own

    @property
    def name(self) -> str:
        """The name of its folder."""
        numbers = {"slope": self.alibi_slope, "cos": self.cos_scale, "pose": self.pose}
        parts = [f"{name}{number:g}" for name, number in numbers.items() if number is not None]
        method = [] if self.method is None else [self.method.replace(":", "-").replace("=", "").replace(",", "-")]
        return "-".join([self.positions, *parts, *method])

    @property
    def base(self) -> Configuration | None:
        """The configuration whose weights it starts from; None for one that starts from nothing."""
        tuned = self.pose is not None or self.method is not None
        return replace(self, pose=None, method=None) if tuned else None

    def model_config(self, length: int, **sizes: Any) -> GAUAlphaConfig:
        given: dict[str, Any] = {"cos_scale": self.cos_scale, "positions": self.positions}
        if self.alibi_slope is not None:
            given["alibi_slope"] = self.alibi_slope
        return GAUAlphaConfig(**{"num_hidden_layers": LAYERS, "max_position_embeddings": length, **given, **sizes})


@dataclass(frozen=True)
class Loss(Declared):
    """One point of the curves of training."""

    step: int
    kind: str  # "training": mean since the point before; "held out"
    loss: float  # cross-entropy of the tokens asked for, in nats

    @property
    def key(self) -> tuple[int, str]:
        return self.step, self.kind


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the models of one call are trained."""

    data: Path = option(help="folder with zh/*.txt and gau_vocab/vocab.txt")
    out: Path = option(help="folder of the experiment")
    scales: tuple[str, ...] = option(("none",), "S of CosScale, or none; a model each", flag="--cos-scale")
    positions: str = option("rope", "of the model", choices=POSITIONS)
    pose: int | None = option(None, "tune the base model with PoSE up to this length")
    method: str | None = option(None, "tune the base model under this method")
    alibi_slope: float | None = option(None, "another one than ALiBi's own")
    steps: int = option(12000, "of training")
    length: int = option(LENGTH, "tokens of a window")
    batch: int = option(128, "windows of a step")
    peak: float = option(5e-4, "learning rate after a warm-up over the first tenth of the steps; then linearly down to 0")
    decay: float = 0.01  # of AdamW
    minutes: float = option(math.inf, "of this process, all models together")
    seed: int = option(0, "of weights and batches")
    evaluate_every: int = 1000  # steps
    save_every: int = 2000
    log_every: int = 50
    exam: int = option(4096, "held-out windows that a model is examined on")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cpu or cuda")
    sizes: dict[str, Any] = field(default_factory=dict)  # other sizes of the model

    @property
    def configurations(self) -> list[Configuration]:
        tuned = (self.positions, self.pose, self.method, self.alibi_slope)
        return [Configuration(None if scale == "none" else float(scale), *tuned) for scale in self.scales]

    def settings(self, configuration: Configuration) -> dict[str, Any]:
        """What must not change between the parts of a run."""
        kept = ("steps", "length", "batch", "peak", "decay", "seed", "sizes")
        return {**{name: getattr(self, name) for name in kept}, "model": configuration.name}


def train(options: Options) -> list[str]:
    """The names of the models that are finished."""
    began = time.monotonic()
    tokenizer = tokenizer_of(options.data)
    special, all_chapters = Special.of(tokenizer), chapters(options.data, tokenizer)
    kinds = [[chapter for chapter in all_chapters if chapter.held_out == held] for held in (False, True)]
    seen, unseen = (Windows(kind, options.length, special, options.device) for kind in kinds)
    say(f"{len(seen.tokens):,} tokens of prose, {len(unseen.tokens):,} held out")
    finished = []
    for configuration in options.configurations:
        left = 60 * options.minutes - (time.monotonic() - began)
        if left <= 0:
            break
        if Run(options, configuration, tokenizer, seen, unseen).go_on(left):
            finished.append(configuration.name)
    return finished


class Run:
    """One model."""

    def __init__(self, options: Options, configuration: Configuration, tokenizer: Any, seen: Windows, unseen: Windows) -> None:
        self.options, self.configuration, self.tokenizer = options, configuration, tokenizer
        self.seen, self.unseen = seen, unseen
        self.folder = options.out / configuration.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model: Any = self._fresh().to(options.device)
        # PyTorch's fused kernels are slow where values are twelve times as wide as keys
        self.model.set_attn_implementation("eager")
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": options.decay}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.peak, betas=(0.9, 0.98), fused=options.device == "cuda")
        self.done = checkpoint.restore(self.folder, self.model, self.optimizer, options.settings(configuration))
        self.losses = AppendOnly(self.folder / LOSSES, Loss)
        self.sum = torch.zeros((), device=options.device)

    def go_on(self, seconds: float) -> bool:
        """Trains for so long at most; True when all steps are done and the model is exported."""
        options, began, start = self.options, time.monotonic(), self.done
        say(f"{self.configuration.name}: {start} of {options.steps} steps done")
        method = self.configuration.method
        with lw.extend(self.model, method) if method else nullcontext():
            while self.done < options.steps:
                self._step()
                over = time.monotonic() - began > seconds
                if self.done % options.log_every == 0 or self.done == options.steps:
                    self._note(start, time.monotonic() - began)
                if over or self.done % options.save_every == 0 or self.done == options.steps:
                    checkpoint.save(self.folder, self.done, self.model, self.optimizer, options.settings(self.configuration))
                if self.done % options.evaluate_every == 0 or self.done == options.steps:
                    self._examine()
                if over:
                    break
        if self.done < options.steps:
            return False
        self.model.save_pretrained(self.folder / "export")
        self.tokenizer.save_pretrained(self.folder / "export")
        return True

    def _fresh(self) -> Any:
        options, base = self.options, self.configuration.base
        torch.manual_seed(options.seed)
        if base is None:
            sizes = {"vocab_size": len(self.tokenizer), **options.sizes}
            return GAUAlphaForMaskedLM(self.configuration.model_config(options.length, **sizes))
        export, name = options.out / base.name / "export", self.configuration.name
        finished = (export / "config.json").is_file()
        require(finished, f"{name} tunes {base.name}, which is not finished in {options.out}: train it first")
        return GAUAlphaForMaskedLM.from_pretrained(export)

    def _step(self) -> None:
        options = self.options
        self.model.train()
        rate = learning_rate(options, self.done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # Dropout, too, is a function of the step
        torch.manual_seed(options.seed * 1_000_003 + self.done)
        draws = seeded(options.device, options.seed, self.done, TRAINING)
        self.optimizer.zero_grad(set_to_none=True)
        mean = self._loss(*hidden(self.seen.drawn(options.batch, draws), self.seen.special, draws), self.done)
        mean.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.sum += mean.detach()
        self.done += 1

    def _loss(self, inputs: Tensor, where: Tensor, targets: Tensor, step: int) -> Tensor:
        options, places = self.options, {}
        if self.configuration.pose is not None:
            draws, target = seeded("cpu", options.seed, step, PLACES), self.configuration.pose
            drawn = [pose.positions(options.length, target, draws) for _ in range(len(inputs))]
            places = {"position_ids": torch.stack(drawn).to(options.device)}
        return loss(self.model, inputs, where, targets, **places)

    def _note(self, start: int, seconds: float) -> None:
        since = self.done % self.options.log_every or self.options.log_every
        mean = float(self.sum) / min(since, self.done - start)
        self.sum.zero_()
        self.losses.append([Loss(self.done, "training", round(mean, 5))])
        if self.done % (10 * self.options.log_every) == 0:
            say(f"step {self.done}  loss {mean:.4f}  {(self.done - start) / seconds:.1f} steps/s")

    def _examine(self) -> None:
        """The same windows, with the same tokens hidden, whenever and whatever is examined."""
        mean = exam_loss(self.model, self.unseen, self.options)
        self.losses.append([Loss(self.done, "held out", round(mean, 5))])
        say(f"step {self.done}  held out {mean:.4f}  (perplexity {math.exp(mean):.2f})")


def loss(model: Any, inputs: Tensor, where: Tensor, targets: Tensor, **more: Any) -> Tensor:
    """Cross-entropy of the tokens asked for; only their states meet the head, which has thousands of rows."""
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=inputs.is_cuda):
        states = model.model(input_ids=inputs, **more).last_hidden_state
        logits = model.lm_head(states.gather(1, where[..., None].expand(-1, -1, states.shape[-1])))
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def exam_loss(model: Any, windows: Windows, options: Options) -> float:
    model.eval()
    total = 0.0
    for at in range(0, options.exam, options.batch):
        draws, count = seeded(options.device, 0, at, EXAM), min(options.batch, options.exam - at)
        total += count * float(loss(model, *hidden(windows.drawn(count, draws), windows.special, draws)))
    return total / options.exam


def learning_rate(options: Options, step: int) -> float:
    warm_up = max(1, options.steps // 10)
    if step < warm_up:
        return options.peak * (step + 1) / warm_up
    return options.peak * (options.steps - step) / max(1, options.steps - warm_up)


class Windows:
    """All windows of some chapters, [CLS] and [SEP] included in their length."""

    def __init__(self, chapters: Sequence[Chapter], length: int, special: Special, device: str) -> None:
        require(length >= 3, f"a window needs 3 tokens, one of them between [CLS] and [SEP], not {length}")
        self.inner, self.special = length - 2, special
        long_enough = [torch.from_numpy(chapter.tokens) for chapter in chapters if len(chapter.tokens) >= self.inner]
        require(bool(long_enough), f"no chapter has {self.inner} tokens; give longer texts or a shorter --length")
        starts, before = [], 0
        for tokens in long_enough:
            starts.append(torch.arange(before, before + len(tokens) - self.inner + 1))
            before += len(tokens)
        self.tokens, self.starts = torch.cat(long_enough).to(device), torch.cat(starts).to(device)

    def drawn(self, count: int, generator: torch.Generator) -> Tensor:  # [count, length]
        device = self.tokens.device
        first = self.starts[torch.randint(len(self.starts), (count,), generator=generator, device=device)]
        inner = self.tokens[first[:, None] + torch.arange(self.inner, device=device)]
        ends = [torch.full((count, 1), token, device=device) for token in (self.special.cls, self.special.sep)]
        return torch.cat((ends[0], inner, ends[1]), 1)


def seeded(device: str, *numbers: int) -> torch.Generator:
    """One generator for every tuple of small numbers."""
    seed = 0
    for number in numbers:
        seed = seed * 1_000_003 + number
    return torch.Generator(device).manual_seed(seed % 2**63)


def hidden(ids: Tensor, special: Special, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs [batch, length], and the places and tokens asked for, both [batch, asked]; never the first or last token."""
    inner = ids.shape[1] - 2
    draws = {"generator": generator, "device": ids.device}
    where = 1 + torch.rand(len(ids), inner, **draws).topk(max(1, round(ASKED * inner))).indices
    targets, how = ids.gather(1, where), torch.rand(where.shape, **draws)
    any_token = torch.randint(special.vocabulary, where.shape, **draws)
    left = torch.where(how < HIDDEN + REPLACED, any_token, targets)
    return ids.scatter(1, where, torch.where(how < HIDDEN, special.mask, left)), where, targets


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    sys.exit(main(Options, train, __doc__))

"""Trains the models of Entropy Invariance: 6-layer GAU-alpha on Chinese prose, 64 tokens long.

    python -m experiments.entropy_invariance.train --data data --out runs/gau --cos-scale none 128 16 --minutes 9
    ... --cos-scale none 128 --positions alibi
    ... --cos-scale none 128 --steps 1000 --pose 4096
    ... --cos-scale none 128 --steps 1000 --method yarn:factor=16

Every --cos-scale is a model of its own, trained one after the other in OUT/<name>; the same command again goes on where the
last one stopped. --pose and --method tune the finished base model of the same --cos-scale. OUT/<name>/losses.jsonl holds the
curves, OUT/<name>/export a model that `lengthwise.models.load` reads.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from experiments._lib import checkpoint
from experiments._lib.command import exit_status
from experiments.entropy_invariance.batches import Special, Windows, hidden, pose_positions, seeded
from experiments.entropy_invariance.configuration import LENGTH, Configuration
from experiments.entropy_invariance.losses import LOSSES, Loss
from experiments.entropy_invariance.prose import chapters, tokenizer_of
from lengthwise.errors import BadInput, require
from lengthwise.models.gau_alpha import GAUAlphaForMaskedLM
from lengthwise.models.gau_alpha.configuration import NORMALISATIONS, POSITIONS
from lengthwise.records.append_only import AppendOnly

# Which batch a generator is for, besides the seed and the step
TRAINING, EXAM, PLACES = 0, 1, 2


@dataclass(frozen=True)
class Options:
    """How the models of one call are trained."""

    data: Path
    out: Path
    configurations: tuple[Configuration, ...] = (Configuration(),)
    steps: int = 12000
    length: int = LENGTH
    batch: int = 128
    peak: float = 5e-4  # learning rate after a warm-up over the first tenth of the steps; then linearly down to 0
    decay: float = 0.01
    minutes: float = math.inf  # of this process, all models together
    seed: int = 0
    evaluate_every: int = 1000
    save_every: int = 2000
    log_every: int = 50
    exam: int = 4096  # held-out windows
    device: str = "cuda"
    compile: bool = False
    sizes: dict[str, Any] = field(default_factory=dict)  # other sizes of the model

    def __post_init__(self) -> None:
        require(self.exam >= 1, f"--exam needs a window at least, not {self.exam}")

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
        # A method's attention is not the model's own, and not made to be compiled
        if options.compile and configuration.method is None:
            self.model.model.compile(dynamic=False, mode="reduce-overhead")

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
        export = options.out / base.name / "export"
        if not (export / "config.json").is_file():
            raise BadInput(
                f"{self.configuration.name} tunes {base.name}, which is not finished in {options.out}: train it first"
            )
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
            draws = seeded(options.device, options.seed, step, PLACES)
            places = {"position_ids": pose_positions(len(inputs), options.length, self.configuration.pose, draws)}
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


def say(text: str) -> None:
    print(text, flush=True)


def scale(text: str) -> float | None:
    return None if text == "none" else float(text)


def options_from(arguments: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with zh/*.txt and gau_vocab/vocab.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--cos-scale", type=scale, nargs="+", default=[None], help="S of CosScale, or none; a model each")
    parser.add_argument("--normalisation", choices=NORMALISATIONS, default="softmax")
    parser.add_argument("--positions", choices=POSITIONS, default="rope")
    parser.add_argument("--pose", type=int, metavar="TARGET", help="tune the base model with PoSE up to this length")
    parser.add_argument("--method", metavar="SPEC", help="tune the base model under this method")
    parser.add_argument("--alibi-slope", type=float, metavar="SLOPE", help="another one than ALiBi's own")
    for one in fields(Options):
        if isinstance(one.default, int | float) and not isinstance(one.default, bool):
            parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    given = vars(parser.parse_args(arguments))
    scales = given.pop("cos_scale")
    own = {name: given.pop(name) for name in ("normalisation", "positions", "pose", "method", "alibi_slope")}
    return Options(configurations=tuple(Configuration(one, **own) for one in scales), **given)


def main() -> int:
    torch.set_float32_matmul_precision("high")
    return exit_status(lambda: train(options_from()))


if __name__ == "__main__":
    sys.exit(main())

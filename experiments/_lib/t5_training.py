"""How a T5 is trained here: the loop with its checkpoints, the schedule, the optimizer, losses by source.

    rate = peak * (step + 1) / warm_up                                   while step < warm_up
         = floor + (peak - floor) * (1 + cos(pi * share)) / 2            then, share from 0 to 1

Each example's loss is averaged before the batch's: else long continuations drown the few digits of retrieval.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration

from experiments._lib.batches import IGNORED
from lengthwise.models.patches import evaluating


@dataclass(frozen=True)
class Calls:
    """What a run does at a step and between steps; counts are of steps done."""

    update: Callable[[int, Any], None]  # takes the step's number and batch
    note: Callable[[int, float], None]  # prints; takes steps a second
    save: Callable[[int], None]
    examine: Callable[[], None]
    over: Callable[[int], bool]  # whether to save and stop


@dataclass(frozen=True)
class Every:
    """Steps between two of a kind."""

    log: int
    save: int
    evaluate: int


def go_on(batches: Iterable[tuple[int, Any]], done: int, every: Every, calls: Calls) -> int:
    """Trains until it is over; returns the steps done."""
    started, counted = time.monotonic(), done
    for step, batch in batches:
        calls.update(step, batch)
        done = step + 1
        over = calls.over(done)
        if over or done % every.log == 0:
            calls.note(done, (done - counted) / (time.monotonic() - started))
        if over or done % every.save == 0:
            calls.save(done)
        if over:
            break
        if done % every.evaluate == 0:
            calls.examine()
            started, counted = time.monotonic(), done
    return done


def warm_up_then_cosine(step: int, warm_up: int, share: float, peak: float, floor: float) -> float:
    """The learning rate; `share` is the part of the way after the warm-up that is done."""
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * share))


def make_optimizer(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """No decay on norms and on the table of relative positions."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if p.dim() < 2 or "relative_attention_bias" in name]
    kept = {id(p) for p in plain}
    decayed = [p for _, p in named if id(p) not in kept]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=named[0][1].is_cuda)


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, rate: float, losses: Iterable[Callable[[], Tensor]]) -> None:
    """One step on the sum of the losses, each computed and differentiated before the next; bf16 on a GPU."""
    device = next(model.parameters()).device.type
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    for loss in losses:
        with half(device):
            total = loss()
        total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def compile_stacks(model: T5ForConditionalGeneration, backend: str = "inductor") -> None:
    """Four times as many steps a second, after a minute of compiling each of a batch's few shapes."""
    torch._dynamo.config.recompile_limit = 64
    for stack in (model.encoder, model.decoder):
        stack.compile(dynamic=False, backend=backend)


def half(device: str) -> torch.autocast:
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def teacher_forced(model: Any, inputs: Tensor, labels: Tensor) -> Any:
    """The model's output for targets that it is told up to each token; padding is token 0, as is the decoder's start."""
    start = torch.zeros_like(labels[:, :1])
    before = torch.cat([start, labels[:, :-1].clamp_min(0)], 1)
    return model(input_ids=inputs, attention_mask=(inputs != 0).long(), decoder_input_ids=before, use_cache=False)


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:  # [examples, target length]
    """Cross-entropy of every target token in float32, 0 where there is none."""
    flat = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.view(labels.shape)


def example_means(losses: Tensor, labels: Tensor) -> Tensor:  # [examples]
    return losses.sum(1) / (labels != IGNORED).sum(1)


def perplexity(model: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Of all target tokens of the inputs and labels."""
    total, count = 0.0, 0
    for inputs, labels in batches:
        with torch.inference_mode(), half(inputs.device.type):
            total += float(token_losses(teacher_forced(model, inputs, labels).logits, labels).sum())
        count += int((labels != IGNORED).sum())
    return math.exp(min(20.0, total / count))


def answers(model: Any, inputs: Tensor, longest: int) -> list[list[int]]:
    """Greedy generation."""
    with torch.inference_mode(), half(inputs.device.type):
        out = model.generate(
            input_ids=inputs, attention_mask=(inputs != 0).long(), max_new_tokens=longest, do_sample=False, num_beams=1
        )
    rows: list[list[int]] = out.tolist()
    return rows


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


@contextmanager
def examined(model: Any) -> Iterator[None]:
    """Without dropout and uncompiled: generation has a new shape at every token."""
    with evaluating(model), torch.compiler.set_stance("force_eager"):
        yield


def read_options(
    options: Any, plan: Any, doc: str | None, helps: Mapping[str, str], arguments: Sequence[str] | None = None
) -> Any:
    """A run's options from the command line: a flag for every field of both dataclasses, `plan` being a field of `options`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in (*fields(plan), *(one for one in fields(options) if one.name != "plan")):
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        required, kind = default is MISSING, get_type_hints(options if one in fields(options) else plan)[one.name]
        how: dict[str, Any] = {"help": helps.get(one.name), "default": None if required else default, "required": required}
        if kind is bool:
            how = {"help": helps.get(one.name), "action": "store_true"}
        elif get_origin(kind) is dict:
            how["type"] = partial(read_shares, usual=default) if default else read_sizes
        elif get_origin(kind) is tuple:
            how |= {"type": get_args(kind)[0], "nargs": "+"}
        else:
            how["type"] = next(part for part in (get_args(kind) or (kind,)) if part is not NoneType)
        parser.add_argument(f"--{one.name.replace('_', '-')}", **how)
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in vars(parser.parse_args(arguments)).items()
    }
    return options(plan=plan(**{one.name: given.pop(one.name) for one in fields(plan)}), **given)


def read_sizes(text: str) -> dict[str, int]:
    """`num_layers=6,d_kv=64`: fields of T5Config."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(size) for name, _, size in pairs}


def read_shares(text: str, usual: Mapping[str, float]) -> dict[str, float]:
    """`line=0.6,passkey_prose=0.1`: other shares of the sources than usual; the rest keep theirs."""
    parts = (part.partition("=") for part in text.split(",") if part)
    names = {name.replace("-", " "): name for name in usual}
    plain = ((name.replace("_", " ").replace("-", " "), share) for name, _, share in parts)
    changed = {names.get(name, name): float(share) for name, share in plain}
    unknown = set(changed) - set(usual)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no source {', '.join(sorted(unknown))}; there are {', '.join(usual)}")
    return {**usual, **changed}


def say(text: str) -> None:
    print(text, flush=True)

"""Which length method for which decoder: what it still finds, how well it reads on, and what it costs.

    python -m experiments.decoders.run MODEL --length 32768 65536 --books FILE ... --out runs/decoders
    python -m experiments.decoders.run MODEL --length 65536 --task ruler --method none yarn:factor={factor} --out runs/decoders

Tasks are asked by `lengthwise.evaluate`, greedily; pass keys hide in the books, at depths in turn. `--streams` of the books are
read in one forward each, for their perplexity; `--costs` times a prompt and the tokens after it. The same command goes on where
the last one stopped, other methods, tasks and lengths are added, and several calls at once share the work. OUT/run is a run
directory, OUT/MODEL.json and its page hold what came out.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

import lengthwise as lw
from experiments._lib import rotary_methods as rotary
from experiments._lib.command import main, option
from experiments._lib.minutes import say, work_for
from experiments._lib.novels import filler
from experiments._lib.results import unfinished, write_json
from experiments._lib.streams import source_of
from experiments.decoders import page
from lengthwise.common.formats import Declared
from lengthwise.common.text import read_texts, shipped_prose
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with
from lengthwise.methods.spec import TRUNCATE
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.load import load
from lengthwise.records import Record, read_lines
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.directory import CONFIG, RECORDS, read_config
from lengthwise.tasks import TASKS, Sample, Task
from lengthwise.tasks.ruler import NAME as RULER
from lengthwise.tasks.ruler import NAMES as RULER_TASKS

PASSKEY = "passkey"
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
# What leaves the model as it is, what reads far, what sees little, temperatures and sums
NAMES = (
    *(rotary.PLAIN, TRUNCATE, rotary.YARN, "yarn:factor=4", "yarn:dynamic=true", rotary.NTK, "ntk:dynamic=true"),
    *("rerope:window={half}", "rerope:window={half},leak={leak}", "self_extend:group={group},window={quarter}", "dual_chunk"),
    *("string", "dpe", "ms_poe", "clipped_rope", rotary.INTERPOLATION, "streaming_llm", "lm_infinite", "window", "log"),
    *("infoscale", f"{rotary.YARN}+log", "rerope:window={half}+log", f"{rotary.YARN}+infoscale"),
    "rerope:window={half}+infoscale",
)
STRETCH = 1024  # tokens whose likelihoods are kept as one mean
DECODED = 32  # tokens that are timed


@dataclass(frozen=True, kw_only=True)
class Options(rotary.Options):
    """One call."""

    model: str = option(help="directory, hub name or GGUF file of a causal language model", positional=True)
    lengths: tuple[int, ...] = option(help="tokens", flag="--length")
    tasks: tuple[str, ...] = option((PASSKEY,), "passkey, ruler or some of its tasks", flag="--task")
    samples: int = option(20, "of each method, task and length, or 0; pass keys are spread over the depths")
    streams: int = option(0, "books that are read on in, for the perplexity")
    costs: bool = option(False, "also time a prompt and the tokens after it")
    batch_tokens: int | None = option(None, "tokens of one batch; by default what suits the device")
    train_length: int | None = option(None, "the model's own if not given")

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, length), the shortest first."""
        return [(name, length) for length in sorted(self.lengths) for name in self.methods or NAMES]

    @property
    def asked(self) -> list[str]:
        return [name for task in self.tasks for name in (RULER_TASKS if task == RULER else [task])]


@dataclass(frozen=True)
class Read(Declared):
    """How likely a method found the tokens of some streams."""

    method: str  # as named, with places to fill
    length: int
    nll: list[list[float]]  # nats a token, [streams, stretches]

    @property
    def key(self) -> tuple[str, int]:
        return self.method, self.length


@dataclass(frozen=True)
class Cost(Declared):
    """Of one prompt, and of a token after it."""

    method: str
    length: int
    seconds: float  # of the prompt
    gigabytes: float  # above the weights, at most
    milliseconds: float  # of a token

    @property
    def key(self) -> tuple[str, int]:
        return self.method, self.length


def run(options: Options) -> dict[str, Any]:
    """Asks, reads and times as much as there is time for; writes the results and the page of all there is."""
    model, tokenizer = load(options.model, options.dtype, options.device)
    train = anatomy_of(model, options.train_length).train_length
    options.out.mkdir(parents=True, exist_ok=True)
    work_for(options.minutes, partial(_work, options, model, tokenizer, train))
    fingerprint = {**model_fingerprint(anatomy_of(model, options.train_length)), "name": Path(options.model).name}
    about = {"model": fingerprint, "settings": {"seed": options.seed, "dtype": dtype_of(model)}, "tasks": {}}
    document = document_of(options, train, about | {"made_with": made_with(model.device.type)})
    if document["answers"] or document["reads"]:
        write_json(options.out / f"{Path(options.model).stem}.json", document)
        page.write_pages(options.out, options.out)
    return document


def _work(options: Options, model: Any, tokenizer: Any, train: int) -> None:
    told = {"train_length": options.train_length, "batch_tokens": options.batch_tokens, "name": Path(options.model).name}
    told |= {"sharpness": False, "show_progress": False}
    tasks = {name: TASKS[name] for name in options.asked}
    if PASSKEY in tasks:
        tasks[PASSKEY] = hidden_in(options.books, options.samples)
    reads, costs = lines_of(options.out, "reads", Read), lines_of(options.out, "costs", Cost)
    ids = torch.empty(0)
    if options.streams:
        source = source_of(model, tokenizer, train, options.seed, options.streams, options.books, options.out)
        ids, _ = source.read(max(options.lengths) + 1)
    for name, length in options.cells:
        spec = rotary.filled(name, length, train)

        def tried(spec: str = spec) -> None:
            with lw.extend(model, [] if spec == TRUNCATE else spec, train_length=options.train_length):
                pass

        if not rotary.accepted(options.out, spec, length, tried):
            continue
        say(f"{spec} at {length:,} tokens")
        if options.samples:
            lw.evaluate(model, tokenizer, [spec], tasks, [length], options.samples, options.seed, options.out / "run", **told)
        if spec == TRUNCATE:
            continue
        for _ in unfinished(reads, [[(name, length)]] if options.streams else []):
            reads.append([Read(name, length, read(model, ids[:, : length + 1], spec, options.train_length))])
        for _ in unfinished(costs, [[(name, length)]] if options.costs else []):
            costs.append([Cost(name, length, *cost(model, spec, length, options.train_length))])


def lines_of(out: Path, name: str, kind: type[Any]) -> AppendOnly[Any]:
    return AppendOnly(out / f"{name}.jsonl", kind)


def read(model: Any, ids: Tensor, spec: str, train_length: int | None) -> list[list[float]]:
    """Nats a token, by stream and stretch."""
    nll = token_nll(model, ids, method=spec, train_length=train_length).double()
    stretches = nll.split(STRETCH, dim=1)
    return [[round(float(stretch[stream].mean()), 5) for stretch in stretches] for stream in range(len(nll))]


@torch.inference_mode()
def cost(model: Any, spec: str, length: int, train_length: int | None) -> tuple[float, float, float]:
    """Seconds and gigabytes of a prompt, milliseconds of a token; a first round, which compiles kernels, does not count."""
    device = model.device
    ids = torch.randint(3, model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(0)).to(device)

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def prompt() -> DynamicCache:
        cache = DynamicCache(config=model.config)
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return cache

    def go_on(cache: DynamicCache) -> None:
        for _ in range(DECODED):
            model(ids[:, :1], past_key_values=cache, use_cache=True)

    with lw.extend(model, spec, train_length=train_length):
        go_on(prompt())
        before, begun = _memory(device, reset=True), now()
        cache = prompt()
        read_in, most = now(), _memory(device)
        go_on(cache)
        ended = now()
    return round(read_in - begun, 4), round((most - before) / 2**30, 3), round(1e3 * (ended - read_in) / DECODED, 3)


def _memory(device: torch.device, reset: bool = False) -> int:
    """Most bytes so far; not known on a CPU."""
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()


def hidden_in(books: Sequence[Path], most: int) -> Task:
    """The package's task with books around the number, up to `most` samples a length; its own prose where there are none."""
    sentences = filler([read_texts([path]) for path in books] or [shipped_prose()])
    digest = hashlib.sha256(" ".join(sentences).encode()).hexdigest()[:16]
    named = ", ".join(path.stem for path in books) or "the package's prose"

    @cache
    def samples(tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
        return in_turn(tokenizer, length, most, seed, sentences)[:n]

    depths = ", ".join(map(str, DEPTHS))
    return replace(TASKS[PASSKEY], samples=samples, material=f"{named} ({digest}), at depths {depths} in turn")


def in_turn(tokenizer: Any, length: int, count: int, seed: int, filler: Sequence[str]) -> list[Sample]:
    """The depths one after another; prompt and answer together take the length."""
    task = TASKS[PASSKEY]
    each, room = -(-count // len(DEPTHS)), length - task.answer_tokens
    seeds = [len(DEPTHS) * seed + at for at in range(len(DEPTHS))]
    columns = [task.samples(tokenizer, room, each, *own, filler=filler) for own in zip(seeds, DEPTHS, strict=True)]
    return [sample for row in zip(*columns, strict=True) for sample in row][:count]


def document_of(options: Options, train: int, about: dict[str, Any]) -> dict[str, Any]:
    """Everything in the folder, whichever call put it there; `about` the model where nothing was asked."""
    directory = options.out / "run"
    records = read_lines(directory / RECORDS, Record)
    lengths = sorted({record.length for record in records})
    answers: dict[tuple[str, str, int], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.index):
        answers.setdefault((record.method, record.task, record.length), []).append(record)
    # Two names may be the same method at some length
    cells = [(name, n, task) for name in dict.fromkeys((*NAMES, *options.methods)) for n in lengths for task in TASKS]
    found = [(name, n, task, answers.get((rotary.filled(name, n, train), task, n), [])) for name, n, task in cells]
    config = read_config(directory / CONFIG) if records else about
    document: dict[str, Any] = {
        "format": page.FORMAT,
        "command": f"python -m experiments.decoders.run {options.command}",
        **{key: config[key] for key in ("model", "settings", "tasks", "made_with")},
        "train_length": train,
        "refused": rotary.read_refused(options.out),
        "answers": [
            {"method": name, "task": task, "length": n, "mean": fmean(r.score for r in own)}
            | {"scores": [r.score for r in own], "depths": [r.depth for r in own]}
            for name, n, task, own in found
            if own
        ],
        "stretch": STRETCH,
        "reads": [asdict(line) for line in lines_of(options.out, "reads", Read).lines.values()],
        "costs": [asdict(line) for line in lines_of(options.out, "costs", Cost).lines.values()],
    }
    return {**document, "infoscale": page.infoscale_ratios(document)}


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))

"""Measures a decoder up to its training length L and beyond it: a row of Output Alignment's Table 1.

    python -m experiments.misalignment_perplexity.run MODEL --books FILE ... --out OUT

    l_train       mean cross-entropy of readings of L tokens, one after the other through each stream of text
    l_misalign    L_SCE of the same place told from L/2 to L tokens: `lengthwise.misalignment`;   kl   its symmetric KL
    log_ppl       mean cross-entropy of one forward over a long stream;   beyond   of its tokens told from more than L tokens
    ruler         RULER's 13 tasks, asked by `lengthwise.evaluate`

All in nats a token, stream by stream. Streams begin at the same places of the same books for every model. A reading begins with
the token that the tokenizer begins texts with, if there is one. The same command goes on where the last one stopped; each row
is a file OUT/NAME.json, and the page is made of all of them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import lengthwise as lw
from experiments._lib import results
from experiments._lib.command import main, option
from experiments._lib.minutes import say, work_for
from experiments._lib.streams import source_of
from experiments.misalignment_perplexity import page
from lengthwise.common.formats import Declared
from lengthwise.common.sequences import special_tokens
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import DTYPES, load
from lengthwise.records import Record, read_lines
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.directory import RECORDS
from lengthwise.tasks.ruler import NAMES as RULER_TASKS

BLOCK = 32  # weights that share a scale when they are rounded
MOST_PAIRS = 64  # of readings in a stream


@dataclass(frozen=True, kw_only=True)
class Options:
    """One row."""

    model: str = option(help="directory, hub name or GGUF file of a causal language model", positional=True)
    out: Path = option(help="folder of all rows")
    books: tuple[Path, ...] = option(help="text files, a book each, and one more than --streams")
    method: str = option("none", "in force throughout, as in the paper's models with YaRN and CLEX")
    bits: int | None = option(None, "round the layers' weights to so many bits: the same base in another quantisation")
    lengths: tuple[str, ...] = option(
        ("2x", "16384", "65536"), "tokens, or training lengths, of long forwards", flag="--length"
    )
    tokens: int = option(65536, "of each stream that the short readings are cut from")
    streams: int = option(4, "of text, each of another book")
    ruler: tuple[int, ...] = option((), "tokens of RULER's prompts", flag="--ruler-length")
    samples: int = option(10, "of each task of RULER")
    batch_tokens: int | None = option(None, "tokens of one batch of RULER's prompts; by default what suits the device")
    seed: int = option(0, "of what is drawn")
    dtype: str = option("auto", "of the model", choices=list(DTYPES))
    device: str | None = option(None, "cuda where there is one")
    minutes: float = option(float("inf"), "stop after so long; the next call goes on")
    command: str = ""  # as typed

    @property
    def name(self) -> str:
        """What tells the row from others: the model, how it is rounded, and the method."""
        bits = [] if self.bits is None else [f"{self.bits}bit"]
        method = [] if self.method == "none" else [self.method.replace(":", "-").replace("=", "").replace(",", "-")]
        return "-".join([Path(self.model).stem, *bits, *method])


@dataclass(frozen=True)
class Line(Declared):
    """One measure at one length."""

    measure: str
    length: int
    streams: list[float]  # nats a token
    seconds: float  # of the readings, which give other measures as well

    @property
    def key(self) -> tuple[str, int]:
        return self.measure, self.length


@dataclass(frozen=True)
class Reader:
    """A model and the streams it reads."""

    model: Any
    ids: Tensor  # [streams, tokens]
    train_length: int
    tokens: int  # of each stream that short readings are cut from
    method: str = "none"
    first: int | None = None  # token that every reading begins with
    seed: int = 0

    def train_loss(self) -> dict[str, list[float]]:
        rows = self.ids[:, : self.tokens + 1].unfold(1, self.train_length + 1, self.train_length).clone()
        if self.first is not None:
            rows[..., 0] = self.first
        nll = self._nll(rows.flatten(0, 1))
        return {"l_train": nll.view(len(self.ids), -1).mean(1).tolist()}

    def misalignment(self) -> dict[str, list[float]]:
        """Pairs of readings of each stream, as many as have room side by side, and two at least."""
        length = self.train_length
        pairs = max(2, min(MOST_PAIRS, self.tokens // (length + length // 2)))
        how = {"train_length": length, "pairs": pairs, "seed": self.seed, "method": self.method, "first_token": self.first}
        with warnings.catch_warnings():
            # Their intervals are not used: those here are over streams
            warnings.filterwarnings("ignore", message=".*pairs of .* overlap")
            apart = [lw.misalignment(self.model, row[: self.tokens], **how, show_progress=False) for row in self.ids]
        return {"l_misalign": [one.sce for one in apart], "kl": [one.kl for one in apart]}

    def long(self, length: int) -> dict[str, list[float]]:
        """One forward over `length` tokens of every stream."""
        nll = self._nll(self.ids[:, : length + 1])
        told = {"log_ppl": nll, "beyond": nll[:, self.train_length :]}
        return {name: part.mean(1).tolist() for name, part in told.items() if part.shape[1]}

    def _nll(self, ids: Tensor) -> Tensor:
        return token_nll(self.model, ids, method=self.method, train_length=self.train_length).double()


def run(options: Options) -> dict[str, Any]:
    """Measures as much as there is time for; writes the row, and the page of all rows."""
    begun = time.perf_counter()
    model, tokenizer = load(options.model, options.dtype, options.device)
    if options.bits is not None:
        round_weights(model, options.bits)
    train, folder = anatomy_of(model).train_length, options.out / options.name
    source = source_of(model, tokenizer, train, options.seed, options.streams, options.books, options.out)
    settings = {**source.made, "source": source.words, "method": options.method, "bits": options.bits, "tokens": options.tokens}
    facts = {"made_with": made_with(next(model.parameters()).device.type), "command": options.command}
    noted = results.kept_settings(folder, settings, **facts)
    lengths = sorted({tokens_of(length, train) for length in options.lengths})
    ids, _ = source.read(max(*lengths, options.tokens) + 1)
    before, _ = special_tokens(tokenizer)
    say(f"{options.name}: loaded and {len(ids)} streams read in {time.perf_counter() - begun:.0f} s")

    def work() -> None:
        reader = Reader(model, ids, train, options.tokens, options.method, before[0] if before else None, options.seed)
        _read(reader, lengths, AppendOnly(folder / "lines.jsonl", Line))
        if options.ruler:
            asked = options.ruler, options.samples, options.seed, folder / "run"
            told = {"name": options.name, "sharpness": False, "show_progress": False, "batch_tokens": options.batch_tokens}
            lw.evaluate(model, tokenizer, [options.method], list(RULER_TASKS), *asked, **told)
            say(f"{options.name}: RULER asked, {time.perf_counter() - begun:.0f} s since the start")

    work_for(options.minutes, work)
    about = {"name": options.name, "parameters": sum(weights.numel() for weights in model.parameters())}
    document = document_of(folder, noted, about | {"bytes": [byte_rate(tokenizer, row[: options.tokens]) for row in ids]})
    results.write_json(options.out / f"{options.name}.json", document)
    page.write_pages(options.out, options.out)
    return document


def _read(reader: Reader, lengths: list[int], lines: AppendOnly[Line]) -> None:
    train = reader.train_length
    short: list[tuple[Callable[[], dict[str, list[float]]], str]] = [(reader.train_loss, "l_train")]
    short.append((reader.misalignment, "l_misalign"))
    asked = [(measure, name, train) for measure, name in short]
    asked += [(lambda length=length: reader.long(length), "log_ppl", length) for length in lengths]  # type: ignore[misc]
    for measure, name, length in asked:
        for _ in results.unfinished(lines, [[(name, length)]]):
            begun = time.perf_counter()
            numbers = measure()
            seconds = round(time.perf_counter() - begun, 2)
            lines.append([Line(one, length, streams, seconds) for one, streams in numbers.items()])
            told = ", ".join(f"{one} {fmean(streams):.3f}" for one, streams in numbers.items())
            say(f"{told} at {length:,} tokens in {seconds} s")


def tokens_of(length: str, train_length: int) -> int:
    """`2x` is twice the training length, `16384` so many tokens."""
    number = length.removesuffix("x")
    require(number.isdigit(), f"a length is tokens, such as 16384, or training lengths, such as 2x, and not {length!r}")
    return int(number) * (train_length if length.endswith("x") else 1)


@torch.no_grad()
def round_weights(model: Any, bits: int) -> None:
    """Rounds every linear layer but the head: blocks of weights to whole multiples of a 2^(bits - 1) - 1th of their largest."""
    require(2 <= bits <= 8, f"weights can be rounded to 2 to 8 bits, not to {bits}")
    steps = 2 ** (bits - 1) - 1
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
            blocks = module.weight.view(-1, BLOCK)
            scale = blocks.abs().amax(1, keepdim=True).clamp_min(torch.finfo(blocks.dtype).tiny) / steps
            blocks.copy_((blocks / scale).round() * scale)


def byte_rate(tokenizer: Any, ids: Tensor) -> float:
    """Bytes a token has in a text."""
    return len(str(tokenizer.decode(ids, skip_special_tokens=True)).encode()) / len(ids)


def document_of(folder: Path, noted: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON."""
    answers: dict[tuple[str, int], list[float]] = {}
    for record in sorted(read_lines(folder / "run" / RECORDS, Record), key=lambda record: record.index):
        answers.setdefault((record.task, record.length), []).append(record.score)
    command = f"python -m experiments.misalignment_perplexity.run {noted['command']}"
    return {
        "format": page.FORMAT,
        **about,
        "settings": noted["settings"],
        "made_with": noted["made_with"],
        "command": command,
        "measures": [asdict(line) for line in read_lines(folder / "lines.jsonl", Line)],
        "ruler": [{"task": task, "length": length, "scores": scores} for (task, length), scores in answers.items()],
    }


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))

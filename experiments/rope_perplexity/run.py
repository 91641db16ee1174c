"""Every length method on the same streams of text: perplexity by position, against re-encoding, alone and combined.

    python -m experiments.rope_perplexity.run MODEL --length 2048 8192 --out runs/stories                  # its own stories
    python -m experiments.rope_perplexity.run MODEL --books FILE ... --length 8192 16384 --out runs/books  # text of books

Stories suit a causal language model whose texts are no longer than its training length, such as stories15M; books one that
reads thousands of tokens, such as SmolLM2-135M-Instruct, given as a GGUF file. The same command goes on where the last one
stopped, and several at once share the work. OUT/cells.jsonl gets a line a method and length, OUT/nll/ the likelihoods token by
token; OUT/MODEL.json and its page hold what came out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from experiments._lib import rotary_methods as rotary
from experiments._lib.command import main, option
from experiments._lib.likelihood_cells import Array, Cells, in_one_forward, load_array, read_cells, read_nll, save_array
from experiments._lib.minutes import say, work_for
from experiments._lib.results import kept_settings, write_json
from experiments._lib.streams import Source, source_of
from experiments.rope_perplexity import page
from lengthwise.evaluation.likelihood import reencoded_nll
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.load import load
from lengthwise.tasks.perplexity import Ratio, by_bucket, compared, doubling

GOLD = "re-encoding"


@dataclass(frozen=True, kw_only=True)
class Options(rotary.Options):
    """One call."""

    model: str = option(help="directory, hub name or GGUF file of a causal language model", positional=True)
    lengths: tuple[int, ...] = option((2048, 8192), "tokens of a forward", flag="--length")
    streams: int = option(4, "streams of text")
    stride: int | None = option(None, "tokens between two readings of re-encoding; 1 for stories, 512 for books")
    stages: int = option(len(rotary.STAGES), "how many of our lists of methods, the most important first")
    train_length: int | None = option(None, "the model's own if not given")

    def cells(self, train_length: int) -> list[tuple[str, int]]:
        """(method, length), the most important first; up to the training length there is nothing to calibrate."""
        if self.methods:
            return [(name, length) for length in sorted(self.lengths) for name in self.methods]
        cells = [(name, length) for stage in rotary.STAGES[: self.stages] for length in sorted(self.lengths) for name in stage]
        return [(name, n) for name, n in cells if n > train_length or rotary.split_aligned(name)[1] is None]


def run(options: Options) -> Results:
    """Measures as much as there is time for; writes the results and the page of all that is measured."""
    model, tokenizer = load(options.model, options.dtype, options.device)
    train = anatomy_of(model, options.train_length).train_length
    source = source_of(model, tokenizer, train, options.seed, options.streams, options.books, options.out)
    gold = Reencoding(train, min(train, options.stride or (512 if options.books else 1)))
    options.out.mkdir(parents=True, exist_ok=True)
    machine = made_with(next(model.parameters()).device.type)
    noted = kept_settings(options.out, {**source.made, "stride": gold.stride}, made_with=machine)
    work_for(options.minutes, partial(_measure, options, model, tokenizer, source, gold))
    results = Results(options.out, options.streams, gold, source.stretch)
    if results.cells:
        own = {**model_fingerprint(anatomy_of(model, options.train_length)), "name": Path(options.model).name}
        facts = {"command": f"python -m experiments.rope_perplexity.run {options.command}", "model": own}
        facts |= {"made_with": noted["made_with"], "dtype": dtype_of(model), "seed": options.seed}
        facts |= {"streams": options.streams, "source": source.words, "train_length": train}
        file = options.out / f"{Path(options.model).stem}.json"
        write_json(file, document_of(results, facts, options))
        page.write_pages(options.out, options.out)
    return results


def _measure(options: Options, model: Any, tokenizer: Any, source: Source, gold: Reencoding) -> None:
    longest, train = max(options.lengths), gold.window
    say(f"{options.streams} streams of {longest:,} tokens")
    # One token more than is read: the last prediction has a target, too
    scored, text = source.read(longest + 1)
    gold.make(model, scored, longest, options.out)
    alignments = rotary.Alignments(model, tokenizer, text, train, options.out / "alignments")
    cells = Cells(options.out)
    for name, length in options.cells(train):
        spec = rotary.filled(name, length, train)

        def measured(name: str = name, length: int = length, spec: str = spec) -> tuple[Tensor, float]:
            say(f"{spec} at {length:,} tokens")
            return in_one_forward(model, scored, length, alignments.method(name, length), train)

        rotary.accepted(options.out, spec, length, partial(cells.once, name, spec, length, measured))


@dataclass(frozen=True)
class Reencoding:
    """What the plain model can do without any method, by reading the last `window` tokens afresh, from position 0.

    Exactly, that is a forward of the training length for every token. With a stride of s there is one for every s tokens:
    each is then told from at least window - s tokens, most of them from more. Likelihoods are in OUT/gold, a file a stream.
    """

    window: int
    stride: int = 1

    @property
    def name(self) -> str:
        return GOLD if self.stride == 1 else f"{GOLD} every {self.stride:,} tokens"

    def make(self, model: Any, ids: Tensor, length: int, folder: Path) -> None:
        """The first `length` predictions of every stream, which begin with those of any shorter length."""
        for stream in range(len(ids) if length > self.window else 0):
            file = _file(folder, stream)
            if not file.exists() or len(load_array(file)) < length:
                say(f"{self.name} for stream {stream + 1}, {length:,} tokens")
                nll = reencoded_nll(model, ids[stream, None, : length + 1], self.window, self.stride)
                save_array(file, nll[0])

    def read(self, folder: Path, streams: int, length: int) -> Array | None:  # [streams, length]
        """None where it is not finished, or where one forward of the plain model tells the same."""
        files = [_file(folder, stream) for stream in range(streams)]
        if length <= self.window or not all(file.exists() for file in files):
            return None
        rows = [load_array(file)[:length] for file in files]
        return np.stack(rows) if all(len(row) == length for row in rows) else None


def _file(folder: Path, stream: int) -> Path:
    return folder / "gold" / f"{stream}.npy"


class Results:
    """The finished cells of a folder; likelihoods are kept once read.

    `stretch` tokens of a stream count as independent of the next ones in all intervals; without it only streams do.
    """

    def __init__(self, folder: Path, streams: int, reencoding: Reencoding, stretch: int | None) -> None:
        self.folder, self.streams, self.reencoding, self.stretch = folder, streams, reencoding, stretch
        self.train_length = reencoding.window
        self.cells = {cell.key: cell for cell in read_cells(folder)}
        self.lengths = sorted({length for _, length in self.cells})
        self._nll: dict[tuple[str, int], Array | None] = {}

    def methods(self, length: int) -> list[str]:
        """In the order of our list; others after it, as they came."""
        measured = [method for method, at in self.cells if at == length]
        return [*(name for name in rotary.NAMES if name in measured), *(name for name in measured if name not in rotary.NAMES)]

    def nll(self, method: str, length: int) -> Array | None:  # [streams, length]
        """The likelihoods; None for re-encoding while it is not finished."""
        key = method, length
        if key not in self._nll:
            gold = method == GOLD
            read = self.reencoding.read(self.folder, self.streams, length) if gold else read_nll(self.folder, self.cells[key])
            self._nll[key] = read
        return self._nll[key]

    def ratio(self, method: str, other: str, length: int, first: int = 0) -> Ratio:
        """Perplexity of one over the other's on the tokens from `first` on."""
        ours, theirs = self.nll(method, length), self.nll(other, length)
        assert ours is not None
        assert theirs is not None
        return compared(ours[:, first:], theirs[:, first:], self.stretch)

    def rows(self, length: int) -> list[dict[str, Any]]:
        """Re-encoding where it is finished, then all methods, the best first."""
        gold = [self._row(GOLD, self.reencoding.name, None, length)] if self.nll(GOLD, length) is not None else []
        cells = [self.cells[method, length] for method in self.methods(length)]
        rows = [self._row(cell.method, cell.spec, cell.seconds, length) for cell in cells]
        return gold + sorted(rows, key=lambda row: row["whole"]["perplexity"])

    def _row(self, method: str, spec: str, seconds: float | None, length: int) -> dict[str, Any]:
        """Perplexity by position: up to the training length, then doubling, and at the other lengths that were measured."""
        nll, train = self.nll(method, length), self.train_length
        assert nll is not None
        edges = sorted({*doubling(train, length), *(other for other in self.lengths if other < length)})
        against = beyond = None
        if method != GOLD and self.nll(GOLD, length) is not None:
            against = asdict(self.ratio(method, GOLD, length))
            beyond = asdict(self.ratio(method, GOLD, length, first=train)) if length > train else None
        (whole,) = by_bucket(nll, [0, length], self.stretch)
        buckets = [asdict(bucket) for bucket in by_bucket(nll, edges, self.stretch)]
        row = {"method": method, "spec": spec, "length": length, "whole": asdict(whole), "buckets": buckets}
        return {**row, "against": against, "beyond": beyond, "seconds": seconds}

    def unchanged(self, length: int) -> list[str] | None:
        """The methods that are exactly the plain model on every token; None where that is not asked of them."""
        names = self.methods(length)
        if rotary.PLAIN not in names or length > self.train_length:
            return None
        plain = self.nll(rotary.PLAIN, length)
        return [name for name in names if name != rotary.PLAIN and np.array_equal(plain, self.nll(name, length))]  # type: ignore[arg-type]

    def against(self, method: str, other: str, length: int) -> dict[str, Any]:
        """One method against another on the same tokens."""
        return {"length": length, "method": method, "other": other, "ratio": asdict(self.ratio(method, other, length))}


def combinations(results: Results, length: int) -> Iterable[dict[str, Any]]:
    """Every combination against the better of its parts."""
    known = results.methods(length)
    for name in known:
        if sides := rotary.parts(name, known):
            yield results.against(name, min(sides, key=lambda side: results.cells[side, length].perplexity), length)


def temperatures(results: Results, length: int) -> Iterable[dict[str, Any]]:
    """Every method with a temperature against the same without it."""
    known = results.methods(length)
    for name in known:
        base, law = rotary.split_temperature(name)
        if law is not None and base in known:
            yield {**results.against(name, base, length), "temperature": law}


def calibrated(results: Results, length: int) -> Iterable[dict[str, Any]]:
    """Every alignment against YaRN with the temperature it was given by hand."""
    known = results.methods(length)
    for name in known if rotary.YARN in known else ():
        if name == rotary.YARN_BARE or rotary.split_aligned(name)[1] is not None:
            yield results.against(name, rotary.YARN, length)


def document_of(results: Results, facts: dict[str, Any], options: Options) -> dict[str, Any]:
    refused, train = rotary.read_refused(options.out), results.train_length
    wanted: Sequence[tuple[str, int]] = options.cells(train)
    wanted = [key for key in wanted if rotary.refusal(rotary.filled(*key, train), key[1]) not in refused]
    same = {length: results.unchanged(length) for length in results.lengths}
    return {
        "format": page.FORMAT,
        **facts,
        "missing": len(set(wanted) - set(results.cells)),
        "refused": refused,
        "rows": [row for length in results.lengths for row in results.rows(length)],
        "unchanged": [{"length": length, "methods": names} for length, names in same.items() if names is not None],
        **{
            pairs.__name__: [pair for length in results.lengths for pair in pairs(results, length)]
            for pairs in (combinations, temperatures, calibrated)
        },
    }


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))

"""Entropy Invariance's Tables 1, 2, 3, 9 and 10: every method with and without its scales, at six lengths, a row measured once.

    python -m experiments.entropy_invariance.measure --data DATA --out OUT --minutes 9

OUT is the folder of `train`. What is measured lies in OUT/<name>; the same command goes on where it stopped, and several at
once share the work. Rows whose model is not trained are left out. Of a training with another seed

    python -m experiments.entropy_invariance.measure --data DATA --out OUT --table seeds --seed 1 --like results/tables.json

asks the rows that carry conclusions on the test documents of an earlier run, measures how much of their cosines the rotation
makes (Theorem 3.5), and writes OUT/<name>/seed-1.json, a part of the page of experiments/entropy_seeds.

Methods are those of their own papers; where the paper tuned a model for a method, so do we. Test documents are chosen as in its
appendix A.1, so that few of them stand for all: every held-out chapter gets a feature, the mean of the plain model's states;
principal components bring it down to two numbers; spectral clustering parts the chapters in two; each part gives its share.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import lengthwise as lw
from experiments._lib.chinese_novels import Chapter, Special, beginning, chapters, tokenizer_of
from experiments._lib.command import main, option
from experiments._lib.gau_cosines import by_layer, rotation_shares
from experiments._lib.masked_tokens import MaskedTokenScore, hidden, places, score, together
from experiments._lib.minutes import work_for
from experiments._lib.results import SETTINGS, kept_settings, read, unfinished, write_json
from experiments._lib.rotary_methods import filled
from experiments.entropy_invariance import page
from experiments.entropy_invariance.page import LENGTHS, METHODS, ORDERED, ROWS, SCALE, SCALES, SEEDED, SEEDS, TABLES, Row
from experiments.entropy_invariance.train import LOSSES, Configuration, Loss
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.perplexity import Ratio, compared

CELLS, EXAM, ROTATION = "cells.jsonl", "exam.json", "rotation.jsonl"
ROTATED, ROTATED_DOCUMENTS = 1024, 4  # tokens and documents that the rotation is measured on
CLUSTERS = 2
TOKENS_AT_ONCE = 2**16
LIMIT = 500.0  # of perplexities in the paper
# For rows as defined and as released: of each method the model it asks and the spec it is evaluated with
ASKED = read(Path(__file__).with_name("methods.json"))


def configuration_of(row: Row) -> Configuration:
    """The model that a row asks."""
    return Configuration(row.cos, **ASKED["released" if row.released else "defined"][row.method][0])


def spec_of(row: Row, length: int, train_length: int) -> str:
    """What the model is extended with at one length."""
    spec = filled(ASKED["released" if row.released else "defined"][row.method][1], length, train_length)
    if row.law is None:
        return spec
    return row.law if spec == "none" else f"{spec}+{row.law}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    data: Path = option(help="folder with zh/*.txt and gau_vocab/vocab.txt")
    out: Path = option(help="folder of the trained models")
    name: str = option("tables", "folder of the tables within it")
    tables: tuple[str, ...] = option(tuple(TABLES), "tables to measure, or seeds", flag="--table", choices=[*TABLES, SEEDS])
    lengths: tuple[int, ...] = option(LENGTHS, "tokens of an input", flag="--length")
    methods: tuple[str, ...] = option(METHODS, "methods to measure", flag="--method", choices=list(METHODS))
    documents: int = option(10, "test documents")
    count: int = option(100, "tokens hidden in each document")
    tokens_each: int = option(512, "tokens of an input for each hidden one; 0 hides one at a time, as the paper does")
    seed: int | None = option(None, "of the training, where there are several")
    like: Path | None = option(None, "a result file whose test documents are asked again")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    device: str | None = option(None, "cuda where there is one")
    command: str = ""  # as typed

    @property
    def folder(self) -> Path:
        return self.out / self.name

    @property
    def rows(self) -> list[Row]:
        wanted = {row for name in self.tables for row in (SEEDED if name == SEEDS else TABLES[name])}
        return [row for row in ROWS if row in wanted and row.method in self.methods]


@dataclass(frozen=True)
class Cell(Declared):
    """One row of the tables at one length."""

    method: str
    cos: float | None
    law: str | None
    released: bool
    length: int  # tokens of an input
    model: str  # folder of the model
    weights: str  # its fingerprint
    spec: str  # the method it was extended with
    seconds: float
    nll: list[list[float]]  # [documents][hidden tokens]
    right: list[list[int]]

    @property
    def key(self) -> tuple[Row, int]:
        return Row(self.method, self.cos, self.law, self.released), self.length

    @cached_property
    def score(self) -> MaskedTokenScore:
        return score(self.nll, self.right)


@dataclass(frozen=True)
class Rotation(Declared):
    """How much of a model's cosines the rotation makes."""

    scale: float  # S of its CosScale
    length: int  # tokens of an input
    layers: list[dict[str, float]]  # see experiments/_lib/gau_cosines.py

    @property
    def key(self) -> float:
        return self.scale


Cells = Mapping[tuple[Row, int], Cell]


def run(options: Options) -> dict[str, Any]:
    """Measures for as long as it may; writes the results and the page."""
    options.folder.mkdir(parents=True, exist_ok=True)
    work_for(options.minutes, partial(_measure, options))
    cells = {cell.key: cell for cell in read_lines(options.folder / CELLS, Cell)}
    require(bool(cells), f"nothing is measured in {options.folder} yet")
    if options.seed is not None:
        return _written(options, options.seed, cells)
    document = {
        "format": page.FORMAT,
        "exam": read(options.folder / EXAM),
        "made_with": read(options.folder / SETTINGS)["made_with"],
        "missing": sum((row, length) not in cells for row in options.rows for length in options.lengths),
        "cells": [_summary(cell) for cell in cells.values()],
        **comparisons(cells),
    }
    write_json(options.folder / "tables.json", document)
    write_json(options.folder / page.MODELS, trained_models(options.out))
    page.write_pages(options.folder, options.folder)
    return document


def _written(options: Options, seed: int, cells: Cells) -> dict[str, Any]:
    """OUT/<name>/seed-SEED.json: what a page over seeds is made of, the paper's numbers included."""
    printed = {key: {"paper": key[0].printed(key[1]), "label": key[0].label} for key in cells}
    document = {
        "format": page.SEED_FORMAT,
        "seed": seed,
        "command": f"python -m experiments.entropy_invariance.measure {options.command}",
        **{key: read(options.folder / file)[key] for key, file in (("made_with", SETTINGS), ("documents", EXAM))},
        "models": trained_models(options.out),
        "cells": [_summary(cell) | printed[key] for key, cell in cells.items()],
        "rotation": [asdict(line) for line in read_lines(options.folder / ROTATION, Rotation)],
    }
    write_json(options.folder / f"seed-{seed}.json", document)
    return document


def _summary(cell: Cell) -> dict[str, Any]:
    about = {name: getattr(cell, name) for name in ("length", "spec", "model", "weights")}
    return {**asdict(cell.key[0]), **about, **asdict(cell.score)}


def trained_models(out: Path) -> dict[str, dict[str, float]]:
    """The last losses of the models of the tables."""
    models = {}
    for configuration in dict.fromkeys(map(configuration_of, ROWS)):
        if curve := read_lines(out / configuration.name / LOSSES, Loss):
            losses = {point.kind: point.loss for point in curve}
            models[configuration.name] = {"steps": max(point.step for point in curve), **losses}
    return models


def measure_rotation(options: Options, documents: Sequence[Chapter], device: str) -> None:
    """Theorem 3.5 on every base model with a CosScale: the mean over documents, layer by layer."""
    lines = AppendOnly(options.folder / ROTATION, Rotation)
    for scale in SCALES:
        export = options.out / Configuration(scale).name / "export"
        for _ in unfinished(lines, [[scale]] if (export / "config.json").is_file() else []):
            model, tokenizer = load(str(export), device=device)
            special, length = Special.of(tokenizer), min(ROTATED, max(options.lengths))
            texts = [list(by_layer(model, beginning(one, length, special))) for one in documents[:ROTATED_DOCUMENTS]]
            shares = [[rotation_shares(*layer) for layer in text] for text in texts]
            layers = [{key: fmean(one[key] for one in layer) for key in layer[0]} for layer in zip(*shares, strict=True)]
            lines.append([Rotation(scale, length, layers)])


def _measure(options: Options) -> None:
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    exam, documents = examined(options, device)
    lines = AppendOnly(options.folder / CELLS, Cell)
    if options.seed is not None:
        measure_rotation(options, documents, device)

    def make(name: str, missing: list[tuple[Row, int]]) -> None:
        model, tokenizer = load(str(options.out / name / "export"), device=device)
        # PyTorch's fused kernels are slow where values are twelve times as wide as keys
        model.set_attn_implementation("eager")
        weights = model_fingerprint(anatomy_of(model))["weights"]
        others = {cell.weights for cell in lines.lines.values() if cell.model == name} - {weights}
        require(not others, f"{name} was trained again since it was measured; give another --name for the new tables")
        for row, length in missing:
            begun, spec = time.perf_counter(), spec_of(row, length, anatomy_of(model).train_length)
            # Short inputs have fewer tokens to hide
            count = min(exam["count"], length - 2)
            told = answers(model, documents, length, count, Special.of(tokenizer), spec, exam["tokens_each"])
            own = (row.method, row.cos, row.law, row.released, length, name, weights, spec)
            lines.append([Cell(*own, round(time.perf_counter() - begun, 2), *told)])
            print(f"{row.label}, {length} tokens: perplexity {lines.lines[row, length].score.perplexity:.3g}", flush=True)

    groups: dict[tuple[str, str], list[tuple[Row, int]]] = {}
    for row in options.rows:
        name = configuration_of(row).name
        if (options.out / name / "export" / "config.json").is_file():
            groups.setdefault((name, row.method), []).extend((row, length) for length in options.lengths)
    for (name, _), group in groups.items():
        for missing in unfinished(lines, [group]):
            make(name, missing)


def examined(options: Options, device: str) -> tuple[dict[str, Any], list[Chapter]]:
    """The test documents, chosen at the first call and kept with the tables, and how many tokens are hidden in them."""
    everything = {chapter.name: chapter for chapter in chapters(options.data, tokenizer_of(options.data))}
    asked = {"count": options.count, "tokens_each": options.tokens_each or None}
    kept_settings(options.folder, {**asked, "documents": options.documents}, made_with=made_with(device))
    file = options.folder / EXAM
    if options.like is not None:
        write_json(file, read(options.like)["exam"])
    if not file.is_file():
        base = options.out / Configuration().name / "export"
        require(base.is_dir(), f"the test documents are chosen by the plain model, which is not trained in {options.out}")
        model, longest = load(str(base), device=device)[0], max(options.lengths)
        chosen = chosen_documents(model, list(everything.values()), longest, options.documents)
        write_json(file, {"documents": [chapter.name for chapter in chosen], "longest": longest, **asked})
    exam = read(file)
    return exam, [everything[name] for name in exam["documents"]]


def chosen_documents(model: Any, everything: Sequence[Chapter], longest: int, count: int) -> list[Chapter]:
    """`count` held-out chapters of at least `longest` tokens, [CLS] and [SEP] included; in the order of their names."""
    fit = sorted((one for one in everything if one.held_out and len(one.tokens) >= longest - 2), key=lambda one: one.name)
    require(len(fit) >= count, f"only {len(fit)} held-out chapters have {longest} tokens; ask for fewer than {count} documents")
    if len(fit) == count:
        return fit
    features = np.stack([feature(model, chapter, longest - 2) for chapter in fit])
    return [fit[at] for at in stratified(clusters(features), count)]


@torch.inference_mode()
def feature(model: Any, chapter: Chapter, tokens: int) -> NDArray[np.float64]:  # [hidden size]
    """The mean state of the first tokens, read in windows of the training length."""
    window = min(model.config.max_position_embeddings, tokens)
    ids = torch.from_numpy(chapter.tokens[: tokens // window * window]).view(-1, window)
    return np.asarray(model.model(ids.to(model.device)).last_hidden_state.double().mean((0, 1)).cpu().numpy())


def clusters(features: NDArray[np.float64]) -> NDArray[np.int64]:  # [documents]
    """Each document's part, 0 or 1, from its two principal components."""
    from sklearn.cluster import SpectralClustering
    from sklearn.decomposition import PCA

    plane = PCA(2, random_state=0).fit_transform(features)
    # Distances are told by the kernel in units of the plane's own spread
    plane = plane / plane.std()
    return np.asarray(SpectralClustering(CLUSTERS, random_state=0).fit_predict(plane), np.int64)


def stratified(parts: NDArray[np.int64], count: int, seed: int = 0) -> list[int]:
    """Which documents, sorted: of every part its share of `count`, the largest remainders rounded up, drawn at random."""
    exact = count * np.bincount(parts) / len(parts)
    shares = np.floor(exact).astype(int)
    for at in np.argsort(shares - exact, kind="stable")[: count - shares.sum()]:
        shares[at] += 1
    randomness = np.random.default_rng(seed)
    taken = [randomness.choice(np.flatnonzero(parts == at), share, replace=False) for at, share in enumerate(shares)]
    return sorted(int(document) for part in taken for document in part)


def answers(
    model: Any, documents: Sequence[Chapter], length: int, count: int, special: Special, method: str, tokens_each: int | None
) -> tuple[list[list[float]], list[list[int]]]:
    """Losses of `count` hidden tokens of each document, and whether each is the likeliest; the same tokens for all models."""
    nll, right = [], []
    with lw.extend(model, method):
        for document in documents:
            ids = beginning(document, length, special)
            groups = together(places(length, count, f"{document.name} {length}", edge=1), length, tokens_each)
            losses, likeliest = _asked(model, ids, groups, special.mask, max(1, TOKENS_AT_ONCE // length))
            nll.append([round(float(value), 6) for value in losses])
            right.append([int(value) for value in likeliest])
    return nll, right


@torch.inference_mode()
def _asked(model: Any, ids: NDArray[np.int64], groups: list[list[int]], mask: int, at_once: int) -> tuple[Tensor, Tensor]:
    copies, device = torch.from_numpy(hidden(ids, groups, mask)), model.device
    nll, right = [], []
    for first in range(0, len(groups), at_once):
        asked = [(copy, place) for copy, group in enumerate(groups[first : first + at_once]) for place in group]
        rows, where = torch.tensor(asked).T
        states = model.model(copies[first : first + at_once].to(device)).last_hidden_state
        # Only the hidden tokens' states meet the head, which has thousands of rows
        logits = model.lm_head(states[rows.to(device), where.to(device)]).double().cpu()
        target = torch.from_numpy(ids)[where]
        nll.append(torch.nn.functional.cross_entropy(logits, target, reduction="none"))
        right.append(logits.argmax(-1) == target)
    return torch.cat(nll), torch.cat(right)


def comparisons(cells: Cells) -> dict[str, Any]:
    """Rows against each other on the same hidden tokens, as the page's tables have them."""
    lengths = sorted({length for _, length in cells})
    scaled = [(row, replace(row, cos=None, law=None)) for row in ORDERED if row.cos is not None or row.law is not None]
    return {
        "scales": [pair for row, other in scaled for n in lengths if (pair := against(cells, row, other, n))],
        "laws": [pair for name in ("2", "3") for n in lengths if (pair := against(cells, *TABLES[name], n))],
        "best_scales": [best for n in lengths if (best := best_scale(cells, n)) is not None],
        "explanations": explanations(cells, lengths),
    }


def ratio(cells: Cells, row: Row, other: Row, length: int) -> Ratio:
    return compared(cells[row, length].nll, cells[other, length].nll)


def against(cells: Cells, row: Row, other: Row, length: int) -> dict[str, Any] | None:
    """A row against another one at one length; None where one of them is not measured."""
    if not {(row, length), (other, length)} <= set(cells):
        return None
    return {"row": asdict(row), "other": asdict(other), "length": length, "ours": asdict(ratio(cells, row, other, length))}


def best_scale(cells: Cells, length: int) -> dict[str, Any] | None:
    """Table 9 at one length: the S of the lowest perplexity, the paper's, and ours against S = 128."""
    measured = [row for row in TABLES["9"] if (row, length) in cells]
    if len(measured) < 2:
        return None
    best = min(measured, key=lambda row: cells[row, length].score.perplexity)
    numbers = {row.cos: number for row in TABLES["9"] if (number := row.number(length)) is not None and number < math.inf}
    plain = Row("gau", SCALE)
    other = None if best == plain or plain not in measured else asdict(ratio(cells, best, plain, length))
    paper = [scale for scale, number in numbers.items() if number == min(numbers.values())]
    return {"length": length, "ours": best.cos, "paper": paper, "against_128": other}


def explanations(cells: Cells, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """How far from the paper a row is, as its method is defined and as it was released.

    effect(row, n) = ln PPL(row, n) - ln PPL(plain GAU, n), above 500 counts as 500; distance = mean of |our effect - theirs|.
    Levels of perplexity differ from the paper's, because the prose does; effects can be compared.
    """
    plain = Row("gau")

    def effect(own: float, base: float) -> float:
        return math.log(min(LIMIT, own) / min(LIMIT, base))

    def distance(row: Row, shared: list[int]) -> float:
        apart = []
        for n in shared:
            ours = effect(cells[row, n].score.perplexity, cells[plain, n].score.perplexity)
            apart.append(abs(ours - effect(row.number(n) or 0.0, plain.number(n) or 0.0)))
        return math.fsum(apart) / len(shared)

    rows = []
    for row in TABLES["released"]:
        defined = replace(row, released=False)
        shared = [n for n in lengths if row.printed(n) and all((one, n) in cells for one in (row, defined, plain))]
        if shared:
            rows.append({"row": asdict(row), "defined": distance(defined, shared), "released": distance(row, shared)})
    return rows


if __name__ == "__main__":
    # Finer than the bfloat16 that the models were trained in, and several times as fast as float32
    torch.set_float32_matmul_precision("high")
    sys.exit(main(Options, run, __doc__))

"""Table 1 of Output Alignment over models at hand, on a tiny Llama that reads bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

import lengthwise as lw
from experiments.misalignment_perplexity import run
from experiments.misalignment_perplexity import strength as strengths
from experiments.misalignment_perplexity.strength import LESS, MORE, NEITHER, UNDECIDED, Strength, strength
from lengthwise.training.output_alignment.views import drawn_extra
from tests.helpers.answering import answering, saved

TRAIN, LONG, STREAMS, PAIRS = 32, 96, 2, 4
NTK = "ntk:factor={factor}"
METHODS = ("none", "log", "window:size=8", NTK, "alibi", "softmax_plus", "{pmax-model}", "no_such_method")


def reader() -> Any:
    return answering("llama", max_position_embeddings=TRAIN)


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].double().log_softmax(-1)


def losses(model: Any, ids: torch.Tensor) -> list[float]:
    """The loss of each token from those before it, in one forward."""
    said = logits_of(model, ids[:-1])
    return [-float(said[at, ids[at + 1]]) for at in range(len(ids) - 1)]


def test_numbers_are_those_of_loops_over_the_models_own_logits() -> None:
    model, seed, method = reader(), 3, "ntk:factor=3"
    text = run.text_tokens(TRAIN, PAIRS, STREAMS)
    assert text == 2 * 48
    ids = torch.randint(40, 120, (STREAMS, LONG + 1), generator=torch.Generator().manual_seed(0))
    here = run.Reader(model, ids, TRAIN, None, PAIRS, seed)
    short, long = here.short(method), here.long(method, LONG)
    with lw.extend(model, method):
        # Two whole readings fit into 96 tokens, when the last prediction needs a target
        readings = [losses(model, row[start : start + TRAIN + 1]) for row in ids for start in (0, TRAIN)]
        forwards = np.array([losses(model, row) for row in ids])
        joined, shift = ids[:, :text].flatten(), np.random.default_rng(seed).random(PAIRS)
        sces, kls = [], []
        for pair in range(PAIRS):
            start = int((len(joined) - 48) * (pair + shift[pair]) / PAIRS)
            extra = drawn_extra("1..L/2", TRAIN, seed, pair)
            first, second = (logits_of(model, joined[start + k : start + k + TRAIN]) for k in (0, extra))
            for context in range(TRAIN // 2 + extra, TRAIN + 1):
                p, q = first[context - 1], second[context - extra - 1]
                sces.append(-float((q.exp() * p).sum() + (p.exp() * q).sum()))
                kls.append(float((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()))
    assert short["l_train"][0] == pytest.approx(np.mean(readings), rel=1e-4)
    assert short["l_misalign"][0] == pytest.approx(np.mean(sces), rel=1e-4)
    assert short["kl"][0] == pytest.approx(np.mean(kls), rel=1e-3, abs=1e-5)
    assert long["log_ppl"][0] == pytest.approx(forwards.mean(), rel=1e-4)
    assert long["beyond"][0] == pytest.approx(forwards[:, TRAIN:].mean(), rel=1e-4)
    assert all(low <= mean <= high for mean, low, high in (*short.values(), *long.values()))


def test_rows_hold_what_was_measured_with_the_factor_of_their_length(novels: tuple[Path, ...], tmp_path: Path) -> None:
    given = {"streams": STREAMS, "pairs": PAIRS, "device": "cpu", "methods": METHODS, "books": novels, "lengths": ("2x", "96")}
    model = saved(reader(), tmp_path / "tiny")
    run.run(run.Options(out=tmp_path, models=(str(model),), **given))
    document = json.loads((tmp_path / "misalignment_perplexity.json").read_text())
    rows = {(row["method"], row["length"]): row for row in document["rows"]}
    assert set(rows) == {(name, length) for name in METHODS[:-1] for length in (64, LONG)}
    assert (rows[NTK, 64]["spec"], rows[NTK, LONG]["spec"], rows[NTK, LONG]["factor"]) == ("ntk:factor=2", "ntk:factor=3", 3)
    # What changes nothing up to the training length is known, and what does is, too
    assert {row["method"] for row in rows.values() if row["unchanged"]} == {"none", "log", "{pmax-model}"}
    assert set(document["refused"]["tiny"]) == {f"no_such_method at {n} tokens" for n in (TRAIN, 64, LONG)}
    assert document["missing"] == 0
    values = [(row["l_misalign"]["mean"], row["log_ppl"]["mean"]) for row in document["rows"]]
    first = document["coefficients"][0]["Spearman with log_ppl"]["of"]["l_misalign"]["value"]
    assert first == pytest.approx(spearmanr(*zip(*values, strict=True)).statistic)


def test_samples_as_weights_are_samples_of_rows() -> None:
    """Against scipy on rows that are really repeated, with ties from the start and from repeating."""
    randomness = np.random.default_rng(0)
    x, y = randomness.integers(0, 5, 12).astype(float), randomness.normal(size=12)
    weights = randomness.integers(0, 4, (50, 12)).astype(float)
    ranked, straight = strengths.spearman(x, y, weights), strengths.pearson(x, y, weights)
    for sample, times in enumerate(weights.astype(int)):
        repeated = np.repeat(x, times), np.repeat(y, times)
        assert ranked[sample] == pytest.approx(spearmanr(*repeated).statistic)
        assert straight[sample] == pytest.approx(pearsonr(*repeated).statistic)
    constant = np.zeros((1, 12))
    constant[0, 3] = 4
    assert np.isnan(strengths.spearman(x, y, constant)).all()


def test_intervals_are_those_of_many_independent_rows() -> None:
    """Fisher's: atanh r is normal with a spread of 1 / sqrt(n - 3)."""
    randomness, n = np.random.default_rng(1), 600
    quality = randomness.normal(size=n)
    close, far = quality + 0.7 * randomness.normal(size=n), quality + 2 * randomness.normal(size=n)
    found = strength("Pearson", {"l_train": far, "l_misalign": close}, quality, range(n))
    for name, column in (("l_train", far), ("l_misalign", close)):
        r = pearsonr(column, quality).statistic
        expected = [math.tanh(math.atanh(r) + side * 1.96 / math.sqrt(n - 3)) for side in (-1, 1)]
        assert found.of[name].value == pytest.approx(r)
        assert [found.of[name].low, found.of[name].high] == pytest.approx(expected, abs=0.015)
    assert found.more.value == pytest.approx(found.of["l_misalign"].value - found.of["l_train"].value)
    assert found.between.value == pytest.approx(pearsonr(close, far).statistic)


def test_rows_of_one_family_are_drawn_together() -> None:
    """Each row four times over says no more than once."""
    randomness = np.random.default_rng(2)
    quality = randomness.normal(size=30)
    columns = {"l_train": quality + randomness.normal(size=30), "l_misalign": randomness.normal(size=30)}
    once = strength("Spearman", columns, quality, range(30))
    repeated = {name: np.tile(column, 4) for name, column in columns.items()}
    together = strength("Spearman", repeated, np.tile(quality, 4), list(range(30)) * 4)
    apart = strength("Spearman", repeated, np.tile(quality, 4), range(120))

    def width(found: Strength | None) -> float:
        return found.of["l_train"].high - found.of["l_train"].low

    assert width(together) == pytest.approx(width(once), rel=0.05)
    assert width(apart) < 0.7 * width(once)


def test_the_papers_coefficients_come_out_of_its_rows() -> None:
    spearman, pearson = (strengths.of_the_paper(kind) for kind in ("Spearman", "Pearson"))
    assert [round(spearman.of[name].value, 3) for name in ("l_train", "l_misalign")] == [0.673, 0.882]
    assert [round(pearson.of[name].value, 3) for name in ("l_train", "l_misalign")] == [0.760, 0.961]
    assert spearman.more.low < 0 < spearman.more.high


@pytest.mark.parametrize(
    ("misalign_noise", "train_noise", "sign", "expected"),
    [(0.3, 3, 1, MORE), (3, 0.3, 1, LESS), (1, 1, 1, UNDECIDED), (0.3, 0.3, -1, NEITHER), (1, 0.2, -1, NEITHER)],
)
def test_the_verdict_follows_from_the_intervals(misalign_noise: float, train_noise: float, sign: int, expected: str) -> None:
    randomness = np.random.default_rng(0)
    quality, noise = randomness.normal(5, 1, 60), randomness.normal(size=(2, 60))
    columns = {"l_train": sign * quality + train_noise * noise[0], "l_misalign": sign * quality + misalign_noise * noise[1]}
    found = strength("Spearman", columns, quality, range(60))
    assert found.verdict == expected

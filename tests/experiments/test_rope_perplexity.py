"""The comparison of length methods on streams of text, on tiny Llamas that tell digits or read bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lengthwise as lw
from experiments._lib import rotary_methods, streams
from experiments._lib.likelihood_cells import Cells, read_cells, read_nll, save_array
from experiments.rope_perplexity import run
from experiments.rope_perplexity.run import Reencoding
from lengthwise.errors import BadInput
from lengthwise.evaluation.likelihood import token_nll
from tests.helpers.answering import answering, saved

# Whole runs, before a release
pytestmark = pytest.mark.sweep

TRAIN, LONG, STREAMS = 32, 80, 2
ENDS = streams.Ends(1, frozenset([2]))
YARN, BARE = rotary_methods.YARN, rotary_methods.YARN_BARE


def teller() -> Any:
    """Tells digits, and an end now and then: other tokens are rare, so that its stories survive being read as text."""
    model = answering("llama", max_position_embeddings=TRAIN)
    head = model.lm_head.weight.data
    torch.manual_seed(1)
    head *= 2
    head[1:3] = 0.8 * torch.randn(2, head.shape[1])
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(teller(), tmp_path_factory.mktemp("rope") / "tiny"))


def options(model: str, out: Path, *methods: str, **changes: Any) -> run.Options:
    given = {"lengths": (TRAIN, LONG), "streams": STREAMS, "device": "cpu", "command": "as typed"}
    return run.Options(**{"model": model, "out": out, "methods": methods, **given, **changes})


METHODS = ("none", "window", "log", "alibi", "window+log", "interpolation:factor={factor}", "{pmax-model}", "no_such_method")


@pytest.fixture(scope="module")
def finished(model: str, novels: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    run.run(options(model, out, *METHODS, books=novels, stride=8))
    return out


def windowed(model: Any, ids: torch.Tensor, window: int, stride: int) -> np.ndarray:
    """Token by token: the window that tells it begins at a multiple of the stride, the first from which it can be told."""
    rows = []
    for stream in ids:
        row = []
        for t in range(len(stream) - 1):
            start = 0
            while t - start >= window:
                start += stride
            with torch.no_grad():
                logits = model(input_ids=stream[None, start : t + 1]).logits[0, -1].double()
            row.append(float(-logits.log_softmax(-1)[stream[t + 1]]))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("stride", [1, 5, 32])
def test_reencoding_tells_each_token_from_its_own_window(stride: int, tmp_path: Path) -> None:
    ids = torch.randint(3, 380, (2, 78), generator=torch.Generator().manual_seed(0))
    model, gold = teller(), Reencoding(TRAIN, stride)
    for length in (TRAIN, 61):
        gold.make(model, ids, length, tmp_path)
    assert gold.read(tmp_path, 2, TRAIN) is None
    assert gold.read(tmp_path, 2, 77) is None
    gold.make(model, ids, 77, tmp_path)
    expected = windowed(model, ids, TRAIN, stride)
    for length in (61, 77):
        nll = gold.read(tmp_path, 2, length)
        assert np.allclose(nll, expected[:, :length], atol=1e-4)


def test_a_refusal_that_another_process_notes_meanwhile_stays(tmp_path: Path) -> None:
    def refuse() -> None:
        raise BadInput("no such method")

    assert rotary_methods.accepted(tmp_path, "slow", 8, lambda: rotary_methods.accepted(tmp_path, "other", 8, refuse))
    assert not rotary_methods.accepted(tmp_path, "none", 8, refuse)
    assert rotary_methods.read_refused(tmp_path).keys() == {"other at 8 tokens", "none at 8 tokens"}
    assert rotary_methods.accepted(tmp_path, "none", 8, lambda: None)
    assert rotary_methods.read_refused(tmp_path).keys() == {"other at 8 tokens"}


def test_cells_hold_the_likelihoods_of_one_forward_and_refusals_their_reason(finished: Path) -> None:
    cells = {cell.key: cell for cell in read_cells(finished)}
    assert set(cells) == {(name, n) for name in METHODS[:-1] for n in (TRAIN, LONG)} - {("{pmax-model}", TRAIN)}
    ids = torch.tensor([row[: LONG + 1] for row in json.loads(next(finished.glob("streams/*.json")).read_text())])[:STREAMS]
    alignment = lw.Alignment.load(finished / "alignments" / f"none-pmax-model-{LONG}.json")
    assert [entry.length for entry in alignment.temperatures] == [64, 80]
    methods: dict[str, Any] = {"none": "none", "alibi": "alibi", "{pmax-model}": alignment}
    for name, method in methods.items():
        nll = token_nll(teller(), ids, method=method)
        assert np.allclose(read_nll(finished, cells[name, LONG]), nll.numpy(), atol=1e-5)
        assert cells[name, LONG].perplexity == pytest.approx(math.exp(float(nll.double().mean())), rel=1e-5)
    refused = json.loads((finished / "refused.json").read_text())
    assert set(refused) == {f"no_such_method at {n} tokens" for n in (TRAIN, LONG)} | {f"pmax-model at {TRAIN} tokens"}


def test_a_second_call_measures_what_is_missing(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.run(options(model, tmp_path, "none", lengths=(LONG,), minutes=0.0)).cells == {}
    run.run(options(model, tmp_path, "none", lengths=(LONG,)))
    before = (tmp_path / "cells.jsonl").read_text()
    asked: list[object] = []
    real = run.in_one_forward
    monkeypatch.setattr(run, "in_one_forward", lambda *given: asked.append(given[2:4]) or real(*given))
    run.run(options(model, tmp_path, "none", "log", lengths=(LONG,)))
    assert asked == [(LONG, "log")]
    assert (tmp_path / "cells.jsonl").read_text().startswith(before)


def test_comparisons_follow_from_the_numbers(tmp_path: Path) -> None:
    """64 tokens in two streams, training length 16: re-encoding's likelihoods plus so much, and a little noise."""
    levels = {"none": 5.0, "log": 5.5, "window": 0.01, "window+log": 0.01, YARN: 1.0, f"{YARN}+log": 0.5, "{pmax-layer}": 4.0}
    randomness = np.random.default_rng(0)
    told = torch.from_numpy(randomness.exponential(1.0, (2, 64)))
    for stream in (0, 1):
        save_array(tmp_path / "gold" / f"{stream}.npy", told[stream])
    for name, level in levels.items():
        nll = told + level + 0.001 * torch.from_numpy(randomness.normal(size=told.shape))
        Cells(tmp_path).once(name, rotary_methods.filled(name, 64, 16), 64, lambda nll=nll: (nll, 0.5))
    results = run.Results(tmp_path, 2, Reencoding(16), stretch=16)
    rows = results.rows(64)
    assert [row["method"] for row in rows][:2] == [run.GOLD, "window"] or rows[1]["method"] == "window+log"
    plain = next(row for row in rows if row["method"] == "none")
    assert plain["beyond"]["ratio"] == pytest.approx(math.exp(5), rel=0.01)
    pairs = {pair["method"]: (pair["other"], pair["ratio"]) for pair in run.combinations(results, 64)}
    assert pairs[f"{YARN}+log"][0] == YARN
    assert pairs[f"{YARN}+log"][1]["ratio"] == pytest.approx(math.exp(-0.5), rel=0.01)
    assert pairs[f"{YARN}+log"][1]["high"] < 1
    laws = {(pair["other"], pair["temperature"]) for pair in run.temperatures(results, 64)}
    assert laws == {("none", "log"), ("none", "pmax-layer"), ("window", "log"), (YARN, "log")}
    assert [pair["method"] for pair in run.calibrated(results, 64)] == ["{pmax-layer}"]

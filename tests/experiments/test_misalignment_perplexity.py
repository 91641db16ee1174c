"""Table 1 of Output Alignment: a row measured on a tiny Llama that reads bytes, and coefficients over rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, permutation_test, spearmanr

import lengthwise as lw
from experiments.misalignment_perplexity import page, run
from experiments.misalignment_perplexity.strength import more, strength
from tests.helpers.answering import answering, saved

TRAIN, TOKENS = 32, 64


def reader() -> Any:
    return answering("llama", max_position_embeddings=TRAIN)


def losses(model: Any, ids: torch.Tensor) -> list[float]:
    """The loss of each token from those before it, in one forward."""
    with torch.no_grad():
        said = model(input_ids=ids[None, :-1]).logits[0].double().log_softmax(-1)
    return [-float(said[at, token]) for at, token in enumerate(ids[1:])]


@pytest.mark.filterwarnings("ignore:.*pairs of .* overlap")
def test_numbers_are_those_of_loops_over_the_models_own_logits() -> None:
    model, method = reader(), "ntk:factor=3"
    ids = torch.randint(40, 120, (2, 97), generator=torch.Generator().manual_seed(0))
    here = run.Reader(model, ids, TRAIN, TOKENS, method, first=7, seed=3)
    with lw.extend(model, method):
        begun = ids.clone()
        begun[:, [0, TRAIN]] = 7
        # The token that a reading begins with is the last one that the reading before is asked for
        pieces = [torch.cat([begun[:, start : start + TRAIN], ids[:, start + TRAIN, None]], 1) for start in (0, TRAIN)]
        readings = [[losses(model, piece[stream]) for piece in pieces] for stream in (0, 1)]
        forwards = np.array([losses(model, row) for row in ids])
    assert here.train_loss()["l_train"] == pytest.approx([np.mean(own) for own in readings], rel=1e-4)
    apart = [lw.misalignment(model, row[:TOKENS], pairs=2, seed=3, method=method, first_token=7) for row in ids]
    assert here.misalignment() == {"l_misalign": [one.sce for one in apart], "kl": [one.kl for one in apart]}
    long = here.long(96)
    assert long["log_ppl"] == pytest.approx(forwards.mean(1), rel=1e-4)
    assert long["beyond"] == pytest.approx(forwards[:, TRAIN:].mean(1), rel=1e-4)
    assert set(here.long(TRAIN)) == {"log_ppl"}


@pytest.mark.sweep
def test_a_row_is_measured_once_and_stands_on_the_page(novels: tuple[Path, ...], tmp_path: Path) -> None:
    given = {"streams": 2, "tokens": TOKENS, "device": "cpu", "books": novels, "lengths": ("2x", "96"), "command": "as typed"}
    model = saved(reader(), tmp_path / "tiny")
    for bits, method in ((None, "none"), (3, "none"), (None, "ntk:factor=2")):
        document = run.run(run.Options(out=tmp_path / "out", model=str(model), bits=bits, method=method, **given))
    assert run.run(run.Options(out=tmp_path / "out", model=str(model), method="ntk:factor=2", **given)) == document
    keys = {(line["measure"], line["length"]) for line in document["measures"]}
    short = {(name, TRAIN) for name in ("l_train", "l_misalign", "kl")}
    assert keys == short | {(name, length) for name in ("log_ppl", "beyond") for length in (64, 96)}
    # Bytes, but for the sign that ends a text
    assert document["bytes"] == pytest.approx([1, 1])
    rows = [json.loads(file.read_text()) for file in sorted((tmp_path / "out").glob("tiny*.json"))]
    assert [row["name"] for row in rows] == ["tiny-3bit", "tiny-ntk-factor2", "tiny"]
    values = {row["name"]: page.value(row, ("l_train", 0)) for row in rows}
    assert len(set(values.values())) == 3
    told = (tmp_path / "out" / page.PAGE).read_text()
    assert f"{values['tiny-3bit']:.3f} [" in told
    assert "fewer than 5 models" in told


def test_weights_are_rounded_block_by_block_and_the_head_is_not() -> None:
    model = reader()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    run.round_weights(model, 3)
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            assert torch.equal(weight, before[name])
            continue
        blocks, was = weight.view(-1, 32), before[name].view(-1, 32)
        largest = was.abs().amax(1, keepdim=True)
        steps = blocks / largest * 3
        torch.testing.assert_close(steps, steps.round(), atol=1e-4, rtol=0)
        assert float((blocks - was).abs().div(largest).max()) <= 1 / 6 + 1e-4


@pytest.mark.parametrize(("kind", "scipys"), [("Spearman", spearmanr), ("Kendall", kendalltau)])
def test_coefficients_and_chances_are_those_of_every_order(kind: str, scipys: Any) -> None:
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0, 3.0], [2.0, 1.0, 3.0, 4.0, 6.0, 5.0]
    found = strength(kind, x, y)
    assert found.value == pytest.approx(scipys(x, y).statistic)
    exact = permutation_test((y,), lambda z: scipys(x, z).statistic, permutation_type="pairings", n_resamples=np.inf)
    assert found.p == pytest.approx(np.mean(np.abs(exact.null_distribution) >= abs(found.value) - 1e-9))
    low, high = (np.quantile(exact.null_distribution, q, method=how) for q, how in ((0.025, "lower"), (0.975, "higher")))
    assert (found.low, found.high) == pytest.approx((found.value - high, min(1, found.value - low)), abs=1e-8)
    assert strength(kind, x[:4], y[:4]) is None


def test_a_measure_goes_along_more_only_where_exchanging_the_two_seldom_does() -> None:
    quality = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    apart = more("Spearman", quality, quality[::-1], quality)
    # Of 64 exchanges only this one and its opposite are as far apart
    assert (apart.value, apart.p) == (2.0, 2 / 64)
    assert more("Spearman", quality, quality[::-1], quality, sign=-1).value == -2.0
    assert more("Spearman", quality, quality, quality).p == 1.0


def test_ruler_is_the_mean_of_the_tasks_that_all_rows_have_in_full() -> None:
    asked = {"a": {"x": [1, 1], "y": [0, 1], "z": [1, 1]}, "b": {"x": [0, 0], "y": [1], "z": [1, 0]}}
    cells = [[{"task": task, "length": 64, "scores": scores} for task, scores in own.items()] for own in asked.values()]
    rows = page.with_shared_tasks([{"ruler": own, "measures": []} for own in cells])
    (_, quality) = page.qualities(rows)
    assert quality == ("2 tasks of RULER", 64)
    assert [page.value(row, quality) for row in rows] == [100.0, 25.0]


def test_the_papers_coefficients_come_out_of_its_rows() -> None:
    l_train, l_misalign, log_ppl, longbench = zip(*page.PAPER["models"].values(), strict=True)
    found = [strength("Spearman", column, quality) for quality in (log_ppl, longbench) for column in (l_train, l_misalign)]
    assert [round(one.value, 3) for one in found] == [0.673, 0.882, -0.559, -0.955]
    # Seven models are too few for its claim that one is the better indicator
    assert more("Spearman", l_misalign, l_train, log_ppl).p > 0.05

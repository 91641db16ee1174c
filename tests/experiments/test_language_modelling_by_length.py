"""The language modelling experiment, on a tiny T5 and a tiny Llama that read bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean

import pytest

from experiments.attention_alignment import language_modelling
from lengthwise.common.text import shipped_prose
from tests.helpers.answering import TRAIN_LENGTH, answering, saved


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_every_method_tells_the_same_tokens_at_every_length(family: str, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(shipped_prose()[:4000])
    model = saved(answering(family), tmp_path / "model")
    call = [model, "--text", text, "--method", "none", "log", "--length", 320, "--cases", 3, "--continuation", 8, "--out", out]
    assert language_modelling.main([*map(str, call), "--device", "cpu"]) == 0
    document = json.loads((out / "language_modelling.json").read_text())
    cells = {(cell["method"], cell["length"]): cell for cell in document["cells"]}
    # A hedge without a method costs nothing more
    assert [*cells] == [(method, n) for method in ("none", "log", "hedge+none") for n in (TRAIN_LENGTH, 320)]
    for (method, _), cell in cells.items():
        assert cell["perplexity"] == pytest.approx(math.exp(fmean(cell["nll"])))
        assert cell["tokens"] == 3 * 8
        ratio = cell["perplexity"] / cells[method, TRAIN_LENGTH]["perplexity"]
        assert cell["ratio"]["ratio"] == pytest.approx(ratio)
    assert cells["none", TRAIN_LENGTH]["nll"] == pytest.approx(cells["log", TRAIN_LENGTH]["nll"])
    assert cells["none", 320]["nll"] != pytest.approx(cells["log", 320]["nll"], abs=1e-4)
    page = (out / "language_modelling.md").read_text()
    assert f"| log | {cells['log', TRAIN_LENGTH]['perplexity']:.4g} [" in page
    assert "| T5-XL-LM, pmax | 30.2 | 36.0 | 31.6 | 41.7 | 50.0 |" in page


def test_bad_input_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert language_modelling.main(["embedded", "--method", "none", "--cases", "1", "--out", str(tmp_path)]) == 2
    assert "--cases must be at least 2, for intervals, not 1" in capsys.readouterr().err

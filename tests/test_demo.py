"""The demo, at lengths small enough to run often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise import demo as module
from lengthwise.demo import demo, table, tiny_t5
from lengthwise.text import long_sequences, shipped_prose
from tests.conftest import make

LENGTH = 640


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """(what the demo wrote, its rows), at one length."""
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LENGTHS", (LENGTH,))
        return out, demo(out)


def test_attention_disperses_and_the_alignment_brings_it_back(shown: tuple[Path, list[dict[str, Any]]]) -> None:
    trained, long, aligned = shown[1]
    assert [(row["method"], row["length"]) for row in shown[1]] == [
        ("none", 512),
        ("none", LENGTH),
        ("pmax aligned, scope model", LENGTH),
    ]
    assert trained["tau"] == long["tau"] == 1
    assert aligned["tau"] < 1
    assert long["p_max"] < trained["p_max"]
    assert long["entropy"] > trained["entropy"]
    assert aligned["p_max"] > long["p_max"]
    assert aligned["entropy"] < long["entropy"]
    found = lw.Alignment.load(shown[0] / "pmax-model.json")
    assert found.temperatures[0].tau == pytest.approx(aligned["tau"])
    assert found.temperatures[0].statistic == pytest.approx(found.target, rel=0.02)


def test_the_baked_checkpoint_agrees_with_the_extended_model(shown: tuple[Path, list[dict[str, Any]]], tokenizer: Any) -> None:
    out, rows = shown
    assert [row["baked_difference"] < 1e-4 for row in rows if "baked_difference" in row] == [True]
    # The same again from what lies on the disk
    stock = transformers.T5EncoderModel.from_pretrained(out / "baked").eval()
    model = transformers.T5EncoderModel.from_pretrained(out / "model").eval()
    ids = long_sequences(tokenizer, shipped_prose(), LENGTH, 1, seed=3)
    with torch.no_grad():
        baked, plain = stock(input_ids=ids).last_hidden_state, model(input_ids=ids).last_hidden_state
        with lw.extend(model, lw.Alignment.load(out / "pmax-model.json")):
            extended = model(input_ids=ids).last_hidden_state
    assert float((baked - extended).abs().max()) < 1e-4
    assert float((plain - extended).abs().max()) > 1e-2


def test_the_full_demo_shows_every_scope_and_the_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_LENGTHS", (64,))
    monkeypatch.setattr(module, "tiny_t5", lambda: make("t5 encoder"))
    rows = demo(tmp_path, full=True)
    kinds = [
        "pmax aligned, scope model",
        "entropy aligned, scope model",
        "pmax aligned, scope layer",
        "pmax aligned, scope head",
    ]
    assert [row["method"] for row in rows] == ["none", "none", *kinds]
    files = ["entropy-model.json", "pmax-head.json", "pmax-layer.json", "pmax-model.json"]
    assert sorted(file.name for file in tmp_path.glob("*.json")) == files


def test_the_table_has_a_line_a_row_and_says_what_baking_cost() -> None:
    rows = [
        {"method": "none", "length": 512, "tau": 1.0, "p_max": 0.25, "entropy": 2.5},
        {"method": "some alignment", "length": 2048, "tau": 0.625, "p_max": 0.24, "entropy": 2.75, "baked_difference": 3e-6},
    ]
    lines = table(rows).splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[header].split() == ["method", "length", "tau", "P_max", "entropy"]
    assert lines[header + 1].split() == ["none", "512", "1.000", "0.250", "2.500"]
    assert lines[header + 2].split() == ["some", "alignment", "2048", "0.625", "0.240", "2.750"]
    assert lines[-1].endswith("largest difference: 3.0e-06")
    assert len({len(line) for line in lines[header : header + 3]}) == 1


def test_a_tiny_model_leaves_the_random_numbers_alone_and_depends_on_its_seed_only() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = tiny_t5(1).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(7)
    again, other = tiny_t5(1).state_dict(), tiny_t5(2).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["shared.weight"], other["shared.weight"])

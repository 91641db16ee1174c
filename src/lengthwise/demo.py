"""The whole way on a model small enough for any machine: measure, calibrate, extend, bake, load again with plain transformers.

The model has random weights with sharp attention, so it can show attention dispersing and coming back, but has no skill to
lose or regain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

from lengthwise.bake import bake
from lengthwise.calibrate import calibrate
from lengthwise.extend import extend
from lengthwise.measure import row_statistics
from lengthwise.text import long_sequences, shipped_prose

LENGTHS = (1024, 2048)
FULL_LENGTHS = (1024, 2048, 4096)


def tiny_t5(seed: int = 0) -> T5EncoderModel:
    """A T5 encoder of four layers whose attention is sharp: random queries larger than T5 would draw them, random biases."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = T5Config(vocab_size=384, d_model=64, d_kv=16, d_ff=128, num_layers=4, num_heads=4, n_positions=512)
        model = T5EncoderModel(config).eval()
        for block in model.encoder.block:
            torch.nn.init.normal_(block.layer[0].SelfAttention.q.weight, std=0.25)
        torch.nn.init.normal_(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight, std=1.0)
    return model


def demo(out: Path, full: bool = False) -> list[dict[str, Any]]:
    """Writes the model, its alignments and the baked checkpoint under `out`; returns one row a length and method."""
    model, tokenizer = tiny_t5(), ByT5Tokenizer()
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    lengths = FULL_LENGTHS if full else LENGTHS
    kinds = [("pmax", "model"), *([("entropy", "model"), ("pmax", "layer"), ("pmax", "head")] if full else [])]
    rows = [_row(model, tokenizer, "none", n) for n in (512, *lengths)]
    for statistic, scope in kinds:
        alignment = calibrate(model, tokenizer, lengths, statistic=statistic, scope=scope)
        alignment.save(out / f"{statistic}-{scope}.json")
        rows += [_row(model, tokenizer, alignment, n, f"{statistic} aligned, scope {scope}") for n in lengths]
        if (statistic, scope) == ("pmax", "model"):
            rows[-1]["baked_difference"] = _baked_difference(model, tokenizer, alignment, lengths[-1], out / "baked")
    return rows


def _row(model: Any, tokenizer: Any, method: Any, length: int, name: str = "none") -> dict[str, Any]:
    stats = row_statistics(model, long_sequences(tokenizer, shipped_prose(), length, 1, seed=1), method=method)
    tau = method.tau(length).mean().item() if name != "none" else 1.0
    means = {"p_max": float(stats.p_max.mean()), "entropy": float(stats.entropy.mean())}
    return {"method": name, "length": length, "tau": tau, **means}


def _baked_difference(model: Any, tokenizer: Any, alignment: Any, length: int, out: Path) -> float:
    """Largest difference between the extended model and the baked checkpoint under plain transformers."""
    bake(model, alignment, length=length).save_pretrained(out)
    ids = long_sequences(tokenizer, shipped_prose(), length, 1, seed=1)
    stock = T5EncoderModel.from_pretrained(out).eval()
    with torch.inference_mode():
        expected = stock(input_ids=ids).last_hidden_state
        with extend(model, alignment):
            extended = model(input_ids=ids).last_hidden_state
    return float((expected - extended).abs().max())


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["A tiny T5 with random weights and a declared training length of 512: how sharp is its attention?", ""]
    lines.append(f"{'method':<32}{'length':>8}{'tau':>8}{'P_max':>9}{'entropy':>9}")
    lines += [f"{r['method']:<32}{r['length']:>8}{r['tau']:>8.3f}{r['p_max']:>9.3f}{r['entropy']:>9.3f}" for r in rows]
    for row in rows:
        if "baked_difference" in row:
            lines += ["", f"baked checkpoint under plain transformers, largest difference: {row['baked_difference']:.1e}"]
    return "\n".join(lines)

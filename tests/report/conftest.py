"""A run directory as `lengthwise evaluate` leaves it: made up, deterministic, with the shape of the real effect."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Lines = Iterable[dict[str, Any]]
TRAIN_LENGTH = 512
LAYERS, HEADS = 6, 4
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 15000)
METHODS = ("none", "truncate", "log", "@out/pmax.json", "@out/pmax-layer.json")
TASKS = ("passkey", "line")
MODEL = {"family": "t5", "name": "embedded", "layers": LAYERS, "heads": HEADS, "key_size": 64, "weights": "1e2cb6c508c16d15"}
# Length at which a method answers every second sample
REACH = {
    "passkey": {"none": 1500, "log": 6000, "@out/pmax.json": 90000, "@out/pmax-layer.json": 150000},
    "line": {"none": 1300, "log": 1500, "@out/pmax.json": 4200, "@out/pmax-layer.json": 7000},
}


def alignment(scope: str, statistic: str = "pmax") -> dict[str, Any]:
    """Temperatures that fall from 1 with ln n, faster in later layers."""

    def tau(length: int) -> Any:
        layers = [round(1 / (1 + (0.16 + 0.04 * k) * math.log(length / TRAIN_LENGTH)), 4) for k in range(LAYERS)]
        if scope == "head":
            return [[round(layer * (0.94 + 0.04 * head), 4) for head in range(HEADS)] for layer in layers]
        return layers if scope == "layer" else round(sum(layers) / LAYERS, 4)

    entries = [{"length": n, "tau": tau(n), "statistic": 0.15, "forwards": 3, "target": 0.15} for n in (2048, 4096, 15000)]
    return {
        "format": "lengthwise.alignment/1",
        "model": MODEL,
        "statistic": statistic,
        "scope": scope,
        "train_length": TRAIN_LENGTH,
        "target": 0.15,
        "temperatures": entries,
        "provenance": {"text": "prose that ships with lengthwise", "seed": 0},
    }


DOCUMENTS = {"@out/pmax.json": alignment("model"), "@out/pmax-layer.json": alignment("layer")}


def config(methods: Iterable[str] = METHODS, **settings: Any) -> dict[str, Any]:
    return {
        "format": "lengthwise.run/1",
        "model": MODEL,
        "settings": {"seed": 0, "dtype": "bfloat16", "train_length": TRAIN_LENGTH, "batch_tokens": 1024, **settings},
        "methods": {spec: DOCUMENTS.get(spec) for spec in methods},
        "data": {},
        "made_with": {"lengthwise": "0.1.0", "transformers": "5.22.2", "torch": "2.13.0", "device": "cpu"},
    }


def record(method: str, task: str, length: int, index: int, **changes: Any) -> dict[str, Any]:
    depth = random.Random(f"{task} {length} {index}").random()
    chance = random.Random(f"{method if length > TRAIN_LENGTH else ''} {task} {length} {index}").random()
    if method == "truncate" and length > TRAIN_LENGTH:
        right = depth > 1 - TRAIN_LENGTH / length
    else:
        # Up to the training length every method is the plain model; late needles are found a little longer
        reach = REACH[task].get(method if length > TRAIN_LENGTH else "none", 3000) * (0.6 + 0.8 * depth)
        right = chance < 1 / (1 + (length / reach) ** 3.2)
    right = bool(changes.get("score", right))
    target = str(random.Random(f"{length} {index}").randint(1, 50000))
    return {
        "model": "embedded",
        "method": method,
        "task": task,
        "data": "",
        "length": length,
        "index": index,
        "seed": 0,
        "tokens": length - index % 5,
        "depth": round(depth, 4),
        "prediction": target if right else "7",
        "target": target,
        "score": float(right),
        "seconds": 0.25,
        **changes,
    }


def records(
    methods: Iterable[str] = METHODS, tasks: Iterable[str] = TASKS, lengths: Iterable[int] = LENGTHS, samples: int = 24
) -> list[dict[str, Any]]:
    cells = [(method, task, length) for method in methods for task in tasks for length in lengths]
    return [record(*cell, index) for cell in cells for index in range(samples)]


def sharpness(
    methods: Iterable[str] = METHODS, tasks: Iterable[str] = TASKS, lengths: Iterable[int] = LENGTHS
) -> list[dict[str, Any]]:
    """Truncation is the plain model on other text: it is not measured."""
    blunting = {"none": 0.62, "@out/pmax.json": 0.06, "@out/pmax-layer.json": 0.0}
    base = [[0.1 + 0.03 * layer + 0.01 * head for head in range(HEADS)] for layer in range(LAYERS)]
    found = []
    for method in (spec for spec in methods if spec != "truncate"):
        for length in lengths:
            ratio = length / TRAIN_LENGTH
            blunter = ratio ** (blunting.get(method, 0.3) if ratio > 1 else blunting["none"])
            p_max = [[min(value / blunter, 0.9) for value in heads] for heads in base]
            entropy = [[4.6 - 4 * value + math.log(blunter) for value in heads] for heads in base]
            cell = {"method": method, "length": length, "tokens": length, "p_max": p_max, "entropy": entropy}
            found += [{**cell, "task": task} for task in tasks]
    return found


def write_run(
    path: Path, config: dict[str, Any], records: list[dict[str, Any]], sharpness: Iterable[dict[str, Any]] = ()
) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records))
    if sharpness:
        (path / "sharpness.jsonl").write_text("".join(json.dumps(line) + "\n" for line in sharpness))
    return path


@pytest.fixture
def full_run(tmp_path: Path) -> Path:
    """Five methods, two tasks, seven lengths, 24 samples a cell, two alignments, sharpness."""
    return write_run(tmp_path / "run", config(), records(), sharpness())


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run(config, records, sharpness)` writes one more run directory."""
    count = iter(range(100))
    return lambda *parts: write_run(tmp_path / f"run{next(count)}", *parts)

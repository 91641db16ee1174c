"""What the code tasks have shown so far, as a JSON document and as a page: Tables 12, 13 and 11, and section 5.4."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments._lib.markdown import table
from experiments.attention_alignment import paper_code
from experiments.attention_alignment.contenders import temperatures
from experiments.attention_alignment.facts import about, told
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.tables import Temperatures, cell_told, temperatures_told
from lengthwise.common.files import write_whole
from lengthwise.tasks.code_completion import BUCKET

FORMAT = "lengthwise.experiments.code/1"
BUCKETS = paper_code.BUCKETS
COMPLETION, SIMILARITY, KEY = "code_completion", "code_completion_es", "code_key_retrieval"
RUNS: dict[str, dict[str, str]] = {f"run-{COMPLETION}": {}, f"run-{KEY}": {}}
BASELINE = """The paper's are {model}'s, of 0.77 billion parameters and trained on {theirs} tokens, on other code: compare the
course over length. Bucket nk holds from 1000 n to 1000 (n + 1) tokens, and ours has 1000 n + 500; the lines to complete are the
same in every bucket. `truncate` reads the last {train} tokens, the paper's {theirs}."""


def length_of(bucket: int) -> int:
    """Tokens of our prompts in a bucket: its middle."""
    return BUCKET * bucket + BUCKET // 2


def write_outcome(folder: Path, results: Results, facts: Mapping[str, Any]) -> str:
    """Writes code.json and code.md; returns the page."""
    taus = temperatures(results.lengths, results.train_length, folder)
    document = {
        "format": FORMAT,
        **facts,
        "cells": [asdict(cell) for cell in results.cells.values()],
        "temperatures": taus,
    }
    parts = ["# Code completion and code key retrieval", told(facts)]
    if facts["missing"]:
        parts.append(f"**Unfinished**: {facts['missing']:,} answers are missing. The same command goes on.")
    parts.append(about(results.train_length))
    text = "\n\n".join([*parts, *sections(results, facts["samples"], taus)]) + "\n"
    write_whole(folder / "code.json", json.dumps(document, indent=1) + "\n")
    write_whole(folder / "code.md", text)
    return text


def sections(results: Results, samples: int, temperatures: Temperatures) -> list[str]:
    parts = [BASELINE.format(model=paper_code.MODEL, theirs=paper_code.TRAIN_LENGTH, train=results.train_length)]
    for task, name, rows, decimals in (
        (COMPLETION, "Tables 6 and 12: code completion, exact match", paper_code.TABLE_12, 0),
        (SIMILARITY, "Tables 6 and 13: code completion, edit similarity", paper_code.TABLE_13, 1),
    ):
        if task in results.tasks:
            parts += [f"## {name}", *_completion(results, task, rows, samples, decimals)]
    if KEY in results.tasks:
        parts += ["## Section 5.4: code key retrieval", _key(results, samples)]
    parts += ["## Table 11: temperatures", temperatures_told(temperatures, results.train_length)]
    papers = [[f"paper, {method}", *row] for method, row in paper_code.TABLE_11.items()]
    return [*parts, table(["tau", *(f"{n:,}" for n in paper_code.TABLE_11_LENGTHS)], papers)]


def lengths_of(results: Results, task: str) -> list[int]:
    return sorted({key.length for key in results.cells if key.task == task})


def _completion(
    results: Results, task: str, papers: Mapping[str, Sequence[float]], samples: int, decimals: int
) -> tuple[str, str]:
    """Ours by bucket, the paper's for the same buckets."""
    lengths = lengths_of(results, task)
    ours = [
        [method, *(cell_told(results.cell(method, task, n), samples, decimals) for n in lengths)]
        for method in results.methods
        if any(results.cell(method, task, n) for n in lengths)
    ]
    head = [f"{n // BUCKET}k" for n in lengths]
    theirs = {method: dict(zip(BUCKETS, row, strict=True)) for method, row in papers.items()}
    rows = [[f"paper, {method}", *(row.get(n // BUCKET, "") for n in lengths)] for method, row in theirs.items()]
    return table(["ours", *head], ours), table([paper_code.MODEL, *head], rows)


def _key(results: Results, samples: int) -> str:
    lengths = lengths_of(results, KEY)
    rows = [
        [method, *(cell_told(results.cell(method, KEY, n), samples) for n in lengths), ""]
        for method in results.methods
        if any(results.cell(method, KEY, n) for n in lengths)
    ]
    rows += [[f"paper, {method}", *[""] * len(lengths), f"{value:g}"] for method, value in paper_code.KEY.items()]
    return table(["percent right", *(f"{n:,}" for n in lengths), f"{paper_code.MODEL}, {paper_code.KEY_LENGTH:,}"], rows)

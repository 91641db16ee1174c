"""RULER's scores: how many of a sample's references an answer holds, upper and lower case aside.

Several references stand in one target with " | " between them, so that a record holds all that its score needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material.case_files import Case, last_question, read_as
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.sample import Sample

BETWEEN = " | "


def joined(references: Iterable[str]) -> str:
    """The target of several references."""
    return BETWEEN.join(references)


def share_held(prediction: str, target: str) -> float:
    """The share of the references that the answer holds."""
    held = _held(prediction, target)
    return sum(held) / len(held)


def any_held(prediction: str, target: str) -> float:
    """1 where the answer holds one of the references."""
    return float(any(_held(prediction, target)))


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read RULER's own files (`input`, `outputs`, `answer_prefix`), or cases with `prompt` and `target`."""
    return read_as(_sample, tokenizer, path)


def _held(prediction: str, target: str) -> list[bool]:
    text = prediction.lower()
    return [reference.lower() in text for reference in target.split(BETWEEN)]


def official(case: Case) -> tuple[str, str, list[str]]:
    """The prompt of a line of RULER's own files, how its answer begins ("" if the prompt tells it), and the references."""
    prompt = case.get("input", str, "the prompt (or 'prompt', in a file of your own)")
    references = case.get("outputs", list, "the list of references (or 'target', in a file of your own)")
    texts = bool(references) and all(isinstance(reference, str) and reference.strip() for reference in references)
    require(texts, f"{case.place}: 'outputs' should be a list of texts, not {str(references)[:40]}")
    # Newer files keep it beside the prompt
    prefix = str(case.fields.get("answer_prefix") or case.fields.get("gen_prefix") or "").strip()
    return prompt, "" if prompt.rstrip().endswith(prefix) else prefix, references


def _sample(tokenizer: Any, case: Case) -> Sample:
    prompt, prefix, references = official(case)
    if prefix:
        prompt = f"{prompt} {prefix}"
    return Sample(prompt, joined(references), token_count(tokenizer, prompt), None, last_question(prompt))

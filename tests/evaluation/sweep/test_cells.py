"""Batches of a cell, and records that do not go with its samples; answering is tested with `evaluate`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.cells import batches, check_recorded, default_batch_tokens
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job
from lengthwise.evaluation.sweep.named_methods import NamedMethod
from lengthwise.records import Record
from lengthwise.tasks import Sample


def test_batches_are_fixed_runs_of_indices() -> None:
    def of(samples: int, length: int, reads: str = "whole", budget: int = 1024) -> list[list[int]]:
        job = Job(NamedMethod("x", reads=reads), "passkey", "", length, samples)
        return [list(batch) for batch in batches(job, EvaluatedModel(None, None, "", 256, budget, 0, False))]

    assert of(5, 512) == [[0, 1], [2, 3], [4]]
    assert of(3, 1024) == of(3, 4096) == [[0], [1], [2]]
    assert of(5, 4096, reads="end") == [[0, 1, 2, 3], [4]]
    assert of(40, 512, budget=16384) == [list(range(32)), list(range(32, 40))]


def test_a_gpu_takes_larger_batches() -> None:
    assert default_batch_tokens("cpu") < default_batch_tokens("cuda") == default_batch_tokens("cuda:1")


def test_records_of_other_samples_are_refused_and_those_beyond_the_samples_ignored() -> None:
    job, sample = Job(NamedMethod("none"), "passkey", "", 512, 1), Sample("a prompt", "7", 500, 0.5, "prompt")
    record = Record("m", "none", "passkey", "", 512, 0, 0, 500, 0.5, "7", "7", 1.0, 0.1)
    check_recorded(job, [sample], {0: record, 5: replace(record, index=5, target="8")})
    for changes, then in (({"target": "8"}, "500 and '8'"), ({"tokens": 501}, "501 and '7'")):
        with pytest.raises(BadInput, match=f"sample 0 of passkey at 512 tokens, none is another one now .* then {then}"):
            check_recorded(job, [sample], {0: replace(record, **changes)})

"""Batches that get positions: padding, lists of features, data-loading workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lengthwise.errors import BadInput
from lengthwise.methods.positions.random_positions import RandomPositionsCollator
from lengthwise.methods.sampled_positions import with_positions
from tests.conftest import shared
from tests.positions import COLLATORS, ids


def tens(tokens: int) -> torch.Tensor:
    return 10 * torch.arange(tokens) + 10


def test_only_real_tokens_get_positions() -> None:
    batch = {"input_ids": torch.ones(2, 4), "attention_mask": torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])}
    assert with_positions(batch, tens)["position_ids"].tolist() == [[0, 10, 20, 30], [10, 20, 0, 0]]


def test_without_a_mask_all_tokens_are_real() -> None:
    out = with_positions({"input_ids": [[5, 6, 7]]}, tens)
    assert out["position_ids"].tolist() == [[10, 20, 30]]
    assert out["position_ids"].dtype == torch.int64


def test_a_list_of_features_becomes_a_batch() -> None:
    out = with_positions([{"input_ids": [1, 2], "labels": [3, 4]}, {"input_ids": [5, 6], "labels": [7, 8]}], tens)
    assert {key: value.tolist() for key, value in out.items()} == {
        "input_ids": [[1, 2], [5, 6]],
        "labels": [[3, 4], [7, 8]],
        "attention_mask": [[1, 1], [1, 1]],
        "position_ids": [[10, 20], [10, 20]],
    }


@pytest.mark.parametrize("collator", COLLATORS)
def test_without_a_cache_leaping_positions_are_one_sequence(collator: Any) -> None:
    """As in training: transformers takes positions that come without a mask for sequences packed into one row."""
    model, batch = shared("llama"), collator(500, seed=1)({"input_ids": ids(16, batch=2)})
    with torch.inference_mode():
        cached, uncached = (model(**batch, use_cache=cache).logits for cache in (True, False))
    torch.testing.assert_close(uncached, cached)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([{"input_ids": [1, 2]}, {"input_ids": [1]}], "input_ids differ in shape, .*; pad them first"),
        ([], "empty list"),
        ({"labels": [[1]]}, "needs input_ids to get positions; this one has labels"),
        ({"input_ids": [1, 2]}, r"must be \[batch, tokens\], not of shape \(2,\)"),
    ],
)
def test_what_is_no_batch_is_refused(features: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        with_positions(features, tens)


def test_workers_and_epochs_draw_different_positions() -> None:
    data = [{"input_ids": [1] * 8} for _ in range(4)]
    torch.manual_seed(0)
    loader = DataLoader(data, batch_size=1, num_workers=2, collate_fn=RandomPositionsCollator(target=10_000))  # type: ignore[arg-type]
    drawn = [tuple(batch["position_ids"][0].tolist()) for _ in range(2) for batch in loader]
    assert len(set(drawn)) == 8


def test_the_seed_counts_in_workers() -> None:
    def drawn(seed: int) -> list[Any]:
        torch.manual_seed(0)
        collate = RandomPositionsCollator(10_000, seed)
        loader = DataLoader([{"input_ids": [1] * 8}] * 2, batch_size=1, num_workers=1, collate_fn=collate)  # type: ignore[arg-type]
        return [batch["position_ids"].tolist() for batch in loader]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


@pytest.mark.parametrize("workers", [0, 1])
def test_processes_draw_different_positions(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(rank: str) -> list[Any]:
        monkeypatch.setenv("RANK", rank)
        torch.manual_seed(0)
        data, collate = [{"input_ids": [1] * 8}] * 2, RandomPositionsCollator(10_000)
        loader: Any = DataLoader(data, batch_size=1, num_workers=workers, collate_fn=collate)  # type: ignore[arg-type]
        return [batch["position_ids"].tolist() for batch in loader]

    assert drawn("0") == drawn("0")
    assert not any(row in drawn("0") for row in drawn("1"))

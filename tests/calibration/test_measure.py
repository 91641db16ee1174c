"""Row statistics against transformers' own eager attention weights."""

from __future__ import annotations

import copy

import pytest
import torch

import lengthwise as lw
from lengthwise.calibration.measure import AttentionStatistics, RowMeans, row_weights
from tests.conftest import TRAIN_LENGTH, make, tokens


def of_eager_weights(weights: tuple[torch.Tensor, ...], real: torch.Tensor) -> AttentionStatistics:
    """Means over real rows, from attention weights [batch, heads, queries, keys] a layer."""
    p_max, entropy = [], []
    for layer in weights:
        rows = layer.double().transpose(0, 1)[:, real]  # [heads, rows, keys]
        p_max.append(rows.amax(-1).mean(-1))
        entropy.append(torch.special.entr(rows).sum(-1).mean(-1))
    return AttentionStatistics(torch.stack(p_max), torch.stack(entropy), torch.zeros(()), int(real.sum()))


@pytest.mark.parametrize("padded", [False, True])
def test_statistics_equal_those_of_eager_weights(padded: bool) -> None:
    model = make("t5")
    ids = tokens(100, batch=2)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, 70:] = 0
    # A copy on its own: transformers 5.15 returns no weights of a stack that is part of a larger model
    encoder = copy.deepcopy(model.encoder)
    encoder.set_attn_implementation("eager")
    with torch.no_grad():
        weights = encoder(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    expected = of_eager_weights(weights, mask.bool())
    measured = lw.row_statistics(model, {"input_ids": ids, "attention_mask": mask})
    torch.testing.assert_close(measured.p_max.double(), expected.p_max, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(measured.entropy.double(), expected.entropy, atol=1e-5, rtol=1e-5)
    assert measured.rows == expected.rows
    assert measured.p_max.shape == (3, 4)


def test_statistics_of_a_causal_model_equal_those_of_eager_weights() -> None:
    model = make("llama")
    ids = tokens(90)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model.model(input_ids=ids, output_attentions=True, use_cache=False).attentions
    expected = of_eager_weights(weights, torch.ones_like(ids).bool())
    measured = lw.row_statistics(model, ids)
    torch.testing.assert_close(measured.p_max.double(), expected.p_max, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(measured.entropy.double(), expected.entropy, atol=1e-5, rtol=1e-5)
    late = lw.row_statistics(model, ids, least_share=0.5)
    only = of_eager_weights(weights, torch.arange(1, 91)[None] > 45)
    torch.testing.assert_close(late.p_max.double(), only.p_max, atol=1e-5, rtol=1e-5)


def test_a_method_is_measured_as_it_runs() -> None:
    model = make("t5")
    ids = tokens(4 * TRAIN_LENGTH)
    plain, sharp = lw.row_statistics(model, ids), lw.row_statistics(model, ids, method="constant:tau=0.5")
    assert bool((sharp.p_max.mean(1) > plain.p_max.mean(1)).all())
    assert bool((sharp.entropy.mean(1) < plain.entropy.mean(1)).all())


def test_an_outer_observer_watches_through_an_inner_method() -> None:
    model, ids, means = make("t5"), tokens(2 * TRAIN_LENGTH), RowMeans(3)
    with lw.extend(model, "none", observer=means), lw.extend(model, "constant:tau=0.5"), torch.inference_mode():
        model.encoder(ids)
    expected = lw.row_statistics(model, ids, method="constant:tau=0.5")
    torch.testing.assert_close(means.result().p_max, expected.p_max)


def test_all_that_the_stack_reads_of_a_batch_is_read() -> None:
    model, ids = make("bert"), tokens(20)
    model.bert.embeddings.token_type_embeddings.weight.data.normal_()
    model.bert.embeddings.position_embeddings.weight.data.normal_()
    plain = lw.row_statistics(model, {"input_ids": ids})
    for more in ({"token_type_ids": torch.arange(20)[None] // 10}, {"position_ids": torch.arange(20).flip(0)[None]}):
        found = lw.row_statistics(model, {"input_ids": ids, "labels": ids, **more})
        assert not torch.allclose(found.p_max, plain.p_max, atol=1e-4), more


def test_just_those_modules_train_afterwards_that_did() -> None:
    model = make("t5").train()
    model.encoder.block[1].eval()
    before = [module.training for module in model.modules()]
    lw.row_statistics(model, tokens(50))
    assert [module.training for module in model.modules()] == before


def test_each_sequence_of_a_batch_has_its_own_widest_row() -> None:
    assert row_weights(torch.tensor([[2, 8], [1, 3]]), 0.5).tolist() == [[[0, 1]], [[0, 1]]]


def test_a_batch_without_tokens_is_refused() -> None:
    with pytest.raises(lw.BadInput, match="input_ids"):
        lw.row_statistics(make("t5"), {"attention_mask": torch.ones(1, 4)})


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_rows_of_other_lengths_are_padded_and_their_padding_counts_nowhere(family: str) -> None:
    model, rows = make(family), [tokens(40)[0].tolist(), tokens(25, seed=1)[0].tolist()]
    whole = lw.row_statistics(model, rows)
    alone = [lw.row_statistics(model, torch.tensor([row])) for row in rows]
    assert whole.rows == 65
    torch.testing.assert_close(whole.p_max, (40 * alone[0].p_max + 25 * alone[1].p_max) / 65)


def test_tokens_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(lw.BadInput, match="token 384, and the model knows 0 to 383 only"):
        lw.row_statistics(make("t5"), torch.tensor([[3, 384]]))

"""The mixture of two readings, against products of probabilities written out, and in `generate` against separate forwards."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import ByT5Tokenizer, LogitsProcessorList

import lengthwise as lw
from lengthwise.common.sequences import last_tokens
from lengthwise.errors import BadInput
from lengthwise.evaluation.hedge import Hedge, _Step, mixed_nll
from lengthwise.models.patches import suspended
from tests.conftest import TRAIN_LENGTH, make, shared, tokens
from tests.helpers.sweep import crossed

LONG, NEW = 3 * TRAIN_LENGTH, 4
nats = st.floats(0, 30)


@given(st.lists(st.tuples(nats, nats), min_size=1, max_size=8), st.floats(0.05, 0.95))
def test_a_text_has_the_probability_of_two_readings_weighed(rows: list[tuple[float, float]], prior: float) -> None:
    whole, end = (torch.tensor([[row[side] for row in rows]], dtype=torch.float64) for side in (0, 1))
    mixed = mixed_nll(whole, end, prior)
    for told in range(1, len(rows) + 1):
        products = [math.exp(-sum(row[side] for row in rows[:told])) for side in (0, 1)]
        wanted = prior * products[0] + (1 - prior) * products[1]
        assert float(mixed[0, :told].sum()) == pytest.approx(-math.log(wanted), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(nats, nats), min_size=1, max_size=8))
def test_perplexity_is_at_most_the_better_readings_times_a_root_of_two(rows: list[tuple[float, float]]) -> None:
    whole, end = (torch.tensor([[row[side] for row in rows]], dtype=torch.float64) for side in (0, 1))
    mean = float(mixed_nll(whole, end).mean())
    best = min(float(whole.mean()), float(end.mean()))
    assert math.exp(mean - best) <= 2 ** (1 / len(rows)) * (1 + 1e-9)


def test_by_hand() -> None:
    """Half and half: (0.9 + 0.1) / 2, then the weight of the first reading is 0.9."""
    whole, end = torch.tensor([[0.9, 0.5]]).log(), torch.tensor([[0.1, 0.25]]).log()
    assert mixed_nll(-whole, -end).exp().reciprocal().tolist()[0] == pytest.approx([0.5, 0.9 * 0.5 + 0.1 * 0.25])


@pytest.mark.parametrize("prior", [-0.1, 1.5, math.nan])
def test_a_prior_that_is_no_weight_is_refused(prior: float) -> None:
    with pytest.raises(BadInput, match="prior"):
        mixed_nll(torch.zeros(1, 1), torch.zeros(1, 1), prior)
    with pytest.raises(BadInput, match="prior"):
        Hedge(make("t5"), [[5]], [[5]], prior)


def _answers(model: Any, ids: Tensor, processor: Any = None, **options: Any) -> Tensor:
    known: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, **options}
    processors = None if processor is None else LogitsProcessorList([processor])
    found: Tensor = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), logits_processor=processors, **known)
    return found[:, -NEW:]


def _log_probabilities(model: Any, ids: Tensor, answer: Tensor) -> Tensor:  # [rows, NEW]
    """Of the answer's tokens, in one forward without a cache."""
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            logits = model(input_ids=ids, labels=answer.contiguous()).logits
        else:
            logits = model(input_ids=torch.cat([ids, answer], 1)).logits[:, ids.shape[1] - 1 : -1]
    return logits.log_softmax(-1).gather(-1, answer[..., None])[..., 0]


def _ends(model: Any, ids: Tensor) -> Tensor:
    return ids[:, -(TRAIN_LENGTH if model.config.is_encoder_decoder else TRAIN_LENGTH - NEW) :]


FAMILIES = ["t5", "mt5", "llama", "gemma3", "gpt_neox"]
# All but the first two change what is read within the training length as well
SHORT_TOO = [("t5", "constant:tau=0.3"), *(("llama", method) for method in ("yarn:factor=4", "rerope:window=8,leak=3"))]
SHORT_TOO += [("llama", "interpolation:factor=4"), ("gpt_neox", "ntk:factor=8"), ("llama", "streaming_llm:window=8")]
PAIRS = [*crossed(FAMILIES, ["log", "none"], every=2, whole=("t5",)), *SHORT_TOO]


@pytest.mark.parametrize(("family", "method"), PAIRS)
def test_a_certain_prior_gives_that_readings_answer(family: str, method: str, tokenizer: ByT5Tokenizer) -> None:
    """The end is the plain model's, whatever method is in force, and the whole is the method's, whatever the end was."""
    model, ids = shared(family), tokens(LONG, batch=2)
    plain = _answers(model, _ends(model, ids))
    with lw.extend(model, method, train_length=TRAIN_LENGTH):
        wanted = _answers(model, ids)
        for prior, answer in ((1.0, wanted), (0.0, plain), (1.0, wanted)):
            hedge = lw.hedge(model, tokenizer, ids, new_tokens=NEW, prior=prior)
            assert _answers(model, ids, hedge).tolist() == answer.tolist()
    assert _answers(model, _ends(model, ids)).tolist() == plain.tolist()


def test_nested_methods_rest_together_and_return() -> None:
    model, ids = make("llama"), tokens(LONG)
    plain = _log_probabilities(model, ids, ids[:, :NEW])
    with lw.extend(model, "log", train_length=TRAIN_LENGTH), lw.extend(model, "ntk:factor=4", train_length=TRAIN_LENGTH):
        extended = _log_probabilities(model, ids, ids[:, :NEW])
        with suspended(model), suspended(model):
            assert torch.equal(_log_probabilities(model, ids, ids[:, :NEW]), plain)
        assert torch.equal(_log_probabilities(model, ids, ids[:, :NEW]), extended)
    assert not torch.equal(plain, extended)
    assert torch.equal(_log_probabilities(model, ids, ids[:, :NEW]), plain)
    assert not [name for name in vars(model) if "lengthwise" in name]


@pytest.mark.parametrize(("family", "beams"), crossed(FAMILIES, [1, 3], every=2, whole=("t5", 3)))
def test_scores_of_an_answer_are_its_probability_under_the_mixture(family: str, beams: int, tokenizer: ByT5Tokenizer) -> None:
    """With beams the rows change places from step to step; the score of what comes out tells whether each kept its own past."""
    model, ids = make(family), tokens(LONG, batch=2, seed=1)
    options: dict[str, Any] = {"num_beams": beams, "length_penalty": 0.0} if beams > 1 else {}
    # Nothing else may touch the scores: at one beam they are read off, at three they come summed
    with lw.extend(model, "log", train_length=TRAIN_LENGTH):
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            logits_processor=LogitsProcessorList([lw.hedge(model, tokenizer, ids, new_tokens=NEW)]),
            max_new_tokens=NEW,
            eos_token_id=None,
            pad_token_id=0,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        answer = out.sequences[:, -NEW:]
        whole, end = (_log_probabilities(model, read, answer) for read in (ids, _ends(model, ids)))
    wanted = torch.logaddexp(whole.sum(1), end.sum(1)) - math.log(2)
    if beams > 1:
        found = out.sequences_scores
    else:
        rows = torch.arange(len(ids))
        found = sum(step.log_softmax(-1)[rows, answer[:, at]] for at, step in enumerate(out.scores))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_greedy_takes_the_likeliest_token_of_the_mixture(tokenizer: ByT5Tokenizer) -> None:
    model, ids = make("t5"), tokens(LONG, batch=1, seed=3)
    told = torch.zeros(1, 0, dtype=torch.long)
    for _ in range(NEW):
        spread = []
        for read in (ids, ids[:, -TRAIN_LENGTH:]):
            start = torch.cat([torch.zeros(1, 1, dtype=torch.long), told], 1)
            with torch.no_grad():
                spread.append(model(input_ids=read, decoder_input_ids=start).logits.log_softmax(-1))
        so_far = [one[0, :-1].gather(-1, told[0, :, None]).sum() for one in spread]
        mixture = torch.logaddexp(so_far[0] + spread[0][0, -1], so_far[1] + spread[1][0, -1])
        # T5's generation never begins with the end here: the test asks for NEW tokens
        mixture[model.generation_config.eos_token_id or 1] = -math.inf
        told = torch.cat([told, mixture.argmax().view(1, 1)], 1)
    assert _answers(model, ids, lw.hedge(model, tokenizer, ids, train_length=TRAIN_LENGTH)).tolist() == told.tolist()


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_short_and_long_prompts_share_a_batch(family: str, tokenizer: ByT5Tokenizer) -> None:
    model, left = make(family), family == "llama"
    rows = [tokens(LONG)[0].tolist(), tokens(TRAIN_LENGTH // 2, seed=4)[0].tolist()]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row if left else row + [0] * (width - len(row)) for row in rows])
    mask = (ids != 0).long()
    options: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    hedge = lw.hedge(model, tokenizer, ids, mask, new_tokens=NEW, train_length=TRAIN_LENGTH)
    found = model.generate(input_ids=ids, attention_mask=mask, logits_processor=LogitsProcessorList([hedge]), **options)
    alone = torch.tensor([rows[0]])
    own = lw.hedge(model, tokenizer, alone, new_tokens=NEW, train_length=TRAIN_LENGTH)
    assert found[0, -NEW:].tolist() == _answers(model, alone, own)[0].tolist()
    assert found[1, -NEW:].tolist() == _answers(model, torch.tensor([rows[1]]))[0].tolist()


def test_short_prompts_keep_their_scores(tokenizer: ByT5Tokenizer) -> None:
    model, ids = make("t5"), tokens(TRAIN_LENGTH)
    scores = torch.randn(1, 384)
    assert lw.hedge(model, tokenizer, ids)(torch.zeros(1, 1, dtype=torch.long), scores) is scores


def test_a_hedge_of_other_inputs_is_refused(tokenizer: ByT5Tokenizer) -> None:
    model = make("t5")
    with pytest.raises(BadInput, match="2 prompts met 3 rows"):
        lw.hedge(model, tokenizer, tokens(LONG, batch=2))(torch.zeros(3, 1, dtype=torch.long), torch.zeros(3, 384))


@pytest.mark.parametrize("family", ["t5", "llama"])
@pytest.mark.parametrize("beams", [1, 2])
def test_a_hedge_serves_one_generation(family: str, beams: int, tokenizer: ByT5Tokenizer) -> None:
    """Also where the other prompt is as long as what the first would be next."""
    model, ids = make(family), tokens(LONG)
    hedge = lw.hedge(model, tokenizer, ids, new_tokens=NEW, train_length=TRAIN_LENGTH)
    _answers(model, ids, hedge, num_beams=beams)
    for other in (ids, tokens(LONG, seed=5), tokens(LONG + NEW, seed=5), tokens(LONG, batch=2)):
        with pytest.raises(BadInput, match="serves one `generate`"):
            _answers(model, other, hedge, num_beams=beams)


def test_a_token_that_both_readings_rule_out_teaches_nothing(tokenizer: ByT5Tokenizer) -> None:
    hedge = lw.hedge(make("t5"), tokenizer, tokens(LONG), prior=0.75)
    hedge(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 384))
    assert hedge.step is not None
    hedge.step.whole[:, 5] = hedge.step.end[:, 5] = -math.inf
    assert hedge.step.odds_after(torch.tensor([5]), torch.tensor([0])).tolist() == pytest.approx([math.log(3)])


@pytest.mark.parametrize(
    "options", [{"suppress_tokens": [7]}, {"no_repeat_ngram_size": 1}, {"num_beams": 3, "no_repeat_ngram_size": 1}]
)
def test_what_is_ruled_out_says_nothing_of_either_reading(options: dict[str, Any], tokenizer: ByT5Tokenizer) -> None:
    """Where both readings are the same, their weights stay and the answer is that of one."""
    model, ids = make("t5"), tokens(LONG)
    for block in model.decoder.block:
        torch.nn.init.zeros_(block.layer[1].EncDecAttention.o.weight)
    hedge = lw.hedge(model, tokenizer, ids)
    assert torch.equal(_answers(model, ids, hedge, **options), _answers(model, ids, **options))
    assert hedge.step is not None
    assert hedge.step.odds.abs().max() < 1e-5


def test_a_certain_prior_stays_certain() -> None:
    step = _Step(None, None, torch.tensor([math.inf]), torch.tensor([[-math.inf, 0.0]]), torch.tensor([[-1.0, -1.0]]))  # type: ignore[arg-type]
    assert step.odds_after(torch.tensor([0]), torch.tensor([0])).tolist() == [math.inf]


def test_beams_go_on_from_rows_of_their_own_prompt() -> None:
    """Both prompts have a beam that said 7."""
    step = _Step(SimpleNamespace(beams=2), torch.tensor([[7], [8], [7], [9]]), None, None, None)  # type: ignore[arg-type]
    assert step.parents(torch.tensor([[8, 1], [7, 1], [9, 2], [7, 2]])).tolist() == [1, 0, 3, 2]


def test_streaming_keeps_two_caches_apart(tokenizer: ByT5Tokenizer) -> None:
    model, ids = make("llama"), tokens(LONG)
    with lw.extend(model, "streaming_llm:window=24", train_length=TRAIN_LENGTH):
        whole = _answers(model, ids)
        assert _answers(model, ids, lw.hedge(model, tokenizer, ids, new_tokens=NEW, prior=1.0)).tolist() == whole.tolist()


def test_last_tokens_keep_special_ones_at_both_ends() -> None:
    assert last_tokens([1, 5, 6, 7, 8, 2], 4, {1, 2}) == [1, 7, 8, 2]
    assert last_tokens([1, 5, 2], 4, {1, 2}) == [1, 5, 2]
    with pytest.raises(BadInput, match="no room"):
        last_tokens([1, 5, 6, 2], 2, {1, 2})


@pytest.mark.parametrize("made_for", [8, TRAIN_LENGTH + 20])
def test_other_inputs_than_it_was_made_for_are_refused(made_for: int) -> None:
    model, inputs = make("llama"), tokens(TRAIN_LENGTH + 30)
    processor = lw.hedge(model, ByT5Tokenizer(), tokens(made_for))
    options = {"max_new_tokens": 2, "do_sample": False, "logits_processor": [processor]}
    if made_for < TRAIN_LENGTH:
        # Short ones have one reading, and may be asked again
        for _ in range(2):
            model.generate(tokens(made_for), attention_mask=torch.ones(1, made_for, dtype=torch.long), **options)
    with lw.extend(model, "log"), pytest.raises(BadInput, match=r"^this hedge was made for other inputs: a hedge serves one"):
        model.generate(inputs, attention_mask=torch.ones_like(inputs), **options)

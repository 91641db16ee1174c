"""Mix two readings of a long input by how well each has predicted the answer so far: never much worse than either.

    p(y_t | y_<t) = w_t p_whole(y_t | y_<t) + (1 - w_t) p_end(y_t | y_<t)
    w_t / (1 - w_t) = w_0 / (1 - w_0)  x  product over s < t of p_whole(y_s | y_<s) / p_end(y_s | y_<s)

*whole* is the input under whatever method is in force, *end* its last tokens, as many as the model was trained on, read by the
plain model: what truncation reads. A method may fail at some length or in some task; truncation fails where the answer stands
further up. Which of the two it is shows in their likelihoods. These are Bayes' weights, so a text of T tokens has probability
w_0 P_whole + (1 - w_0) P_end, and with w_0 = 1/2 its perplexity is at most 2^(1/T) times the better reading's, 1.1 % for 64
tokens, whatever the text. The end costs one more read of the training length, and every step of the decoder is taken twice.

    with lengthwise.extend(model, "@pmax.json"):
        model.generate(**inputs, logits_processor=[lengthwise.hedge(model, tokenizer, **inputs)])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, LogitsProcessor

from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.sequences import last_tokens, pad_rows
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of, has_encoder, unwrapped
from lengthwise.models.patches import suspended

PRIOR = 0.5
ONE_GENERATE = "a hedge serves one `generate`; make one for the inputs of each"


@typed
def hedge(
    model: nn.Module,
    tokenizer: Any,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    new_tokens: int = 0,
    prior: float = PRIOR,
    train_length: int | None = None,
) -> Hedge:
    """A logits processor for `model.generate` on these inputs, [rows, tokens], which also reads their last tokens.

    A penalty on words (`repetition_penalty`) changes one of the readings alone, and so their weights: generate without.
    In a decoder prompt and answer share the training length: `new_tokens` are kept free for the answer, as many as `generate`
    is asked for.
    """
    require_tokenizer(tokenizer)
    anatomy = anatomy_of(model, train_length)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    fits = input_ids.dim() == 2 and mask.shape == input_ids.shape
    shapes = f"{tuple(input_ids.shape)} and {tuple(mask.shape)}"
    require(fits, f"input_ids and attention_mask must both be [rows, tokens], not {shapes}")
    rows = [ids[kept.bool()].tolist() for ids, kept in zip(input_ids, mask, strict=True)]
    encodes = has_encoder(model)
    require(new_tokens >= 0, f"new_tokens must be 0 or more, not {new_tokens}")
    room = anatomy.train_length - (0 if encodes else new_tokens)
    special = set(tokenizer.all_special_ids)
    ends = [last_tokens(row, room, special) for row in rows]
    # What an encoder has read is not shown to a processor of scores
    return Hedge(model, rows, ends, prior, None if encodes else input_ids)


def mixed_nll(whole: Tensor, end: Tensor, prior: float = PRIOR) -> Tensor:  # [cases, tokens]
    """-ln p of every token under the mixture, given -ln p under both readings; `prior` is w_0."""
    _check_prior(prior)
    weights = torch.tensor([prior, 1 - prior], dtype=torch.float64).log()
    log_joint = weights[:, None, None] - torch.stack([whole, end]).double().cumsum(-1)
    so_far = F.pad(log_joint.logsumexp(0), (1, 0))
    return (so_far[:, :-1] - so_far[:, 1:]).to(whole.dtype)


class Hedge(LogitsProcessor):  # type: ignore[misc]
    """A logits processor for one `generate`: it reads the end of each prompt too, and mixes both predictions of each token."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        ends: Sequence[Sequence[int]],
        prior: float = PRIOR,
        given: Tensor | None = None,  # what `generate` will begin with
    ) -> None:
        _check_prior(prior)
        self.given, self.seen = given, -1
        self.model: Any = model
        self.ends = [list(end) for end in ends]
        # A short prompt has one reading
        self.long = [len(end) < len(prompt) for prompt, end in zip(prompts, ends, strict=True)]
        self.prior = math.log(prior) - math.log1p(-prior) if 0 < prior < 1 else math.copysign(math.inf, prior - 0.5)
        self.step: _Step | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # [rows, tokens], [rows, words]
        self._check_first(input_ids)
        if not any(self.long):
            return scores
        if self.step is None:
            reading = _EndReading(self, input_ids)
            odds = torch.full((len(input_ids),), self.prior, dtype=torch.float32, device=scores.device)
        else:
            parents = self.step.parents(input_ids)
            reading, odds = self.step.reading, self.step.odds_after(input_ids[:, -1], parents)
            reading.reorder(parents)
        whole = scores.float().log_softmax(-1)
        with suspended(self.model):
            end = reading.next(input_ids).to(scores.device)
        # What other processors have ruled out is so in both readings
        ruled_out = scores.isneginf()
        end = end.masked_fill(ruled_out, -math.inf).log_softmax(-1)
        self.step = _Step(reading, input_ids, odds, whole, end)
        mixed = torch.logaddexp(F.logsigmoid(odds)[:, None] + whole, F.logsigmoid(-odds)[:, None] + end)
        # Beams are compared by what is left to them
        mixed = mixed.masked_fill(ruled_out, -math.inf) + scores.float().logsumexp(-1, keepdim=True)
        long = torch.tensor(self.long, device=scores.device).repeat_interleave(len(input_ids) // len(self.long))
        return torch.where(long[:, None], mixed.to(scores.dtype), scores)

    def _check_first(self, input_ids: Tensor) -> None:
        """Refuse a `generate` that begins with other inputs than this hedge was made for."""
        goes_on, self.seen = input_ids.shape[1] == self.seen + 1, input_ids.shape[1]
        if self.given is not None and self.step is None and not goes_on:
            beams = len(input_ids) // len(self.given)
            same = torch.equal(input_ids, self.given.to(input_ids.device).repeat_interleave(beams, 0))
            require(same, f"this hedge was made for other inputs: {ONE_GENERATE}")


@dataclass(frozen=True, eq=False)
class _Step:
    """What a call leaves for the next one: the odds of both readings, and what each predicted, row by row."""

    reading: _EndReading
    input_ids: Tensor  # [rows, tokens]
    odds: Tensor  # [rows], ln w / (1 - w)
    whole: Tensor  # [rows, words], log-probabilities of the next token
    end: Tensor

    def parents(self, input_ids: Tensor) -> Tensor:
        """The row that each row continues: itself, but for beams, which change places within their prompt."""
        require(input_ids[:, :-1].shape == self.input_ids.shape, ONE_GENERATE)
        rows = torch.arange(len(input_ids), device=input_ids.device)
        if torch.equal(input_ids[:, :-1], self.input_ids):
            return rows
        prompt = rows // self.reading.beams
        same = (input_ids[:, None, :-1] == self.input_ids[None]).all(-1) & (prompt[:, None] == prompt[None])
        require(bool(same.any(1).all()), ONE_GENERATE)
        return same.int().argmax(1)

    def odds_after(self, token: Tensor, parents: Tensor) -> Tensor:
        """ln w / (1 - w) after `token`; where both readings rule it out, as after an end, nothing is learnt."""
        learnt = self.whole[parents, token] - self.end[parents, token]
        odds = self.odds[parents]
        return torch.where(odds.isinf() | learnt.isnan(), odds, odds + learnt)


class _EndReading:
    """The second reading: predictions from the end of the input alone, step by step beside `generate`.

    An encoder reads the end once, and its decoder what was generated; a decoder reads the end, then what was generated.
    """

    def __init__(self, hedge: Hedge, input_ids: Tensor) -> None:
        self.model = hedge.model
        self.beams = len(input_ids) // len(hedge.ends)
        require(
            self.beams * len(hedge.ends) == len(input_ids),
            f"a hedge of {len(hedge.ends)} prompts met {len(input_ids)} rows; make one for the inputs of each `generate`",
        )
        self.encoded: Any = None
        self.cache: Any = None
        encodes = has_encoder(self.model)
        # Whatever stands at a masked place is not read
        self.ids, self.mask = (rows.to(input_ids.device) for rows in pad_rows(hedge.ends, 0, left=not encodes))
        if encodes:
            with suspended(self.model):
                self.encoded = unwrapped(self.model).get_encoder()(input_ids=self.ids, attention_mask=self.mask)
            self.encoded.last_hidden_state = self.spread(self.encoded.last_hidden_state)
        self.ids, self.mask = self.spread(self.ids), self.spread(self.mask)

    def next(self, input_ids: Tensor) -> Tensor:  # [rows, words]
        """Log-probabilities of the token after those that `generate` has by now."""
        # First, because it makes the cache and lengthens the mask
        inputs = self.decoder_inputs(input_ids) if self.encoded is None else self.answer_inputs(input_ids)
        output = self.model(**inputs, attention_mask=self.mask, past_key_values=self.cache, use_cache=True)
        self.cache = output.past_key_values
        return torch.log_softmax(output.logits[:, -1].float(), -1)

    def answer_inputs(self, input_ids: Tensor) -> dict[str, Any]:
        return {"encoder_outputs": self.encoded, "decoder_input_ids": input_ids if self.cache is None else input_ids[:, -1:]}

    def decoder_inputs(self, input_ids: Tensor) -> dict[str, Any]:
        given = self.ids
        if self.cache is None:
            self.cache = DynamicCache(config=unwrapped(self.model).config)
        else:
            given = input_ids[:, -1:]
            self.mask = F.pad(self.mask, (0, 1), value=1)
        return {"input_ids": given, "position_ids": (self.mask.cumsum(1) - 1).clamp_min(0)[:, -given.shape[1] :]}

    def reorder(self, parents: Tensor) -> None:
        if self.beams > 1:
            self.cache.reorder_cache(parents)

    def spread(self, rows: Tensor) -> Tensor:
        """Repeat each prompt's row for each of its beams."""
        return rows.repeat_interleave(self.beams, 0)


def _check_prior(prior: float) -> None:
    require(0 <= prior <= 1, f"the prior is the weight of the whole reading before anything is told, from 0 to 1, not {prior}")

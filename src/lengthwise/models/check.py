"""Try a method on small models: does it keep what `extend` promises? `lengthwise methods --check` prints the table.

    outcomes = check_method("mine.py:Mine:factor=4")
    assert not failures(outcomes)

A method may refuse a model of small_models.py, in one line, but not all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import transformers as tf
from torch import Tensor

from lengthwise.common.plugins import raised_in
from lengthwise.errors import BadInput
from lengthwise.methods.base import acts_on, follows_length
from lengthwise.methods.registry import factory
from lengthwise.methods.slots import Slots
from lengthwise.methods.spec import Spec, methods_of, parse_spec
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.extend import Method, extend
from lengthwise.models.small_models import LAYERS, SMALL_MODELS, TRAINED, WORDS, small_model
from lengthwise.models.snapshot import differences, state_of
from lengthwise.models.suitability import suitable_slots

LONG = 4 * TRAINED
DEEPEST = 64  # layers
TOLERANCE = 2e-4  # of logits around 1, between two orders of the same sums in float32
PASSED, FAILED, REFUSED, NOTHING = "pass", "FAIL", "refused", "-"
# By the slot they fill: methods to join the tried one with
OTHERS = {"visible": "window", "bias": "alibi", "rotation": "interpolation:factor=4", "similarity": "cosscale"}


@dataclass(frozen=True)
class Outcome:
    """What one check of a method has shown on one model."""

    check: str
    model: str
    verdict: str  # pass, FAIL, refused (by the method or by lengthwise, in one line), or - where there is nothing to check
    reason: str = ""


class Broken(Exception):
    """A check that failed, with the reason."""


class Unchecked(Exception):
    """There is nothing to check, with the reason."""


@dataclass(frozen=True)
class Trial:
    """A method on one small model."""

    model: Any
    method: Method

    @cached_property
    def slots(self) -> Slots:
        return suitable_slots(anatomy_of(self.model), self.method, force=True)

    @property
    def is_decoder(self) -> bool:
        return not self.model.config.is_encoder_decoder

    def logits(self, tokens: Tensor, *others: object, mask: Tensor | None = None, cache: Any = None) -> Tensor:
        """What the model says under the method, joined with others."""
        with extend(self.model, [self.method, *others], force=True):
            return self.plain(tokens, mask, cache)

    def plain(self, tokens: Tensor, mask: Tensor | None = None, cache: Any = None) -> Tensor:
        """What the model says as it is at the moment."""
        inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask, "use_cache": cache is not None}
        if not self.is_decoder:
            inputs["decoder_input_ids"] = torch.full((len(tokens), 3), 5)
        elif mask is not None:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)
        with torch.no_grad():
            said: Tensor = self.model(**inputs, **({} if cache is None else {"past_key_values": cache})).logits
        return said


def check_method(method: Method, models: Sequence[str] = tuple(SMALL_MODELS)) -> list[Outcome]:
    """Try a method, or the spec of one, by every check on every small model."""
    trials = {name: Trial(_deep_enough(name, method), method) for name in models}
    return [_outcome(check, name, trial) for check in CHECKS for name, trial in trials.items()]


def _deep_enough(name: str, method: Method) -> Any:
    """A small model with a layer that the method acts on: one may leave the first layers as they are."""
    model = small_model(name)
    try:
        rotation = Trial(model, method).slots.rotation
        first = next((layer for layer in range(DEEPEST) if acts_on(rotation, layer)), 0)
    except Exception:
        # The checks will say why
        return model
    return model if first < LAYERS else small_model(name, first + 1)


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What failed; to be refused by every model is a failure, too."""
    passed = any(outcome.verdict == PASSED for outcome in outcomes if outcome.check == FINITE)
    return [outcome for outcome in outcomes if outcome.verdict == FAILED or (outcome.check == FINITE and not passed)]


def _outcome(check: str, name: str, trial: Trial) -> Outcome:
    try:
        CHECKS[check](trial)
    except Unchecked as reason:
        return Outcome(check, name, NOTHING, str(reason))
    except Broken as reason:
        return Outcome(check, name, FAILED, str(reason))
    except BadInput as refusal:
        several = "\n" in str(refusal)
        return Outcome(check, name, FAILED if several else REFUSED, "a refusal of several lines" if several else str(refusal))
    except Exception as error:
        return Outcome(check, name, FAILED, raised_in(error) or f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Outcome(check, name, PASSED)


def tokens(length: int, batch: int = 1, seed: int = 0) -> Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=torch.Generator().manual_seed(seed))


def _require_close(ours: Tensor, wanted: Tensor, what: str) -> None:
    apart = float((ours - wanted).abs().max())
    if not apart <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise Broken(f"{what}: logits differ by up to {apart:.2g}")


class _Nothing:
    """A temperature of 1 that leaves no length alone, so that lengthwise computes everything itself."""

    def adaptive_sharpness(self, entropy: Tensor, layer: int) -> Tensor:
        return torch.ones_like(entropy)


def identity(trial: Trial) -> None:
    """Lengths that the method says it leaves alone: bit for bit the model's own, and its functions agree."""
    layers = range(len(anatomy_of(trial.model).layers))
    spared = [n for n in range(1, LONG + 1) if all(trial.slots.leaves_alone(n, layer) for layer in layers)]
    if not spared:
        raise Unchecked("it says of no length that it leaves it alone")
    # The last of them is where one too many is claimed
    for length in sorted({1, TRAINED // 2, TRAINED, spared[-1]}.intersection(spared)):
        ids = tokens(length)
        plain = trial.plain(ids)
        if not torch.equal(trial.logits(ids), plain):
            raise Broken(f"{length} tokens are not bit for bit what the model says")
        _require_close(trial.logits(ids, _Nothing()), plain, f"it leaves {length} tokens alone, but its functions do not")


def finite(trial: Trial) -> None:
    """Four times the training length gives numbers, of a method that acts on some layer."""
    if not any(acts_on(trial.slots.rotation, layer) for layer in range(len(anatomy_of(trial.model).layers))):
        raise Broken(f"it acts on none of the first {DEEPEST} layers")
    if not trial.logits(tokens(LONG)).isfinite().all():
        raise Broken(f"{LONG} tokens give NaN or infinity")


def restored(trial: Trial) -> None:
    """After the method, and after an error under it, the model is what it was, in all that it holds."""
    ids = tokens(LONG)
    plain, before = trial.plain(ids), state_of(trial.model)
    trial.logits(ids)
    try:
        with extend(trial.model, trial.method, force=True):
            raise Unchecked
    except Unchecked:
        pass
    if changed := differences(before, state_of(trial.model)):
        raise Broken(f"{changed[0]} is not what it was")
    if not torch.equal(trial.plain(ids), plain):
        raise Broken("the model says something else than before")


def cached(trial: Trial) -> None:
    """Pieces and single tokens, past the training length and at four times as many, give what one forward gives."""
    if not trial.is_decoder:
        raise Unchecked("an encoder has no cache")
    if follows_length(trial.slots.rotation):
        raise Unchecked("frequencies that follow the length differ from token to token")
    ids = tokens(LONG)
    with extend(trial.model, trial.method, force=True):
        whole = trial.plain(ids)
        cache = tf.DynamicCache(config=trial.model.config)
        pieces = torch.split(ids, [TRAINED - 9, 7, *[1] * 14, LONG - TRAINED - 16, *[1] * 4], 1)
        stepwise = torch.cat([trial.plain(piece, cache=cache) for piece in pieces], 1)
    _require_close(stepwise, whole, "token by token it differs from one forward")


def padded(trial: Trial) -> None:
    """Inputs of several lengths in one batch, padded on either side, give what each gives alone."""
    if trial.slots.segmented is not None:
        raise Unchecked("it is for training on whole sequences")
    lengths = [LONG, LONG - 37, TRAINED + 9]
    alone = [trial.logits(tokens(length, seed=length))[0] for length in lengths]
    for left in (False, True):
        ids, mask = torch.zeros(3, LONG, dtype=torch.long), torch.zeros(3, LONG, dtype=torch.long)
        for row, length in enumerate(lengths):
            where = slice(LONG - length, LONG) if left else slice(0, length)
            ids[row, where], mask[row, where] = tokens(length, seed=length)[0], 1
        together = trial.logits(ids, mask=mask)
        for row, single in enumerate(alone):
            real = together[row][mask[row].bool()] if trial.is_decoder else together[row]
            _require_close(real, single, f"padded on the {'left' if left else 'right'}, {lengths[row]} tokens of {LONG}")


def composed(trial: Trial) -> None:
    """With `log`, in either order, and with methods in the slots that it does not fill; one in its own slot is refused."""
    ids = tokens(LONG)
    with extend(trial.model, ["log", trial.method], force=True):
        first = trial.plain(ids)
    _require_close(trial.logits(ids, "log"), first, "after `log` it is not what it is before it")
    for slot, other in OTHERS.items():
        try:
            said = trial.logits(ids, other)
        except BadInput:
            continue
        if slot in trial.slots.filled:
            raise Broken(f"{other} was accepted beside it, and both fill the {slot} slot")
        if not said.isfinite().all():
            raise Broken(f"with {other} it gives NaN or infinity")


def refusing(trial: Trial) -> None:
    """Numbers that are none are refused in one line."""
    if not isinstance(trial.method, str | Spec):
        raise Unchecked("it is an object that was made already")
    spec = parse_spec(trial.method) if isinstance(trial.method, str) else trial.method
    facts = anatomy_of(trial.model).facts
    tried = 0
    for term in spec.terms:
        maker = factory(term.name)
        parameters = {} if maker is None else inspect.signature(maker, eval_str=True).parameters
        for key in (key for key, parameter in parameters.items() if parameter.annotation in (float, float | None)):
            tried += 1
            try:
                methods_of(Spec(term.text, (term.with_option(key, "nan"),)), facts)
            except BadInput:
                continue
            raise Broken(f"{key}=nan is accepted; raise ValueError with one line that says what it may be")
    if not tried:
        raise Unchecked("it has no option that is a number")


FINITE = "finite at four times the training length"
CHECKS: dict[str, Callable[[Trial], None]] = {
    FINITE: finite,
    "identity at the lengths it leaves alone": identity,
    "the model is restored, bit for bit": restored,
    "token by token equals one forward": cached,
    "a padded batch equals single inputs": padded,
    "joined with log and with other slots": composed,
    "options that are no numbers are refused": refusing,
}

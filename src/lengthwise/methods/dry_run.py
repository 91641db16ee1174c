"""A method of a user's own is tried on a few numbers before any model: what it cannot do is said in one line, at once.

`lengthwise methods --check` (models/check.py) tries a method on whole models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import Part, Visible
from lengthwise.common.plugins import one_line_errors
from lengthwise.errors import require
from lengthwise.methods.base import SinksAndWindow, file_contents_of, leaves_alone, stretch_of
from lengthwise.methods.slots import CLAIMS, claimed_slots

TOKENS, SIZE, HEADS = 6, 8, 2
# What else a method of certain slots may say about itself (base.py), where a value of another kind would end a run
MEMBERS = {
    "fingerprint": (dict, CLAIMS),
    "max_distance": (int, ["bias"]),
    "sinks_and_window": (SinksAndWindow, CLAIMS),
    "stock_rotation": (dict, ["rotation"]),
}


def check_class(name: str, maker: object) -> None:
    """Refuse what is no class, and a class that fills no slot."""
    require(isinstance(maker, type), f"{name} is no class but a {type(maker).__name__}; a method is a class")
    functions = ", ".join(function for functions in CLAIMS.values() for function in functions)
    require(bool(claimed_slots(maker)), f"{name} fills no slot: a method needs one of {functions}")


def check_functions(name: str, method: object, facts: Mapping[str, object]) -> None:
    """Call every function that fills a slot; refuse one that raises, or returns what the equation has no use for."""
    heads, pairs = _size(facts, "heads", HEADS), _size(facts, "rotary_size", SIZE) // 2
    for function, check in CHECKS.items():
        if (call := getattr(method, function, None)) is not None:
            with one_line_errors(f"{name}: {function} does not work", of_any_code=True):
                wrong = check(call, heads, pairs)
            require(wrong is None, f"{name}: {function} must return {wrong}")
    with one_line_errors(f"{name}: leaves_alone does not work", of_any_code=True):
        leaves_alone(method, TOKENS)
    with one_line_errors(f"{name}: to_json does not work", of_any_code=True):
        json.dumps(file_contents_of([method]))
    filled = claimed_slots(method)
    if "rotation" in filled:
        with one_line_errors(f"{name}: factor does not work", of_any_code=True):
            stretch_of(method)
    for member, (kind, slots) in MEMBERS.items():
        with one_line_errors(f"{name}: {member} does not work", of_any_code=True):
            value = getattr(method, member, None) if any(slot in slots for slot in filled) else None
        require(value is None or isinstance(value, kind), f"{name}: {member} must be a {kind.__name__}, not {_told(value)}")


def _size(facts: Mapping[str, object], name: str, otherwise: int) -> int:
    size = facts.get(name)
    return size if isinstance(size, int) else otherwise


def _inverse_temperature(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    g = call(torch.arange(1, TOKENS + 1)[None, None], 0)
    fits = isinstance(g, Tensor) and g.dim() == 3 and g.shape[0] == 1 and g.shape[1] in (1, heads) and g.shape[2] in (1, TOKENS)
    shapes = f"[1, 1, {TOKENS}] (or [1, {heads}, {TOKENS}], one g a head) in float32 for n = 1 ... {TOKENS}"
    if not fits or g.dtype != torch.float32:
        return f"{shapes}, not {_told(g)}"
    return None if bool((g.isfinite() & (g >= 0)).all()) else f"numbers from 0 on, not {g.flatten().tolist()}"


def _adaptive_sharpness(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    entropy = torch.linspace(0, 2, heads * TOKENS).view(1, heads, TOKENS)
    return _like(call(entropy, 0), entropy)


def _similarity(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    states = torch.linspace(-1, 1, heads * TOKENS * SIZE).view(1, heads, TOKENS, SIZE)
    given = call(states, states)
    if not isinstance(given, tuple) or len(given) != 3:
        return f"queries, keys and a factor, not {_told(given)}"
    query, key, factor = given
    number = isinstance(factor, int | float)
    return _like(query, states) or _like(key, states) or (None if number else f"a number as its factor, not {_told(factor)}")


def _frequencies(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    trained = 10_000.0 ** (-torch.arange(pairs) / pairs)
    return _like(call(trained, TOKENS), trained)


def _distances(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    whole = Visible.build(TOKENS, TOKENS, causal=True)
    parts = call(whole, whole)
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Part) for part in parts):
        return f"a list of Part, not {_told(parts)}"
    return next((wrong for part in parts if (wrong := _runs(part.visible) or _places(part, pairs))), None)


def _places(part: Part, pairs: int) -> str | None:
    """In words, the positions that a part must have; None where it has a finite one for every query and every key."""
    for name, at in (("queries", part.query), ("keys", part.key)):
        shape = [*at.shape] if isinstance(at, Tensor) else []
        if not (len(shape) in (2, 3) and shape[-1] == TOKENS) and not (len(shape) == 4 and shape[2:] == [TOKENS, pairs]):
            shapes = f"[1, {TOKENS}], [1, key_heads, {TOKENS}] or [1, key_heads or 1, {TOKENS}, {pairs}]"
            return f"parts with positions of their {name}, {shapes}, not {_told(at)}"
        if not bool(at.isfinite().all()):
            return f"parts with positions of their {name} that are finite numbers"
    return None


def _distance_bias(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    return _like(call(heads, TOKENS), torch.zeros(heads, 2 * TOKENS + 1))


def _narrow(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    return _runs(call(Visible.build(TOKENS, TOKENS, causal=True)))


def _segments(call: Callable[..., Any], heads: int, pairs: int) -> str | None:
    spans = [span for share in call(TOKENS) for span in share]
    fits = all(len(span) == 2 and 0 <= span[0] <= span[1] <= TOKENS for span in spans)
    return None if spans and fits else f"lists of spans (first token, one past the last) within {TOKENS} tokens, not {spans}"


def _like(given: object, wanted: Tensor) -> str | None:
    """What is asked for, where a tensor has another shape, no floating-point numbers, or NaN or infinity among them."""
    if not isinstance(given, Tensor) or given.shape != wanted.shape or not given.is_floating_point():
        return f"{list(wanted.shape)} in float32, not {_told(given)}"
    return None if bool(given.isfinite().all()) else "finite numbers"


def _runs(given: object) -> str | None:
    fits = isinstance(given, Visible) and (given.queries, given.keys) == (TOKENS, TOKENS)
    return None if fits else f"a Visible of {TOKENS} rows and {TOKENS} keys, not {_told(given)}"


def _told(given: object) -> str:
    dtype = f" in {str(given.dtype).removeprefix('torch.')}" if isinstance(given, Tensor) else ""
    return f"{list(given.shape)}{dtype}" if isinstance(given, Tensor) else f"a {type(given).__name__}"


CHECKS: dict[str, Callable[[Callable[..., Any], int, int], str | None]] = {
    "inverse_temperature": _inverse_temperature,
    "adaptive_sharpness": _adaptive_sharpness,
    "similarity": _similarity,
    "frequencies": _frequencies,
    "distances": _distances,
    "distance_bias": _distance_bias,
    "narrow": _narrow,
    "segments": _segments,
}

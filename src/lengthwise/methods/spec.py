"""A spec names methods in a line of text, joined by `+`.

    NAME[:key=value,...]              a method of this package, or of one that is installed
    FILE.py:CLASS[:key=value,...]     a method of the user's own; common/plugins.py says what belongs to its path
    @FILE                             an alignment or a recipe; @hub:OWNER/NAME one of the hub
    aligned                           the alignment.json in the model's own folder

Three names are no methods. `none` is the plain model. `truncate` and `hedge` say what of a prompt is read: only its end, as
much as the model was trained on, or both the end and, under the methods after `hedge+`, the whole. Only `evaluate` and `reach`
read prompts, so only they take these two.
"""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from lengthwise.common import plugins
from lengthwise.errors import BadInput, did_you_mean
from lengthwise.methods.registry import METHODS, check_functions, factory, file_parts

NONE, TRUNCATE, HEDGE = "none", "truncate", "hedge"
# What of a prompt is read
WHOLE, END, BOTH = "whole", "end", "both"
ALIGNED = "aligned"


@dataclass(frozen=True)
class Term:
    """One method of a spec, not yet made."""

    text: str  # as written
    name: str
    options: tuple[str, ...]  # each as `key=value`

    def with_option(self, key: str, value: object) -> Term:
        """The same method with one option set."""
        others = [option for option in self.options if option.partition("=")[0].strip() != key]
        return _term(f"{self.name}:{','.join([*others, f'{key}={value}'])}")


@dataclass(frozen=True)
class Spec:
    """The methods that a line of text names, and what of a prompt is read."""

    text: str  # as written; `hedge` alone is `hedge+none`, so that records of the same answers have one name
    terms: tuple[Term, ...]  # empty for the plain model
    reads: str = WHOLE  # or END, or BOTH

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(term.name for term in self.terms)

    def methods(self, facts: Mapping[str, object]) -> list[object]:
        """Make the methods; `facts` (train_length, key_size, ...) fill in what a method needs of the model."""
        return [method for term in self.terms for method in _methods(term, self.text, facts)]


def parse_spec(text: str) -> Spec:
    """Read a spec; whether its methods exist is known only when they are made."""
    parts = _pieces(text)
    if parts == [TRUNCATE]:
        return Spec(TRUNCATE, (), END)
    hedges = parts[0] == HEDGE
    rest = parts[1:] or [NONE] if hedges else parts
    if hedges and rest == [""]:
        raise BadInput(f"{text!r}: no method stands after the +; write {HEDGE}+{NONE}, or {HEDGE}+METHOD")
    if TRUNCATE in rest:
        raise BadInput(f"{text!r}: truncate is a baseline of its own (for evaluate and reach) and joins no method")
    if HEDGE in rest:
        others = "+".join(part for part in rest if part != HEDGE) or NONE
        raise BadInput(f"{text!r}: hedge comes first, before the methods it hedges; write {HEDGE}+{others}")
    if NONE in rest and len(rest) > 1:
        raise BadInput(f"{'+'.join(rest)!r}: none is the plain model and cannot be joined with a method; leave none out")
    terms = tuple(_term(part) for part in rest if part != NONE)
    if hedges:
        return Spec(text.strip() if terms else f"{HEDGE}+{NONE}", terms, BOTH)
    return Spec(text.strip(), terms)


def _term(text: str) -> Term:
    if text.startswith("@"):
        return Term(text, ALIGNED, (f"path={text[1:]}",))
    file = plugins.IN_A_FILE.match(text)
    name, options = (file[0], text[file.end() :].strip()[1:]) if file else (text.partition(":")[::2])
    return Term(text, name.strip(), tuple(option.strip() for option in options.split(",") if option))


def _pieces(text: str) -> list[str]:
    """The text between the `+` of a spec; one in the path of a FILE.py:CLASS is none of them."""
    pieces, rest = [], text.strip()
    while True:
        file = plugins.IN_A_FILE.match(rest)
        piece, plus, after = rest[file.end() if file else 0 :].partition("+")
        pieces.append((file[0] if file else "") + piece.rstrip())
        if not plus:
            return pieces
        rest = after.strip()


def methods_of(spec: str | Spec, facts: Mapping[str, object]) -> list[object]:
    """The methods of a spec that is to be installed on a model, where no prompt is read."""
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    _refuse_prompts(spec)
    return spec.methods(facts)


def check_spec(text: str, *, prompts: bool = False, also: Sequence[str] = ()) -> None:
    """Refuse methods and options that do not exist, for which no model is needed; names in `also` are somebody else's."""
    spec = parse_spec(text)
    if not prompts:
        _refuse_prompts(spec)
    for term in spec.terms:
        if term.name not in also:
            _call_of(term, spec.text)


def _refuse_prompts(spec: Spec) -> None:
    if spec.reads != WHOLE:
        name = TRUNCATE if spec.reads == END else HEDGE
        raise BadInput(f"{spec.text!r}: truncate and hedge are for evaluate and reach; leave {name} out here")


def short_name(text: str) -> str:
    """A method's name in records with its files named without their folders."""

    def short(piece: str) -> str:
        if piece.startswith("@"):
            return f"@{PurePath(piece[1:]).name}"
        file = plugins.IN_A_FILE.match(piece)
        return piece if file is None else PurePath(file["path"]).name + piece[file.end("path") :]

    return "+".join(map(short, _pieces(text)))


def _methods(term: Term, spec: str, facts: Mapping[str, object]) -> list[object]:
    """The method of a term, or those of a recipe's file."""
    make, wanted, given = _call_of(term, spec)
    if term.name == ALIGNED and "path" not in given and (beside := facts.get("alignment")) is not None:
        warnings.warn(f"the alignment beside the model is used: {beside}", stacklevel=2)
        given["path"] = beside
    if term.name == ALIGNED and "path" in given:
        held = file_parts(str(given["path"]))
        parts = [methods_of(part, facts) if isinstance(part, str) else [part] for part in held]
        return [method for part in parts for method in part]
    for key, value in facts.items():
        # A default of the method's own is meant: softmax_plus's base is not the model's
        if key in wanted and key not in given and wanted[key].default in (inspect.Parameter.empty, None):
            given[key] = value
    missing = [key for key, p in wanted.items() if p.default is p.empty and key not in given]
    if missing:
        raise BadInput(f"method {term.name!r} needs {missing[0]}; write {term.name}:{missing[0]}=...")
    with plugins.one_line_errors(f"method {term.name!r} cannot be made", of_any_code=term.name not in METHODS):
        method = make(**given)
    check_functions(term.name, method, facts)
    return [method]


def _call_of(term: Term, spec: str) -> tuple[Callable[..., object], Mapping[str, inspect.Parameter], dict[str, object]]:
    """What makes a method, the arguments it takes, and those that the spec gives."""
    name = term.name
    if name in (TRUNCATE, HEDGE):
        raise BadInput(f"{spec!r}: truncate and hedge are for evaluate and reach, without options; leave {name} out here")
    make = factory(name)
    if make is None:
        if name.endswith(".py"):
            raise BadInput(f"{name!r} is a file; say which class of it is the method: {name}:CLASS")
        if name.endswith(".json"):
            raise BadInput(f"{name!r} is a file; an alignment or a recipe is written @{name}")
        installed = [entry.name for entry in plugins.announced("method")]
        hint = did_you_mean(name, [NONE, *METHODS, *installed], "`lengthwise methods` lists them.")
        raise BadInput(f"no method {name!r} in {spec!r}; {hint}")
    with plugins.one_line_errors(f"method {name!r} does not tell its options", of_any_code=name not in METHODS):
        parameters = inspect.signature(make, eval_str=True).parameters
    wanted = {key: p for key, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return make, wanted, _arguments(term, wanted)


def _arguments(term: Term, wanted: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    given: dict[str, object] = {}
    for option in term.options:
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if not equals or key not in wanted:
            hint = did_you_mean(key, wanted, f"its options are: {', '.join(wanted) or 'none'}")
            raise BadInput(f"method {term.name!r} has no option {option!r}; {hint or f'write {key}=...'}")
        if key in given:
            raise BadInput(f"method {term.name!r} is given {key} twice")
        try:
            given[key] = _converted(value, wanted[key].annotation)
        except ValueError:
            raise BadInput(f"method {term.name!r}: {key}={value} is not {_words(wanted[key].annotation)}") from None
    return given


def _converted(text: str, kind: object) -> object:
    kind = _not_none(kind)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    # A class of a user's own may say nothing, or more than a line of text can hold
    return kind(text) if kind in (int, float) and isinstance(kind, type) else text


def _not_none(kind: object) -> object:
    """The kind of an option that may be absent."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(option for option in typing.get_args(kind) if option is not type(None))
    return kind


def _words(kind: object) -> str:
    return {int: "a whole number", bool: "true or false"}.get(typing.cast(type, _not_none(kind)), "a number")

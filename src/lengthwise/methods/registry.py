"""The one list of methods: the name used in a spec, and where the method is written, as entry points are.

Nothing is imported before a method is asked for, so that listing them needs no torch. What a method is and where it comes from
is said once, in the docstring of its file: the first line, and lines that begin with `Paper:` and `Code:`. Methods of a user's
own stand beside these: those of installed packages by their names, those of a file as FILE.py:CLASS (common/plugins.py).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter

from lengthwise.common import plugins

# `@FILE` in a spec is short for `aligned:path=FILE`
METHODS = {
    "adaptive": "lengthwise.methods.temperature.adaptive:Adaptive",
    "alibi": "lengthwise.methods.positions.alibi:Alibi",
    "aligned": "lengthwise.methods.temperature.aligned:Alignment.load",
    "clex": "lengthwise.methods.positions.clex:Clex",
    "clipped_rope": "lengthwise.methods.positions.clipped_rope:ClippedRoPE",
    "constant": "lengthwise.methods.temperature.constant:Constant",
    "cosscale": "lengthwise.methods.similarity.cosscale:CosScale",
    "dpe": "lengthwise.methods.positions.dpe:DPE.load",
    "dual_chunk": "lengthwise.methods.positions.dual_chunk:DualChunk",
    "eabf": "lengthwise.methods.positions.eabf:Eabf",
    "head_scale": "lengthwise.methods.temperature.head_scale:HeadScale",
    "infoscale": "lengthwise.methods.temperature.infoscale:InfoScale",
    "interpolation": "lengthwise.methods.positions.interpolation:Interpolation",
    "llama4": "lengthwise.methods.temperature.llama4:Llama4",
    "lm_infinite": "lengthwise.methods.positions.lm_infinite:LMInfinite",
    "log": "lengthwise.methods.temperature.log:Log",
    "log_length": "lengthwise.methods.temperature.log_length:LogLength",
    "longrope": "lengthwise.methods.positions.longrope:LongRoPE.load",
    "ms_poe": "lengthwise.methods.positions.ms_poe:MsPoE",
    "nope": "lengthwise.methods.positions.nope:Nope",
    "ntk": "lengthwise.methods.positions.ntk:Ntk",
    "proposition1": "lengthwise.methods.temperature.proposition1:Proposition1",
    "proposition2": "lengthwise.methods.temperature.proposition2:Proposition2",
    "rerope": "lengthwise.methods.positions.rerope:ReRoPE",
    "self_extend": "lengthwise.methods.positions.self_extend:SelfExtend",
    "softmax_plus": "lengthwise.methods.temperature.softmax_plus:SoftmaxPlus",
    "ssmax": "lengthwise.methods.temperature.ssmax:SSMax",
    "streaming_llm": "lengthwise.methods.positions.streaming_llm:StreamingLLM",
    "string": "lengthwise.methods.positions.string:String",
    "t5_bias": "lengthwise.methods.positions.t5_bias:T5Bias",
    "window": "lengthwise.methods.positions.window:Window",
    "yarn": "lengthwise.methods.positions.yarn:Yarn",
    "yarn_factor": "lengthwise.methods.temperature.yarn_factor:YarnFactor",
}


@dataclass(frozen=True)
class MethodSource:
    """What a method's file says about it."""

    summary: str
    papers: tuple[str, ...]  # who, when, and an arXiv id or an address
    code: tuple[str, ...]  # addresses of the authors' own code
    file: str  # from the root of the sources, as in lengthwise/methods/positions/yarn.py


def file_parts(path: str) -> list[object]:
    """Methods, and specs of methods, that a file behind `@` holds; imported when it is read, as methods are."""
    return list(import_module("lengthwise.methods.recipe").parts_of(path))


def factory(name: str) -> Callable[..., object] | None:
    """The class of a method, or the function that makes one; None where there is no such method."""
    if (plugin := plugins.find("method", name, METHODS)) is not None:
        import_module("lengthwise.methods.dry_run").check_class(name, plugin.value)
        own: Callable[..., object] = plugin.value
        return own
    if name not in METHODS:
        return None
    module, _, attribute = METHODS[name].partition(":")
    maker: Callable[..., object] = attrgetter(attribute)(import_module(module))
    return maker


def check_functions(name: str, method: object, facts: Mapping[str, object]) -> None:
    """Try the functions of a method of the user's own; those of this package have tests."""
    if plugins.code_of(method) is not None:
        import_module("lengthwise.methods.dry_run").check_functions(name, method, facts)


def source_of(name: str) -> MethodSource:
    """Read what a method's file says, without importing it."""
    module = METHODS[name].partition(":")[0]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    # Cut out, not parsed: listing the methods must stay quick
    lines = spec.loader.get_source(module).split('"""', 2)[1].splitlines()  # type: ignore[attr-defined]

    def after(mark: str) -> tuple[str, ...]:
        return tuple(line.removeprefix(mark).strip() for line in lines if line.startswith(mark))

    return MethodSource(lines[0], after("Paper:"), after("Code:"), f"{module.replace('.', '/')}.py")

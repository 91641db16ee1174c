"""The one list of methods: the name used on the command line, and the class behind it."""

from __future__ import annotations

from collections.abc import Callable

from lengthwise.methods.positions.alibi import Alibi
from lengthwise.methods.positions.clex import Clex
from lengthwise.methods.positions.eabf import Eabf
from lengthwise.methods.positions.interpolation import Interpolation
from lengthwise.methods.positions.lm_infinite import LMInfinite
from lengthwise.methods.positions.nope import Nope
from lengthwise.methods.positions.ntk import Ntk
from lengthwise.methods.positions.rerope import ReRoPE
from lengthwise.methods.positions.streaming_llm import StreamingLLM
from lengthwise.methods.positions.t5_bias import T5Bias
from lengthwise.methods.positions.window import Window
from lengthwise.methods.positions.yarn import Yarn
from lengthwise.methods.similarity.cosscale import CosScale
from lengthwise.methods.temperature.adaptive import Adaptive
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.methods.temperature.constant import Constant
from lengthwise.methods.temperature.infoscale import InfoScale
from lengthwise.methods.temperature.llama4 import Llama4
from lengthwise.methods.temperature.log import Log
from lengthwise.methods.temperature.log_length import LogLength
from lengthwise.methods.temperature.proposition1 import Proposition1
from lengthwise.methods.temperature.proposition2 import Proposition2
from lengthwise.methods.temperature.softmax_plus import SoftmaxPlus
from lengthwise.methods.temperature.ssmax import SSMax
from lengthwise.methods.temperature.yarn_factor import YarnFactor

# `@FILE` in a spec is short for `aligned:path=FILE`
CATALOGUE: dict[str, Callable[..., object]] = {
    "adaptive": Adaptive,
    "alibi": Alibi,
    "aligned": Alignment.load,
    "clex": Clex,
    "constant": Constant,
    "cosscale": CosScale,
    "eabf": Eabf,
    "infoscale": InfoScale,
    "interpolation": Interpolation,
    "llama4": Llama4,
    "lm_infinite": LMInfinite,
    "log": Log,
    "log_length": LogLength,
    "nope": Nope,
    "ntk": Ntk,
    "proposition1": Proposition1,
    "proposition2": Proposition2,
    "rerope": ReRoPE,
    "softmax_plus": SoftmaxPlus,
    "ssmax": SSMax,
    "streaming_llm": StreamingLLM,
    "t5_bias": T5Bias,
    "window": Window,
    "yarn": Yarn,
    "yarn_factor": YarnFactor,
}

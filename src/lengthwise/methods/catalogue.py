"""The one list of methods: the name used on the command line, and the class behind it."""

from __future__ import annotations

from collections.abc import Callable

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
    "aligned": Alignment.load,
    "constant": Constant,
    "infoscale": InfoScale,
    "llama4": Llama4,
    "log": Log,
    "log_length": LogLength,
    "proposition1": Proposition1,
    "proposition2": Proposition2,
    "softmax_plus": SoftmaxPlus,
    "ssmax": SSMax,
    "yarn_factor": YarnFactor,
}

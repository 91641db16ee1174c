"""What a training run is asked to do: from keywords, from flags, or from a YAML file whose keys are the fields below."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lengthwise.errors import BadInput, require
from lengthwise.training.output_alignment.regulariser import Regulariser

DTYPES = ("float32", "bfloat16")
CLEX = "clex"
OF_A_DATASET = ("dataset_config", "split", "text_field")
# Any length does to check the rest of the loss before a model is loaded
SOME_LENGTH = 4096


@dataclass(frozen=True)
class Settings:
    model: str  # a directory or a hub name
    out: str  # the run's directory
    adjustment: str = "none"  # the method in force: a spec, or longqlora
    alpha: float = 0.1  # weight of the misalignment, L* = L_train + alpha L_misalign
    train_length: int | None = None  # L, tokens of one reading; by default the length the model was trained on
    sampling: str = "1..L/2"  # where e comes from
    overlap: str = "whole"  # which positions of both readings count
    compare: str = "sce"  # what they are compared by: the paper's symmetric cross-entropy, or kl, the symmetric KL
    data: tuple[str, ...] = ()  # text files, one document each
    dataset: str | None = None  # instead of files: a hub dataset, a directory or a file that `datasets` reads
    dataset_config: str | None = None  # which of the dataset's configurations
    split: str = "train"  # which of its splits
    text_field: str = "text"  # which of its columns
    steps: int = 200
    batch: int = 1  # rows of one forward in one process
    accumulation: int = 1  # forwards of one step
    learning_rate: float = 2e-5  # constant after the warm-up
    warmup: int = 20  # steps
    lora_rank: int | None = None  # 0 trains all weights; by default 64 with longqlora, else 0
    shifted_sparse: bool | None = None  # train within shifted groups of tokens; by default with longqlora only
    quantise: bool | None = None  # 4-bit weights below LoRA; by default longqlora's, where bitsandbytes and a GPU are
    stretch: float = 4.0  # CLEX draws its t from 1 to this
    dtype: str = "float32"  # bfloat16 computes in it; weights and their updates stay float32
    device: str | None = None  # cpu or cuda; by default a GPU if there is one
    seed: int = 0
    save_every: int = 50  # steps

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulation", "save_every"):
            require(getattr(self, name) >= 1, f"{_flag(name)} must be at least 1, not {getattr(self, name)}")
        require(0 < self.learning_rate < math.inf, f"--learning-rate must be above 0, not {self.learning_rate}")
        require(self.warmup >= 0, f"--warmup must be 0 or more steps, not {self.warmup}")
        require(0 <= self.seed < 2**32, f"--seed must be 0 or above, and below 2**32, not {self.seed}")
        require(self.lora_rank is None or self.lora_rank >= 0, f"--lora-rank must be 0 or above, not {self.lora_rank}")
        require(1 < self.stretch < math.inf, f"--stretch must be above 1, not {self.stretch}")
        require(self.dtype in DTYPES, f"--dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        require(self.device in (None, "cpu", "cuda"), f"--device must be cpu or cuda, not {self.device!r}")
        given = bool(self.data) + (self.dataset is not None)
        require(given == 1, "give what to train on: --data FILE (repeat for more), or --dataset NAME, and not both")
        for name in OF_A_DATASET if self.data else ():
            unasked = getattr(self, name) == getattr(Settings, name)
            require(unasked, f"{_flag(name)} is of a --dataset, and --data is given; leave {_flag(name)} out")
        stretches = CLEX in (part.partition(":")[0].strip() for part in self.adjustment.split("+"))
        unused = f"--stretch is of the adjustment {CLEX}, and this one is {self.adjustment}; leave --stretch out"
        require(stretches or self.stretch == Settings.stretch, unused)
        self.regulariser(SOME_LENGTH if self.train_length is None else self.train_length)

    def regulariser(self, train_length: int) -> Regulariser:
        return Regulariser(train_length, self.alpha, self.sampling, self.overlap, self.compare)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """From names and values as a YAML file has them."""
    wanted = typing.get_type_hints(Settings)
    given = {}
    for name, value in options.items():
        key = str(name).replace("-", "_")
        if key not in wanted:
            near = difflib.get_close_matches(key, wanted, n=1)
            raise BadInput(f"training has no setting {name!r}; " + (f"did you mean {near[0]}?" if near else _known()))
        given[key] = _converted(key, value, wanted[key])
    for key in ("model", "out"):
        require(key in given, f"training needs {key}; give {'MODEL' if key == 'model' else '--out DIR'}")
    return Settings(**given)


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read the settings {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path} must hold settings, one `name: value` a line; {_known()}")
    return document


def _converted(name: str, value: Any, kind: Any) -> Any:
    """YAML takes 2e-5 for a word, and a single file for no list."""
    if name == "data":
        return tuple(str(one) for one in (value if isinstance(value, list | tuple) else [value]))
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    fits = isinstance(value, bool) == (kind is bool) and not (kind is int and isinstance(value, float) and value % 1)
    try:
        require(fits and value is not None, "")
        return value if kind is bool else kind(value)
    except (ValueError, TypeError):
        what = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a word")
        raise BadInput(f"the setting {name} must be {what}, not {value!r}") from None


def _known() -> str:
    return "there are: " + ", ".join(field.name for field in fields(Settings))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

"""What a training run is asked to do: from keywords, from the command line, or from a YAML file with the fields below as keys.

The options of `lengthwise train` are made of these fields, their kinds, defaults and descriptions (cli/training.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Lt
from typing_extensions import Doc

from lengthwise.common.arguments import shortened
from lengthwise.common.files import read_file
from lengthwise.common.formats import checked, parse_yaml, should_be
from lengthwise.errors import BadInput, did_you_mean, require
from lengthwise.methods.spec import check_spec, parse_spec

if TYPE_CHECKING:
    from lengthwise.training.output_alignment.regulariser import Regulariser

CLEX, LONGQLORA = "clex", "longqlora"
OF_A_DATASET = ("dataset_config", "split", "text_field")
# Settings that are on or off
SWITCHES = ("shifted_sparse", "quantise")
Rank = Annotated[int, Ge(0), Lt(2**16)]  # no matrix is wider
# Any length does to check the rest of the loss before a model is loaded
SOME_LENGTH = 4096


@dataclass(frozen=True)
class Settings:
    """The settings of one run; their order is that of `asked` in its config.json."""

    __pydantic_config__ = {"allow_inf_nan": False, "coerce_numbers_to_str": True}

    model: Annotated[str, Doc("A directory or a hub name.")]
    out: Annotated[str, Doc("Directory of the run; the same command goes on in it.")]
    adjustment: Annotated[str, Doc("Method in force: none, clex, eabf, yarn:factor=4, ..., or longqlora.")] = "none"
    alpha: Annotated[float, Doc("Weight of the misalignment; 0 trains without.")] = 0.1
    train_length: Annotated[int | None, Doc("Tokens of one reading; by default the model's own.")] = None
    sampling: Annotated[str, Doc("1..L/2, 1..L/4, L/4..L/2 or 1..L: how far apart readings start.")] = "1..L/2"
    overlap: Annotated[str, Doc("whole or half: which positions of both readings count.")] = "whole"
    compare: Annotated[str, Doc("sce or kl: by cross-entropy, as the paper, or by the symmetric KL.")] = "sce"
    data: Annotated[tuple[str, ...], Doc("Text file, one document.")] = ()
    dataset: Annotated[str | None, Doc("Hub dataset, directory or file for the package datasets.")] = None
    dataset_config: Annotated[str | None, Doc("Configuration of the dataset.")] = None
    split: Annotated[str, Doc("Split of the dataset.")] = "train"
    text_field: Annotated[str, Doc("Column of the dataset.")] = "text"
    steps: Annotated[int, Ge(1), Doc("Updates of the weights.")] = 200
    batch: Annotated[int, Ge(1), Doc("Rows of one forward in one process.")] = 1
    accumulation: Annotated[int, Ge(1), Doc("Forwards of one step.")] = 1
    learning_rate: Annotated[float, Gt(0), Doc("Constant after the warm-up.")] = 2e-5
    warmup: Annotated[int, Ge(0), Doc("Steps of warm-up.")] = 20
    lora_rank: Annotated[Rank | None, Doc("0 trains all weights; by default 64 with longqlora, else 0.")] = None
    shifted_sparse: Annotated[bool | None, Doc("Train within shifted groups of tokens; by default with longqlora.")] = None
    quantise: Annotated[bool | None, Doc("4-bit weights below LoRA; by default with longqlora, on a GPU.")] = None
    stretch: Annotated[float, Gt(1), Doc("Training lengths that clex learns up to.")] = 4.0
    dtype: Annotated[Literal["float32", "bfloat16"], Doc("float32, or bfloat16 to compute in it.")] = "float32"
    device: Annotated[Literal["cpu", "cuda"] | None, Doc("cpu or cuda; by default a GPU if there is one.")] = None
    seed: Annotated[int, Ge(0), Lt(2**32), Doc("Of everything that is drawn.")] = 0
    save_every: Annotated[int, Ge(1), Doc("Steps between checkpoints.")] = 50

    def __post_init__(self) -> None:
        given = bool(self.data) + (self.dataset is not None)
        require(given == 1, "give what to train on: --data FILE (repeat for more), or --dataset NAME, and not both")
        for name in OF_A_DATASET if self.data else ():
            unasked = getattr(self, name) == getattr(Settings, name)
            require(unasked, f"{flag(name)} is of a --dataset, and --data is given; leave {flag(name)} out")
        check_spec(self.adjustment, also=(LONGQLORA,))
        stretches = CLEX in parse_spec(self.adjustment).names
        unused = f"--stretch is of the adjustment {CLEX}, and this one is {self.adjustment}; leave --stretch out"
        require(stretches or self.stretch == Settings.stretch, unused)
        self.regulariser(SOME_LENGTH if self.train_length is None else self.train_length)

    def regulariser(self, train_length: int) -> Regulariser:
        """The loss at a training length; what it cannot be made of is refused."""
        # Here, because the command line reads the fields above and needs no torch for that
        from lengthwise.training.output_alignment.regulariser import Regulariser

        return Regulariser(train_length, self.alpha, self.sampling, self.overlap, self.compare)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Settings from names and values as a YAML file has them."""
    given = {str(name).replace("-", "_"): value for name, value in options.items()}
    known = [field.name for field in fields(Settings)]
    if unknown := [name for name in given if name not in known]:
        raise BadInput(f"training has no setting {unknown[0]!r}; {did_you_mean(unknown[0], known, _known())}")
    for name in ("model", "out"):
        require(name in given, f"training needs {name}; give {'MODEL' if name == 'model' else '--out DIR'}")
    if switched := [name for name, value in given.items() if isinstance(value, bool) and name not in SWITCHES]:
        raise BadInput(f"{flag(switched[0])} must be given a value, not {given[switched[0]]}")
    if isinstance(given.get("data"), str):
        given["data"] = [given["data"]]
    try:
        return checked(Settings, given, _in_words)
    except ValueError as error:
        raise BadInput(str(error)) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The names and values in a YAML file of settings."""
    try:
        document = parse_yaml(read_file(path))
    except OSError as error:
        raise BadInput(f"cannot read the settings {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not YAML: {error}") from None
    require(isinstance(document, dict), f"{path} must hold settings, one `name: value` a line; {_known()}")
    return dict(document)


def flag(name: str) -> str:
    """A setting as the command line spells it."""
    return "--" + name.replace("_", "-")


def _in_words(fault: Any) -> str:
    return f"{flag(fault['loc'][0])} must be {should_be(fault)}, not {shortened(fault['input'])}"


def _known() -> str:
    return "there are: " + ", ".join(field.name for field in fields(Settings))

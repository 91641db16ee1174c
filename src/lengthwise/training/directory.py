"""A training run's directory.

config.json         what must not change: model, settings, the rows of tokens, what files of methods held
losses.jsonl        one line a step
checkpoints/        the last two, to go on from
tensorboard/        the same losses, where tensorboard is installed
model/              the result, a checkpoint for transformers
adapter/            LoRA's own weights, where LoRA was trained; model/ has them merged in
clex.safetensors    what the method learnt, if it did; of t5_bias t5_bias.safetensors
alignment.json      the alignment that was in force, for the trained model
method.txt          the spec to use the model with; written last, so that where it is the run is complete
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path, PurePath
from typing import Annotated, Any, NotRequired, cast

from typing_extensions import TypedDict

from lengthwise.common.files import PART, write_whole
from lengthwise.common.formats import MustBe, Whole, checked, parse_json, read_format, read_json
from lengthwise.errors import BadInput, require
from lengthwise.records.append_only import read_lines
from lengthwise.records.config import ANOTHER, check_same
from lengthwise.records.directory import make_or_enter

FORMAT = "lengthwise.training/1"
CLAIM = ".claim-training"
CHECKPOINT = "checkpoint-"  # begins the name of a folder of transformers', the number of a step ends it
# Settings that runs begun earlier do not name, and what they were
SINCE = {"compare": "sce"}
# NaN and infinity among them, which a run that breaks has
Loss = Annotated[float, MustBe("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))]


class TrainingConfig(TypedDict):
    """config.json of a training run; a key that is not required is missing from runs of earlier versions."""

    format: str
    model: dict[str, Any]  # fingerprint
    settings: dict[str, Any]  # those that make another run: settings.py, and what follows from them
    rows: dict[str, Any]  # number and digest of the rows of tokens
    documents: NotRequired[Any]  # what the files of the adjustment held
    asked: NotRequired[dict[str, Any]]  # all settings as they were given
    made_with: NotRequired[dict[str, str]]  # versions of packages


class LossLine(TypedDict):
    """One line of losses.jsonl: a step's losses, and more where it has them."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]

    step: Whole
    loss: Loss
    cross_entropy: Loss
    misalignment: NotRequired[Loss]


class TrainingDirectory:
    """The files of one training run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.losses = path / "losses.jsonl"
        self.tensorboard = path / "tensorboard"
        self.model = path / "model"
        self.adapter = path / "adapter"
        self.method = path / "method.txt"
        self.alignment = path / "alignment.json"

    def agree(self, config: dict[str, Any]) -> None:
        """Make the directory, or check that it is this very run's; nothing is touched where it is not."""
        config = parse_json(json.dumps(config))
        known = self.path / "config.json"
        if make_or_enter(self.path, "a training directory", known.name):
            _check_same(_read(known), config, self.path)
        else:
            write_whole(known, json.dumps(config, indent=2) + "\n")

    def remove_unfinished(self) -> None:
        """Remove what a killed process had begun to write, which may be as large as a model; for whoever holds the claim."""
        for part in self.path.glob(f"{PART}*"):
            shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)

    def refuse_copies(self) -> None:
        """Raise where a copy of a checkpoint stands beside them: transformers counts it as one, and removes it in time."""
        numbered = sorted(path.name for path in self.checkpoints.glob(f"{CHECKPOINT}[0-9]*"))
        copies = [name for name in numbered if not name.removeprefix(CHECKPOINT).isdecimal()]
        if copies:
            why = "which transformers would take for a checkpoint, and remove; move it to another folder"
            raise BadInput(f"{self.checkpoints} holds {copies[0]}, {why}")

    def last_checkpoint(self, learnt_name: str | None) -> Path | None:
        """The latest checkpoint that was written to its end; `learnt_name` is the method that has weights of its own."""
        named = (path for path in self.checkpoints.glob(f"{CHECKPOINT}*") if path.name.removeprefix(CHECKPOINT).isdecimal())
        checkpoints = sorted(named, key=step_of)
        return next((path for path in reversed(checkpoints) if _complete(path, learnt_name)), None)

    def read_losses(self) -> list[dict[str, Any]]:
        """The lines of losses.jsonl; a last line without an end, which a kill left, is none."""
        return read_lines(self.losses, cast(Any, LossLine), "take the line out", finite=False)

    def losses_of_all(self, learnt_name: str | None) -> list[dict[str, Any]]:
        """The losses of a finished run: none where their file was taken away, refused where it ends before the last checkpoint.

        That is the last step's, unless a callback stopped the run before it.
        """
        lines, checkpoint = self.read_losses(), self.last_checkpoint(learnt_name)
        steps = 1 if checkpoint is None else step_of(checkpoint)
        end = f"it ends at step {lines[-1]['step']} of {steps}" if lines else f"it holds none of {steps} steps"
        whole = not self.losses.exists() or (bool(lines) and lines[-1]["step"] >= steps)
        require(whole, f"{self.losses} is damaged: {end}; restore it, or take it away: the model is whole without it")
        return lines

    def forget_losses_after(self, step: int) -> None:
        """Take out the steps after a checkpoint: a resumed run takes them again."""
        before = [line for line in self.read_losses() if line["step"] <= step]
        write_whole(self.losses, "".join(json.dumps(line) + "\n" for line in before))


def learnt_file(method: str) -> str:
    """The name of the file with the weights that a method has learnt; of FILE.py:CLASS both names are in it."""
    return f"{PurePath(method).name.replace(':', '.')}.safetensors"


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix(CHECKPOINT))


def _complete(checkpoint: Path, learnt_name: str | None) -> bool:
    """Whether it was written to its end: transformers writes trainer_state.json last, and we the method's weights then."""
    try:
        read_json(checkpoint / "trainer_state.json", finite=False)
    except (OSError, ValueError):
        return False
    return learnt_name is None or (checkpoint / learnt_file(learnt_name)).exists()


def _read(path: Path) -> dict[str, Any]:
    config = read_format(path, FORMAT, "the config of a training directory", ANOTHER)
    try:
        checked(TrainingConfig, config)
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}; put it right, or {ANOTHER}") from None
    return config


def _check_same(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    check_same({**old, "settings": {**SINCE, **old["settings"]}}, new, path)
    require(old["rows"] == new["rows"], f"{path} was begun with other text or another tokenizer; {ANOTHER}")
    same = old.get("documents") == new.get("documents")
    require(same, f"the file that the adjustment names has changed since {path} was begun; {ANOTHER}")

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from lengthwise.common.files import PART, save_whole, write_whole
from lengthwise.common.formats import NOT_JSON, Such, Whole, checked, parse_json
from lengthwise.errors import BadInput, require
from lengthwise.records.config import ANOTHER, another_model

FORMAT = "lengthwise.training/1"
CLAIM = ".claim-training"
# Settings that runs begun earlier do not name, and what they were
SINCE = {"compare": "sce"}
# NaN and infinity among them, which a run that breaks has
Loss = Annotated[float, Such("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))]


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

    step: Whole
    loss: Loss
    cross_entropy: Loss


@dataclass(frozen=True)
class TrainingDirectory:
    """The files of one training run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def losses(self) -> Path:
        return self.path / "losses.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    @property
    def method(self) -> Path:
        return self.path / "method.txt"

    @property
    def alignment(self) -> Path:
        return self.path / "alignment.json"

    def learnt(self, method: str) -> Path:
        return self.path / learnt_file(method)

    def agree(self, config: dict[str, Any]) -> None:
        """Make the directory, or check that it is this very run's; nothing is touched where it is not."""
        config = json.loads(json.dumps(config))
        known = self.path / "config.json"
        if known.exists():
            _same(_read(known), config, self.path)
            return
        self._refuse_foreign()
        try:
            write_whole(known, json.dumps(config, indent=2) + "\n")
        except OSError as error:
            raise BadInput(f"cannot write to {self.path}: {error.strerror}; {ANOTHER}") from None

    def last_checkpoint(self, learns: str | None) -> Path | None:
        """The latest checkpoint that was written to its end; `learns` is the method that has weights of its own."""
        checkpoints = sorted(self.checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        return next((path for path in reversed(checkpoints) if _complete(path, learns)), None)

    def read_losses(self) -> list[dict[str, Any]]:
        """The lines of losses.jsonl; a last line without an end, which a kill left, is none."""
        text = self.losses.read_bytes() if self.losses.exists() else b""
        return [_loss(line, number, self.losses) for number, line in enumerate(text.split(b"\n")[:-1], 1)]

    def losses_of_all(self, steps: int) -> list[dict[str, Any]]:
        """The losses of a finished run: none where their file was taken away, refused where it ends before the last step."""
        lines = self.read_losses()
        end = f"it ends at step {lines[-1]['step']} of {steps}" if lines else f"it holds none of {steps} steps"
        whole = not self.losses.exists() or (bool(lines) and lines[-1]["step"] == steps)
        require(whole, f"{self.losses} is damaged: {end}; restore it, or take it away: the model is whole without it")
        return lines

    def forget_losses_after(self, step: int) -> None:
        """Take out the steps after a checkpoint: a resumed run takes them again."""
        before = [line for line in self.read_losses() if line["step"] <= step]
        write_whole(self.losses, "".join(json.dumps(line) + "\n" for line in before))

    def finish(self, model: Any, tokenizer: Any, spec: str) -> None:
        """Save the trained model, and then the spec to use it with."""
        # What a run killed between this and its last word left there is written anew
        save_whole(self.model, [model, tokenizer], overwrite=True)
        write_whole(self.method, spec + "\n")

    def _refuse_foreign(self) -> None:
        try:
            names = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        except OSError as error:
            raise BadInput(f"cannot use {self.path} as a training directory: {error.strerror}; {ANOTHER}") from None
        if foreign := [name for name in names if not name.startswith((CLAIM, PART))]:
            raise BadInput(f"{self.path} is not a training directory, but holds {foreign[0]}; give a new or empty one as --out")


def _loss(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        losses: dict[str, Any] = parse_json(line)
        checked(LossLine, losses)
        return losses
    except ValueError as error:
        reason = NOT_JSON if str(error).startswith(NOT_JSON) else error
        raise BadInput(f"line {number} of {path} is damaged: {reason}; take the line out") from None


def learnt_file(method: str) -> str:
    """The name of the file with the weights that a method has learnt."""
    return f"{method}.safetensors"


def _complete(checkpoint: Path, learns: str | None) -> bool:
    """transformers writes trainer_state.json last, and we what the method learnt after it."""
    try:
        parse_json((checkpoint / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return learns is None or (checkpoint / learnt_file(learns)).exists()


def _read(path: Path) -> dict[str, Any]:
    config: Any = None
    with suppress(OSError, ValueError):
        config = parse_json(path.read_bytes())
    other = config.get("format", "unknown") if isinstance(config, dict) else "unknown"
    if other != FORMAT:
        raise BadInput(f"{path.parent} is not a training directory: the format of its config.json is {other!r}; {ANOTHER}")
    try:
        checked(TrainingConfig, config)
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}; put it right, or {ANOTHER}") from None
    return dict(config)


def _same(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    if other := another_model(old["model"], new["model"]):
        raise BadInput(f"{path} trains another model: {other}; {ANOTHER}")
    for key, now in new["settings"].items():
        was = old["settings"].get(key, SINCE.get(key))
        if was != now:
            raise BadInput(f"{path} was begun with another {key}: {was} then, {now} now; {ANOTHER}, or {key} {was}")
    if old.get("rows") != new["rows"]:
        raise BadInput(f"{path} was begun with other text or another tokenizer; {ANOTHER}")
    if old.get("documents") != new.get("documents"):
        raise BadInput(f"the file that the adjustment names has changed since {path} was begun; {ANOTHER}")

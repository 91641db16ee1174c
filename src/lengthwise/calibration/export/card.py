"""The model card of an export: what was done, by which command, what was compared and how near it came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from lengthwise.calibration.export.plan import Plan, notes
from lengthwise.version import __version__

RUNS = {
    "transformers": "any engine that reads checkpoints of transformers",
    "gguf": "llama.cpp and what is built on it",
    "ctranslate2": "CTranslate2",
    "onnx": "ONNX Runtime",
}


@dataclass(frozen=True)
class Card:
    """The facts of one export, from which its model card and the lines of `--json` are made."""

    name: str  # of the model it was made from
    method: str
    to: str
    plan: Plan
    command: str | None = None
    recipe_says: tuple[str, ...] = ()  # what `recommend` said of the method
    compared: tuple[str, ...] = ()  # what `--verify` measured
    target_notes: tuple[str, ...] = ()  # what `write` of the target returned

    @property
    def lines(self) -> list[str]:
        """Each change, and each difference from the extended model, in a line."""
        return [*changes(self.plan), *self.target_notes, *notes(self.plan)]

    def to_markdown(self) -> str:
        front = ["---", f"library_name: {self.to}", f"base_model: {json.dumps(self.name)}", "tags: [lengthwise]", "---", ""]
        trained = self.plan.anatomy.train_length
        text = [
            f"# {self.name}, for inputs of {self.plan.length:,} tokens",
            "",
            f"Made by lengthwise {__version__} from `{self.name}`, which was trained on {trained:,} tokens, with the method "
            f"`{self.method}`. It runs in {RUNS[self.to]}, without lengthwise.",
            "",
            *_section("What was changed", self.lines),
            *_section("What the method was chosen for", self.recipe_says),
            *_section("Compared with the model extended by lengthwise", self.compared),
        ]
        if self.command is not None:
            text += ["## Command", "", f"    {self.command}", ""]
        made_with = ", ".join(f"{package} {version(package)}" for package in ("torch", "transformers"))
        return "\n".join([*front, *text, f"Made with {made_with}.", ""])


def changes(plan: Plan) -> list[str]:
    """What the plan does to a config and to weights, in words."""
    lines = []
    if plan.rope is not None:
        entries: dict[str, Any] = {"max_position_embeddings": plan.rope.longest, "rope_parameters": plan.rope.whole}
        lines.append(f"its rotation, as a config says it: {json.dumps(entries)[1:-1]}")
    if plan.law is not None:
        lines.append(f'its config has "llama_4_scaling_beta": {plan.law.beta:.6g}')
    if plan.folds:
        taus = sorted({float(f"{1 / g:.4g}") for g in plan.g.flatten().tolist()})
        tau = f"{taus[0]:g}" if len(taus) == 1 else f"{taus[0]:g} to {taus[-1]:g}, by layer or head"
        lines.append(f"it carries the temperature tau {tau}")
    return lines or ["nothing was changed"]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {line}" for line in lines), ""] if lines else []

"""A checkpoint of transformers: weights, config and tokenizer, as `save_pretrained` writes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from lengthwise.calibration.export.plan import Plan
from lengthwise.common.formats import parse_json
from lengthwise.errors import BadInput

PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
SCRIPT = Path(__file__).with_name("run_plain.py")


def check(plan: Plan) -> None:
    """Refuse nothing: transformers computes whatever a plan holds."""


def write(stock: Any, tokenizer: Any, plan: Plan, folder: Path) -> list[str]:
    """Save the model, its tokenizer and what reads its pictures and sounds; no notes for the card."""
    for part in (stock, tokenizer, Processors(stock.config)):
        part.save_pretrained(folder)
    return []


@dataclass(frozen=True)
class Processors:
    """The files of what reads a model's pictures and sounds, in the folder that it was loaded from."""

    config: Any

    def save_pretrained(self, folder: Path) -> None:
        source = getattr(self.config, "_name_or_path", "")
        for name in PROCESSORS if source else ():
            if Path(source, name).is_file() and not (folder / name).exists():
                shutil.copyfile(Path(source, name), folder / name)


def ask(folder: Path, prompts: Sequence[list[int]], greedy: dict[str, Any]) -> tuple[Tensor, list[list[int]]]:
    """Run the checkpoint in a process without lengthwise: logits of the next token [prompts, words], and greedy answers."""
    with tempfile.TemporaryDirectory() as name:
        asked, told = Path(name, "asked.json"), Path(name, "told.safetensors")
        asked.write_text(json.dumps({"prompts": [*prompts], "greedy": greedy, "threads": torch.get_num_threads()}))
        # -P keeps this folder, whose files have names of packages, out of the way of imports
        command = [sys.executable, "-P", str(SCRIPT), str(folder), str(asked), str(told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BadInput(f"plain transformers cannot run the exported model: {(done.stderr.strip() or '?').splitlines()[-1]}")
        with safe_open(told, "pt") as file:
            return file.get_tensor("logits"), parse_json(file.metadata()["answers"])

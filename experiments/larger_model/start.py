"""A run that begins with an export: its weights and its vocabulary, with a new optimizer and a new reader."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from experiments._lib import reader, scaled_queries
from lengthwise.errors import require

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def check(folder: Path) -> None:
    missing = [name for name in (WEIGHTS, TOKENIZER) if not (folder / name).is_file()]
    require(not missing, f"--start-from {folder} has no {' and no '.join(missing)}; give the folder `export` of a run")


def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / TOKENIZER))


def check_vocabulary(folder: Path, own: Tokenizer, out: Path) -> None:
    """The export's weights mean the export's tokens."""
    require(
        tokenizer(folder).get_vocab() == own.get_vocab(),
        f"{out} has a vocabulary of its own, other than that of --start-from {folder}; give another --out",
    )


def put_weights(folder: Path, model: nn.Module) -> None:
    saved = load_file(folder / WEIGHTS)
    own = reader.left_out(scaled_queries.weights(model))
    other = sorted(
        name for name in {*saved, *own} if name not in saved or name not in own or saved[name].shape != own[name].shape
    )
    require(
        not other,
        f"--start-from {folder} holds a model of other sizes ({len(other)} weights differ, {', '.join(other[:2])} among them); "
        "give the --sizes that it was trained with",
    )
    scaled_queries.take(model, saved)

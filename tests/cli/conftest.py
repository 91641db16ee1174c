"""Checkpoints for the commands, good and bad."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from tests.conftest import TRAIN_LENGTH, Said, make

LENGTH = 2 * TRAIN_LENGTH
SCRIPT = Path(sys.executable).with_name("lengthwise")


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    transformers.ByT5Tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints good and bad, and alignments of the good one."""
    folder = tmp_path_factory.mktemp("models")
    save(make("t5"), folder / "t5")
    save(make("t5", seed=1), folder / "other")
    save(make("falcon"), folder / "falcon")
    broken = make("t5")
    broken.encoder.block[1].layer[0].SelfAttention.k.weight.data[0, 0] = float("nan")
    save(broken, folder / "nan")
    pickle = shutil.copytree(folder / "t5", folder / "pickle")
    (pickle / "model.safetensors").unlink()
    torch.save(make("t5").state_dict(), pickle / "pytorch_model.bin")
    (folder / "letters").mkdir()
    (folder / "letters" / "dear.txt").write_text("Dear reader")
    for scope in ("model", "layer"):
        model, tokenizer = make("t5"), transformers.ByT5Tokenizer()
        lw.calibrate(model, tokenizer, LENGTH, scope=scope, show_progress=False).save(folder / f"{scope}.json")
    return folder


@pytest.fixture
def refused(models: Path, lengthwise: Callable[..., Said]) -> Callable[[str, str, Path], None]:
    """Shows that a command is refused with status 2 and one line, and that no file is written or changed.

    In its arguments {m} stands for the folder of models and {t} for the folder it may write to.
    """

    def check(arguments: str, message: str, folder: Path) -> None:
        before = _contents(models, folder)
        said = lengthwise(*arguments.format(m=models, t=folder).split())
        assert (said.status, said.out) == (2, "")
        assert len(said.err) == 1
        assert said.err[0].startswith("lengthwise: ")
        assert message in said.err[0]
        assert _contents(models, folder) == before

    return check


def _contents(*folders: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for folder in folders for path in folder.rglob("*")}


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

"""Methods and tasks of a user's own, as files and as installed packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.common import plugins

METHOD = '''"""Sharper: a power of the length."""
from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

EDGE = 2  # read by the class, so that it has to travel with it


@dataclass(frozen=True)
class Sharper:
    train_length: int
    power: float = 0.5

    def __post_init__(self) -> None:
        if not self.power > 0:
            raise ValueError(f"power must be above 0, not {self.power}")

    def inverse_temperature(self, visible: Tensor, layer: int) -> Tensor:
        return visible.clamp_min(EDGE).div(self.train_length).clamp_min(1).pow(self.power)
'''
TASK = """from lengthwise.tasks import Task, passkey


def score(prediction, target):
    return len(prediction) % 2


DIGITS = Task(passkey.samples, score, 4, passkey.read, also={"long": lambda prediction, target: 0.5})
"""


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, entry_points: str, **modules: str) -> None:
    """A package `sharp 1.0` with entry points and modules, as pip would leave it."""
    metadata = folder / "sharp-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sharp\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    plugins.announced.cache_clear()

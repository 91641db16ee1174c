"""Alignments on top of position methods, each calibrated once for a length, on text that is not scored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.processes import Once, share_out
from experiments.rope_methods.contenders import ALIGNED, filled, split_aligned
from lengthwise.tasks.perplexity import doubling


@dataclass(frozen=True)
class Alignments:
    """Made when asked for, kept in `folder`."""

    model: Any
    tokenizer: Any
    text: str  # not scored
    train_length: int
    folder: Path

    def method(self, name: str, length: int) -> object:
        """What `lengthwise.extend` takes for a contender at one length."""
        base, aligned = split_aligned(name)
        spec = filled(base, length, self.train_length)
        return spec if aligned is None else [spec, self._made(spec, aligned, length)]

    def _made(self, base: str, aligned: str, length: int) -> lw.Alignment:
        file = self.folder / f"{re.sub(r'[^a-z0-9.]+', '-', base.lower())}-{aligned}-{length}.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        share_out([Once(file.with_name(f".claim-{file.name}"), file.exists, lambda: self._make(base, aligned, length, file))])
        return lw.Alignment.load(file)

    def _make(self, base: str, aligned: str, length: int, file: Path) -> None:
        statistic, scope = ALIGNED[aligned]
        beyond = [edge for edge in doubling(self.train_length, length) if edge > self.train_length]
        alignment = lw.calibrate(
            self.model,
            self.tokenizer,
            beyond,
            statistic=statistic,
            scope=scope,
            train_length=self.train_length,
            text=self.text,
            method=base,
            show_progress=False,
        )
        alignment.save(file)

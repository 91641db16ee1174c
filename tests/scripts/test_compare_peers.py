"""The comparison with the authors' own code: what agrees, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import lengthwise as lw
from scripts.compare_peers import compared
from tests.conftest import make, tokens


@pytest.mark.parametrize(("spec", "agrees"), [("rerope:window=12", True), ("rerope:window=10", False)])
def test_logits_of_another_program_are_held_against_ours(tmp_path: Path, spec: str, agrees: bool) -> None:
    model, ids = make("llama"), tokens(50)
    model.save_pretrained(tmp_path / "llama")
    with torch.no_grad(), lw.extend(model, "rerope:window=12"):
        logits = model(ids).logits
    save_file({"ids": ids, "logits": logits}, tmp_path / "theirs.safetensors", metadata={"model": "llama", "spec": spec})
    run = compared(tmp_path, tmp_path / "theirs.safetensors")
    assert (run["tokens"], run["model"]) == (50, "llama")
    assert (run["largest_difference"] < 1e-5) == agrees
    assert run["largest_difference_to_plain"] > 1e-5

"""These tests need an NVIDIA GPU: `make test-gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
# PyTorch's own: the thread of a backward pass has no context yet, and a check that finds waiting calls is a prototype
EXPECTED = ("Attempting to run cuBLAS", "Synchronization debug mode")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marks = [pytest.mark.filterwarnings(f"ignore:{text}:UserWarning") for text in EXPECTED]
    if not torch.cuda.is_available():
        marks.append(pytest.mark.skip(reason="needs a CUDA device"))
    for item in items:
        if HERE in item.path.parents:
            for mark in marks:
                item.add_marker(mark)

"""Kernels compile for GPUs that are not here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")


@pytest.mark.sweep
@pytest.mark.parametrize("gpu", ["ada", "hopper"])
def test_a_kernel_compiles_and_fits(gpu: str) -> None:
    """In a process of its own: here kernels are interpreted."""
    words = ["--gpu", gpu, "--kernel", "forward", "--dtype", "float32", "--size", "128"]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.compile_kernels", *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("fits\n")

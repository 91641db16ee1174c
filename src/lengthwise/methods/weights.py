"""Trainable methods keep what they learnt in a safetensors file."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput


def save(module: nn.Module, path: str | Path) -> None:
    write_whole(path, to_bytes({name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}))


def load(module: nn.Module, path: str | Path, what: str, without: str) -> None:
    """Load a method's weights. Errors say `what` the file should hold and what a method `without` one does."""
    try:
        module.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise BadInput(f"no {what} {path}; leave weights out {without}") from None
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"{path} does not hold {what} of this size: {reason}") from None

"""Packages that only some targets need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lengthwise.errors import BadInput

# By target: the packages that write it, and those beside them that run it, each with its extra
WRITE = {
    "gguf": [("gguf", "gguf")],
    "ctranslate2": [("ctranslate2", "ctranslate2")],
    "onnx": [("onnx", "onnx"), ("onnxscript", "onnx"), ("onnxruntime", "onnx")],
}
RUN = {"gguf": [("llama_cpp", "llama-cpp")]}


def check_packages(to: str, verify: bool) -> None:
    """Refuse, before any work, a target whose packages are not installed."""
    for what, packages in ((f"--to {to}", WRITE.get(to, [])), ("--verify", RUN.get(to, []) if verify else [])):
        for package, extra in packages:
            needed(package, extra, what)


def needed(package: str, extra: str, what: str) -> Any:
    """Import a package of an extra, or say in one line how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise BadInput(f"{what} needs the package {package}; pip install 'lengthwise[{extra}]'") from error

"""Load a model and its tokenizer by directory or hub name: safetensors only, nothing left uninitialised, clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from lengthwise.errors import BadInput

DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(name: str, dtype: str = "auto", device: str | None = None) -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer)."""
    if dtype not in DTYPES:
        raise BadInput(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    _check_directory(name)
    config = _said_plainly(name, lambda: transformers.AutoConfig.from_pretrained(name))
    model_class = _model_class(config)
    model, report = _said_plainly(
        name,
        lambda: model_class.from_pretrained(name, dtype=DTYPES[dtype], use_safetensors=True, output_loading_info=True),
    )
    if missing := sorted(report.get("missing_keys", ())):
        raise BadInput(
            f"the checkpoint {name} lacks {len(missing)} weights of {model_class.__name__}, the first is {missing[0]}"
        )
    tokenizer = _said_plainly(f"the tokenizer of {name}", lambda: transformers.AutoTokenizer.from_pretrained(name))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device).eval(), tokenizer


def _check_directory(name: str) -> None:
    path = Path(name)
    if name == "embedded":
        raise BadInput("this version ships no embedded model yet; give a model directory or a hub name")
    if path.is_file():
        raise BadInput(f"{name} is a file; give the directory that holds config.json and the weights")
    if not path.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise BadInput(f"no directory {name}")
        return
    if not (path / "config.json").is_file():
        raise BadInput(f"{name} is not a model directory: it has no config.json")
    if any(path.glob("*.safetensors")):
        return
    pickles = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in path.glob(pattern))
    if pickles:
        raise BadInput(
            f"the weights in {name} are a pickle ({pickles[0]}), which can run code; convert them to safetensors first"
        )
    raise BadInput(f"{name} has no weights: no *.safetensors file")


def _model_class(config: Any) -> Any:
    """The class the checkpoint was saved from, or the nearest task class."""
    for architecture in getattr(config, "architectures", None) or ():
        if (found := getattr(transformers, architecture, None)) is not None:
            return found
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    return transformers.AutoModel


def _said_plainly(name: str, load_it: Any) -> Any:
    """transformers' and the hub's failures, as one line."""
    try:
        return load_it()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if not Path(name).exists() and "tokenizer" not in name:
            reason = f"it is no directory here, and the hub does not give it ({reason[:160]})"
        raise BadInput(f"cannot load {name}: {reason}") from error

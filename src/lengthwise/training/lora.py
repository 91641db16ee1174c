"""LoRA: train two thin matrices beside every linear layer instead of the layer; QLoRA: with the layer itself in 4 bits.

W' = W + (16 / r) B A,   A [r, in], B [out, r], B starts at 0                   Hu et al. 2022, Dettmers et al. 2023
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import nn

LORA_ALPHA = 16


def with_lora(model: nn.Module, rank: int, seed: int) -> Any:
    """The model with LoRA on every linear layer but the last.

    Without dropout: the two readings of a row are to differ in their context alone.
    """
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=LORA_ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def can_quantise() -> bool:
    """Whether 4-bit weights can be trained here: bitsandbytes and a GPU."""
    return importlib.util.find_spec("bitsandbytes") is not None and torch.cuda.is_available()


def quantised(name: str, arguments: Any) -> Any:
    """The model in 4 bits, on this process's device."""
    from peft import prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    narrow = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if arguments.bf16 else torch.float32,
    )
    place = {"": arguments.device}
    stored = {"use_safetensors": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=narrow, device_map=place, **stored)
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def merged(model: Any, adapter: Path, unquantised: Any) -> Any:
    """The model with LoRA merged into its weights, or into those of `unquantised` where training went over 4-bit ones."""
    from peft import PeftModel

    if unquantised is not None:
        model = PeftModel.from_pretrained(unquantised, str(adapter))
    return model.merge_and_unload()

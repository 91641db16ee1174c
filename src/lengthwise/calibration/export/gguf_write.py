"""Write a loaded model as a GGUF file, as llama.cpp's own converter does for these families.

A tensor is written in 16 bits where that loses nothing, which is so of weights that were stored in 16 bits; what a temperature
has changed is written in float32.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from lengthwise.calibration.export.gguf_keys import ARCHITECTURES, refuse_rope, rope_keys
from lengthwise.calibration.export.gguf_rewrite import add_key
from lengthwise.calibration.export.gguf_tokenizer import add_tokenizer
from lengthwise.calibration.export.plan import Plan
from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import FULL, vocabulary

NOTHING = 1e-6  # of a tensor's norm: what sums in float32 lose anyway
T5_DISTANCE = 128  # what llama.cpp has built in
GEMMA_PERIOD, GEMMA_27B = 6, 62  # the same of Gemma 3: every sixth layer has no window, and the layers of its largest
ONE_TABLE = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def check_write(plan: Plan) -> None:
    """Refuse families and settings that llama.cpp computes otherwise."""
    family, config = plan.anatomy.family, plan.anatomy.stack.config
    architecture = ARCHITECTURES.get(family)
    known = ", ".join(ARCHITECTURES)
    if architecture is None:
        raise BadInput(
            f"--to gguf writes {known}, not {family}; use --to transformers, and llama.cpp's converter on what it writes"
        )
    if own := _rope_of(config):
        refuse_rope(architecture, plan, own)
    windows = any(plan.anatomy.windows) and architecture != "gemma3"
    require(not windows, f"llama.cpp's {architecture} models have no sliding window, and this one has; it cannot be written")
    distance = getattr(config, "relative_attention_max_distance", T5_DISTANCE)
    require(distance == T5_DISTANCE, f"llama.cpp's T5 has a relative_attention_max_distance of {T5_DISTANCE}, not {distance}")
    silu = getattr(config, "hidden_act", "silu")
    problem = f"llama.cpp's {architecture} models know silu, not {silu}"
    require(architecture in ("t5", "gemma3") or silu in ("silu", "swish"), problem)
    if architecture == "gemma3":
        _check_gemma(config, plan.anatomy.windows)
    activation = getattr(config, "feed_forward_proj", "relu")
    require(activation in ("relu", "gated-gelu"), f"llama.cpp's T5 knows relu and gated-gelu, not {activation}")


def _check_gemma(config: Any, windows: Sequence[int | None]) -> None:
    """Refuse what llama.cpp leaves out of a Gemma 3, or has built in otherwise."""
    swa = (config.rope_parameters or {}).get("sliding_attention", {})
    odd = {
        f"{config.hidden_activation} for gelu": config.hidden_activation != "gelu_pytorch_tanh",
        "capped logits": bool(config.final_logit_softcapping or config.attn_logit_softcapping),
        "attention in both directions": bool(getattr(config, "use_bidirectional_attention", False)),
        "scaled frequencies in layers with a window": swa.get("rope_type", "default") != "default",
        "layers without a window in another order than every n-th": any(windows) and _period(windows) is None,
    }
    unknown = [what for what, is_so in odd.items() if is_so]
    require(not unknown, f"llama.cpp's gemma3 models do not know {''.join(unknown[:1])}; this one cannot be written")


def _period(windows: Sequence[int | None]) -> int | None:
    """n where the layers n, 2 n, 3 n, ... and no others have no window; None where no n says which."""
    known = (GEMMA_PERIOD, *range(2, len(windows) + 1))
    return next((n for n in known if all((w is None) == ((i + 1) % n == 0) for i, w in enumerate(windows))), None)


def write_gguf(stock: Any, tokenizer: Any, plan: Plan, out: Path) -> list[str]:
    """Write keys, tokenizer and tensors of a model whose weights carry the plan; returns notes for the card."""
    import gguf

    architecture = ARCHITECTURES[plan.anatomy.family]
    whole = architecture != "t5" or hasattr(stock, "decoder")
    require(whole, f"llama.cpp's T5 has a decoder, and a {type(stock).__name__} has none; it cannot be written")
    writer = gguf.GGUFWriter(out, architecture)
    writer.add_type("model")
    writer.add_name(Path(str(getattr(stock.config, "_name_or_path", "") or plan.anatomy.family)).name)
    writer.add_vocab_size(vocabulary(stock))
    tensors = _add_t5(writer, stock.config, plan) if architecture == "t5" else _add_decoder(writer, stock, plan, architecture)
    notes = add_tokenizer(writer, stock, tokenizer)
    kinds = []
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], _blocks(stock.config))
    for key, tensor in _weights(stock, architecture):
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        require(name is not None, f"llama.cpp has no place for the weight {key} of this {plan.anatomy.family} model")
        kinds.append(_add_tensor(writer, gguf, str(name), tensor))
    for name, factors in tensors.items():
        writer.add_tensor(name, factors)
    # 0 is float32, 1 float16, 32 bfloat16: what most of the file is
    writer.add_file_type({"F32": 0, "F16": 1, "BF16": 32}[max(set(kinds), key=kinds.count)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return notes


def _blocks(config: Any) -> int:
    decoder = getattr(config, "num_decoder_layers", None) or 0
    return max(int(config.num_hidden_layers), int(decoder))


def _rope_of(config: Any) -> dict[str, Any]:
    """The rope parameters of layers without a window."""
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    full: dict[str, Any] = rope.get(FULL, rope)
    return full


def _add_decoder(writer: Any, stock: Any, plan: Plan, architecture: str) -> dict[str, numpy.ndarray[Any, Any]]:
    """Keys of a decoder; tensors of rope factors, if it has any."""
    config, anatomy = stock.config, plan.anatomy
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(anatomy.heads)
    writer.add_head_count_kv(anatomy.facts["key_heads"])
    writer.add_key_length(anatomy.key_size)
    writer.add_value_length(anatomy.key_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(anatomy.key_size)
    if architecture == "gemma3" and any(anatomy.windows):
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern(_period(anatomy.windows))
        writer.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    rope = rope_keys(_rope_of(config), anatomy.train_length, config.max_position_embeddings)
    for key, value in rope.keys.items():
        add_key(writer, f"{architecture}.{key}", value)
    return rope.tensors | _llama3_factors(config)


def _llama3_factors(config: Any) -> dict[str, numpy.ndarray[Any, Any]]:
    """Llama 3's divisors of the frequencies, as a tensor; none for other rotations."""
    rope = _rope_of(config)
    if rope["rope_type"] != "llama3":
        return {}
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies: Tensor = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]
    pairs = len(frequencies)
    plain = float(rope["rope_theta"]) ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return {"rope_freqs.weight": (plain / frequencies.double()).float().numpy()}


def _add_t5(writer: Any, config: Any, plan: Plan) -> dict[str, numpy.ndarray[Any, Any]]:
    """Keys of a T5, which has no rope."""
    writer.add_context_length(max(plan.length, plan.anatomy.train_length))
    writer.add_block_count(config.num_layers)
    writer.add_decoder_block_count(config.num_decoder_layers)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.num_heads)
    writer.add_key_length(config.d_kv)
    writer.add_value_length(config.d_kv)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
    start = getattr(config, "decoder_start_token_id", None)
    require(start is not None, "this T5's config has no decoder_start_token_id, which llama.cpp begins answers with")
    writer.add_decoder_start_token_id(start)
    return {}


def _weights(stock: Any, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """Every weight once, as llama.cpp keeps it."""
    config = stock.config
    tied = bool(getattr(config, "tie_word_embeddings", False))
    for key, tensor in stock.state_dict().items():
        if (key == "lm_head.weight" and tied) or key in ONE_TABLE:
            continue
        if architecture == "llama" and re.search(r"[qk]_proj\.(weight|bias)$", key):
            tensor = _paired(tensor, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        if architecture == "gemma3" and key.endswith("norm.weight"):
            tensor = tensor.float() + 1
            if key.endswith("q_norm.weight"):
                # llama.cpp divides by the root of the key size, of 27B by that of its width over its heads
                largest = config.num_hidden_layers == GEMMA_27B
                size = config.hidden_size // config.num_attention_heads if largest else config.head_dim
                tensor = tensor * (size / config.query_pre_attn_scalar) ** 0.5
        if key == "decoder.final_layer_norm.weight" and getattr(config, "scale_decoder_outputs", tied):
            # llama.cpp leaves out what T5 divides its last states by
            tensor = tensor.float() * config.d_model**-0.5
        yield key, tensor


def _paired(weight: Tensor, heads: int) -> Tensor:
    """Rows of a projection with those that are rotated together side by side, as llama.cpp rotates Llamas."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def _add_tensor(writer: Any, gguf: Any, name: str, tensor: Tensor) -> str:
    """Write a tensor in the smallest type that holds it; the name of that type."""
    wide = tensor.detach().float().cpu().contiguous()
    if wide.dim() > 1 and "attn_rel_b" not in name:
        # Many CPUs multiply float16 far faster than bfloat16, of which it loses but the last bits of weights near 0
        if bool((wide.half().float() - wide).norm() <= NOTHING * wide.norm()):
            writer.add_tensor(name, wide.half().numpy())
            return "F16"
        if torch.equal(wide.bfloat16().float(), wide):
            raw = wide.bfloat16().view(torch.int16).numpy().view(numpy.uint8)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
            return "BF16"
    writer.add_tensor(name, wide.numpy())
    return "F32"

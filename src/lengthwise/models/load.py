"""Load a model and its tokenizer by directory, by hub name, by GGUF file, or `embedded`, the model that ships with the package.

Safetensors (or GGUF) only, no code of a checkpoint's own, nothing left uninitialised, clear refusals.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from lengthwise.common.formats import read_json
from lengthwise.common.progress import stage
from lengthwise.errors import BadInput, did_you_mean, is_out_of_memory, require
from lengthwise.models import gau_alpha, small_decoder
from lengthwise.models.anatomy import vocabulary
from lengthwise.models.gguf_header import key_size, parsed_once, read_as_stored
from lengthwise.models.gguf_rotation import rotate_as_stored
from lengthwise.models.state import AS_READ
from lengthwise.models.stored_weights import check_finite, check_index, check_no_adapter, check_stored_types
from lengthwise.models.t5_head import FLATTENED, is_flattened
from lengthwise.models.weights_digest import digests

EMBEDDED = Path(__file__).with_name("embedded")
# Families that transformers does not have
OWN = {family.FAMILY: family for family in (gau_alpha, small_decoder)}
FOREIGN = "this is another model's tokenizer, give its own"
LONGEST_REASON = 240  # letters of a library's own message
NO_MEMORY = "there is not enough memory; give a smaller model or another --device"
OWN_CODE = "it needs code of its own, which is never run; give a model of a family that transformers has"
# Left out, transformers asks on standard input
NO_CODE = {"trust_remote_code": False}
SAMPLING = ("temperature", "top_p", "min_p", "typical_p", "top_k", "epsilon_cutoff", "eta_cutoff")
# Of a T5 with gates in a GGUF file, which transformers reads as a T5 1.0: with ReLU, and with its last states divided
GATED_T5 = {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "scale_decoder_outputs": False}
UNCHANGED = {"temperature": 1.0, "top_p": 1.0, "typical_p": 1.0, "top_k": 50, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}
DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(name: str, dtype: str = "auto", device: str | None = None, *, as_stored: bool = False) -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer).

    `auto` keeps the checkpoint's data type, but for 16-bit weights on a CPU, whose arithmetic is far slower than
    float32's: they are widened unless `as_stored`.
    """
    if dtype not in DTYPES:
        raise BadInput(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    require(bool(name.strip()), f"no model {name!r}; give a directory, a hub name, a GGUF file, or `embedded`")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    _one_line_errors(f"{name} onto {device}", lambda: torch.device(device))
    path = str(EMBEDDED) if name == "embedded" else name
    where, file = _place(path)
    with parsed_once() if file else nullcontext():
        model, tokenizer = _read(name, where, file, dtype)
    _check_settings(name, model, tokenizer)
    _drop_unused_sampling(name, model)
    if is_flattened(model):
        model.config.scale_decoder_outputs = False
        warnings.warn(f"{name} {FLATTENED}; it is read without that scale", stacklevel=2)
    # With the special tokens that it adds
    ids = _one_line_errors(f"the tokenizer of {name}", lambda: tokenizer("A text.", verbose=False).input_ids)
    require(all(isinstance(token, int) for token in ids), f"the tokenizer of {name} adds a special token that it does not have")
    check_tokens(torch.tensor(ids), vocabulary(model))
    if not file:
        check_stored_types(name, where, model)
    else:
        for module in model.modules():
            if hasattr(module, "config"):
                # transformers notes the folder only
                module.config._name_or_path = name
            if isinstance(module, transformers.PreTrainedModel):
                AS_READ.put(module, digests(module))
        _as_floats(model)
    model = _one_line_errors(f"{name} onto {device}", lambda: model.to(device)).eval()
    check_finite(name, model)
    if dtype == "auto" and model.dtype in (torch.bfloat16, torch.float16) and device.startswith("cpu") and not as_stored:
        model = model.float()
    return model, tokenizer


def _read(name: str, where: str, file: dict[str, str], dtype: str) -> tuple[Any, Any]:
    """What transformers makes of a checkpoint, whole or refused."""
    source = name if file or Path(where).exists() else f"{name} from the hub (no such directory here)"
    config = _one_line_errors(source, lambda: _config(where, file))
    kernel = str(getattr(config, "_attn_implementation", None) or "")
    require("/" not in kernel, f"cannot load {name}: its attention is {kernel!r}, code from the hub; {OWN_CODE}")
    model_class = _model_class(config, bool(file))
    # Weights of other shapes are let through here, because transformers would say which ones only in its log
    stored: dict[str, Any] = {**file} if file else {"use_safetensors": True}
    options = {"ignore_mismatched_sizes": True, "output_loading_info": True, **NO_CODE, **stored}
    check_no_adapter(where)
    if not file:
        check_index(where)
    elif (size := key_size(Path(name))) is not None and getattr(config, "head_dim", size) != size:
        # transformers takes the family's usual one
        options["head_dim"] = size
    if file and getattr(config, "is_gated_act", False):
        options |= {key: value for key, value in GATED_T5.items() if hasattr(config, key)}
    # It takes a minute for some hundred million weights, without a word
    stage("unpacking the weights of a GGUF file", bool(file))
    model, report = _one_line_errors(source, lambda: model_class.from_pretrained(where, dtype=DTYPES[dtype], **options))
    if missing := sorted(report.get("missing_keys", ())):
        lacking = f"{len(missing)} weights of {model_class.__name__}"
        raise BadInput(f"the checkpoint {name} lacks {lacking}, the first is {missing[0]}")
    if odd := sorted(report.get("mismatched_keys", ())):
        key, found, expected = odd[0]
        raise BadInput(f"the checkpoint {name} does not fit its config: {key} is {list(found)}, not {list(expected)}")
    make = transformers.AutoTokenizer.from_pretrained
    tokenizer = _one_line_errors(f"the tokenizer of {name}", lambda: make(where, **NO_CODE, **file))
    if file:
        _one_line_errors(f"the tokenizer of {name}", lambda: read_as_stored(tokenizer, Path(name)))
        _one_line_errors(name, lambda: rotate_as_stored(model, Path(name)))
    return model, tokenizer


def _as_floats(model: Any) -> None:
    """Take the mark of quantised weights off a model from a GGUF file: they are floats by now, and can be saved as such."""
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer, model.is_quantized = None, False
        # Versions of transformers differ in what they note
        for owner, mark in ((model, "quantization_method"), (model.config, "quantization_config")):
            if hasattr(owner, mark):
                delattr(owner, mark)


def _place(name: str) -> tuple[str, dict[str, str]]:
    """What transformers takes: a directory or hub name, and for a GGUF file its name in the directory."""
    path = Path(name)
    if path.suffix == ".gguf" and path.is_file():
        if importlib.util.find_spec("gguf") is None:
            raise BadInput(f"reading {name} needs the package gguf; pip install 'lengthwise[gguf]'")
        return str(path.parent), {"gguf_file": path.name}
    _check_directory(name)
    return name, {}


def _check_directory(name: str) -> None:
    path = Path(name)
    require(not path.is_file(), f"{name} is a file; give the directory that holds config.json and the weights")
    if not path.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise BadInput(f"no {'file' if path.suffix == '.gguf' else 'directory'} {name}")
        # Before the hub is asked, which may be out of reach; names there have an owner, but for a few old ones
        if "/" not in name and (hint := did_you_mean(name, ["embedded"], cutoff=0.8)):
            raise BadInput(f"no model {name!r}; {hint}")
        return
    check_no_adapter(name)
    require((path / "config.json").is_file(), f"{name} is not a model directory: it has no config.json")
    # Whoever reads a pipe waits for a writer
    odd = [file.name for file in sorted(path.iterdir()) if file.exists() and not (file.is_file() or file.is_dir())]
    require(not odd, f"{name} holds {''.join(odd[:1])}, which is a pipe or a device and no file; take it away")
    if not _files(path, "*.safetensors"):
        if pickles := _files(path, "*.bin", "*.pt", "*.pth", "*.ckpt"):
            pickle = f"the weights in {name} are a pickle ({pickles[0]}), which can run code"
            raise BadInput(f"{pickle}; convert them to safetensors first")
        raise BadInput(f"{name} has no weights: no *.safetensors file")
    # Without its files transformers makes a T5 tokenizer that knows no words
    known = bool(_files(path, "tokenizer*", "vocab*", "*.model"))
    require(known, f"{name} has no tokenizer; save the model's tokenizer into it")


def _files(path: Path, *patterns: str) -> list[str]:
    return sorted(found.name for pattern in patterns for found in path.glob(pattern))


def _config(where: str, file: dict[str, str]) -> Any:
    own = Path(where) / "config.json"
    document = read_json(own, finite=False) if not file and own.is_file() else None
    if isinstance(document, dict) and (family := OWN.get(str(document.get("model_type")))):
        family.register()
    return transformers.AutoConfig.from_pretrained(where, **NO_CODE, **file)


def _model_class(config: Any, gguf: bool = False) -> Any:
    """The class the checkpoint was saved from, or the nearest task class; a GGUF file tells none, and is made to generate."""
    if config.model_type == gau_alpha.FAMILY:
        return transformers.AutoModelForMaskedLM
    listed = getattr(config, "architectures", None)
    for architecture in listed if isinstance(listed, list) else ():
        found = getattr(OWN.get(config.model_type, transformers), str(architecture), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    return transformers.AutoModelForCausalLM if gguf else transformers.AutoModel


def _check_settings(name: str, model: Any, tokenizer: Any) -> None:
    """Refuse numbers that are none, which transformers would take here and fail over in the middle of the work."""
    ids = getattr(model, "generation_config", None)
    tokens = {key: value for key, value in vars(ids).items() if key.endswith("_token_id") and value is not None} if ids else {}
    for key, value in {**tokens, "model_max_length": tokenizer.model_max_length}.items():
        # An answer may end in several ways
        several = key == "eos_token_id" and isinstance(value, list) and value
        holds = all(_is_setting(key, number) for number in (value if several else [value]))
        shown = f"{value!r:.40}"
        require(holds, f"the checkpoint {name} has {shown} as its {key}, which is no such number; put its settings right")
    shown, family = model.config.is_encoder_decoder, model.config.model_type
    fits = isinstance(shown, bool) and (not shown or type(model.config).is_encoder_decoder)
    require(fits, f"the checkpoint {name} has {shown!r:.40} as its is_encoder_decoder, which no {family} is; put it right")
    # Half of T5's buckets, or a quarter, hold one distance each, and the others share those up to the reach
    reach, buckets = (getattr(model.config, f"relative_attention_{what}", None) for what in ("max_distance", "num_buckets"))
    if reach is not None and buckets is not None:
        shown = f"a relative_attention_max_distance of {reach} with {buckets} buckets"
        require(2 * reach > buckets, f"the checkpoint {name} has {shown}, which must be more than half of them")


def _drop_unused_sampling(name: str, model: Any) -> None:
    """Take numbers of sampling from a model that answers greedily: transformers reads such a checkpoint, and never saves it."""
    config = getattr(model, "generation_config", None)
    if config is None or config.do_sample:
        return
    usual = transformers.GenerationConfig()
    odd = [key for key in SAMPLING if getattr(config, key, None) not in (None, getattr(usual, key, None), UNCHANGED.get(key))]
    for key in odd:
        setattr(config, key, getattr(usual, key))
    if odd:
        warnings.warn(f"{name} answers greedily, so {' and '.join(odd)} are left out; give them to `generate`", stacklevel=3)


def _is_setting(key: str, number: Any) -> bool:
    # Of a length transformers itself writes 1e30 where there is none
    return isinstance(number, int | float) if key == "model_max_length" else isinstance(number, int) and abs(number) < 2**31


def _one_line_errors(what: str, load_it: Callable[[], Any]) -> Any:
    """Whatever the libraries that read checkpoints raise, as one line; what they print is no result."""
    # What was printed before goes where it was printed to; a full disk there is no fault of the checkpoint
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        with _noise_to_standard_error():
            return load_it()
    except Exception as error:
        reason = NO_MEMORY if is_out_of_memory(error) else reason_of(error)
        raise BadInput(f"cannot load {what}: {reason}") from error


@contextmanager
def _noise_to_standard_error() -> Iterator[None]:
    """The tokenizers library prints to descriptor 1, below sys.stdout, where JSON may be expected, and lines of any length."""
    try:
        kept = os.dup(1)
    except OSError:
        # There is no standard output to keep clean
        yield
        return
    with tempfile.TemporaryFile() as noise:
        try:
            os.dup2(noise.fileno(), 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            noise.seek(0)
            for line in noise.read().decode(errors="replace").splitlines():
                sys.stderr.write(f"{line[:LONGEST_REASON]}\n")


def reason_of(error: Exception) -> str:
    """What a library says is wrong, in one line: as many whole sentences as are short enough, or the begin of the first."""
    message = " ".join(str(error).split())
    if "trust_remote_code" in message:
        return OWN_CODE
    if len(message) <= LONGEST_REASON:
        return message or type(error).__name__
    ends = [found.start() for found in re.finditer(r"[.!?;](?= )", message[: LONGEST_REASON + 1])]
    return message[: ends[-1]] if ends else message[:LONGEST_REASON].rsplit(" ", 1)[0] + " ..."


def check_tokenizer(tokenizer: Any, words: int) -> None:
    """`words` the model knows. A tokenizer has as many, or less by what embeddings are padded with, which is a few percent."""
    # Without tokens added to it, which some tokenizers have and never make
    bare = tokenizer.vocab_size
    require(bare <= words, f"the tokenizer has {bare} tokens, and the model knows {words} tokens only; {FOREIGN}")
    all_of_them = len(tokenizer)
    require(2 * all_of_them > words, f"the tokenizer has {all_of_them} tokens only, and the model knows {words}; {FOREIGN}")


def check_tokens(ids: Tensor, words: int) -> None:
    for token in (int(ids.min()), int(ids.max())) if ids.numel() else ():
        require(0 <= token < words, f"the text has token {token}, and the model knows {words} tokens only; {FOREIGN}")

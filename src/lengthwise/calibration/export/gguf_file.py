"""A GGUF file for llama.cpp: a GGUF file rewritten, or a checkpoint's weights written as one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from lengthwise.calibration.export.gguf_rewrite import check_rewrite, rewrite
from lengthwise.calibration.export.gguf_write import check_write, write_gguf
from lengthwise.calibration.export.packages import needed
from lengthwise.calibration.export.plan import Plan
from lengthwise.calibration.export.verify import ends_of
from lengthwise.errors import BadInput, require
from lengthwise.models.state import AS_READ
from lengthwise.models.weights_digest import digests

FILE = "model.gguf"


def _source(plan: Plan) -> Path | None:
    """The GGUF file that the model was read from, if it was."""
    path = Path(str(getattr(plan.anatomy.stack.config, "_name_or_path", "")))
    return path if path.suffix == ".gguf" and path.is_file() else None


def check(plan: Plan) -> None:
    """Refuse what llama.cpp does not compute."""
    require(plan.law is None, "llama.cpp computes Ministral 3's law with its own numbers; use --to transformers")
    source = _source(plan)
    if source is None:
        check_write(plan)
        return
    unchanged = digests(plan.anatomy.stack) & (AS_READ.on(plan.anatomy.stack) or set())
    changed = f"this model's weights are not those of {source.name} any more, which --to gguf would rewrite"
    require(bool(unchanged), f"{changed}; export it --to transformers, and what that writes --to gguf")
    check_rewrite(source, plan)


def write(stock: Any, tokenizer: Any, plan: Plan, folder: Path) -> list[str]:
    """Write model.gguf; returns notes for the card."""
    source = _source(plan)
    if source is not None:
        return rewrite(source, plan, folder / FILE)
    return write_gguf(stock, tokenizer, plan, folder / FILE)


def ask(folder: Path, prompts: Sequence[list[int]], greedy: dict[str, Any]) -> tuple[Tensor | None, list[list[int]]]:
    """Logits of the next token, and greedy answers, by llama.cpp with a cache of float32."""
    answer, ends = greedy["max_new_tokens"], ends_of(greedy)
    with LlamaCpp(folder / FILE, max(map(len, prompts)) + answer) as model:
        answers = [model.answer(prompt, answer, ends) for prompt in prompts]
    return torch.stack([logits for logits, _ in answers]), [tokens for _, tokens in answers]


@cache
def _silence() -> Any:
    """A log callback that drops what llama.cpp logs; cached, because the library may call it at any later time."""
    return needed("llama_cpp", "llama-cpp", "running a GGUF file").llama_log_callback(lambda *_: None)


class LlamaCpp:
    """A GGUF file in llama.cpp, through its own library; cached in float32 unless `as_served`, its own choices."""

    def __init__(self, path: Path, tokens: int, as_served: bool = False) -> None:
        self.library: Any = needed("llama_cpp", "llama-cpp", "running a GGUF file")
        self.path, self.tokens, self.as_served = path, tokens, as_served

    def __enter__(self) -> LlamaCpp:
        library = self.library
        library.llama_log_set(_silence(), ctypes.c_void_p(0))
        library.llama_backend_init()
        self.model = library.llama_model_load_from_file(str(self.path).encode(), library.llama_model_default_params())
        if not self.model:
            raise BadInput(f"llama.cpp cannot load {self.path}")
        self.reads_first = bool(library.llama_model_has_encoder(self.model))
        options = library.llama_context_default_params()
        options.n_ctx = self.tokens + 64
        # An encoder reads all of its input at once
        options.n_batch = options.n_ubatch = options.n_ctx if self.reads_first else 512
        options.n_threads = options.n_threads_batch = torch.get_num_threads()
        if not self.as_served:
            options.flash_attn_type = options.type_k = options.type_v = 0
        self.context = library.llama_init_from_model(self.model, options)
        if not self.context:
            library.llama_model_free(self.model)
            raise BadInput(f"llama.cpp has no memory for {self.tokens} tokens of {self.path}")
        self.words = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.model))
        return self

    def __exit__(self, *_: object) -> None:
        self.library.llama_free(self.context)
        self.library.llama_model_free(self.model)

    def answer(self, prompt: Sequence[int], count: int, ends: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Logits of the next token, and the likeliest tokens up to an end or to `count`."""
        library = self.library
        library.llama_memory_clear(library.llama_get_memory(self.context), True)
        if self.reads_first:
            self._run(library.llama_encode, prompt)
            self._run(library.llama_decode, [library.llama_model_decoder_start_token(self.model)])
        else:
            for start in range(0, len(prompt), 512):
                self._run(library.llama_decode, prompt[start : start + 512])
        first, tokens = self._logits(), list[int]()
        row = first
        while True:
            tokens.append(int(row.argmax()))
            if len(tokens) == count or tokens[-1] in ends:
                return first, tokens
            self._run(library.llama_decode, tokens[-1:])
            row = self._logits()

    def _run(self, function: Any, tokens: Sequence[int]) -> None:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        status = function(self.context, self.library.llama_batch_get_one(ids, len(tokens)))
        require(status == 0, f"llama.cpp cannot read {len(tokens)} tokens: its status is {status}")

    def _logits(self) -> Tensor:
        pointer = self.library.llama_get_logits_ith(self.context, -1)
        return torch.from_numpy(numpy.ctypeslib.as_array(pointer, (self.words,)).copy())

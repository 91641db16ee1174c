"""A GGUF file past its training length in llama.cpp: how well a long text is told on its way, plain and exported with a method.

    python -m benchmarks.engines_likelihood --model qwen_coder_05b.gguf --method yarn:factor=4 --lengths 32768 65536 --out FILE

Nats a token over the tokens before each length of prose that ships with lengthwise, repeated until it is long enough. Both
files are read side by side, and each length is written when both have reached it. Needs the environment of `make test-engines`;
with --gpu the package llama-cpp-cffi, whose llama.cpp has kernels for CUDA.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch

import lengthwise as lw
from lengthwise.calibration.export.gguf_file import LlamaCpp
from lengthwise.common.text import shipped_prose
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load

CHUNK = 512  # tokens a step


def main() -> None:
    """Export, read the text plain and exported, write a result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--last", type=int, default=1024, help="Tokens before each length that are scored.")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    lengths = sorted(chosen.lengths)
    model, tokenizer = load(str(chosen.model), device="cpu")
    ids = tokenizer(shipped_prose(), add_special_tokens=False, verbose=False).input_ids
    ids = (ids * (1 + lengths[-1] // len(ids)))[: lengths[-1] + 1]
    scored = {start for end in lengths for start in range(end - chosen.last, end, CHUNK)}
    result: dict[str, Any] = {"model": chosen.model.name, "method": chosen.method, "last": chosen.last, "lengths": []}
    package = "llama_cpp_cffi" if chosen.gpu else "llama_cpp_python"
    machine = torch.cuda.get_device_name() if chosen.gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    result |= {"train_length": anatomy_of(model).train_length, package: version(package), "machine": machine}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        lw.export(model, chosen.method, to="gguf", out=out, tokenizer=tokenizer, length=lengths[-1])
        del model
        began = time.perf_counter()
        read = OnGpu if chosen.gpu else partial(LlamaCpp, as_served=True)
        with read(out / "model.gguf", len(ids)) as exported, read(chosen.model, len(ids)) as plain:
            readers = {"exported": _nats(exported, ids, scored), "plain": _nats(plain, ids, scored)}
            told: dict[str, list[float]] = {name: [] for name in readers}
            for end in range(CHUNK, lengths[-1] + 1, CHUNK):
                for name, reader in readers.items():
                    told[name] += next(reader)
                print(f"{end} tokens, {time.perf_counter() - began:.0f} s", flush=True)
                if end in lengths:
                    nats = {name: round(sum(all_[-chosen.last :]) / chosen.last, 4) for name, all_ in told.items()}
                    result["lengths"].append({"length": end, **nats, "seconds": round(time.perf_counter() - began)})
                    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
                    print(result["lengths"][-1], flush=True)


class OnGpu:
    """A GGUF file in llama.cpp on a GPU."""

    def __init__(self, path: Path, tokens: int) -> None:
        from llama.llama_cpp import ffi, lib

        self.library, self.ffi = lib, ffi
        options = lib.llama_model_default_params()
        options.n_gpu_layers = 999
        self.model = lib.llama_model_load_from_file(str(path).encode(), options)
        require(self.model != ffi.NULL, f"llama.cpp cannot load {path}")
        options = lib.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch, options.flash_attn = tokens + 64, CHUNK, CHUNK, True
        self.context = lib.llama_init_from_model(self.model, options)
        require(self.context != ffi.NULL, f"llama.cpp has no memory for {tokens} tokens of {path}")
        self.words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def __enter__(self) -> OnGpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.library.llama_free(self.context)
        self.library.llama_model_free(self.model)


def _logits(model: LlamaCpp | OnGpu) -> numpy.ndarray:
    """[CHUNK, words]"""
    found = model.library.llama_get_logits(model.context)
    if isinstance(model, OnGpu):
        return numpy.frombuffer(model.ffi.buffer(found, 4 * CHUNK * model.words), numpy.float32).reshape(CHUNK, -1)
    return numpy.ctypeslib.as_array(found, (CHUNK, model.words))


def _nats(model: LlamaCpp | OnGpu, ids: list[int], scored: set[int]) -> Iterator[list[float]]:
    """Negative log-likelihoods of the tokens after those of a chunk, a chunk at a time; none where it is not scored."""
    library = model.library
    batch = library.llama_batch_init(CHUNK, 0, 1)
    batch.n_tokens = CHUNK
    for start in range(0, len(ids) - 1, CHUNK):
        for i, token in enumerate(ids[start : start + CHUNK]):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
            batch.logits[i] = start in scored or i == CHUNK - 1
        require(library.llama_decode(model.context, batch) == 0, f"llama.cpp cannot read on from token {start}")
        if start in scored:
            after = torch.tensor(ids[start + 1 : start + CHUNK + 1])
            yield torch.nn.functional.cross_entropy(torch.tensor(_logits(model)), after, reduction="none").tolist()
        else:
            yield []
    library.llama_batch_free(batch)


if __name__ == "__main__":
    main()

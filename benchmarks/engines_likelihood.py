"""A GGUF file past its training length in llama.cpp: how well the end of a long text is told, plain and exported with a method.

    python -m benchmarks.engines_likelihood --model qwen_coder_05b.gguf --method yarn:factor=4 --length 65536 --out FILE

Nats a token over the last tokens of prose that ships with lengthwise, repeated until it is long enough. Needs the environment
of `make test-engines`.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch

import lengthwise as lw
from lengthwise.calibration.export.gguf_file import LlamaCpp
from lengthwise.common.text import shipped_prose
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load

CHUNK = 512  # tokens a step


def main() -> None:
    """Export, read the text plain and exported, write a result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--last", type=int, default=1024, help="Tokens at the end that are scored.")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    model, tokenizer = load(str(chosen.model), device="cpu")
    text = shipped_prose()
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    ids = (ids * (1 + chosen.length // len(ids)))[: chosen.length]
    result: dict[str, Any] = {"model": chosen.model.name, "method": chosen.method, "length": len(ids), "last": chosen.last}
    result |= {"train_length": anatomy_of(model).train_length, "llama_cpp_python": version("llama_cpp_python")}
    result |= {"machine": f"{platform.machine()}, {torch.get_num_threads()} threads"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        lw.export(model, chosen.method, to="gguf", out=out, tokenizer=tokenizer, length=chosen.length)
        del model
        for name, path in {"exported": out / "model.gguf", "plain": chosen.model}.items():
            began = time.perf_counter()
            result[name] = {"nats": round(_nats(path, ids, chosen.last), 4), "seconds": round(time.perf_counter() - began)}
            chosen.out.write_text(json.dumps(result, indent=1) + "\n")
            print(name, result[name], flush=True)


def _nats(path: Path, ids: list[int], last: int) -> float:
    """Mean negative log-likelihood of the last tokens."""
    with LlamaCpp(path, len(ids), half_cache=True) as model:
        library, total = model.library, 0.0
        batch = library.llama_batch_init(CHUNK, 0, 1)
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            scored = [len(ids) - last <= start + i + 1 < len(ids) for i in range(len(chunk))]
            batch.n_tokens = len(chunk)
            for i, token in enumerate(chunk):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
                batch.logits[i] = scored[i] or i == len(chunk) - 1
            assert library.llama_decode(model.context, batch) == 0
            for i in (i for i, wanted in enumerate(scored) if wanted):
                row = numpy.ctypeslib.as_array(library.llama_get_logits_ith(model.context, i), (model.words,))
                total -= float(torch.from_numpy(row).float().log_softmax(-1)[ids[start + i + 1]])
        library.llama_batch_free(batch)
    return total / last


if __name__ == "__main__":
    main()

"""Pass keys in the engines that people run: a model exported plain, and exported with a method.

    python -m benchmarks.engines --engine onnx --method @alignment.json --length 4096 --prompts 40 --out FILE

Both exports answer the same prompts; the file is written anew after every five. With --compare the model extended by lengthwise
is asked too, and the file says how many answers are the same.
Needs the environment of `make test-engines`.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import lengthwise as lw
from lengthwise.calibration.export.export import TARGETS
from lengthwise.calibration.export.verify import greedy_settings
from lengthwise.methods.spec import short_name
from lengthwise.models.load import load
from lengthwise.tasks import passkey

PACKAGES = {"transformers": "transformers", "gguf": "llama_cpp_python", "ctranslate2": "ctranslate2", "onnx": "onnxruntime"}


def main() -> None:
    """Export twice, ask both, write a result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True, choices=[*PACKAGES])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--method", required=True)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--plain", type=int, default=40, help="Prompts for the plain export.")
    parser.add_argument("--compare", action="store_true", help="Ask the model under lengthwise too.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    model, tokenizer = load(chosen.model, device="cpu")
    samples = passkey.samples(tokenizer, chosen.length, chosen.prompts, chosen.seed)
    asked = {"engine": chosen.engine, "version": version(PACKAGES[chosen.engine]), "model": Path(chosen.model).name}
    asked |= {"method": short_name(chosen.method), "length": chosen.length, "seed": chosen.seed}
    result: dict[str, Any] = {**asked, "machine": platform.machine()}
    for name, method, count in (("exported", chosen.method, chosen.prompts), ("plain", "none", chosen.plain)):
        for answers in _answers(model, tokenizer, method, chosen, samples[:count]):
            result[name] = _scored(answers, samples)
            chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    if chosen.compare:
        result["lengthwise"] = _scored(_extended(model, tokenizer, chosen.method, samples), samples)
        pairs = zip(result["exported"]["answers"], result["lengthwise"]["answers"], strict=True)
        result["same_answers"] = sum(ours == theirs for ours, theirs in pairs)
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print({key: value["right"] if isinstance(value, dict) else value for key, value in result.items()})


def _answers(model: Any, tokenizer: Any, method: str, chosen: argparse.Namespace, samples: list[Any]) -> Iterator[list[str]]:
    """Export, and ask the engine a few prompts at a time; all answers so far."""
    greedy, told = greedy_settings(model, passkey.ANSWER_TOKENS), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        lw.export(model, method, to=chosen.engine, out=out, length=chosen.length, tokenizer=tokenizer)
        target = import_module(TARGETS[chosen.engine])
        for first in range(0, len(samples), 5):
            prompts = [tokenizer(sample.prompt).input_ids for sample in samples[first : first + 5]]
            _, answers = target.ask(out, prompts, greedy)
            told += [tokenizer.decode(answer, skip_special_tokens=True) for answer in answers]
            yield told


def _extended(model: Any, tokenizer: Any, method: str, samples: list[Any]) -> list[str]:
    """What the model says under lengthwise."""
    settings = model.generation_config.__class__(**greedy_settings(model, passkey.ANSWER_TOKENS))
    told = []
    with lw.extend(model, method), torch.inference_mode():
        for sample in samples:
            ids = tokenizer(sample.prompt, return_tensors="pt").input_ids
            made = model.generate(input_ids=ids, generation_config=settings)[0]
            answer = made[1 if model.config.is_encoder_decoder else ids.shape[1] :]
            told.append(tokenizer.decode(answer, skip_special_tokens=True))
    return told


def _scored(told: list[str], samples: list[Any]) -> dict[str, Any]:
    right = sum(passkey.score(answer, sample.target) for answer, sample in zip(told, samples, strict=False))
    return {"right": int(right), "of": len(told), "answers": told}


if __name__ == "__main__":
    main()

"""Do our methods give the logits of their authors' own code?

    python -m scripts.compare_peers MODELS LOGITS/*.safetensors --out benchmarks/results/peers.json

The authors' code runs elsewhere, each repository with the transformers that it was written for (docs/peers.md says which, and
how). What it leaves is one safetensors file a run: `ids` [1, tokens] and `logits` [1, tokens, vocabulary] in float32, and as
metadata the `method`, its `repository` and `commit`, the `transformers` there, the `model`, a folder of MODELS, our `spec` of
the same arguments, and a `note`. Here the same ids go through the same model under that spec, in one forward.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

import lengthwise as lw
from lengthwise.evaluation.sweep.run_config import made_with


def compared(models: Path, path: Path) -> dict[str, Any]:
    """One run of an author's code beside ours."""
    with safe_open(path, "pt") as file:
        told, ids, theirs = file.metadata(), file.get_tensor("ids"), file.get_tensor("logits")
    model = AutoModelForCausalLM.from_pretrained(models / told["model"], dtype=torch.float32).eval()
    with torch.no_grad():
        plain = model(ids).logits
        with lw.extend(model, told["spec"]):
            ours = model(ids).logits
    difference = (ours - theirs).abs().amax(-1)[0]  # [tokens]
    return {
        **told,
        "tokens": ids.shape[1],
        "largest_logit": float(theirs.abs().max()),
        "largest_difference": float(difference.max()),
        "first_token_that_differs": next((i for i, d in enumerate(difference.tolist()) if d > 1e-3), None),
        # What the method itself changes: the difference must be seen beside it
        "largest_difference_to_plain": float((plain - theirs).abs().max()),
        "same_likeliest_token": float((ours.argmax(-1) == theirs.argmax(-1)).float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("logits", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = []
    for path in sorted(given.logits):
        runs.append(run := compared(given.models, path))
        where = run["first_token_that_differs"]
        print(
            f"{run['method']:28} {run['model']:12} {run['spec']:48} {run['largest_difference']:.1e} "
            f"(plain {run['largest_difference_to_plain']:.1e}) {'' if where is None else f'from token {where}'}"
        )
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"made_with": made_with("cpu"), "runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()

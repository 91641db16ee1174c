"""Vectors of texts longer than 512 tokens, by the encoder of a T5.

python sentence_embeddings.py --model sentence-transformers/sentence-t5-base     # needs sentence-transformers
python sentence_embeddings.py                                                    # the T5 that ships with lengthwise
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from beside_stock import beside_stock

import lengthwise as lw
from lengthwise.models.load import load

TEXTS = [f"Chapter {number}. " + "The ship left the harbour before dawn and nobody saw it again. " * 60 for number in range(3)]


@torch.inference_mode()
def embed(model: Any, tokenizer: Any, texts: list[str], tokens: int) -> torch.Tensor:
    """The mean of each text's states, of length 1."""
    batch = tokenizer(texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt").to(model.device)
    states = model.get_encoder()(**batch).last_hidden_state.float()
    mask = batch["attention_mask"][..., None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a SentenceTransformer that holds a T5")
    parser.add_argument("--tokens", type=int, default=1024)
    given = parser.parse_args()
    if given.model:
        from sentence_transformers import SentenceTransformer

        embedder = SentenceTransformer(given.model)
        embedder.max_seq_length = given.tokens
        vectors = beside_stock(embedder, lambda: embedder.encode(TEXTS, convert_to_tensor=True))
    else:
        model, tokenizer = load("embedded")
        vectors = beside_stock(model, lambda: embed(model, tokenizer, TEXTS, given.tokens))
        # Past its training length a temperature keeps attention as sharp as it was: on top of the acceleration
        with lw.accelerate(model), lw.extend(model, "log"):
            sharper = embed(model, tokenizer, TEXTS, given.tokens)
        print(f"with the log law the vectors turn by {float((vectors * sharper).sum(-1).acos().mean()):.3f} radians")
    print(f"{len(vectors)} vectors of {vectors.shape[-1]} numbers")


if __name__ == "__main__":
    main()

"""One vector a protein from a FASTA file, by ProtT5's encoder, long chains included.

python protein_embeddings.py proteins.fasta --model Rostlab/prot_t5_xl_half_uniref50-enc --out embeddings.npz
python protein_embeddings.py                       # random weights and random proteins
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import transformers as tf
from beside_stock import beside_stock

RESIDUES = "ALGVSREDTIPKFQNYMHWCX"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read_fasta(path: Path) -> dict[str, str]:
    """Chains by name, rare residues as X; entries without residues are left out."""
    proteins: dict[str, str] = {}
    name = path.stem  # of a file that begins without one
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            name = (line[1:].split() or [path.stem])[0]
            if name in proteins:
                raise SystemExit(f"{path} names two proteins {name}")
            proteins[name] = ""
        else:
            chain = line.strip().upper().rstrip("*")
            proteins[name] = proteins.get(name, "") + "".join(residue if residue in RESIDUES else "X" for residue in chain)
    return {name: chain for name, chain in proteins.items() if chain}


def batches(proteins: dict[str, str], residues: int) -> Iterator[list[str]]:
    """Names, longest first, so many at once as fill `residues`: chains of one batch are about as long, and little is padded."""
    names = sorted(proteins, key=lambda name: -len(proteins[name]))
    while names:
        count = max(1, residues // (len(proteins[names[0]]) + 1))
        yield names[:count]
        names = names[count:]


@torch.inference_mode()
def embed(model: tf.T5EncoderModel, tokens: dict[str, int], proteins: dict[str, str], residues: int) -> dict[str, np.ndarray]:
    """The mean of each protein's residues; `tokens` are their numbers, 1 ends a sequence."""
    vectors = {}
    for names in batches(proteins, residues):
        rows = [[tokens[residue] for residue in proteins[name]] + [1] for name in names]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=model.device)
        states = model(input_ids=ids, attention_mask=(ids > 0).long()).last_hidden_state
        for name, row, state in zip(names, rows, states, strict=True):
            vectors[name] = state[: len(row) - 1].float().mean(0).cpu().numpy()
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fasta", type=Path, nargs="?")
    parser.add_argument("--model", help="without it a small T5 with random weights")
    parser.add_argument("--residues", type=int, default=4096, help="of a batch")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.model:
        dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
        model = tf.T5EncoderModel.from_pretrained(given.model, dtype=dtype)
        tokenizer = tf.AutoTokenizer.from_pretrained(given.model)
        tokens = {residue: tokenizer.convert_tokens_to_ids(f"\u2581{residue}") for residue in RESIDUES}
    else:
        tokens = {residue: 3 + number for number, residue in enumerate(RESIDUES)}
        model = tf.T5EncoderModel(tf.T5Config(vocab_size=128, d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=4))
    model.eval().to(DEVICE)
    drawn = random.Random(0)
    made = {f"random-{n}": "".join(drawn.choices(RESIDUES, k=drawn.randint(50, 400))) for n in range(4)}
    proteins = read_fasta(given.fasta) if given.fasta else made
    if not proteins:
        raise SystemExit(f"{given.fasta} holds no protein")
    vectors = beside_stock(model, lambda: embed(model, tokens, proteins, given.residues))
    print(f"{len(vectors)} proteins, up to {max(map(len, proteins.values()))} residues")
    if given.out:
        np.savez(given.out, **vectors)


if __name__ == "__main__":
    main()

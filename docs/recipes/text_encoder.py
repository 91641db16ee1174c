"""The T5 that reads the prompts of a diffusion pipeline (Flux, Stable Diffusion 3, PixArt).

python text_encoder.py --pipeline black-forest-labs/FLUX.1-schnell               # needs diffusers and a GPU
python text_encoder.py                                                           # random weights
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import torch
import transformers as tf
from beside_stock import beside_stock

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@torch.inference_mode()
def read_prompts(encoder: Any, ids: torch.Tensor) -> torch.Tensor:
    """Flux and Stable Diffusion 3 pad prompts to one length and read the padding too: they pass no mask."""
    states: torch.Tensor = encoder(ids)[0]
    return states


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", help="a diffusers pipeline; without it something that holds a T5 as one does")
    parser.add_argument("--tokens", type=int, default=512)
    given = parser.parse_args()
    if given.pipeline:
        from diffusers import DiffusionPipeline

        pipeline = DiffusionPipeline.from_pretrained(given.pipeline, torch_dtype=torch.bfloat16).to(DEVICE)
    else:
        config = tf.T5Config(vocab_size=128, d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=4)
        pipeline = SimpleNamespace(text_encoder=None, text_encoder_2=tf.T5EncoderModel(config).eval().to(DEVICE))
    encoder = next(
        encoder
        for name in ("text_encoder_3", "text_encoder_2", "text_encoder")
        if (encoder := getattr(pipeline, name, None)) is not None and "t5" in encoder.config.model_type
    )
    ids = torch.randint(3, encoder.config.vocab_size, (1, given.tokens), device=encoder.device)
    # The pipeline itself is given: its T5 is found
    states = beside_stock(pipeline, lambda: read_prompts(encoder, ids))
    print(f"states of {tuple(states.shape)}")


if __name__ == "__main__":
    main()

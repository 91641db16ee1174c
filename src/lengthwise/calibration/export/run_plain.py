"""Run a checkpoint in plain transformers: a script for a process of its own, which must not import lengthwise.

python run_plain.py FOLDER asked.json told.safetensors
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file


def main(folder: str, asked: str, told: str) -> None:
    """Next-token logits and greedy answers to prompts of token ids."""
    question = json.loads(Path(asked).read_text())
    torch.set_num_threads(question["threads"])
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder, dtype=torch.float32).eval()
    # Without what a checkpoint's own settings add, as a penalty for repetitions
    greedy = transformers.GenerationConfig(**question["greedy"])
    logits, answers = [], []
    for prompt in question["prompts"]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            if config.is_encoder_decoder:
                start = torch.tensor([[config.decoder_start_token_id]])
                logits.append(model(input_ids=ids, decoder_input_ids=start).logits[0, -1])
            else:
                logits.append(model(input_ids=ids).logits[0, -1])
            made = model.generate(input_ids=ids, generation_config=greedy)[0].tolist()
        answers.append(made[1 if config.is_encoder_decoder else len(prompt) :])
    assert "lengthwise" not in sys.modules
    save_file({"logits": torch.stack(logits).contiguous()}, told, {"answers": json.dumps(answers)})


if __name__ == "__main__":
    main(*sys.argv[1:])

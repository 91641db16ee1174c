"""Models and a tokenizer for engines: small, and with everything that an engine asks of a checkpoint."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import lengthwise as lw
from lengthwise.common.text import shipped_prose

WORDS = 384  # what the tiny models know


@cache
def tokenizer() -> Any:
    """BPE over bytes that splits digits, as SmolLM's."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    splits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(splits), decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=WORDS, special_tokens=special, initial_alphabet=letters, show_progress=False)
    made.train_from_iterator([shipped_prose()], trainer)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


def verified(model: Any, spec: Any, to: str, out: Path, **options: Any) -> tuple[int, float | None, lw.Exported]:
    """How many of three answers were the same, and the relative error of logits, where there are any."""
    done = lw.export(model, spec, to=to, out=out, tokenizer=tokenizer(), verify=True, **options)
    same = int(done.compared[0].split()[0])
    error = re.search(r"relative error (\S+) from lengthwise", " ".join(done.compared))
    return same, None if error is None else float(error[1]), done

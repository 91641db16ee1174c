"""A BPE vocabulary of 4,096 tokens: bytes at the bottom, so nothing is unknown, and one token a digit.

Learnt from the novels of the training set, the package's prose and the wordings of the tasks; of the words that name lines
only the half that training may use, so that no token belongs to held-out words alone. `</s>` ends every text, as T5 expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from experiments.embedded_model import books, held_out, longeval, wordings
from lengthwise.tasks import line
from lengthwise.text import shipped_prose

SIZE = 4096
PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"
# Enough for the wordings to become whole tokens, few enough to leave room for prose
TIMES = 200


def learn(data: Path, size: int = SIZE) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, EOS, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(data), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """As files that plain AutoTokenizer loads."""
    for_transformers(tokenizer).save_pretrained(folder)


def for_transformers(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


def _texts(data: Path) -> Iterator[str]:
    for path in books.training(data):
        text = path.read_text(encoding="utf-8")
        yield from (text, books.unwrapped(text))
    yield shipped_prose()
    official = longeval.read(data)
    frames = [
        *official.line_introductions,
        *official.line_questions,
        *official.topic_introductions,
        *official.topic_closings,
        *official.topic_questions,
        *(label for label in official.labels if not held_out.label(label)),
    ]
    for text in [*wordings.everything(), *frames]:
        yield from [re.sub(r"\{\w+\}", "", text)] * TIMES
    # A first word follows a space, a second one a hyphen
    names = [f" {word}" for word in sorted({*line.ADJECTIVES, *official.adjectives}) if not held_out.word(word)]
    names += [word for word in sorted({*line.NOUNS, *official.nouns}) if not held_out.word(word)]
    for word in names:
        yield from [word] * 5

"""A BPE vocabulary of a training's own: bytes at the bottom, so nothing is unknown; `</s>` ends every text, as T5 expects."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"


def learn(texts: Iterable[str], size: int, split: list[Any]) -> Tokenizer:
    """`split` are the pre-tokenizers that divide a text into words; the last of them writes bytes as letters."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, EOS, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return tokenizer


def kept(file: Path, learnt: Any) -> Tokenizer:
    """The tokenizer in the file; where there is none yet, what `learnt()` gives, kept there."""
    if not file.exists():
        learnt().save(str(file))
    return Tokenizer.from_file(str(file))


def for_transformers(tokenizer: Tokenizer) -> Any:
    """As plain AutoTokenizer loads it once it is saved."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )

"""Two tokenizers that need no files: bytes, and pieces of words learnt from the shipped prose."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from lengthwise.common.text import shipped_prose


@pytest.fixture(scope="session")
def pieces() -> Any:
    """A BPE of 2,000 tokens, about three letters each, with `</s>` behind every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<pad>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([shipped_prose()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


@pytest.fixture(scope="session", params=["bytes", "pieces"])
def any_tokenizer(request: pytest.FixtureRequest) -> Any:
    return ByT5Tokenizer() if request.param == "bytes" else request.getfixturevalue("pieces")

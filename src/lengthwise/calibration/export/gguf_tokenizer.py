"""A tokenizer in the keys of a GGUF file, read from the parts of its tokenizer.json.

| model of the tokenizer            | in llama.cpp | known by                                                         |
|-----------------------------------|--------------|------------------------------------------------------------------|
| BPE over bytes                    | gpt2         | how it splits text first: Llama 3, Qwen 2, SmolLM, GPT-2         |
| BPE with single bytes to fall to  | llama        | pieces are scored by the rank of the merge that makes them       |
| Unigram                           | t5           | its own scores                                                   |
| anything else                     | none         | said: the file then takes and gives token ids alone              |
"""

from __future__ import annotations

import base64
import re
from typing import Any

from lengthwise.common.formats import parse_json
from lengthwise.models.anatomy import vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
NO_TOKENIZER = "llama.cpp has no tokenizer like this model's: the file takes and gives token ids alone"


def add_tokenizer(writer: Any, stock: Any, tokenizer: Any) -> list[str]:
    """Write the tokenizer's keys; returns a note where llama.cpp has no such tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    document = None if backend is None else parse_json(backend.to_str())
    kind = None if document is None else _kind(document)
    if document is None or kind is None:
        writer.add_tokenizer_model("none")
        return [NO_TOKENIZER]
    model, split = kind
    tokens, types, scores = _tokens(document, vocabulary(stock))
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if model == "gpt2":
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]])
    else:
        writer.add_token_scores(scores)
        writer.add_add_space_prefix(_adds_space(document))
    if model == "t5":
        for step in _steps(document.get("normalizer")):
            if step["type"] == "Precompiled":
                writer.add_precompiled_charsmap(base64.b64decode(step["precompiled_charsmap"]))
        writer.add_remove_extra_whitespaces(True)
    _add_special(writer, tokenizer)
    return []


def _steps(part: Any) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as a list."""
    if not part:
        return []
    inner = part.get("normalizers") or part.get("pretokenizers")
    return [step for each in inner for step in _steps(each)] if inner else [part]


def _kind(document: dict[str, Any]) -> tuple[str, str] | None:
    """llama.cpp's names of the tokenizer's model and of its pre-tokenizer; None for those it does not have."""
    model, steps = document["model"], _steps(document.get("pre_tokenizer"))
    kinds = [step["type"] for step in steps]
    if model["type"] == "Unigram":
        return "t5", "default"
    if model["type"] != "BPE":
        return None
    if "ByteLevel" not in kinds:
        return ("llama", "default") if model.get("byte_fallback") else None
    patterns = [step["pattern"].get("Regex", "") for step in steps if step["type"] == "Split"]
    if patterns:
        groups_of_three = any(r"\p{N}{1,3}" in pattern for pattern in patterns)
        single = any(re.search(r"\|\\p\{N\}\|", pattern) for pattern in patterns)
        return ("gpt2", "llama-bpe") if groups_of_three else ("gpt2", "qwen2") if single else None
    if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
        return "gpt2", "smollm"
    return ("gpt2", "gpt-2") if kinds == ["ByteLevel"] else None


def _tokens(document: dict[str, Any], size: int) -> tuple[list[bytes], list[int], list[float]]:
    """Text, type and score of every token, those that only the embedding knows included."""
    model = document["model"]
    vocab = model["vocab"]
    listed = [(piece, i, score) for i, (piece, score) in enumerate(vocab)] if isinstance(vocab, list) else _ranked(model)
    texts, types, scores = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size, [-10000.0] * size
    # A tokenizer may know more words than the model
    for piece, i, score in (entry for entry in listed if entry[1] < size):
        is_byte = re.fullmatch(r"<0x[0-9A-F]{2}>", piece) is not None
        texts[i], types[i], scores[i] = piece, BYTE if is_byte else NORMAL, score
    for added in document["added_tokens"]:
        if (i := added["id"]) < size:
            texts[i], types[i] = added["content"], CONTROL if added["special"] else USER_DEFINED
    unknown = model.get("unk_id") if isinstance(vocab, list) else vocab.get(model.get("unk_token"))
    if unknown is not None and unknown < size:
        types[unknown] = UNKNOWN
    return [text.encode() for text in texts], types, scores


def _ranked(model: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Pieces of a BPE, scored by the merge that makes them: the earlier, the higher."""
    ranks: dict[str, float] = {}
    for rank, merge in enumerate(model["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        ranks.setdefault(left + right, -float(rank))
    return [(piece, i, ranks.get(piece, 0.0)) for piece, i in model["vocab"].items()]


def _adds_space(document: dict[str, Any]) -> bool:
    """Whether a text gets a space before its first word."""
    steps = [*_steps(document.get("normalizer")), *_steps(document.get("pre_tokenizer"))]
    return any(step["type"] == "Prepend" or step.get("prepend_scheme", "never") != "never" for step in steps)


def _add_special(writer: Any, tokenizer: Any) -> None:
    """Ids of special tokens, and which of them stand around every text."""
    for name in ("bos", "eos", "unk", "pad"):
        if (token := getattr(tokenizer, f"{name}_token_id", None)) is not None:
            getattr(writer, f"add_{name}_token_id")(token)
    around = tokenizer("a").input_ids
    writer.add_add_bos_token(bool(around) and around[0] == tokenizer.bos_token_id)
    writer.add_add_eos_token(bool(around) and around[-1] == tokenizer.eos_token_id)
    if isinstance(template := getattr(tokenizer, "chat_template", None), str):
        writer.add_chat_template(template)

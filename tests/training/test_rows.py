"""Packing by hand on bytes: a ByT5 tokenizer makes token byte + 3, and 1 at the end of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.training.rows import check_files, digest, rows_of
from lengthwise.training.settings import Settings

WORDS = 384


def settings(**options: Any) -> Settings:
    return Settings(model="m", out="o", **options)


def files(folder: Path, *texts: str) -> tuple[str, ...]:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return tuple(map(str, paths))


def of(text: str) -> list[int]:
    return [1 if sign == "|" else ord(sign) + 3 for sign in text]


def test_documents_follow_one_another_with_an_end_between(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    chosen = settings(data=files(tmp_path, "abcdef", "ghi", "jk"))
    # abcdef|ghi|jk| has 14 tokens: three rows of 4, and two are left over
    assert rows_of(chosen, tokenizer, WORDS, 4, 100).tolist() == [of("abcd"), of("ef|g"), of("hi|j")]
    fewer = settings(data=chosen.data[:2])
    assert rows_of(fewer, tokenizer, WORDS, 4, 2).tolist() == [of("abcd"), of("ef|g")]


def test_no_more_is_read_than_the_steps_need(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    chosen = settings(data=files(tmp_path, "abcdefgh", "ij", "kl"))
    with pytest.warns(UserWarning, match=r"^the steps end before they reach \S*1\.txt, \S*2\.txt: .* nothing of them$"):
        assert rows_of(chosen, tokenizer, WORDS, 4, 2).tolist() == [of("abcd"), of("efgh")]
    with pytest.warns(UserWarning, match=r"^the steps end before they reach \S*2\.txt: .* nothing of it$"):
        assert rows_of(chosen, tokenizer, WORDS, 4, 3).tolist() == [of("abcd"), of("efgh"), of("|ij|")]
    four = settings(data=files(tmp_path, "abcdefgh", *"ijkl"))
    with pytest.warns(UserWarning, match=r"reach (\S*\d\.txt, ){3}\S*4\.txt: "):
        rows_of(four, tokenizer, WORDS, 4, 2)
    many = settings(data=files(tmp_path, "abcdefgh", *"ijklmn"))
    with pytest.warns(UserWarning, match=r"reach (\S*\d\.txt, ){4}and 2 more: "):
        rows_of(many, tokenizer, WORDS, 4, 2)


def test_every_file_is_looked_at_before_anything_is_done(tmp_path: Path) -> None:
    good = files(tmp_path, "abcdefgh")
    check_files(good)
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "odd.bin").write_bytes(b"\xff\xfe\x00")
    for name, message in (
        ("missing.txt", r"cannot read the text file .*missing\.txt: No such file"),
        ("blank.txt", r"blank\.txt holds no text; leave it out"),
        ("odd.bin", r"odd\.bin is not UTF-8 text"),
        (".", "cannot read the text file .*: Is a directory"),
    ):
        with pytest.raises(BadInput, match=message):
            check_files((*good, str(tmp_path / name)))


def test_a_dataset_is_a_file_or_a_directory(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    lines = [{"text": "abcdef", "body": "xyz", "year": 1}, {"text": "gh", "body": "uvw", "year": 2}]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in (folder / "train.jsonl", folder):
        assert rows_of(settings(dataset=str(name)), tokenizer, WORDS, 5, 9).tolist() == [of("abcde"), of("f|gh|")]
    (tmp_path / "lines.txt").write_text("abcdef\n\n \ngh\n")
    assert rows_of(settings(dataset=str(tmp_path / "lines.txt")), tokenizer, WORDS, 5, 9).tolist() == [of("abcde"), of("f|gh|")]
    other = settings(dataset=str(folder), text_field="body")
    assert rows_of(other, tokenizer, WORDS, 4, 9).tolist() == [of("xyz|"), of("uvw|")]
    with pytest.raises(BadInput, match=r"has no text in 'words'; columns with text: text, body \(--text-field\)"):
        rows_of(settings(dataset=str(folder), text_field="words"), tokenizer, WORDS, 5, 9)
    with pytest.raises(BadInput, match=r"cannot read the dataset .*books: .*test"):
        rows_of(settings(dataset=str(folder), split="test"), tokenizer, WORDS, 5, 9)
    odd = tmp_path / "books.xyz"
    odd.write_text("abc")
    with pytest.raises(BadInput, match=r"cannot tell what .* it must end in one of .json, .jsonl"):
        rows_of(settings(dataset=str(odd)), tokenizer, WORDS, 5, 9)


def test_what_makes_no_row_is_refused(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    chosen = settings(data=files(tmp_path, "abcdef"))
    with pytest.raises(BadInput, match="the text has 7 tokens, and one row takes 8; give more text"):
        rows_of(chosen, tokenizer, WORDS, 8, 9)
    assert rows_of(chosen, tokenizer, WORDS, 7, 9).tolist() == [of("abcdef|")]
    with pytest.raises(
        BadInput, match=r"the tokenizer has 256 tokens, and the model knows 200 tokens only; this is another model's tokenizer"
    ):
        rows_of(chosen, tokenizer, 200, 4, 9)
    added = int(tokenizer.convert_tokens_to_ids("<extra_id_0>"))
    beyond = settings(data=files(tmp_path, "abcd<extra_id_0>efgh"))
    with pytest.raises(BadInput, match=f"the text has token {added}, and the model knows {added} tokens only; this is another"):
        rows_of(beyond, tokenizer, added, 4, 9)
    assert rows_of(beyond, tokenizer, added + 1, 4, 9).shape == (2, 4)
    endless = ByT5Tokenizer()
    endless.eos_token = None
    with pytest.raises(BadInput, match="no end-of-text token to put between documents"):
        rows_of(chosen, endless, WORDS, 4, 9)


def test_the_digest_knows_every_token(tmp_path: Path, tokenizer: ByT5Tokenizer) -> None:
    rows = rows_of(settings(data=files(tmp_path, "abcdefgh")), tokenizer, WORDS, 4, 9)
    other = rows.clone()
    other[1, 3] += 1
    assert digest(rows) == digest(rows.clone()) != digest(other)

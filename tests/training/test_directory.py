"""The directory of a training run: whose it is, and where to go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.training.directory import FORMAT, TrainingDirectory

CONFIG: dict[str, Any] = {
    "format": FORMAT,
    "model": {"family": "llama", "layers": 2, "heads": 4, "key_size": 8, "weights": "aa", "name": "here"},
    "settings": {"alpha": 0.1, "data": ["a"]},
    "rows": {"count": 3, "digest": "bb"},
}


def test_the_same_run_agrees_and_another_is_refused(tmp_path: Path) -> None:
    directory = TrainingDirectory(tmp_path / "run")
    directory.agree(CONFIG)
    kept = (directory.path / "config.json").read_bytes()
    directory.agree({**CONFIG, "model": {**CONFIG["model"], "name": "there"}})
    for change, message in (
        (
            {"model": {**CONFIG["model"], "weights": "cc"}},
            "was begun with another model: its weights is aa, this model's is cc",
        ),
        (
            {"settings": {**CONFIG["settings"], "alpha": 0.3}},
            r"begun with another alpha: 0\.1 then, 0\.3 now; .* or alpha 0\.1",
        ),
        ({"rows": {"count": 3, "digest": "dd"}}, "was begun with other text or another tokenizer; give another --out"),
    ):
        with pytest.raises(BadInput, match=message):
            directory.agree({**CONFIG, **change})
    assert (directory.path / "config.json").read_bytes() == kept


def test_a_run_begun_before_a_setting_was_there_had_its_only_value(tmp_path: Path) -> None:
    directory = TrainingDirectory(tmp_path / "run")
    directory.agree(CONFIG)
    directory.agree({**CONFIG, "settings": {**CONFIG["settings"], "compare": "sce"}})
    with pytest.raises(BadInput, match="was begun with another compare: sce then, kl now; give another --out, or compare sce"):
        directory.agree({**CONFIG, "settings": {**CONFIG["settings"], "compare": "kl"}})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "config.json",
            json.dumps({"format": "lengthwise.run/1"}),
            "of a training directory: its format is 'lengthwise.run/1'",
        ),
        ("config.json", "{", "is not the config of a training directory: it is not JSON"),
        ("config.json", json.dumps({**CONFIG, "settings": 5}), "config.json is damaged: its 'settings' is 5, not an object"),
        ("config.json", json.dumps({"format": FORMAT}), "config.json is damaged: it has no 'model'"),
        ("novel.txt", "Once", "is not a training directory, but holds novel.txt"),
    ],
)
def test_a_directory_of_something_else_is_left_alone(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        TrainingDirectory(tmp_path).agree(CONFIG)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, text)]


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot use .*file as a training directory: File exists; give another --out"):
        TrainingDirectory(tmp_path / "file").agree(CONFIG)
    with pytest.raises(BadInput, match=r"cannot use .*below as a training directory: Not a directory; give another --out"):
        TrainingDirectory(tmp_path / "file" / "below").agree(CONFIG)


def test_the_last_whole_checkpoint_is_the_one_to_go_on_from(tmp_path: Path) -> None:
    directory = TrainingDirectory(tmp_path)
    assert directory.last_checkpoint(None) is None
    for step, state in ((9, "{}"), (50, "{}"), (100, '{"half'), (150, None)):
        folder = directory.checkpoints / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    # Somebody's copy
    (directory.checkpoints / "checkpoint-50-before").mkdir()
    assert directory.last_checkpoint(None) == directory.checkpoints / "checkpoint-50"
    with pytest.raises(BadInput, match="holds checkpoint-50-before, which transformers would take for"):
        directory.refuse_copies()
    # Killed before what CLEX learnt was beside it
    assert directory.last_checkpoint("clex") is None
    (directory.checkpoints / "checkpoint-9" / "clex.safetensors").write_bytes(b"")
    assert directory.last_checkpoint("clex") == directory.checkpoints / "checkpoint-9"


def test_losses_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    directory = TrainingDirectory(tmp_path)
    lines = [json.dumps({"step": step, "loss": 3.5, "cross_entropy": 3.0}) + "\n" for step in (1, 2, 3)]
    directory.losses.write_text("".join(lines) + '{"st')
    directory.forget_losses_after(2)
    assert directory.losses.read_text() == "".join(lines[:2])


def test_losses_of_a_run_that_breaks_are_read(tmp_path: Path) -> None:
    directory = TrainingDirectory(tmp_path)
    directory.losses.write_text('{"step": 1, "loss": NaN, "cross_entropy": Infinity}\n')
    assert [(line["loss"] > 0, line["cross_entropy"]) for line in directory.read_losses()] == [(False, float("inf"))]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"garbage", "it is not JSON: Expecting value at letter 1"),
        (b"\xff", "it is not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"", "it is not JSON: Expecting value at letter 1"),
        (b"[5]", "it is not a JSON object"),
        (b'{"step": 2, "loss": 1e999, "cross_entropy": 3.0}', "it is not JSON: the number 1e999 is too large"),
        (b'{"step": 2, "loss": 3.5}', "it has no 'cross_entropy'"),
        (b'{"step": "two", "loss": 3.5, "cross_entropy": 3.0}', "its 'step' is \"two\", not a whole number"),
    ],
)
def test_a_damaged_line_of_losses_is_named_and_left(tmp_path: Path, line: bytes, reason: str) -> None:
    directory = TrainingDirectory(tmp_path)
    text = b'{"step": 1, "loss": 3.5, "cross_entropy": 3.0}\n' + line + b"\n"
    directory.losses.write_bytes(text)
    for read in (directory.read_losses, lambda: directory.forget_losses_after(1)):
        with pytest.raises(BadInput, match=rf"^line 2 of .*losses\.jsonl is damaged: {reason}; take the line out$"):
            read()
    assert directory.losses.read_bytes() == text

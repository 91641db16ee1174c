"""`lengthwise analyse`: what it prints and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from lengthwise.common.text import shipped_prose
from tests.conftest import Said, make

pytestmark = pytest.mark.filterwarnings("ignore:PNG figures need")


@pytest.fixture
def without_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest here."""
    monkeypatch.setattr("lengthwise.report.png.available", lambda: False)


quickly = pytest.mark.usefixtures("without_png")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "t5"
    make("t5").save_pretrained(folder)
    transformers.ByT5Tokenizer().save_pretrained(folder)
    return folder


@quickly
def test_the_command_prints_tables_and_names_the_folder(
    checkpoint: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    (tmp_path / "text.txt").write_text(shipped_prose()[:2000])
    common = ("analyse", checkpoint, "--text", tmp_path / "text.txt", "--out", tmp_path / "a")
    said = lengthwise(*common, "--length", 64, "--length", 48)
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0].split() == ["length", "P_max", "entropy", "largest", "logit"]
    assert [line.split()[0] for line in lines[1:4]] == ["32", "48", "64"]
    assert any(line.startswith("Temperature at 64 tokens:") for line in lines)
    assert said.err[0] == "length 32: measuring"
    assert said.err[-1].startswith(f"lengthwise: tables, figures and analysis.md: {tmp_path / 'a'}")
    document = json.loads(lengthwise(*common, "--length", 64, "--json").out)
    assert document["settings"]["text"] == "text.txt"
    assert document == json.loads((tmp_path / "a" / "analysis.json").read_text())


REFUSALS = {
    "no length": ("{m} --out {t}/a", "Missing option '--length'"),
    "no folder": ("{m} --length 64", "Missing option '--out'"),
    "too short a length": ("{m} --length 16 --out {t}/a", "no length is beyond the training length 32"),
    "no such text": ("{m} --length 64 --text {t}/none.txt --out {t}/a", "cannot read the text file"),
    "no such model": ("{t}/nowhere --length 64 --out {t}/a", "no directory"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line(
    case: str, checkpoint: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    arguments, message = REFUSALS[case]
    said = lengthwise("analyse", *arguments.format(m=checkpoint, t=tmp_path).split())
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert message in said.err[0]
    assert list(tmp_path.iterdir()) == []

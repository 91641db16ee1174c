"""The Python of docs/serving.md, run on the model that ships with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lengthwise as lw
from lengthwise.models.load import load
from lengthwise.tasks import passkey

pytest.importorskip("ctranslate2", reason="make test-engines")
pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


@pytest.mark.parametrize(("to", "folder"), [("ctranslate2", "t5-ct2"), ("onnx", "t5-onnx")])
def test_the_example_answers(
    to: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = load("embedded", device="cpu")
    lw.export(model, "log", to=to, out=folder, tokenizer=tokenizer, length=1200)
    (sample,) = passkey.samples(tokenizer, 1200, 1, seed=0)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if f'"{folder}"' in block]
    capsys.readouterr()
    exec(compile(code, str(PAGE), "exec"), {"prompt": sample.prompt})
    assert passkey.score(capsys.readouterr().out, sample.target) == 1

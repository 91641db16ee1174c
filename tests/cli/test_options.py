"""What commands share: whether a file can be written is known before the work, and JSON is printed as it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lengthwise.cli.options import check_writable, print_json
from lengthwise.errors import BadInput


def test_a_file_in_a_folder_that_is_still_to_be_made_can_be_written(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deeper" / "a.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["folder", "file/below.json"])
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=f"^cannot write .*{place}: .*; give a path in a directory you may write to$"):
        check_writable(tmp_path / place)


def test_json_is_one_document_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"tau": [0.5, None]})
    assert json.loads(capsys.readouterr().out) == {"tau": [0.5, None]}

"""Alignments on the hub and in folders: fetched by name, read from the cache, found beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

import lengthwise as lw
from lengthwise.methods.hub import fetched
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from tests.conftest import TRAIN_LENGTH, logits, make, tokens

LONG = 4 * TRAIN_LENGTH


def alignment(model: Any) -> lw.Alignment:
    table = (Calibrated(LONG, 0.6, 0.5, 3),)
    return lw.Alignment("pmax", "model", TRAIN_LENGTH, 0.5, table, model_fingerprint(anatomy_of(model)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of files that were fetched from me/aligned, with the hub out of reach."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    files = tmp_path / "models--me--aligned" / "snapshots" / ("a" * 40)
    files.mkdir(parents=True)
    (tmp_path / "models--me--aligned" / "refs").mkdir()
    (tmp_path / "models--me--aligned" / "refs" / "main").write_text("a" * 40)
    return files


def test_what_was_fetched_once_is_read_without_the_hub(cache: Path) -> None:
    model = make("t5")
    alignment(model).save_pretrained(cache)
    assert lw.Alignment.from_pretrained("me/aligned") == alignment(model)
    with lw.extend(model, alignment(model)):
        expected = logits(model, tokens(LONG))
    for spec in ("@hub:me/aligned", "@hub:me/aligned/alignment.json"):
        with lw.extend(model, spec):
            assert logits(model, tokens(LONG)).equal(expected)


REFUSED = {
    "@hub:me": "is no name on the hub",
    "@hub:me/aligned/code.py": "is no JSON file",
    "@hub:me/other": "me/other has no alignment.json and no recipe.json that can be fetched",
    "@hub:a/b/c/d.json": "is no name on the hub",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_names_that_are_none_are_refused_in_one_line(spec: str, cache: Path) -> None:
    with pytest.raises(lw.BadInput, match=REFUSED[spec]) as caught, lw.extend(make("t5"), spec):
        pass
    assert "\n" not in str(caught.value)


def test_a_folder_keeps_an_alignment(tmp_path: Path) -> None:
    model = make("t5")
    alignment(model).save_pretrained(tmp_path / "new")
    assert lw.Alignment.from_pretrained(tmp_path / "new") == alignment(model)


def test_an_alignment_beside_the_model_is_found_and_said_so(tmp_path: Path) -> None:
    model = make("t5")
    with pytest.raises(lw.BadInput, match="method 'aligned' needs path"), lw.extend(model, "aligned"):
        pass
    alignment(model).save_pretrained(tmp_path)
    model.encoder.config._name_or_path = str(tmp_path)
    with lw.extend(model, alignment(model)):
        expected = logits(model, tokens(LONG))
    with pytest.warns(UserWarning, match=f"the alignment beside the model is used: {tmp_path}"), lw.extend(model, "aligned"):
        assert logits(model, tokens(LONG)).equal(expected)


def test_an_alignment_is_pushed_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: dict[str, Any] = {}

    class Hub:
        def __init__(self, token: str | None = None) -> None:
            pushed["token"] = token

        def create_repo(self, name: str, private: bool | None, exist_ok: bool) -> None:
            pushed["made"] = (name, private, exist_ok)

        def upload_file(self, path_or_fileobj: bytes, path_in_repo: str, repo_id: str) -> str:
            if repo_id == "not/mine":
                raise OSError("no permission")
            pushed["file"] = (path_in_repo, json.loads(path_or_fileobj))
            return "https://hub/me/aligned"

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    model = make("t5")
    assert alignment(model).push_to_hub("me/aligned", private=True, token="t") == "https://hub/me/aligned"
    assert pushed["made"] == ("me/aligned", True, True)
    assert pushed["file"] == ("alignment.json", alignment(model).file_content())
    with pytest.raises(lw.BadInput, match=r"cannot write alignment.json to not/mine on the hub: no permission"):
        alignment(model).push_to_hub("not/mine")


def test_a_hub_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 9 of this machine listens to nobody
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(lw.BadInput, match=r"^cannot write alignment.json to me/aligned on the hub: "):
        alignment(make("t5")).push_to_hub("me/aligned", token="hf_x")


def test_a_hub_out_of_reach_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def out_of_reach(_: str, file: str, local_files_only: bool = False) -> str:
        asked.append((file, local_files_only))
        raise LocalEntryNotFoundError("cannot be reached")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", out_of_reach)
    with pytest.raises(lw.BadInput, match=r"me/other has no alignment.json and no recipe.json that can be fetched"):
        fetched("hub:me/other")
    # Every try takes half a minute
    assert asked == [("alignment.json", False), ("recipe.json", True)]


@pytest.mark.parametrize("folder", ["/runs/aligned", "aligned"])
def test_a_folder_that_is_not_there_is_not_asked_of_the_hub(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("the hub was asked"))
    with pytest.raises(lw.BadInput, match=f"^hub:{folder}/alignment.json is no name on the hub"):
        lw.Alignment.from_pretrained(folder)

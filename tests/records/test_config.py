"""The config of a run: what may grow, and what is refused because it has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.records import RunDirectory
from tests.records.samples import CONFIG, changed


def test_the_config_is_kept_and_methods_and_files_may_grow(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "deep" / "run", CONFIG)
    path = tmp_path / "deep" / "run" / "config.json"
    assert json.loads(path.read_text()) == CONFIG
    written = path.stat().st_mtime_ns
    RunDirectory(path.parent, {**CONFIG, "made_with": {"lengthwise": "9"}})
    assert path.stat().st_mtime_ns == written
    grown = {**CONFIG, "methods": {"@a.json": {"scope": "model"}}, "data": {"f.jsonl": "abc"}, "made_with": {}}
    run = RunDirectory(path.parent, grown)
    assert run.config["methods"] == {"none": None, "@a.json": {"scope": "model"}}
    assert json.loads(path.read_text()) == run.config
    assert run.config["made_with"] == CONFIG["made_with"]
    # Of earlier versions, which did not tell it
    path.write_text(json.dumps({key: value for key, value in CONFIG.items() if key != "given"}))
    assert RunDirectory(path.parent, CONFIG).config["given"] == CONFIG["given"]
    moved = {**CONFIG, "given": {"names of flowers": "/elsewhere"}}
    assert RunDirectory(path.parent, moved).config["given"] == CONFIG["given"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed("model", weights="xyz"), "was begun with another model: its weights is abc, this model's is xyz"),
        (changed("model", layers=3), "was begun with another model: its layers is 2, this model's is 3"),
        (
            changed("model", config={"rope_theta": "500000.0"}),
            "was begun with another config of the model: its rope_theta was 10000.0 and is 500000.0; give another --out",
        ),
        (changed("settings", seed=1, dtype="bfloat16"), "was begun with another seed: 0 then, 1 now"),
        (changed("settings", train_length=1024), "was begun with another train_length: 512 then, 1024 now"),
        (
            {**CONFIG, "methods": {"@a.json": {"scope": "model", "target": 0.5}}},
            "the method '@a.json' has changed since .*: its target was 0.25 and is 0.5",
        ),
        ({**CONFIG, "data": {"f.jsonl": "new"}}, "the data file 'f.jsonl' has changed since"),
        ({**CONFIG, "tasks": {"line": None}}, "samples of line made of names of flowers, and not of what the package brings"),
        ({**CONFIG, "samples": 2}, "holds samples that an earlier version made, and this one makes others; give another --out"),
    ],
)
def test_another_model_setting_or_alignment_is_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    old = {**CONFIG, "methods": {"@a.json": {"scope": "model", "target": 0.25}}, "data": {"f.jsonl": "old"}}
    old["model"] = {**CONFIG["model"], "config": {"rope_theta": "10000.0"}}
    RunDirectory(tmp_path, old)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(BadInput, match=message):
        RunDirectory(tmp_path, config)
    assert (tmp_path / "config.json").read_bytes() == before


def test_keys_of_a_models_config_may_come_and_go_with_versions(tmp_path: Path) -> None:
    RunDirectory(tmp_path, changed("model", config={"rope_theta": "10000.0", "pretraining_tp": "1"}))
    RunDirectory(tmp_path, changed("model", config={"rope_theta": "10000.0", "new": "1"}))
    begun = {"rope_theta": "10000.0", "pretraining_tp": "1"}
    assert RunDirectory(tmp_path, CONFIG).config["model"]["config"] == begun


def test_the_same_model_in_another_directory_is_the_same_model(tmp_path: Path) -> None:
    RunDirectory(tmp_path, CONFIG)
    assert RunDirectory(tmp_path, changed("model", name="elsewhere")).config["model"]["name"] == "m"


@pytest.mark.parametrize("model", [{"weights": "abc"}, {"weights": "abc", "name": 5}, []])
def test_a_model_without_its_name_is_damage(model: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model": model}))
    with pytest.raises(BadInput, match=r"config\.json is damaged: its 'model' is .*, not an object with a name; put it right"):
        RunDirectory(tmp_path, CONFIG)

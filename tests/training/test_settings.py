"""Settings from names and values, from YAML, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.training.settings import Settings, read_yaml, settings_of
from tests.conftest import make

LEAST: dict[str, Any] = {"model": "m", "out": "o", "data": ["a.txt"]}


def test_yaml_values_become_what_the_fields_are(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    # YAML 1.1 reads 2e-5 as a word
    file.write_text(
        "model: m\nout: o\ndata: a.txt\nlearning-rate: 2e-5\nsteps: 7\nalpha: 1\ncompare: kl\nshifted_sparse: true\n"
        "lora_rank: null\n"
    )
    found = settings_of(read_yaml(file))
    given: dict[str, Any] = {"learning_rate": 2e-5, "steps": 7, "alpha": 1.0, "compare": "kl", "shifted_sparse": True}
    expected = Settings(model="m", out="o", data=("a.txt",), **given)
    assert found == expected
    assert isinstance(found.alpha, float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -0.1}, r"alpha must be a number from 0 on, not -0\.1"),
        ({"alpha": float("nan")}, "--alpha must be a finite number, not nan"),
        ({"alpha": "much"}, "--alpha must be a number, not 'much'"),
        ({"steps": 0}, "--steps must be at least 1, not 0"),
        ({"model": make("llama")}, r"^--model must be text, not LlamaForCausa[^\n]*$"),
        ({"steps": 2.5}, r"--steps must be a whole number, not 2\.5"),
        ({"steps": [3]}, r"--steps must be a whole number, not \[3\]"),
        ({"steps": True}, "--steps must be given a value, not True"),
        ({"shifted_sparse": "maybe"}, "--shifted-sparse must be true or false, not 'maybe'"),
        ({"save_every": 0}, "--save-every must be at least 1, not 0"),
        ({"learning_rate": 0}, "--learning-rate must be above 0"),
        ({"warmup": -1}, "--warmup must be at least 0, not -1"),
        ({"lora_rank": -1}, "--lora-rank must be at least 0, not -1"),
        ({"lora_rank": 10**20}, f"--lora-rank must be below 65536, not {10**20}"),
        ({"stretch": 1}, "--stretch must be above 1, not 1"),
        ({"stretch": 8}, "--stretch is of the adjustment clex, and this one is none; leave --stretch out"),
        ({"stretch": 8, "adjustment": "yarn:factor=2"}, "--stretch is of the adjustment clex, and this one is yarn:factor=2"),
        ({"dtype": "float16"}, "--dtype must be 'float32' or 'bfloat16', not 'float16'"),
        ({"device": "tpu"}, "--device must be 'cpu' or 'cuda', not 'tpu'"),
        ({"seed": 2**32}, "--seed must be below 4294967296, not 4294967296"),
        ({"steps": None}, "--steps must be a whole number, not None"),
        ({"sampling": "2..L"}, r"sampling must be one of 1\.\.L/2, .* not '2\.\.L'"),
        ({"compare": "cosine"}, "compare must be one of sce, kl, not 'cosine'"),
        ({"train_length": 0}, "at length 0 there is no e"),
        ({"dataset": "d"}, "and not both"),
        ({"split": "validation"}, "--split is of a --dataset, and --data is given; leave --split out"),
        ({"dataset-config": "en"}, "--dataset-config is of a --dataset"),
        ({"text_field": "body"}, "--text-field is of a --dataset"),
        ({"learningrate": 1}, "training has no setting 'learningrate'; did you mean 'learning_rate'?"),
        ({"xyzzy": 1}, "training has no setting 'xyzzy'; there are: model, out, adjustment"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        settings_of({**LEAST, **options})


def test_settings_of_a_dataset_may_stand_at_their_defaults_beside_files() -> None:
    assert settings_of({**LEAST, "split": "train", "text_field": "text", "dataset_config": None}) == settings_of(LEAST)


def test_stretch_is_for_clex_and_may_stand_at_its_default_elsewhere() -> None:
    assert settings_of({**LEAST, "stretch": 4}) == settings_of(LEAST)
    assert settings_of({**LEAST, "stretch": 8, "adjustment": "log + clex:width=2"}).stretch == 8


def test_what_is_missing_is_named() -> None:
    with pytest.raises(BadInput, match="training needs model; give MODEL"):
        settings_of({"out": "o"})
    with pytest.raises(BadInput, match="training needs out; give --out DIR"):
        settings_of({"model": "m"})
    with pytest.raises(BadInput, match="give what to train on: --data FILE"):
        settings_of({"model": "m", "out": "o"})


def test_files_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the settings .*: No such file"):
        read_yaml(tmp_path / "none.yaml")
    file = tmp_path / "settings.yaml"
    for text, message in (("a: [", "is not YAML"), ("- 1", "must hold settings")):
        file.write_text(text)
        with pytest.raises(BadInput, match=message):
            read_yaml(file)

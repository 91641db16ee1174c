"""What config.json knows a model and its tokenizer by."""

from __future__ import annotations

import torch
from transformers import ByT5Tokenizer

from lengthwise.evaluation.sweep.run_config import config_values, dtype_of, made_with, parameters_digest, tokenizer_digest
from tests.conftest import make


class Upper(ByT5Tokenizer):
    def __call__(self, text: str, **options: object) -> object:
        return super().__call__(text.upper(), **options)


def test_the_digest_of_a_model_follows_every_parameter() -> None:
    model = make("t5")
    digest = parameters_digest(model)
    assert digest == parameters_digest(make("t5"))
    for name in ("decoder.block.0.layer.1.EncDecAttention.v.weight", "shared.weight"):
        changed = make("t5")
        with torch.no_grad():
            changed.get_parameter(name).mul_(1.5)
        assert parameters_digest(changed) != digest, name


def test_a_models_config_is_told_by_what_it_computes_with() -> None:
    model, config = make("llama"), config_values(make("llama"))
    assert config == config_values(model.bfloat16())
    model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    changed = config_values(model)
    assert {key for key in config if config[key] != changed[key]} == {"rope_parameters"}


def test_the_digest_of_a_tokenizer_follows_how_it_reads() -> None:
    assert tokenizer_digest(ByT5Tokenizer()) == tokenizer_digest(ByT5Tokenizer()) != tokenizer_digest(Upper())


def test_numbers_and_devices_are_named_in_words() -> None:
    assert dtype_of(make("t5").bfloat16()) == "bfloat16"
    assert made_with("cpu")["device"] == "cpu"
    assert {"torch", "transformers"} <= set(made_with("cpu"))

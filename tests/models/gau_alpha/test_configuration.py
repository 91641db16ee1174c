from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.models.gau_alpha import GAUAlphaConfig


def test_the_defaults_are_the_released_sizes() -> None:
    config = GAUAlphaConfig()
    sizes = (
        config.hidden_size,
        config.intermediate_size,
        config.head_dim,
        config.num_attention_heads,
        config.num_hidden_layers,
    )
    assert sizes == (768, 1536, 128, 1, 24)
    assert (config.vocab_size, config.type_vocab_size, config.max_position_embeddings) == (12000, 2, 512)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}


def test_the_released_spelling_is_read(tmp_path: Path) -> None:
    released = {"model_type": "gau_alpha", "attention_key_size": 64, "normalization": "softmax_plus", "num_hidden_layers": 6}
    (tmp_path / "config.json").write_text(json.dumps(released))
    config = GAUAlphaConfig.from_pretrained(tmp_path)
    assert (config.head_dim, config.normalisation, config.num_hidden_layers) == (64, "softmax_plus", 6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"normalisation": "relu"}, "has no normalisation 'relu'; take one of softmax"),
        ({"positions": "sinusoidal"}, "has no positions 'sinusoidal'"),
        ({"num_attention_heads": 12}, "one head, not 12"),
        ({"head_dim": 7}, "even head_dim, not 7"),
        ({"cos_scale": 0.0}, "cos_scale must be above 0"),
        ({"cos_scale": float("nan")}, "cos_scale must be above 0"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "no rope_type 'yarn'"),
        ({"positions": "alibi", "normalisation": "infoscale"}, "alibi cannot be trained with infoscale"),
        ({"positions": "alibi", "alibi_factors": [[1.5, 1.5]] * 24}, "alibi_factors must be 24 lists"),
    ],
)
def test_a_choice_that_makes_no_model_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        GAUAlphaConfig(**given)

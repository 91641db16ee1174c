from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.spec import methods_of
from lengthwise.models import family_base
from lengthwise.models.gau_alpha import (
    GAUAlphaConfig,
    GAUAlphaForMaskedLM,
    GAUAlphaModel,
    GAUAlphaRotaryEmbedding,
    apply_rotary_pos_emb,
    inverse_temperature,
)
from lengthwise.models.load import load
from tests.helpers.gau import TRAIN_LENGTH, by_hand, ids, tiny
from tests.helpers.sweep import crossed

LONG = TRAIN_LENGTH + 13
CLOSE = {"atol": 2e-4, "rtol": 1e-4}
# What a model may be trained with
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "cosine": {"cos_scale": 20.0},
    "softmax plus": {"normalisation": "softmax_plus"},
    "infoscale": {"normalisation": "infoscale"},
    "both": {"normalisation": "infoscale", "cos_scale": 20.0},
    "nope": {"positions": "nope"},
    "alibi": {"positions": "alibi", "alibi_slope": 0.3},
    "cosine alibi": {"positions": "alibi", "cos_scale": 20.0},
}
Rule = Callable[[int, int], float | None]


def nowhere(i: int, j: int) -> float:
    return 0


def logits(model: Any, tokens: torch.Tensor, method: str | None = None, **options: Any) -> torch.Tensor:
    with torch.inference_mode():
        if method is None:
            return model(tokens).logits  # type: ignore[no-any-return]
        with lw.extend(model, method, **options):
            return model(tokens).logits  # type: ignore[no-any-return]


def expected_of(model: Any, tokens: torch.Tensor, **changes: Any) -> torch.Tensor:
    """By hand, with what the model was trained with."""
    config, n = model.config, tokens.shape[1]
    if config.positions != "rope":
        changes.setdefault("distance", nowhere)
    if config.positions == "alibi":
        changes.setdefault("bias", lambda i, j: -config.alibi_slope * abs(i - j))
    own = {"softmax": 1.0, "softmax_plus": math.log(n) / math.log(512)}
    # A single key gets all the weight whatever g is
    own["infoscale"] = math.sqrt((1 - n ** (-2 / 8)) / (1 - 32 ** (-2 / 8)))
    return by_hand(model, tokens, g=own[config.normalisation] * changes.pop("g", 1.0), **changes)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("length", [1, 2, LONG])
def test_the_model_written_out_by_hand_gives_the_same(choice: str, length: int) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(length)
    expected = expected_of(model, tokens)
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        torch.testing.assert_close(logits(model, tokens).double(), expected, **CLOSE)
    found = logits(model, tokens, "none", implementation="blockwise").double()
    torch.testing.assert_close(found, expected, **CLOSE)


def test_segments_are_added_to_tokens() -> None:
    model, tokens, segments = tiny(), ids(9), [0, 0, 0, 1, 1, 1, 1, 0, 1]
    expected = by_hand(model, tokens, segments=segments)
    found = model(tokens, token_type_ids=torch.tensor([segments])).logits
    torch.testing.assert_close(found.double(), expected, **CLOSE)
    assert not torch.allclose(found, model(tokens).logits, atol=1e-2)


def sinks_before_window(i: int, j: int) -> float | None:
    if abs(i - j) < 10:
        return i - j
    return min(i, 12) - j if j < 3 else None


def far(i: int, j: int, most: float) -> float:
    return max(-most, min(most, i - j))


RULES: dict[str, Rule] = {
    "nope": nowhere,
    "interpolation:factor=4": lambda i, j: (i - j) / 4,
    "rerope:window=12": lambda i, j: far(i, j, 12),
    "rerope:window=12,leak=4": lambda i, j: i - j if abs(i - j) < 12 else math.copysign(12 + (abs(i - j) - 12) / 4, i - j),
    "window:size=9": lambda i, j: i - j if abs(i - j) < 9 else None,
    "streaming_llm:sinks=3,window=10": sinks_before_window,
    "lm_infinite:sinks=3": lambda i, j: i - j if abs(i - j) < TRAIN_LENGTH else (TRAIN_LENGTH if j < 3 else None),
}


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize("choice", ["plain", "cosine", "infoscale"])
def test_methods_by_distance_equal_the_model_by_hand(method: str, choice: str) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(LONG)
    expected = expected_of(model, tokens, distance=RULES[method])
    torch.testing.assert_close(logits(model, tokens, method).double(), expected, **CLOSE)
    assert not torch.allclose(logits(model, tokens), expected.float(), atol=1e-2)


@pytest.mark.parametrize("method", ["alibi", "nope+alibi"])
def test_a_bias_equals_the_model_by_hand(method: str) -> None:
    model, tokens = tiny(), ids(LONG)
    changes: dict[str, Any] = {"bias": lambda i, j: -(2.0**-8) * abs(i - j)}
    if method != "alibi":
        changes["distance"] = nowhere
    torch.testing.assert_close(logits(model, tokens, method).double(), expected_of(model, tokens, **changes), **CLOSE)


@pytest.mark.parametrize(
    ("method", "g"),
    [
        ("infoscale", math.sqrt((1 - LONG ** (-2 / 8)) / (1 - TRAIN_LENGTH ** (-2 / 8)))),
        ("log", math.log(LONG) / math.log(TRAIN_LENGTH)),
        ("constant:tau=0.7", 1 / 0.7),
    ],
)
@pytest.mark.parametrize("choice", ["plain", "cosine", "alibi", "nope"])
def test_a_temperature_multiplies_the_whole_logit(method: str, g: float, choice: str) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(LONG)
    torch.testing.assert_close(logits(model, tokens, method).double(), expected_of(model, tokens, g=g), **CLOSE)


@pytest.mark.parametrize("method", ["ntk:factor=4", "ntk:factor=4,dynamic=true", "yarn:factor=4", "eabf"])
def test_frequencies_take_the_place_of_the_models_own(method: str) -> None:
    """Against a model whose buffer was overwritten by hand; the values themselves are tested with their methods."""
    model, tokens = tiny(), ids(LONG)
    found = logits(model, tokens, method)
    (made,) = methods_of(method, {"train_length": TRAIN_LENGTH, "key_size": 8, "base": 10000.0})
    rotary: Any = model.model.rotary_emb
    rotary.inv_freq = made.frequencies(rotary.inv_freq, LONG)
    changed = logits(model, tokens)
    if hasattr(made, "inverse_temperature"):
        g = made.inverse_temperature(torch.tensor([[[LONG]]]))
        for layer in model.model.layers:
            layer.attention.scaling *= float(g)
        changed = logits(model, tokens)
    torch.testing.assert_close(found, changed, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scale", [3.0, 20.0])
def test_cosscale_forced_on_a_plain_model_is_the_model_trained_with_it(scale: float) -> None:
    plain, tokens = tiny(), ids(LONG)
    trained = tiny(cos_scale=scale)
    trained.load_state_dict(plain.state_dict())
    expected = logits(trained, tokens)
    torch.testing.assert_close(logits(plain, tokens, f"cosscale:scale={scale}", force=True), expected, atol=2e-5, rtol=1e-4)
    assert not torch.allclose(logits(plain, tokens), expected, atol=1e-2)


@pytest.mark.parametrize(
    ("choice", "method", "words"),
    [
        ("nope", "rerope:window=12", "changes rotary positions, and GAUAlphaModel has none"),
        ("alibi", "interpolation:factor=2", "changes rotary positions, and GAUAlphaModel has none"),
        ("alibi", "alibi", "fills the bias slot, and so does the learned bias of this gau_alpha"),
        ("plain", "cosscale", "was not trained with it"),
        ("plain", "yarn:factor=4+ntk:factor=4", "both fill the rotation slot"),
    ],
)
def test_what_a_choice_has_no_slot_for_is_refused(choice: str, method: str, words: str) -> None:
    with pytest.raises(BadInput, match=words), lw.extend(tiny(**CHOICES[choice]), method):
        pass


@pytest.mark.parametrize(
    ("choice", "method", "side"),
    [
        *crossed([*CHOICES], [None, "none", "window+infoscale"], ["left", "right"], every=2),
        *(("plain", "rerope:window=12", side) for side in ("left", "right")),
        *(("both", "streaming_llm:sinks=3,window=10+infoscale", side) for side in ("left", "right")),
    ],
)
def test_padding_does_not_matter(choice: str, side: str, method: str | None) -> None:
    model, lengths = tiny(**CHOICES[choice]), [LONG, LONG - 9, 5]
    tokens, mask = torch.zeros(3, LONG, dtype=torch.long), torch.zeros(3, LONG, dtype=torch.long)
    for row, length in enumerate(lengths):
        where = slice(0, length) if side == "right" else slice(LONG - length, LONG)
        tokens[row, where], mask[row, where] = ids(length, seed=row)[0], 1
    undo = lw.extend(model, method, implementation="blockwise") if method else nullcontext()
    with undo, torch.no_grad():
        together = model(tokens, attention_mask=mask).logits
        for row, length in enumerate(lengths):
            alone = model(ids(length, seed=row)).logits[0]
            torch.testing.assert_close(together[row][mask[row].bool()], alone, **CLOSE)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("implementation", ["eager", "sdpa", "lengthwise"])
def test_gradients_are_finite_and_reach_every_weight(choice: str, implementation: str) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(LONG, batch=2)
    labels = torch.where(torch.arange(LONG) % 3 == 0, tokens, -100)
    if implementation == "lengthwise":
        with lw.extend(model, "none", implementation="blockwise"):
            model(tokens, labels=labels).loss.backward()
    else:
        model.set_attn_implementation(implementation)
        model(tokens, labels=labels).loss.backward()
    for name, parameter in model.named_parameters():
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name


@pytest.mark.parametrize("choice", ["both", pytest.param("alibi", marks=pytest.mark.sweep)])
def test_it_compiles_as_one_graph(choice: str) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(20, batch=2)
    with torch.inference_mode():
        expected = model(tokens, labels=tokens).loss
        model.compile(backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(model(tokens, labels=tokens).loss, expected)


def test_the_loss_is_the_mean_cross_entropy_of_what_is_asked() -> None:
    model, tokens = tiny(), ids(12, batch=2)
    labels = torch.full_like(tokens, -100)
    labels[0, 3], labels[1, 7] = 5, 99
    with torch.inference_mode():
        out = model(tokens, labels=labels)
    rows = [out.logits[0, 3].tolist(), out.logits[1, 7].tolist()]
    expected = [math.log(math.fsum(map(math.exp, row))) - row[label] for row, label in zip(rows, (5, 99), strict=True)]
    assert float(out.loss) == pytest.approx(sum(expected) / 2, rel=1e-5)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_checkpoint_comes_back_as_it_was(choice: str, tmp_path: Path) -> None:
    model, tokens = tiny(**CHOICES[choice]), ids(LONG)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    loaded = GAUAlphaForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(loaded, tokens), logits(model, tokens))
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    encoder = GAUAlphaModel.from_pretrained(tmp_path).eval()
    assert torch.equal(encoder(tokens).last_hidden_state @ model.lm_head.weight.T, model(tokens).logits)


def test_load_knows_the_family_and_its_tokenizer(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"天下大势分久必合。", *(f"[unused{at}]" for at in range(370))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    model = tiny()
    model.save_pretrained(tmp_path / "saved")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "saved")
    loaded, tokenizer = load(str(tmp_path / "saved"))
    assert tokenizer("天下大势。久").input_ids == [2, 5, 6, 7, 8, 13, 10, 3]
    assert torch.equal(logits(loaded, ids(LONG)), logits(model, ids(LONG)))


def test_trained_in_temperatures_are_those_of_the_methods_without_their_clamp() -> None:
    lengths = torch.tensor([2, 5, 64, 512, 4096])
    for name, spec in (("softmax_plus", "softmax_plus"), ("infoscale", "infoscale:clamp=false")):
        (law,) = methods_of(spec, {"train_length": TRAIN_LENGTH, "key_size": 8})
        config = tiny(normalisation=name).config
        torch.testing.assert_close(inverse_temperature(config, lengths), law.inverse_temperature(lengths))


def test_a_model_is_restored_bit_for_bit() -> None:
    for choice in ("plain", "alibi"):
        model, tokens = tiny(**CHOICES[choice]), ids(LONG)
        before, names = logits(model, tokens), [set(vars(module)) for module in model.modules()]
        assert not torch.equal(logits(model, tokens, "window:size=9+infoscale"), before)
        assert torch.equal(logits(model, tokens), before)
        assert [set(vars(module)) for module in model.modules()] == names


def test_statistics_and_calibration_reach_the_model() -> None:
    model, tokens = tiny(), ids(LONG)
    plain, sharp = (lw.row_statistics(model, tokens, method=method) for method in ("none", "constant:tau=0.5"))
    assert plain.entropy.shape[:2] == (2, 1)
    assert bool((sharp.entropy < plain.entropy).all())


def test_bad_calls_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="input_ids or inputs_embeds"):
        tiny()()
    monkeypatch.setattr(family_base, "REACH", 3)
    with pytest.raises(BadInput, match="with alibi takes at most 3 tokens, not 4"):
        tiny(positions="alibi")(ids(4))
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    with pytest.raises(BadInput, match="infoscale counts real tokens"):
        tiny(normalisation="infoscale")(ids(4), attention_mask=mask)


def test_the_bias_is_made_where_the_model_is() -> None:
    unit = tiny(positions="alibi").model.layers[0].attention.to("meta")
    assert unit.compute_bias(3, 4).device.type == "meta"


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


def test_neighbours_are_turned_as_complex_numbers() -> None:
    torch.manual_seed(0)
    states, places = torch.randn(1, 1, 4, 6), torch.tensor([[0, 1, 70, 5000]])
    cos, sin = GAUAlphaRotaryEmbedding(GAUAlphaConfig(head_dim=6))(states, places)
    turned, none = apply_rotary_pos_emb(states, states[:, :0], cos, sin)
    assert none.shape == (1, 0, 4, 6)
    for at, place in enumerate(places[0].tolist()):
        for pair in range(3):
            angle = place * 10000.0 ** (-2 * pair / 6)
            a, b = states[0, 0, at, 2 * pair : 2 * pair + 2].tolist()
            expected = complex(a, b) * complex(math.cos(angle), math.sin(angle))
            found = complex(*turned[0, 0, at, 2 * pair : 2 * pair + 2].tolist())
            assert found == pytest.approx(expected, abs=1e-3 if place == 5000 else 1e-5)


def test_only_differences_of_positions_matter() -> None:
    torch.manual_seed(1)
    query, key = torch.randn(1, 1, 1, 6).double(), torch.randn(1, 1, 1, 6).double()
    rotary = GAUAlphaRotaryEmbedding(GAUAlphaConfig(head_dim=6))
    dots = []
    for shift in (0, 13):
        turned = [
            apply_rotary_pos_emb(states, states, *rotary(states, torch.tensor([[place + shift]])))[0]
            for states, place in ((query, 9), (key, 4))
        ]
        dots.append(float((turned[0] * turned[1]).sum()))
    assert dots[0] == pytest.approx(dots[1], abs=1e-5)
    assert dots[0] != pytest.approx(float((query * key).sum()), abs=1e-3)


def test_tables_keep_float32_under_autocast() -> None:
    """In bfloat16 position 4001 is 4000."""
    rotary, places = GAUAlphaRotaryEmbedding(GAUAlphaConfig(head_dim=6)), torch.tensor([[4001]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cos, _ = rotary(torch.zeros(1), places)
    assert float(cos[0, 0, 0]) == pytest.approx(math.cos(4001), abs=1e-3)

"""Ms-PoE's distances against their definition, head by head."""

from __future__ import annotations

import pytest

import lengthwise as lw
from lengthwise.errors import BadInput
from lengthwise.methods.positions.ms_poe import MsPoE
from tests.conftest import TRAIN_LENGTH, make, tokens
from tests.helpers.rows import CASES, distances_of


@pytest.mark.parametrize("name", CASES)
def test_every_key_head_divides_distances_by_its_own_number(name: str) -> None:
    case = CASES[name]
    parts = MsPoE(key_heads=3, min_ratio=1.2, max_ratio=1.8).distances(case.visible, case.visible)
    for head, ratio in enumerate((1.2, 1.4, 1.6)):
        for (entry, place), found in zip(case.rows(), distances_of(parts, case, head=head), strict=True):
            seen = [j for j in case.seen(entry, place) if j not in case.hidden]
            assert found == pytest.approx({j: (place - j) / ratio for j in seen})


def test_the_first_two_layers_are_left_as_they_are_unless_told() -> None:
    method = MsPoE(key_heads=8)
    assert (method.min_ratio, method.max_ratio) == (1.2, 1.8)
    assert [method.acts_on(layer) for layer in range(4)] == [False, False, True, True]
    assert MsPoE(8, skip=0).acts_on(0)
    assert not method.leaves_alone(1)
    assert MsPoE(8, 1, 1).leaves_alone(10**6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_ratio": 0.9}, r"1 <= min_ratio <= max_ratio, not 0\.9 and 1\.8"),
        ({"min_ratio": 2.0}, r"1 <= min_ratio <= max_ratio, not 2\.0 and 1\.8"),
        ({"skip": -1}, "skip >= 0, not -1"),
        ({"key_heads": 0}, "key_heads >= 1, not 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        MsPoE(**{"key_heads": 8, **arguments})  # type: ignore[arg-type]


def test_ratios_for_other_key_heads_than_the_models_are_refused() -> None:
    model = make("llama")
    with lw.extend(model, "ms_poe:key_heads=4,skip=0"), pytest.raises(BadInput, match="for 4 key heads, and the model has 2"):
        model(tokens(2 * TRAIN_LENGTH))

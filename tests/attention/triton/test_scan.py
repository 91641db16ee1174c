"""Statistics at several temperatures in one pass, in Triton's interpreter, against one run of the law a temperature."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lengthwise.attention import RowStatistics, reference, scan
from lengthwise.attention.triton.launch import scan as gpu_scan
from lengthwise.errors import BadInput
from tests.helpers.kernels import FP16, Case, assert_rows, exact, poison

pytest.importorskip("triton")
from lengthwise.attention.triton import launch
from lengthwise.attention.triton import scan as triton_scan
from lengthwise.attention.triton.operands import Operands

FOUR = torch.tensor([0.7, 1.0, 1.5, 2.0]).view(4, 1, 1, 1)


def of_law(case: Case, g: torch.Tensor) -> RowStatistics:
    """Fields [temperatures, batch, heads, queries]."""
    equation = exact(case.equation())
    rows = [reference(replace(equation, inverse_temperature=one.double()))[1] for one in g]
    return RowStatistics(*(torch.stack([getattr(row, name) for row in rows]) for name in ("p_max", "lse", "entropy")))


CASES = {
    "a token": (Case(1), FOUR),
    "four": (Case(), FOUR),
    "one": (Case(70, mask="window"), FOUR[:1]),
    "six, a head each": (Case(70), torch.linspace(0.5, 2.0, 12).view(6, 1, 2, 1)),
    "causal, grouped heads": (Case(heads=4, mask="causal", radius=None), FOUR[:3]),
    "causal, with a bias": (Case(mask="causal"), FOUR[:2]),
    "padding, a row each": (
        Case(70, batch=2, heads=1, kv_heads=1, mask="padding"),
        torch.linspace(0.5, 2, 280).view(2, 2, 1, 70),
    ),
    "a hole": (Case(70, mask="hole"), FOUR[:2]),
    "a filled cache": (Case(7, 100, mask="causal"), FOUR[:2]),
    "a table as wide as the sequence": (Case(70, radius=70, heads=1, kv_heads=1), FOUR[:2]),
    "size 256": (Case(40, size=256, dtype=FP16, heads=1, kv_heads=1, mask="causal"), FOUR[:2]),
    "half precision": (Case(150, dtype=FP16, heads=1, kv_heads=1), FOUR[:3]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_temperature_gives_the_laws_statistics(name: str) -> None:
    case, g = CASES[name]
    with poison():
        rows = gpu_scan(case.equation(), g)
    assert_rows(rows, of_law(case, g))


@pytest.mark.parametrize(("most", "launches"), [(1, 3), (2 * 20 * 2 + 1, 2), (2**30, 1)])
def test_rows_too_many_to_count_at_once_are_scanned_in_parts(monkeypatch: pytest.MonkeyPatch, most: int, launches: int) -> None:
    parts: list[int] = []

    def counted(operands: Operands, g: torch.Tensor) -> torch.Tensor:
        parts.append(len(g))
        assert len(g) == 1 or g.stride(0) * len(g) < most
        return whole(operands, g)

    whole = triton_scan.scan
    monkeypatch.setattr(launch, "MOST_ROWS", most)
    monkeypatch.setattr(triton_scan, "scan", counted)
    case, g = Case(20, mask="causal"), torch.linspace(0.5, 2, 3 * 2 * 90).view(3, 1, 2, 90)[..., 7:27]
    assert_rows(gpu_scan(case.equation(), g), of_law(case, g))
    assert (sum(parts), len(parts)) == (3, launches)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value encountered:RuntimeWarning")
def test_logits_that_overflow_the_frozen_maximum_are_computed_again() -> None:
    case = Case(loud=200.0, heads=1, kv_heads=1)
    assert_rows(gpu_scan(case.equation(), FOUR[:2]), of_law(case, FOUR[:2]), slack=500.0)


@pytest.mark.parametrize("mask", ["full", "causal", "padding", "hole", "causal window"])
@pytest.mark.parametrize("solve", [gpu_scan, scan], ids=["kernel", "cpu"])
def test_no_sharpness_at_all_leaves_visible_keys_alike(mask: str, solve: object) -> None:
    equation = Case(50, batch=2, heads=1, kv_heads=1, mask=mask, loud=5.0).equation()
    rows = solve(equation, torch.tensor([0.0, 1.0]).view(2, 1, 1, 1))  # type: ignore[operator]
    count = equation.visible.count[:, None].expand(2, 1, 50)
    seen = count > 0
    torch.testing.assert_close(rows.entropy[0][seen], count[seen].float().log(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(rows.p_max[0][seen], 1 / count[seen].float(), atol=1e-6, rtol=1e-5)


def test_a_negative_sharpness_is_refused() -> None:
    with pytest.raises(BadInput, match=r"inverse temperatures >= 0, not -0\.5"):
        scan(Case(4).equation(), torch.tensor([1.0, -0.5]).view(2, 1, 1, 1))

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.training.output_alignment.outrep import FUNCTIONS, OutRep

BY_HAND = {
    "identity": (lambda y: y, lambda z: z),
    "sqrt": (math.sqrt, lambda z: z * z),
    "log": (math.log, math.exp),
    "rsqrt": (lambda y: y**-0.5, lambda z: z**-2),
    "reciprocal": (lambda y: 1 / y, lambda z: 1 / z),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_functions_and_inverses_are_those_of_the_paper(name: str, shift: float) -> None:
    f, inverse = BY_HAND[name]
    outrep = OutRep(name, shift)
    y = torch.tensor([1.0, 2.0, 10.0, 50.0], dtype=torch.float64)
    assert outrep.aligned(y).tolist() == pytest.approx([f(one + shift) for one in y.tolist()])
    z = [-1.5, -0.2, 0.1, 3.0]
    found = outrep.original(torch.tensor(z, dtype=torch.float64))
    assert found.tolist() == pytest.approx([inverse(one) - shift for one in z])
    torch.testing.assert_close(outrep.original(outrep.aligned(y)), y)


def test_errors_are_in_the_units_of_the_target() -> None:
    # 1/sqrt of 25 is 0.2; an answer of 0.25 means 16
    error = OutRep("rsqrt").squared_error(torch.tensor([0.25, 0.2]), torch.tensor([25.0, 25.0]))
    assert error.tolist() == pytest.approx([81.0, 0.0], abs=1e-3)


def test_answers_that_f_never_takes_are_squared_all_the_same_and_zero_means_infinity() -> None:
    assert OutRep("sqrt").original(torch.tensor([-3.0])).tolist() == [9.0]
    assert OutRep("rsqrt").original(torch.tensor([-0.5, 0.0])).tolist() == [4.0, math.inf]


@pytest.mark.parametrize("name", ["log", "rsqrt", "reciprocal"])
def test_a_target_without_a_value_is_refused_unless_it_is_shifted(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} has no value at 0, the target 0; give a shift"):
        OutRep(name).aligned(torch.tensor([3.0, 0.0]))
    assert torch.isfinite(OutRep(name, shift=1.0).aligned(torch.tensor([3.0, 0.0]))).all()


def test_a_negative_target_has_no_square_root() -> None:
    with pytest.raises(BadInput, match="sqrt has no value at -2"):
        OutRep("sqrt").aligned(torch.tensor([-2.0]))


def test_unknown_functions_and_negative_shifts_are_refused() -> None:
    with pytest.raises(BadInput, match="no OutRep function 'cube'; take one of identity, sqrt, log, rsqrt"):
        OutRep("cube")
    with pytest.raises(BadInput, match="shift must be 0 or above, not -1"):
        OutRep("log", shift=-1)
    with pytest.raises(BadInput, match="shift must be 0 or above, not nan"):
        OutRep("log", shift=math.nan)

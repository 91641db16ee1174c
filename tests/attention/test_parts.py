"""Rows in parts: the softmax goes over all keys of a row, however many runs they are in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise.attention import DistanceBias, Equation, Rest, Visible, as_one, as_they_stand, attention, scan
from lengthwise.methods.spec import methods_of
from tests.helpers.rows import CASES, PADDING, Case, distances_of

QUERIES, KEYS, SIZE = 7, 11, 4


def problem(seed: int = 0, **changes: Any) -> Equation:
    """Every row sees its last three keys in one way, keys 0 and 1 in another, and nothing else."""
    torch.manual_seed(seed)
    causal = Visible.build(QUERIES, KEYS, causal=True, device="cpu")
    near = replace(causal, start=(causal.stop - 3).clamp_min(2))
    far = replace(causal, stop=torch.full_like(causal.stop, 2))
    rest = Rest(torch.randn(2, 4, QUERIES, SIZE), torch.randn(2, 2, KEYS, SIZE), torch.randn(2, 2, KEYS, SIZE), far)
    states = (torch.randn(2, 4, QUERIES, SIZE), torch.randn(2, 2, KEYS, SIZE), torch.randn(2, 2, KEYS, SIZE))
    given = {"bias": DistanceBias(torch.randn(4, 7)), "inverse_temperature": torch.rand(2, 4, QUERIES) + 0.5, **changes}
    return Equation(*states, near, scale=0.5, more=(rest,), **given)


def by_hand(equation: Equation) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Key by key in float64: output, largest logit, log-sum-exp, entropy."""
    rest = equation.more[0]
    output = torch.zeros(2, 4, QUERIES, SIZE, dtype=torch.float64)
    l_max, lse, entropy = (torch.zeros(2, 4, QUERIES, dtype=torch.float64) for _ in range(3))
    for b in range(2):
        for h in range(4):
            for i in range(QUERIES):
                logits, values = [], []
                own = i + KEYS - QUERIES
                for j in range(KEYS):
                    is_near, is_far = max(own - 2, 2) <= j <= own, j < 2
                    if not (is_near or is_far):
                        continue
                    q, k, v = (equation.query, equation.key, equation.value) if is_near else (rest.query, rest.key, rest.value)
                    logit = 0.5 * float(q[b, h, i].double() @ k[b, h // 2, j].double())
                    if equation.bias is not None:
                        logit += float(equation.bias.table[h, min(max(j - own, -3), 3) + 3])
                    g = 1.0 if equation.inverse_temperature is None else float(equation.inverse_temperature[b, h, i])
                    logits.append(g * logit)
                    values.append(v[b, h // 2, j].double())
                row = torch.tensor(logits, dtype=torch.float64)
                p = row.softmax(0)
                output[b, h, i] = (p[:, None] * torch.stack(values)).sum(0)
                l_max[b, h, i], lse[b, h, i], entropy[b, h, i] = row.max(), row.logsumexp(0), -(p * p.log()).sum()
    return output, l_max, lse, entropy


@pytest.mark.parametrize("implementation", ["reference", "blockwise", "auto"])
@pytest.mark.parametrize("plain", [False, True])
def test_two_runs_are_one_softmax(implementation: str, plain: bool) -> None:
    equation = problem(bias=None, inverse_temperature=None) if plain else problem()
    output, l_max, lse, entropy = by_hand(equation)
    found, rows = attention(equation, statistics=True, implementation=implementation)
    assert rows is not None
    torch.testing.assert_close(found.double(), output, atol=1e-5, rtol=0)
    for actual, expected in ((rows.l_max, l_max), (rows.lse, lse), (rows.entropy, entropy)):
        torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=0)
    assert attention(equation, implementation=implementation)[1] is None


def test_a_scan_goes_over_all_runs() -> None:
    equation = problem(inverse_temperature=None)
    g = torch.tensor([0.5, 1.0, 2.0])[:, None, None, None]
    found = scan(equation, g)
    for at, sharpness in enumerate((0.5, 1.0, 2.0)):
        sharper = replace(equation, inverse_temperature=torch.full((1, 1, QUERIES), sharpness).expand(2, 4, QUERIES))
        _, l_max, lse, entropy = by_hand(sharper)
        for actual, expected in ((found.l_max, l_max), (found.lse, lse), (found.entropy, entropy)):
            torch.testing.assert_close(actual[at].double(), expected, atol=1e-5, rtol=0)


def test_rows_and_counts_know_all_runs() -> None:
    equation = problem()
    assert equation.count.tolist() == [[5] * QUERIES]
    assert equation.n.shape == (1, 1, QUERIES)
    part = equation.rows(2, 5)
    whole, _ = attention(equation)
    torch.testing.assert_close(attention(part)[0], whole[:, :, 2:5], atol=1e-6, rtol=0)


def test_a_run_that_a_row_does_not_have_takes_nothing() -> None:
    equation = problem()
    rest = equation.more[0]
    nothing = replace(rest, visible=replace(rest.visible, stop=torch.zeros_like(rest.visible.stop)))
    alone, rows = attention(replace(equation, more=(nothing,)), statistics=True)
    expected, expected_rows = attention(replace(equation, more=()), statistics=True)
    assert rows is not None
    assert expected_rows is not None
    torch.testing.assert_close(alone, expected)
    torch.testing.assert_close(rows.entropy, expected_rows.entropy, atol=1e-5, rtol=0)


def test_gradients_reach_every_run() -> None:
    equation = problem()
    rest = equation.more[0]
    # Rows 0 ... of a run that is empty there must not turn gradients into NaN
    rest = replace(rest, visible=replace(rest.visible, stop=rest.visible.stop * (torch.arange(QUERIES) > 2)))
    states = [t.double().requires_grad_() for t in (equation.query, equation.key, equation.value)]
    others = [t.double().requires_grad_() for t in (rest.query, rest.key, rest.value)]

    def solved(*tensors: Tensor) -> Tensor:
        q, k, v, *more = tensors
        one = Rest(*more, rest.visible)
        wide = replace(equation, query=q, key=k, value=v, more=(one,), bias=None, inverse_temperature=None)
        return attention(wide, implementation="reference")[0]

    assert torch.autograd.gradcheck(solved, (*states, *others), fast_mode=True)


def test_as_they_stand_puts_every_key_at_its_place() -> None:
    part = as_they_stand(Visible.build(2, 5, causal=True, device="cpu"))
    assert part.query.tolist() == [[3, 4]]
    assert part.key.tolist() == [[0, 1, 2, 3, 4]]


SINGLE = {
    **{name: case for name, case in CASES.items() if case.queries == 1},
    "holes": Case(((0,) * 13,), True, 1, hidden=(1, 6)),
    "a row of padding": Case(((PADDING,) * 13, (0,) * 13), True, 1),
}
IN_PARTS = ["rerope:window=3,leak=2", "self_extend:group=2,window=3", "dual_chunk:chunk=5,window=1", "dpe:scales=2-3,window=4"]


@pytest.mark.parametrize("name", [*SINGLE, "known here"])
@pytest.mark.parametrize("spec", [*IN_PARTS, "streaming_llm:sinks=2,window=3", "lm_infinite", "string:shift=6", "ms_poe"])
def test_the_parts_of_a_single_row_are_one_with_every_key_at_its_distance(name: str, spec: str) -> None:
    case = SINGLE.get(name, SINGLE["decoding"])
    whole = Visible.one_row(0, 13, 12, 13) if name == "known here" else case.visible
    (method,) = methods_of(spec, {"train_length": 8, "rotary_size": 8, "key_heads": 2})
    seen = method.narrow(whole) if hasattr(method, "narrow") else whole
    parts = method.distances(seen, whole)
    one = as_one(parts)
    for head in range(2):
        for pair in range(4):
            expected = distances_of(parts, case, head, pair)
            assert distances_of([one], case, head, pair) == [pytest.approx(row) for row in expected]
    # Keys are hidden one by one only where some of the run are in no part
    runs = (one.visible.stop - one.visible.start)[:, 0].tolist()
    assert (one.visible.hidden is None) == ([len(row) for row in expected] == runs)

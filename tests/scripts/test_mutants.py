"""Planted defects: which there are, that each is the source but for one piece, and that statements are noted as they run."""

from __future__ import annotations

import ast
import sys
from types import SimpleNamespace

import pytest

from scripts.mutants.changes import mutants_of, noting

SOURCE = b'''
LIMIT: int = 3

def f(x: int = 0, *, quick: bool = True) -> int | None:
    """Not -> touched: 1 < 2."""
    x += 1
    if x < LIMIT and not quick:
        raise ValueError(f"{x + 1}")
    for y in [z for z in range(x) if z]:
        if y == 2:
            break
        print("\xc3\xa9", y * x)
    x = x - 1
    only = x
    return only
'''


def test_every_kind_of_defect_is_planted_once() -> None:
    changes = [mutant.name.removeprefix("a.py ") for mutant in mutants_of(SOURCE, "a.py")]
    assert changes == [
        "module: 3 -> 4",
        "f: True -> False",
        "f: 0 -> 1",
        "f: x += 1 -> pass",
        "f: 1 -> 2",
        "f: x < LIMIT and not quick -> (not (x < LIMIT and (not quick)))",
        "f: x < LIMIT and not quick -> (x < LIMIT or not quick)",
        "f: x < LIMIT -> (x <= LIMIT)",
        "f: not quick -> (quick)",
        'f: raise ValueError(f"{x + 1}") -> pass',
        "f: z -> (not (z))",
        "f: y == 2 -> (y != 2)",
        "f: 2 -> 3",
        "f: break -> continue",
        'f: print("é", y * x) -> pass',
        "f: y * x -> (y / x)",
        "f: x = x - 1 -> pass",
        "f: x - 1 -> (x + 1)",
        "f: 1 -> 2 (2)",
        "f: return only -> return None",
    ]


def test_a_mutant_differs_in_one_piece_and_knows_the_line_of_its_statement() -> None:
    for mutant in mutants_of(SOURCE, "a.py"):
        ast.parse(mutant.source)
        differing = [
            at
            for at, pair in enumerate(zip(SOURCE.split(b"\n"), mutant.source.split(b"\n"), strict=True), 1)
            if pair[0] != pair[1]
        ]
        assert differing == [mutant.line]


def test_statements_are_noted_when_they_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    places: list[str] = []
    monkeypatch.setitem(sys.modules, "noted", SimpleNamespace(note=places.append))
    names: dict[str, object] = {}
    exec(noting(SOURCE, "a.py"), names)
    assert places == []
    assert names["f"](1) == 1  # type: ignore[operator]
    assert capsys.readouterr().out.split() == ["é", "2"]
    assert list(dict.fromkeys(places)) == [f"a.py:{line}" for line in (5, 6, 7, 9, 10, 12, 13, 14, 15)]

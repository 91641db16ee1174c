"""The examples of docs/adding_a_method.md run, do something, and are undone."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.attention import Visible
from lengthwise.common import plugins
from lengthwise.methods.slots import CLAIMS
from lengthwise.models.check import check_method, failures
from tests.conftest import Said
from tests.helpers.own_code import installed
from tests.helpers.rows import Case, distances_of

PAGE = (Path(__file__).parents[2] / "docs" / "adding_a_method.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's code defines, after all of it has run."""
    names: dict[str, Any] = {"__name__": "page"}
    source = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    # A reader's file has no future imports either
    exec(compile(source, "adding_a_method.md", "exec", dont_inherit=True), names)
    return names


def methods(page: dict[str, Any]) -> list[Any]:
    made = {
        "SquareRoot": (64,),
        "SharpenFlatRows": (3.0,),
        "CappedNorm": (0.1,),
        "StretchToFit": (64,),
        "GroupFarKeys": (32, 8),
        "NearBonus": (2.0,),
        "SameBlock": (64,),
        "Halves": (),
    }
    defined = {name for name, value in page.items() if isinstance(value, type) and value.__module__ == "page"}
    assert defined == set(made), "every class of the page is tried here"
    return [page[name](*arguments) for name, arguments in made.items()]


def test_every_function_of_every_slot_has_an_example(page: dict[str, Any]) -> None:
    shown = {function for method in methods(page) for function in dir(method)}
    assert {function for functions in CLAIMS.values() for function in functions} <= shown


def test_every_example_changes_long_inputs_and_passes_the_checks(page: dict[str, Any]) -> None:
    model, tokens = page["model"], page["tokens"]
    with torch.no_grad():
        plain = model(tokens).logits
        for method in methods(page):
            with lw.extend(model, method, force=True):
                assert not torch.allclose(model(tokens).logits, plain, atol=1e-6), method
            outcomes = check_method(method, ["llama"])
            assert not failures(outcomes)
            promises = type(method).__name__ in ("SquareRoot", "StretchToFit", "GroupFarKeys", "SameBlock")
            assert [one.verdict for one in outcomes if one.check.startswith("identity")] == ["pass" if promises else "-"]


def test_the_pictures_are_what_the_code_does(page: dict[str, Any]) -> None:
    seen = Visible.build(8, 8, causal=True, window=4)
    assert (int(seen.start[0, 5]), int(seen.stop[0, 5]), int(seen.position[5])) == (2, 6, 5)
    case = Case(((0,) * 8,), causal=True, queries=8)
    row = distances_of(page["GroupFarKeys"](window=3, group=2).distances(case.visible, case.visible), case)[7]
    assert [row[j] for j in range(8)] == [5, 5, 4, 4, 3, 2, 1, 0]


def titled(kind: str) -> dict[str, str]:
    """The files of the template, by the titles of their blocks."""
    return dict(re.findall(rf'```{kind} title="(.*?)"\n(.*?)```', PAGE, flags=re.DOTALL))


def test_the_table_is_what_the_check_prints(
    tmp_path: Path, lengthwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "class SquareRoot" in block)
    imports = "from dataclasses import dataclass\nfrom torch import Tensor\n"
    (tmp_path / "mine.py").write_text(imports + example.partition("\n\n\nwith")[0])
    monkeypatch.chdir(tmp_path)
    said = lengthwise("methods", "--check", "mine.py:SquareRoot")
    (printed,) = re.findall(r"```output\n(.*?)```", PAGE, flags=re.DOTALL)
    assert (said.status, said.out) == (0, printed)


def test_the_template_of_a_package_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = tomllib.loads(titled("toml")["pyproject.toml"])["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in names.items()) for group, names in groups.items()
    ]
    files = titled("python")
    package = tmp_path / "length_methods"
    package.mkdir()
    (package / "square_root.py").write_text(files["src/length_methods/square_root.py"])
    installed(monkeypatch, tmp_path, "".join(lines))
    try:
        names: dict[str, Any] = {}
        exec(compile(files["tests/test_square_root.py"], "test_square_root.py", "exec", dont_inherit=True), names)
        names["test_it_keeps_what_extend_promises"]()
    finally:
        plugins.announced.cache_clear()
        sys.modules.pop("length_methods.square_root", None)

"""Code of a user's own: which file a name means, what is refused, and in what words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.common import plugins
from lengthwise.errors import BadInput
from tests.helpers.own_code import METHOD, installed


@pytest.fixture(autouse=True)
def _announced_anew() -> Iterator[None]:
    yield
    plugins.announced.cache_clear()


def found(path: Path, name: str) -> Any:
    plugin = plugins.find("method", f"{path}:{name}", ())
    assert plugin is not None
    return plugin


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("mine.py:Mine", "mine.py", "Mine"),
        ("my own.py:Mine", "my own.py", "Mine"),
        ("./a+b.py:Mine", "./a+b.py", "Mine"),
        ("/home/c++/x:y/m.py:Mine", "/home/c++/x:y/m.py", "Mine"),
        ("/a.py:b/m.py:Mine", "/a.py:b/m.py", "Mine"),
        ("/a b=c,d/@e.py:Größe", "/a b=c,d/@e.py", "Größe"),
    ],
)
def test_a_name_in_a_file_is_a_path_and_a_name(text: str, path: str, name: str) -> None:
    file = plugins.IN_A_FILE.fullmatch(text)
    assert file is not None
    assert (file["path"], file["name"]) == (path, name)


@pytest.mark.parametrize(
    "text", ["yarn", "a+b.py:Mine", "@dir/m.py:Mine", "mine.py", "mine.py:", "m.py:a.b", "clex:weights=/m.py:X"]
)
def test_other_text_is_none(text: str) -> None:
    assert plugins.IN_A_FILE.fullmatch(text) is None


def test_a_content_is_run_once_and_another_content_anew(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("RUNS = []\nclass A: pass\n")
    first, again = found(path, "A"), found(path, "A")
    assert first.value is again.value
    assert first.code == {"file": "mine.py", "digest": again.code["digest"]}
    path.write_text("class A: pass\n")
    other = found(path, "A")
    assert other.value is not first.value
    assert other.code["digest"] != first.code["digest"]
    assert plugins.code_of(first.value()) == first.code
    assert plugins.code_of("text") is None
    # Nothing is left beside the user's file
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\nclass A\n", "mine.py does not import: line 2: SyntaxError: expected ':'"),
        ("\n\nimport nothing_of_this_name\n", "mine.py does not import: mine.py, line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    1 / 0\nf()\n", "mine.py does not import: mine.py, line 2, in f: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('no')\n", "mine.py does not import: mine.py, line 2: SystemExit: no"),
        ("raise ValueError('two\\nlines')", "mine.py does not import: mine.py, line 1: ValueError: two lines"),
        ("\0", "mine.py does not import: "),
        ("class Mime: pass", "mine.py has no 'Mine'; did you mean 'Mime'?"),
        ("from pathlib import Path\nmime = 1\nclass Other: pass", "mine.py has no 'Mine'; it has Other"),
        ("", "mine.py has no 'Mine'; it has no method"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(source)
    before = set(sys.modules)
    with pytest.raises(BadInput) as refusal:
        found(tmp_path / "mine.py", "Mine")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not {name for name in set(sys.modules) - before if name.startswith(plugins.MODULE)} - set(plugins.CODE)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the method .*gone.py:Mine: No such file or directory"):
        found(tmp_path / "gone.py", "Mine")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(BadInput, match=r"cannot read the method .*folder.py:Mine: Is a directory"):
        found(tmp_path / "folder.py", "Mine")


def test_an_installed_package_announces_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tmp_path, "[lengthwise.methods]\nsharper = sharp_module:Sharper\n", sharp_module=METHOD)
    assert [(entry.name, plugins.package_of(entry)) for entry in plugins.announced("method")] == [("sharper", "sharp 1.0")]
    assert "sharp_module" not in sys.modules
    plugin = plugins.find("method", "sharper", ["yarn"])
    assert plugin is not None
    assert plugin.value.__name__ == "Sharper"
    assert plugin.code == plugins.code_of(plugin.value(4)) == {"package": "sharp 1.0", "digest": plugin.code["digest"]}
    assert plugins.find("task", "sharper", []) is None
    monkeypatch.delitem(sys.modules, "sharp_module")


def test_a_package_that_takes_a_known_name_is_refused_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tmp_path, "[lengthwise.methods]\nyarn = sharp_module:Sharper\n")
    with pytest.raises(BadInput, match=r"^lengthwise and sharp 1.0 both have a method 'yarn'; uninstall one"):
        plugins.find("method", "yarn", ["yarn", "log"])
    assert plugins.find("method", "log", ["yarn", "log"]) is None


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("gone_module:A", "ModuleNotFoundError: No module named 'gone_module'"),
        ("here_module:B", "has no attribute 'B'"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_refused(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path, f"[lengthwise.methods]\nmine = {place}\n", here_module="")
    with pytest.raises(BadInput, match=r"the method 'mine' of sharp 1.0 cannot be loaded: ") as refusal:
        plugins.find("method", "mine", [])
    assert message in str(refusal.value)


def test_errors_of_other_code_are_nobodys_plugin() -> None:
    with pytest.raises(ZeroDivisionError), plugins.one_line_errors("a method cannot be made"):
        _ = 1 / 0

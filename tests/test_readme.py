"""README.md does what it says: its Python prints the output beside it, it stays one page, its paths exist."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("experiments/**/*.md"))]


def test_its_python_prints_the_output_beside_it():
    code, expected = (
        re.search(rf"^```{kind}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1] for kind in ("python", "output")
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == expected


def test_it_is_one_page_and_its_python_is_short():
    code = _block("python")
    assert len(README.splitlines()) <= 150
    assert len([line for line in code.splitlines() if line]) == 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path):
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing, f"{page.relative_to(ROOT)}: {missing}"


def test_the_files_of_its_tree_exist():
    tree = README.partition("## Where things live")[2].partition("## Cite")[0]
    folder = None
    for line in tree.splitlines():
        if start := re.match(r"      (\w+)/ ", line):
            folder = ROOT / "src/lengthwise" / start[1]
            assert folder.is_dir(), folder
        for file in re.findall(r"\w+\.py", line) if folder else ():
            assert list(folder.rglob(file)), f"{file} is not in {folder}"


def _block(kind: str) -> str:
    """The README's first fenced block of a kind."""
    return re.search(rf"^```{kind}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1]

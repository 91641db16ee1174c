"""Links of the repository become links of the site, and notebooks become pages."""

import json

import pytest

pytest.importorskip("mkdocs")

from scripts import site

URIS = {
    "index.md",
    "long_t5.md",
    "images/reach.png",
    "experiments/README.md",
    "experiments/code/README.md",
    "notebooks/long_t5.md",
}


@pytest.mark.parametrize(
    ("here", "link", "there"),
    [
        ("README.md", "docs/long_t5.md", "long_t5.md"),
        ("README.md", "docs/images/reach.png", "images/reach.png"),
        ("docs/long_t5.md", "../README.md", "index.md"),
        ("docs/long_t5.md", "../notebooks/long_t5.ipynb", "notebooks/long_t5.md"),
        ("experiments/code/README.md", "../../docs/long_t5.md", "../../long_t5.md"),
        ("experiments/code/README.md", "../README.md", "../README.md"),
        ("notebooks/long_t5.ipynb", "../docs/long_t5.md", "../long_t5.md"),
        ("README.md", "LICENSE", f"{site.SOURCE}/LICENSE"),
        ("README.md", "nowhere.md", "nowhere.md"),
    ],
)
def test_a_link_of_the_repository_is_a_link_of_the_site(here, link, there):
    assert site.site_link(here, link, URIS) == there


def test_a_page_of_methods_has_every_method_with_formula_paper_and_source():
    page = site.methods_page()
    yarn = page.partition("## `yarn`")[2].partition("## ")[0]
    assert "ramp_i theta_i / s" in yarn
    assert "https://arxiv.org/abs/2309.00071" in yarn
    assert "methods/positions/yarn.py" in yarn
    assert page.count("\n## `") == len(site.METHODS)


def test_a_notebook_is_a_page_with_its_outputs_and_pictures(tmp_path):
    outputs = [
        {"output_type": "stream", "name": "stderr", "text": ["noise"]},
        {"output_type": "stream", "name": "stdout", "text": ["90 %\n"]},
        {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": ["<Figure>"]}},
    ]
    cells = [{"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code", "source": ["x = 1"], "outputs": outputs}]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": cells}))
    page, pictures = site.notebook_page(tmp_path / "one.ipynb")
    assert page.startswith("# Title\n\n```python\nx = 1\n```\n\n```text\n90 %\n```\n\n![A figure of the notebook](one-1.png)")
    assert pictures == {"one-1.png": b"hi"}


def test_marks_of_checked_numbers_do_not_reach_the_site():
    assert site.COMMENT.sub("", "90<!--= a#b % --> %\n<!--generated t -->\n| 1 |\n<!--/generated -->\n") == "90 %\n| 1 |\n"
    assert site.COMMENT.sub("", "at most 1<!--= a#b -->\nand 0") == "at most 1\nand 0"

"""A section of findings, tables and figures that any caller can fill."""

from __future__ import annotations

from pathlib import Path

from lengthwise.report import write_page
from lengthwise.report.article import Article, Block, Table
from lengthwise.report.page import model_heading
from tests.report.test_page import Tags

ARTICLE = Article(
    model="/models/my*t5",
    question="What helps {}?",
    title="What helps {} at 16,000 tokens",
    lead="Tried on 40 samples.",
    findings=("A temperature helps.",),
    no_findings="Nothing was tried yet.",
    note="Scores are means.",
    blocks=(
        Block("Scores", "By method.", Table(("method", "mean"), (("log", "0.9"),)), notes=("log: <b>measured</b>.",)),
        Block("Memory", "By method.", Table(("method", "GB"), ()), absent="Left out: no GPU."),
    ),
    facts=(("seed", "0"),),
    command="lengthwise recommend my-t5",
)


def test_it_becomes_a_part_of_a_page(tmp_path: Path) -> None:
    page = Tags(write_page([ARTICLE.section("what helps at length")], tmp_path / "page.html").read_text())
    for text in ("What helps my*t5?", "Tried on 40 samples.", "A temperature helps.", "<b>measured</b>", "Left out: no GPU."):
        assert text in page.text
    assert page.count("section") == 1 + 2 + 1
    assert "Nothing was tried yet." not in page.text
    assert not (tmp_path / "page.csv").exists()


def test_it_becomes_markdown() -> None:
    assert ARTICLE.markdown().splitlines() == [
        "# What helps /models/my\\*t5 at 16,000 tokens",
        "",
        "- A temperature helps.",
        "",
        "Scores are means.",
        "",
        "## Scores",
        "",
        "By method.",
        "",
        "| method | mean |",
        "| --- | --: |",
        "| log | 0.9 |",
        "",
        "log: \\<b>measured\\</b>.",
        "",
        "## Memory",
        "",
        "Left out: no GPU.",
        "",
        "## How this was obtained",
        "",
        "- seed: 0",
        "",
        "    lengthwise recommend my-t5",
    ]


def test_a_model_is_headed_by_its_hub_name_or_the_last_part_of_its_directory() -> None:
    assert model_heading("google/flan-t5-base") == "google/flan-t5-base"
    assert model_heading("embedded") == "embedded"
    assert model_heading("/models/flan") == model_heading("a/b/flan") == "flan"

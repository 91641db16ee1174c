"""The files that `report` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from lengthwise.analysis.section import analysis_section
from lengthwise.cli.report import write_report
from lengthwise.errors import BadInput
from lengthwise.records import Record, RunDirectory, Sharpness
from lengthwise.report import Section, write_page
from lengthwise.report.styles import Style
from tests.helpers.analysed import analysis
from tests.report.conftest import MODEL, alignment, config, record, records, sharpness

MakeRun = Callable[..., Path]
NASTY = "</td><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>\" onclick=\"window.taken = 1"


class Tags(HTMLParser):
    """Every tag and its attributes, and all text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(1 for found, _ in self.tags if found == tag)


def nasty_run(make_run: MakeRun) -> Path:
    """Markup in every text that a record, a file name or a configuration can hold."""
    spec = f"@{NASTY}.json"
    document = {**alignment("model"), "provenance": {"text": NASTY}}
    lines = [
        record(method, "line", length, k, model=NASTY, prediction=prediction, target=target, data=data, score=float(k))
        for method in ("none", spec)
        for length, data in ((512, ""), (5210, NASTY))
        for k, (prediction, target) in enumerate(((NASTY, NASTY), (f"{NASTY} 5", "5")))
    ]
    settings = {**config(["none"], note=NASTY), "methods": {"none": None, spec: document}}
    return make_run(settings, lines)


def test_the_page_and_its_tables_stand_side_by_side(full_run: Path, tmp_path: Path):
    out = tmp_path / "deep" / "report.html"
    assert write_report([full_run], out) == out
    assert sorted(path.name for path in out.parent.iterdir()) == ["report.csv", "report.html", "report.md"]


@pytest.mark.parametrize("page", [None, "<html>mine</html>"])
def test_tables_do_not_replace_a_file_that_is_no_page_s(page: str | None, full_run: Path, tmp_path: Path) -> None:
    out, notes = tmp_path / "README.html", tmp_path / "README.md"
    if page is not None:
        out.write_text(page)
    notes.write_text("mine")
    words = "README.md is there and belongs to no page" if page is None else "README.html is there and is no page"
    with pytest.raises(BadInput, match=rf"{words}.*; give --out another name"):
        write_report([full_run], out)
    assert notes.read_text() == "mine"
    assert (out.read_text() if out.exists() else None) == page
    # What is made again is replaced
    notes.unlink()
    out.unlink(missing_ok=True)
    write_report([full_run], out)
    notes.write_text("old")
    assert "old" not in write_report([full_run], out).with_suffix(".md").read_text()


def test_no_page_is_written_whose_tables_cannot_be(full_run: Path, tmp_path: Path) -> None:
    (tmp_path / "page.csv").mkdir()
    with pytest.raises(BadInput, match=r"cannot write .*page\.csv: it is a directory"):
        write_report([full_run], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_an_evaluation_writes_is_read(tmp_path: Path):
    run = RunDirectory(tmp_path / "run", config(["none", "log"]))
    run.records.append([Record(**line) for line in records(["none", "log"], ["line"], [512, 1024], samples=2)])
    run.sharpness.append([Sharpness(**line) for line in sharpness(["none", "log"], ["line"], [512, 1024])])
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    page = Tags(write_report([run.path], tmp_path / "report.html").read_text())
    assert "2 samples a cell" in page.text
    assert "line: P_max" in page.text
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_the_same_runs_make_the_same_page(full_run: Path, tmp_path: Path):
    pages = [write_report([full_run], tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_the_page_asks_for_nothing_outside_itself(full_run: Path, tmp_path: Path):
    html = write_report([full_run], tmp_path / "report.html").read_text()
    links = [value for _, attributes in Tags(html).tags for name, value in attributes.items() if name in ("src", "href")]
    assert links == ["data:,"]
    assert not re.search(r"url\(|@import|https?:", html)
    assert len(html) < 600_000


def test_no_level_of_headings_is_left_out(full_run: Path, tmp_path: Path):
    write_report([full_run], tmp_path / "report.html")
    levels = [int(level) for level in re.findall(r"<h(\d)", (tmp_path / "report.html").read_text(encoding="utf-8"))]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_text_from_records_stays_text(make_run: MakeRun, tmp_path: Path):
    html = write_report([nasty_run(make_run)], tmp_path / "report.html").read_text()
    page = Tags(html)
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert not any("onclick" in attributes for _, attributes in page.tags)
    assert page.text.count("<script>window.taken = 1</script>") >= 10


def test_two_models_make_two_sections(full_run: Path, make_run: MakeRun, tmp_path: Path):
    other = {**config(["none"]), "model": {**MODEL, "weights": "other"}}
    second = make_run(other, [dict(line, model="/models/second") for line in records(["none"], samples=2)])
    page = Tags(write_report([full_run, second], tmp_path / "report.html").read_text())
    assert page.count("article") == 2
    assert "How far does second reach?" in page.text


def test_few_data_make_a_page_that_says_what_is_missing(make_run: MakeRun, tmp_path: Path):
    lines = [record("none", "line", 5210, 0, data="200.jsonl", depth=None)]
    text = Tags(write_report([make_run(config(["none"]), lines)], tmp_path / "report.html").read_text()).text
    assert "Left out: the depth of the answer is not known" in text
    assert "Left out: no method of this run is a calibrated alignment" in text
    assert "Left out: the run has no sharpness.jsonl" in text
    assert "1 sample a cell" in text


def test_an_empty_file_of_sharpness_is_called_empty(make_run: MakeRun, tmp_path: Path):
    run = make_run(config(["none"]), [record("none", "line", 512, 0)])
    (run / "sharpness.jsonl").touch()
    text = Tags(write_report([run], tmp_path / "report.html").read_text()).text
    assert "Left out: the run's sharpness.jsonl is empty, so attention was not measured" in text


def test_a_run_still_being_written_is_shown_as_far_as_it_is(make_run: MakeRun, tmp_path: Path):
    run = make_run(config(["none", "log"]), records(["none"], ["line"], [512], samples=2))
    with (run / "records.jsonl").open("a") as file:
        file.write('{"model": "embedded", "meth')
    text = Tags(write_report([run], tmp_path / "report.html").read_text()).text
    assert "2 samples a cell" in text


ONE_LINE = json.dumps(record("none", "line", 512, 0)) + "\n"
NOT_RUNS: dict[str, dict[str, str] | None] = {
    "missing": None,
    "empty": {},
    "not json": {"config.json": "{"},
    "other format": {"config.json": json.dumps({**config(), "format": "else/9"}), "records.jsonl": ONE_LINE},
    "no training length": {"config.json": json.dumps(config(train_length=None)), "records.jsonl": ONE_LINE},
    "no versions": {"config.json": json.dumps({**config(), "made_with": None}), "records.jsonl": ONE_LINE},
    "no records": {"config.json": json.dumps(config())},
    "a damaged record": {"config.json": json.dumps(config()), "records.jsonl": "{}\n"},
    "a method from nowhere": {"config.json": json.dumps(config(["log"])), "records.jsonl": ONE_LINE},
}


@pytest.mark.parametrize("files", NOT_RUNS.values(), ids=NOT_RUNS.keys())
def test_what_is_not_a_run_is_refused(files: dict[str, str] | None, tmp_path: Path):
    run = tmp_path / "run"
    if files is not None:
        run.mkdir()
        for name, text in files.items():
            (run / name).write_text(text)
    with pytest.raises(BadInput, match=re.escape(str(run))) as refusal:
        write_report([run], tmp_path / "report.html")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "report.html").exists()


def test_a_bad_name_for_the_page_is_refused(full_run: Path, tmp_path: Path):
    with pytest.raises(BadInput, match=r"ends in \.html, not .*report\.md"):
        write_report([full_run], tmp_path / "report.md")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(BadInput, match=r"cannot write .*taken\.html"):
        write_report([full_run], tmp_path / "taken.html")
    with pytest.raises(BadInput, match="no directory given"):
        write_report([], tmp_path / "report.html")


def test_sections_of_any_caller_share_a_page_and_a_csv_file(tmp_path: Path):
    template = "article.html"
    content = analysis_section(analysis()).content
    style = Style("mine", "c0", "")
    sections = [
        Section("<first>", "memory by length", template, content, "# First\n", [{"length": 1, "mean": 0.5}], {"mine": style}),
        Section("second", "score by length", template, content, "# Second\n", [{"length": 2, "seconds": 3}]),
    ]
    write_page(sections, tmp_path / "page.html")
    page = Tags((tmp_path / "page.html").read_text())
    assert "<first>, second: memory by length" in page.text
    assert [attributes["data-method"] for tag, attributes in page.tags if tag == "button"] == ["mine"]
    assert page.count("article") == 2
    assert (tmp_path / "page.md").read_text() == "# First\n\n# Second\n"
    assert (tmp_path / "page.csv").read_text() == "length,mean,seconds\n1,0.5,\n2,,3\n"

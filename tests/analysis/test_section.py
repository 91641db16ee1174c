"""An analysis as tables, words and a part of the page."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from lengthwise.analysis import tables
from lengthwise.analysis.records import ANALYSIS, Analysis, read_analysis
from lengthwise.analysis.section import analysis_article, command, findings
from lengthwise.cli import app
from tests.helpers.analysed import HEADS, LAYERS, LENGTHS, analysis, at, taus


def written(folder: Path, of: Analysis) -> Path:
    folder.mkdir(parents=True)
    (folder / ANALYSIS).write_text(json.dumps(of.to_json()))
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_tables_hold_every_number() -> None:
    of = analysis()
    found = {name: rows_of(text) for name, text in tables.csv_tables(of).items()}
    assert len(found["sharpness.csv"]) == len(LENGTHS) * LAYERS * HEADS
    last = found["sharpness.csv"][-1]
    assert (last["length"], last["layer"], last["head"]) == ("4096", "2", "3")
    assert float(last["p_max"]) == pytest.approx(of.lengths[-1].p_max[1][2], rel=1e-6)
    points = sum(len(one.ranks) for one in of.lengths)
    assert len(found["logits.csv"]) == points * (1 + HEADS)
    assert [row["head"] for row in found["gaussian.csv"][: 1 + HEADS]] == ["all", "1", "2", "3"]
    assert [float(row["log_law"]) for row in found["temperatures.csv"]] == pytest.approx([1.0, 0.9, 0.75])
    assert (found["heads.csv"][0]["layer"], found["heads.csv"][0]["head"]) == ("2", "3")
    assert [row["head"] for row in found["sights.csv"]] == ["2", "3", "1"]
    assert [row["distance"] for row in found["bias.csv"][:33]] == [str(d) for d in range(-16, 17)]
    assert "bias.csv" not in tables.csv_tables(analysis(sights=()))


def test_what_is_missing_is_an_empty_cell_and_a_dash_and_is_explained() -> None:
    of = analysis(temperatures=(taus(512), taus(4096, proposition_1=None, why={"proposition_1": "no real root"})))
    assert rows_of(tables.csv_tables(of)["temperatures.csv"])[1]["proposition_1"] == ""
    assert tables.temperatures(of).rows[1][1] == "-"
    assert tables.notes(of) == ["4,096 tokens, Proposition 1 (P_max): no real root."]
    assert "Proposition 1 (P_max) has none" in " ".join(findings(of))


def test_findings_tell_the_numbers() -> None:
    sharp, heads, temperature, logits, sights = findings(analysis())
    assert sharp.startswith("Attention disperses: from 512 to 4,096 tokens the mean P_max falls from 0.200 to 0.025,")
    # Falls are 7/8 of 0.30, 0.25, 0.20, 0.20, 0.15, 0.10: the first three are more than half of 1.2
    assert heads == (
        "Head 3 of layer 2 disperses most, P_max from 0.300 to 0.038; 3 of 6 heads account for half of all that is lost."
    )
    assert "Temperature at 4,096 tokens: Proposition 1 (P_max) 0.700" in temperature
    assert "the log law 0.750" in temperature
    assert "0.990 and 0.990" in logits
    assert "look 4 (head 2) to 90 tokens away (head 1) at 512 tokens, and 32 to 720 at 4,096" in sights


def test_findings_do_not_speak_of_a_fall_where_there_is_none() -> None:
    same = [at(n, p_max=at(512).p_max) for n in (512, 1024)]
    heads = tuple(replace(one, p_max_longest=one.p_max_train) for one in analysis().heads)
    told = findings(analysis(lengths=tuple(same), temperatures=(taus(512), taus(1024)), heads=heads))
    assert told[0].startswith("Attention does not disperse")
    assert told[1].startswith("No head disperses")
    assert findings(analysis(lengths=(at(512),))) == []


def test_logits_that_grow_ask_for_positions_first() -> None:
    grown = (at(512), at(4096, l_max=[[4.0] * HEADS for _ in range(LAYERS)]))
    told = findings(analysis(lengths=grown, sights=()))
    assert told[-1].startswith("The largest logit of a row grows from 3.00 to 4.00: positions may be out of range")
    assert not any("grows from" in one for one in findings(analysis(sights=())))
    below = (at(n, l_max=[[mean] * HEADS for _ in range(LAYERS)]) for n, mean in ((512, -2.0), (4096, -2.1)))
    assert not any("grows from" in one for one in findings(analysis(lengths=tuple(below), sights=())))


def test_markdown_has_its_tables_and_names_the_figures() -> None:
    text = analysis_article(analysis()).markdown("figures")
    assert "| 1,024 | 0.850 | 0.700 | 0.880 | 0.800 | 0.900 |" in text
    assert re.findall(r"\]\((figures/\w+\.svg)\)", text) == [
        f"figures/{name}.svg" for name in ("sharpness", "heads", "temperatures", "qq", "bias")
    ]
    assert "](" not in analysis_article(analysis()).markdown()
    assert "no learned bias" in analysis_article(analysis(sights=())).markdown()


def test_the_command_makes_it_again() -> None:
    words = command(analysis()).split()
    assert words[:3] == ["lengthwise", "analyse", "made-up"]
    assert [words[k + 1] for k, word in enumerate(words) if word == "--length"] == ["512", "1024", "4096"]
    assert "--text" not in words
    given = analysis(settings={**analysis().settings, "text": "my book.txt"})
    assert "--text 'my book.txt'" in command(given)


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("shipped prose", [], []),
        ("a.txt, b.txt", ["books/a.txt", "books/b.txt"], ["books/a.txt", "books/b.txt"]),
        ("one, two.txt", ["one, two.txt"], ["one, two.txt"]),
        ("given text", [], ["FILE"]),
        # Analyses of earlier versions tell names only
        ("a.txt, b.txt", None, ["a.txt", "b.txt"]),
        ("given text", None, ["FILE"]),
    ],
)
def test_the_command_names_every_text(text: str, files: list[str] | None, expected: list[str], tmp_path: Path) -> None:
    of = analysis(settings={**analysis().settings, "text": text}, files=files)
    _, name, *words = shlex.split(command(read_analysis(written(tmp_path / "a", of))))
    parameters = typer.main.get_command(app).commands[name].make_context(name, words).params  # type: ignore[attr-defined]
    assert [str(path) for path in parameters["text"] or []] == expected

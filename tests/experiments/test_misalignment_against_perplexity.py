"""Table 1 of Output Alignment over models at hand, on a tiny Llama that reads bytes."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

import lengthwise as lw
from experiments.output_alignment import correlation, correlation_subject
from experiments.output_alignment import correlation_findings as findings
from experiments.output_alignment import correlation_strength as strengths
from experiments.output_alignment.correlation_cells import Cells, Estimate, Reader, read_cells, text_tokens
from experiments.output_alignment.correlation_findings import LESS, MORE, NEITHER, SILENT, UNDECIDED
from experiments.output_alignment.correlation_rows import Row, measured_in
from experiments.output_alignment.correlation_strength import Coefficient, Strength, strength
from experiments.output_alignment.correlation_subject import Settings
from lengthwise.training.output_alignment.views import drawn_extra
from tests.helpers.answering import answering, saved

TRAIN, LONG, STREAMS, PAIRS = 32, 96, 2, 4
NTK = "ntk:factor={factor}"


def reader() -> Any:
    return answering("llama", max_position_embeddings=TRAIN)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(reader(), tmp_path_factory.mktemp("correlation") / "tiny"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    folder = tmp_path_factory.mktemp("library")
    for name in ("apple", "birch", "cedar"):
        (folder / f"{name}.txt").write_text("\n\n".join(f"The {name} {k} begins, and {name} {k * k} ends." for k in range(60)))
    return tuple(sorted(folder.iterdir()))


def options(model: str, out: Path, library: tuple[Path, ...], *methods: str, **changes: Any) -> correlation.Options:
    given: dict[str, Any] = {"streams": STREAMS, "pairs": PAIRS, "device": "cpu", "methods": methods, "books": library}
    settings = Settings(**{name: changes.pop(name, value) for name, value in given.items()})
    return correlation.Options(**{"out": out, "models": (model,), "lengths": ("2x", "96"), "settings": settings, **changes})


METHODS = ("none", "log", "window:size=8", NTK, "alibi", "softmax_plus", "{pmax-model}", "no_such_method")


@pytest.fixture(scope="module")
def finished(model: str, library: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("finished")
    correlation.run(options(model, out, library, *METHODS, command="as typed"))
    return out


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].double().log_softmax(-1)


def losses(model: Any, ids: torch.Tensor) -> list[float]:
    """Of each token from those before it, in one forward."""
    said = logits_of(model, ids[:-1])
    return [-float(said[at, ids[at + 1]]) for at in range(len(ids) - 1)]


def test_numbers_are_those_of_loops_over_the_models_own_logits() -> None:
    model, seed, method = reader(), 3, "ntk:factor=3"
    text = text_tokens(TRAIN, PAIRS, STREAMS)
    assert text == 2 * 48
    ids = torch.randint(40, 120, (STREAMS, LONG + 1), generator=torch.Generator().manual_seed(0))
    here = Reader(model, ids, TRAIN, None, PAIRS, seed)
    short, long = here.short(method), here.long(method, LONG)
    with lw.extend(model, method):
        # Two whole readings fit into 96 tokens, when the last prediction needs a target
        readings = [losses(model, row[start : start + TRAIN + 1]) for row in ids for start in (0, TRAIN)]
        forwards = np.array([losses(model, row) for row in ids])
        joined = ids[:, :text].flatten()
        shift = np.random.default_rng(seed).random(PAIRS)
        sces, kls = [], []
        for pair in range(PAIRS):
            start = int((len(joined) - 48) * (pair + shift[pair]) / PAIRS)
            extra = drawn_extra("1..L/2", TRAIN, seed, pair)
            first, second = (logits_of(model, joined[start + k : start + k + TRAIN]) for k in (0, extra))
            for context in range(TRAIN // 2 + extra, TRAIN + 1):
                p, q = first[context - 1], second[context - extra - 1]
                sces.append(-float((q.exp() * p).sum() + (p.exp() * q).sum()))
                kls.append(float((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()))
    assert short["l_train"].mean == pytest.approx(np.mean(readings), rel=1e-4)
    assert short["l_misalign"].mean == pytest.approx(np.mean(sces), rel=1e-4)
    assert short["kl"].mean == pytest.approx(np.mean(kls), rel=1e-3, abs=1e-5)
    assert long["log_ppl"].mean == pytest.approx(forwards.mean(), rel=1e-4)
    assert long["beyond"].mean == pytest.approx(forwards[:, TRAIN:].mean(), rel=1e-4)
    assert all(one.low <= one.mean <= one.high for one in (*short.values(), *long.values()))


def test_rows_hold_what_was_measured_with_the_factor_of_their_length(finished: Path) -> None:
    (tiny,) = measured_in(finished)
    rows = {(row.method, row.length): row for row in tiny.rows}
    assert set(rows) == {(name, length) for name in METHODS[:-1] for length in (64, LONG)}
    assert rows[NTK, 64].spec == "ntk:factor=2"
    assert rows[NTK, LONG].spec == "ntk:factor=3"
    assert (rows[NTK, LONG].factor, tiny.noted.train_length, tiny.missing) == (3, TRAIN, 0)
    cells = read_cells(finished / "tiny")
    for row in tiny.rows:
        for name in ("l_train", "l_misalign", "kl"):
            assert getattr(row, name).mean == round(cells[name, row.spec, TRAIN].mean, 3)
        for name in ("log_ppl", "beyond"):
            assert getattr(row, name).mean == round(cells[name, row.spec, row.length].mean, 3)
    streams = torch.tensor([row[: LONG + 1] for row in json.loads((finished / "tiny" / "streams.json").read_text())["tokens"]])
    with lw.extend(model := reader(), "ntk:factor=3"):
        expected = np.mean([losses(model, row) for row in streams[:STREAMS]])
    assert rows[NTK, LONG].log_ppl.mean == pytest.approx(expected, abs=6e-4)
    # What changes nothing up to the training length is known, and what does is, too
    assert {row.method for row in tiny.rows if row.unchanged} == {"none", "log", "{pmax-model}"}
    # Measured once for all lengths where the length does not matter, and once for each where it does
    assert len(cells) == 3 * len({row.spec for row in tiny.rows}) + 2 * len(rows) == 3 * 8 + 2 * 14
    assert set(tiny.refused) == {f"no_such_method at {n} tokens" for n in (TRAIN, 64, LONG)}


def test_the_page_tells_of_all_of_it(finished: Path) -> None:
    page = (finished / "correlation.md").read_text()
    assert "- tiny (weights " in page
    assert "trained on 32 tokens: 2 streams of books (apple, birch, cedar), 4 pairs of readings, seed 0" in page
    assert "- command: `as typed`" in page
    assert "| paper, as printed | 7 | 7 | 0.67 | 0.88 |  | 0.21 |  |" in page
    assert "6 of 14 rows are the plain model up to the training length" in page
    assert "## Rows: tiny, 3 x (96 tokens)" in page
    assert "- `no_such_method at 96 tokens`: no method" in page
    assert "Unfinished" not in page
    document = json.loads((finished / "correlation.json").read_text())
    assert len(document["rows"]) == 14
    assert document["models"][0]["train_length"] == TRAIN
    first = document["coefficients"][0]
    own = [(row["l_misalign"]["mean"], row["log_ppl"]["mean"]) for row in document["rows"]]
    found = first["Spearman with log_ppl"]["of"]["l_misalign"]["value"]
    assert (first["models"], first["lengths"]) == ("tiny", "all lengths")
    assert found == pytest.approx(spearmanr(*zip(*own, strict=True)).statistic)
    ElementTree.fromstring((finished / "correlation.svg").read_text())


def test_a_second_call_measures_only_what_is_missing_and_the_page_needs_no_model(
    model: str, library: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    correlation.run(options(model, tmp_path, library, "none", lengths=("2x",)))
    before = (tmp_path / "tiny" / "cells.jsonl").read_text()
    asked: list[object] = []
    short, long = Reader.short, Reader.long
    monkeypatch.setattr(Reader, "short", lambda self, method: asked.append(method) or short(self, method))
    monkeypatch.setattr(Reader, "long", lambda self, method, n: asked.append((method, n)) or long(self, method, n))
    correlation.run(options(model, tmp_path, library, "none", "log", lengths=("3x", "64")))
    # The most important first; what was measured at 64 tokens up to the training length serves at 96 as well
    assert asked == ["log", ("log", 64), ("none", 96), ("log", 96)]
    assert (tmp_path / "tiny" / "cells.jsonl").read_text().startswith(before)
    monkeypatch.setattr(correlation_subject, "load", None)
    (found,) = correlation.run(correlation.Options(out=tmp_path, page=True))
    assert [(row.method, row.length) for row in found.rows] == [("none", 64), ("log", 64), ("none", 96), ("log", 96)]


def test_rows_that_were_asked_for_and_not_measured_are_missing(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name in ("subject.json", "refused.json"):
        (folder / name).write_text((finished / "tiny" / name).read_text())
    lines = (finished / "tiny" / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(line for line in lines if '"ntk:factor=3"' not in line or "kl" not in line))
    (found,) = correlation.run(correlation.Options(out=tmp_path, page=True))
    assert (len(found.rows), found.missing) == (13, 1)
    assert "**Unfinished**: 1 rows are missing." in (tmp_path / "correlation.md").read_text()


def test_numbers_of_other_settings_are_not_mixed_in(model: str, library: tuple[Path, ...], finished: Path) -> None:
    before = {path: path.read_bytes() for path in (finished / "tiny").iterdir() if path.is_file()}
    with pytest.raises(lw.BadInput, match="was begun with another pairs: 4 then, 8 now; give another --out"):
        correlation.run(options(model, finished, library, "none", pairs=8))
    with pytest.raises(lw.BadInput, match="was begun with another source: books"):
        correlation.run(options(model, finished, ()))
    with pytest.raises(lw.BadInput, match="was begun with another train_length: 32 then, 16 now"):
        correlation.run(options(model, finished, library, "none", train_lengths=(16,)))
    assert {path: path.read_bytes() for path in before} == before


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    cells = Cells(tmp_path)
    good = Estimate(1.0, 0.5, 1.5)
    cells.once(("l_train",), "none", 4, lambda: {"l_train": good}).make()
    with pytest.raises(ValueError):
        cells.once(("kl",), "none", 4, lambda: {"kl": Estimate(math.nan, 0.0, 0.0)}).make()
    assert [(one.key, one.estimate) for one in read_cells(tmp_path).values()] == [(("l_train", "none", 4), good)]
    assert cells.once(("l_train",), "none", 4, dict).done()
    assert not cells.once(("l_train",), "none", 8, dict).done()


def test_samples_as_weights_are_samples_of_rows() -> None:
    """Against scipy on rows that are really repeated, with ties from the start and from repeating."""
    randomness = np.random.default_rng(0)
    one, other = randomness.integers(0, 5, 12).astype(float), randomness.normal(size=12)
    weights = randomness.integers(0, 4, (50, 12)).astype(float)
    ranked, straight = strengths.ranked(one, other, weights), strengths.pearson(one, other, weights)
    for sample, times in enumerate(weights.astype(int)):
        x, y = np.repeat(one, times), np.repeat(other, times)
        assert ranked[sample] == pytest.approx(spearmanr(x, y).statistic)
        assert straight[sample] == pytest.approx(pearsonr(x, y).statistic)
    constant = np.zeros((1, 12))
    constant[0, 3] = 4
    assert np.isnan(strengths.ranked(one, other, constant)).all()


def test_intervals_are_those_of_many_independent_rows() -> None:
    """Fisher's: atanh r is normal with a spread of 1 / sqrt(n - 3)."""
    randomness, n = np.random.default_rng(1), 600
    quality = randomness.normal(size=n)
    close, far = quality + 0.7 * randomness.normal(size=n), quality + 2 * randomness.normal(size=n)
    found = strength("Pearson", {"l_train": far, "l_misalign": close}, quality, range(n))
    assert found is not None
    for name, column in (("l_train", far), ("l_misalign", close)):
        r = pearsonr(column, quality).statistic
        expected = [math.tanh(math.atanh(r) + side * 1.96 / math.sqrt(n - 3)) for side in (-1, 1)]
        assert found.of[name].value == pytest.approx(r)
        assert [found.of[name].low, found.of[name].high] == pytest.approx(expected, abs=0.015)
    assert found.more.value == pytest.approx(found.of["l_misalign"].value - found.of["l_train"].value)
    assert 0 < found.more.low < found.more.value < found.more.high
    assert found.between.value == pytest.approx(pearsonr(close, far).statistic)


def test_rows_of_one_owner_are_drawn_together() -> None:
    """Each row four times over says no more than once."""
    randomness = np.random.default_rng(2)
    quality = randomness.normal(size=30)
    columns = {"l_train": quality + randomness.normal(size=30), "l_misalign": randomness.normal(size=30)}
    once = strength("Spearman", columns, quality, range(30))
    repeated = {name: np.tile(column, 4) for name, column in columns.items()}
    together = strength("Spearman", repeated, np.tile(quality, 4), list(range(30)) * 4)
    apart = strength("Spearman", repeated, np.tile(quality, 4), range(120))
    assert once is not None
    assert together is not None
    assert apart is not None

    def width(found: Strength) -> float:
        return found.of["l_train"].high - found.of["l_train"].low

    assert (together.rows, together.owners) == (120, 30)
    assert width(together) == pytest.approx(width(once), rel=0.05)
    assert width(apart) < 0.7 * width(once)


def test_too_few_rows_and_rows_all_alike_have_no_strength() -> None:
    columns = {"l_train": [1.0, 2, 3, 4, 5], "l_misalign": [2.0, 1, 3, 5, 4]}
    assert strength("Spearman", columns, [1.0, 2, 3, 5, 4], range(5)) is not None
    assert strength("Spearman", columns, [1.0, 2, 3, 5, 4], [0, 0, 1, 2, 3]) is None
    assert strength("Spearman", columns, [1.0] * 5, range(5)) is None


def test_the_papers_coefficients_come_out_of_its_rows() -> None:
    spearman, pearson = (findings.of_the_paper(kind) for kind in ("Spearman", "Pearson"))
    assert [round(spearman.of[name].value, 3) for name in ("l_train", "l_misalign")] == [0.673, 0.882]
    assert [round(pearson.of[name].value, 3) for name in ("l_train", "l_misalign")] == [0.760, 0.961]
    assert spearman.more.low < 0 < spearman.more.high


def row(method: str, l_train: float, l_misalign: float, log_ppl: float, model: str = "m", factor: float = 2) -> Row:
    one, other, long = (Estimate(value, value - 0.1, value + 0.1) for value in (l_train, l_misalign, log_ppl))
    same = (l_train, l_misalign) == (1.0, 1.0)
    return Row(model, method, method, int(32 * factor), factor, one, other, other, long, long, same)


def made(misalign_noise: float, train_noise: float, n: int = 60, sign: float = 1.0) -> list[Row]:
    randomness = np.random.default_rng(0)
    quality = randomness.normal(5, 1, n)
    noise = randomness.normal(size=(2, n))
    columns = zip(quality, sign * quality + train_noise * noise[0], sign * quality + misalign_noise * noise[1], strict=True)
    return [row(f"method {k}", l_train, l_misalign, ppl) for k, (ppl, l_train, l_misalign) in enumerate(columns)]


def test_it_is_told_whether_the_papers_difference_is_possible_here() -> None:
    assert "Our interval of the difference does not hold the paper's 0.21." in findings.findings(made(0.1, 0.1))[-1]
    assert "Our interval of the difference holds the paper's 0.21." in findings.findings(made(0.6, 1.0, n=30))[-1]
    assert "Our interval" not in findings.findings(made(1, 1, n=4))[-1]


@pytest.mark.parametrize(
    ("rows", "expected", "words"),
    [
        (made(0.3, 3), MORE, "**Misalignment correlates more strongly with long perplexity than training loss does."),
        (
            made(3, 0.3),
            LESS,
            "**Misalignment does not correlate more strongly with long perplexity than training loss does, but",
        ),
        (
            made(1, 1),
            UNDECIDED,
            "**Whether misalignment correlates more strongly with long perplexity than training loss does is",
        ),
        (made(0.3, 0.3, sign=-1), NEITHER, "training loss does: neither does for certain. Over 60 rows (m, 2 x)"),
        # Nearer to 0, but on the wrong side of it
        (made(1, 0.2, sign=-1), NEITHER, "neither does for certain"),
        (made(1, 1, n=4), SILENT, "4 rows are too few"),
    ],
)
def test_the_verdict_follows_from_the_intervals(rows: list[Row], expected: str, words: str) -> None:
    assert findings.verdict(findings.groups(rows)[0].strength()) == expected
    assert words in findings.findings(rows)[0]


def test_equal_measures_are_undecided() -> None:
    rows = [row(str(k), 0.1 * k, 0.2 * k, float(k)) for k in range(9)]
    found = findings.groups(rows)[0].strength()
    assert found is not None
    assert found.more == Coefficient(0.0, 0.0, 0.0)
    assert findings.verdict(found) == UNDECIDED


def test_groups_are_all_rows_lengths_and_models() -> None:
    rows = [row(str(k), k, k, k, model, factor) for model in ("a", "b") for factor in (2, 8) for k in range(3)]
    found = findings.groups(rows)
    assert [one.label for one in found] == [
        f"{who}, {lengths}" for who in ("all models", "a", "b") for lengths in ("all lengths", "2 x", "8 x")
    ]
    assert [len(one.rows) for one in found] == [12, 6, 6, 6, 3, 3, 6, 3, 3]
    assert [one.label for one in findings.groups(rows[:3])] == ["a, 2 x"]


def test_temperatures_on_top_of_a_position_method_make_no_further_family() -> None:
    names = [*"abcde", *(f"{name}+{law}" for name in "abcde" for law in ("log", "{pmax-layer}"))]
    rows = [row(name, 1 + k % 5, 2 + k % 3, k % 7, factor=factor) for factor in (2, 4) for k, name in enumerate(names)]
    found = findings.groups(rows)[0].strength()
    assert found is not None
    assert (found.rows, found.owners) == (30, 5)
    assert findings.groups([one for one in rows if one.family != "a"])[0].strength() is None


def test_methods_that_do_nothing_up_to_the_training_length_are_told_of_and_left_out() -> None:
    rows = [row("none", 1, 1, 4), *(row(f"still {k}", 1, 1, k) for k in range(1, 4))]
    rows += [row(f"acts {k}", 1 + k, 2 + k, 2 + k) for k in range(1, 8)]
    (group,) = findings.groups(rows)
    assert [one.method for one in group.acting.rows] == ["none", *(f"acts {k}" for k in range(1, 8))]
    said = " ".join(findings.findings(rows))
    assert "4 of 11 rows are the plain model up to the training length, so that neither measure can tell them apart" in said
    assert f"from {math.e:.3g} to {math.exp(4):.3g}" in said
    assert "Without those but the plain model itself, over 8 rows" in said


def test_several_models_stand_on_one_page(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for file in ("subject.json", "refused.json", "cells.jsonl"):
            text = (finished / "tiny" / file).read_text()
            (tmp_path / name / file).write_text(text.replace('"name": "tiny"', f'"name": "{name}"'))
    correlation.run(correlation.Options(out=tmp_path, page=True))
    page = (tmp_path / "correlation.md").read_text()
    for label in ("all models, all lengths", "one, 2 x", "two, 3 x"):
        assert f"| {label} | " in page
    assert "- Within a model: one, all lengths " in page
    assert "## Rows: all models" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: give at least one model, or --page"),
        (["--page"], "error: nothing is measured in"),
        (["no/such/model/here"], "error: no directory no/such/model/here"),
        (["MODEL", "--pairs", "1"], "error: --pairs must be at least 2 for an interval, not 1"),
        (["MODEL", "--streams", "0"], "error: --streams must be at least 1, not 0"),
        (["MODEL", "--stages", "9"], "error: --stages must be from 1 to 4, not 9"),
        (["MODEL", "--length", "1x"], "error: length 1x is not beyond the 32 tokens that"),
        (["MODEL", "--length", "32"], "error: length 32 is not beyond the 32 tokens that"),
        (["MODEL", "--length", "twice"], "error: a length must be a number of tokens or a multiple such as 8x, not 'twice'"),
        (["MODEL", "--method", "{nothing}"], "error: '{nothing}' has an unknown place {nothing}"),
        (["MODEL", "other", "--train-length", "8"], "error: --train-length needs one number a model, 2 of them, not 1"),
        (["MODEL", "MODEL"], "error: models of one name would share a folder: tiny, tiny"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(
    arguments: list[str], message: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [model if word == "MODEL" else word for word in arguments]
    assert correlation.main([*words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)
    assert not list(tmp_path.glob("*/subject.json"))


def test_the_command_line_asks_for_our_methods_of_the_first_stages() -> None:
    asked = correlation.options_from(["m", "--stages", "1", "--out", "o", "--books", "a", "b"])
    assert asked.command == "python -m experiments.output_alignment.correlation m --stages 1 --out o --books a b"
    assert (asked.models, asked.lengths, asked.settings.books) == (("m",), ("2x", "4x", "8x"), (Path("a"), Path("b")))
    rows = correlation_subject.asked_of(asked.settings, [512, 1024])
    assert rows[0] == ("none", 512)
    assert len(rows) == len(set(rows)) == 2 * len(correlation_subject.contenders.STAGES[0])

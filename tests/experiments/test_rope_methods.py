"""The comparison of length methods, on a tiny Llama that tells stories of digits."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lengthwise as lw
from experiments._lib.likelihood_cells import Cell, Cells, read_cells, read_nll, save_array
from experiments.rope_methods import chart, comparison, contenders, findings, gold, stories, streams, telling
from experiments.rope_methods.gold import Reencoding
from experiments.rope_methods.outcome import write_outcome
from experiments.rope_methods.results import GOLD, Results
from lengthwise.evaluation.likelihood import reencoded_nll, token_nll
from lengthwise.methods.spec import methods_of
from lengthwise.models.anatomy import anatomy_of
from tests.helpers.answering import answering, saved

TRAIN, LONG, STREAMS = 32, 80, 2
MADE = streams.Made("digest", "float32", TRAIN, 0, STREAMS)


def teller() -> Any:
    """Tells digits, and an end now and then: other tokens are rare, so that its stories survive being read as text."""
    model = answering("llama", max_position_embeddings=TRAIN)
    head = model.lm_head.weight.data
    torch.manual_seed(1)
    head *= 2
    head[1:3] = 0.8 * torch.randn(2, head.shape[1])
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(teller(), tmp_path_factory.mktemp("model")))


def options(model: str, out: Path, *methods: str, **changes: Any) -> stories.Options:
    given = {"lengths": (TRAIN, LONG), "streams": STREAMS, "device": "cpu", "command": "as typed"}
    return stories.Options(**{"model": model, "out": out, "methods": methods, **given, **changes})


@pytest.fixture(scope="module")
def finished(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    stories.compare(options(model, out, "none", "log", "no_such_method", "{pmax-model}"))
    return out


def test_a_story_is_cut_where_it_ends() -> None:
    ends = telling.Ends(1, frozenset([2]))
    assert ends.story([1, 7, 8, 1, 9]) == [1, 7, 8]
    assert ends.story([1, 7, 2, 1, 9]) == [1, 7, 2]
    assert ends.story([1, 7, 8, 9]) == [1, 7, 8, 9]
    assert ends.story([1, 1, 9]) == [1]


def test_tokens_are_sampled_at_temperature_one() -> None:
    model = teller()
    with torch.no_grad():
        first = model(input_ids=torch.tensor([[1]])).logits[0, -1].double().softmax(-1)
    count = 4000
    drawn = Counter(row[-1] for row in telling.stories(model, telling.Ends(1, frozenset()), 2, seed=3, count=count))
    for token, share in enumerate(first.tolist()):
        # A story that is over at once has its beginning only, which counts as the token that ends it
        assert abs(drawn[token] / count - share) < 5 * math.sqrt(share / count) + 1e-3


def test_stories_keep_within_the_training_length() -> None:
    model, ends = teller(), telling.Ends(1, frozenset([2]))
    told = telling.stories(model, ends, TRAIN, seed=0)
    assert all(story[0] == 1 and 1 not in story[1:] and 2 not in story[1:-1] and len(story) <= TRAIN for story in told)
    assert len({len(story) for story in told}) > 3
    assert told == telling.stories(model, ends, TRAIN, seed=0)
    assert told != telling.stories(model, ends, TRAIN, seed=1)


def test_a_cache_changes_nothing() -> None:
    """The same stories from whole forwards, the next token being the first whose probabilities add up to the draw."""
    model, generator = teller(), torch.Generator().manual_seed(5)
    told: list[list[int]] = [[1] for _ in range(6)]
    while len(told[0]) < TRAIN:
        with torch.no_grad():
            probabilities = model(input_ids=torch.tensor(told), use_cache=False).logits[:, -1].double().softmax(-1)
        draws = torch.rand(6, 1, dtype=torch.float64, generator=generator)[:, 0].tolist()
        for row, shares, draw in zip(told, probabilities.tolist(), draws, strict=True):
            token = 0
            while (draw := draw - shares[token]) >= 0:
                token += 1
            row.append(token)
    ends = telling.Ends(1, frozenset([2]))
    assert telling.stories(model, ends, TRAIN, seed=5, count=6) == [ends.story(row) for row in told]


def test_a_longer_stream_begins_with_the_shorter_one_and_a_second_call_needs_no_model(tmp_path: Path) -> None:
    model, file = teller(), tmp_path / "streams.json"
    short = telling.told_streams(model, MADE, 40, file)
    assert short.shape == (STREAMS + 1, 40)
    long = telling.told_streams(model, MADE, 2000, file)
    assert torch.equal(long[:, :40], short)
    assert len({tuple(row) for row in short.tolist()}) == STREAMS + 1
    assert torch.equal(telling.told_streams(None, MADE, 2000, file), long)
    with pytest.raises(lw.BadInput, match="was begun with another seed: 0 then, 1 now"):
        telling.told_streams(model, streams.Made("digest", "float32", TRAIN, 1, STREAMS), 40, file)
    file.write_text("{}")
    with pytest.raises(lw.BadInput, match="not a file of streams"):
        telling.told_streams(model, MADE, 40, file)


def test_places_are_filled_for_each_length() -> None:
    assert contenders.filled("yarn:factor={factor}+log", 2048, 256) == "yarn:factor=8+log"
    assert contenders.filled("rerope:window={half},leak={leak}", 8192, 256) == "rerope:window=128,leak=63"
    # The furthest of 8192 keys then stands where the 256th stood: 128 + (8192 - 128) / 63
    assert 128 + (8192 - 128) / 63 == 256
    assert contenders.filled("ntk:factor={factor}+{pmax-head}", 384, 256) == "ntk:factor=1.5+pmax-head"
    with pytest.raises(lw.BadInput, match=r"unknown place \{fctor\}; known are factor, leak"):
        contenders.filled("yarn:factor={fctor}", 2048, 256)


def test_all_contenders_are_methods() -> None:
    assert len(set(contenders.NAMES)) == len(contenders.NAMES)
    facts = anatomy_of(teller()).facts
    for length in (8 * TRAIN, 32 * TRAIN):
        for name in contenders.NAMES:
            base, aligned = contenders.split_aligned(name)
            assert aligned is None or aligned in contenders.ALIGNED
            methods_of(contenders.filled(base, length, TRAIN), facts)


def test_yarn_is_bare_without_its_temperature() -> None:
    facts = {"train_length": 256, "key_size": 48, "base": 10000.0}
    methods: list[Any] = methods_of(contenders.filled(contenders.YARN_BARE, 8192, 256), facts)
    n = torch.tensor([[[1, 256, 8192]]])
    product = math.prod(method.inverse_temperature(n, 0) for method in methods)
    assert torch.allclose(product, torch.ones(1, 1, 3), atol=1e-6)  # type: ignore[arg-type]


def test_combinations_know_their_parts() -> None:
    known = ["a", "b", "c", "a+b", "{pmax-model}"]
    assert contenders.parts("a+b", known) == ["a", "b"]
    assert contenders.parts("a+b+c", known) == ["a", "a+b", "c"]
    assert contenders.parts("a+{pmax-model}", known) == ["a", "{pmax-model}"]
    assert contenders.parts("a", known) == []
    bare = contenders.YARN_BARE
    assert contenders.parts(f"{bare}+{{pmax-model}}", [*known, contenders.YARN, bare]) == [bare, "{pmax-model}"]
    assert contenders.parts(bare, [contenders.YARN]) == []
    assert contenders.split_aligned("a+b+{entropy-head}") == ("a+b", "entropy-head")
    assert contenders.split_aligned("{pmax-model}") == ("none", "pmax-model")
    assert contenders.split_aligned("yarn:factor={factor}") == ("yarn:factor={factor}", None)
    with pytest.raises(lw.BadInput, match="an alignment must come last"):
        contenders.split_aligned("{pmax-model}+log")


def test_cells_hold_the_likelihoods_of_one_forward(finished: Path) -> None:
    found = {cell.key: cell for cell in read_cells(finished)}
    assert set(found) == {(name, n) for name in ("none", "log") for n in (TRAIN, LONG)} | {("{pmax-model}", LONG)}
    ids = torch.tensor([row[: LONG + 1] for row in json.loads((finished / "streams.json").read_text())["tokens"]])[:STREAMS]
    for (name, length), cell in found.items():
        method: Any = name
        if name == "{pmax-model}":
            assert cell.spec == "pmax-model"
            method = lw.Alignment.load(finished / "alignments" / f"none-pmax-model-{LONG}.json")
            assert [entry.length for entry in method.temperatures] == [64, 80]
        nll = token_nll(teller(), ids[:, : length + 1], method=method)
        assert nll.shape == (STREAMS, length)
        assert np.allclose(read_nll(finished, cell), nll.numpy(), atol=1e-5)
        assert cell.perplexity == pytest.approx(math.exp(float(nll.double().mean())), rel=1e-5)


def test_gold_is_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gold, "PART", 25)
    ids = torch.randint(3, 380, (2, 81), generator=torch.Generator().manual_seed(0))
    model, said = teller(), []
    exact = Reencoding(TRAIN)
    exact.make(model, ids, 80, tmp_path, said.append)
    found = exact.read(tmp_path, 2, 80)
    assert found is not None
    assert np.allclose(found, reencoded_nll(model, ids, TRAIN).numpy(), atol=1e-5)
    assert len(said) == 2 * 4
    exact.make(None, ids, 80, tmp_path, said.append)
    assert len(said) == 2 * 4
    assert exact.read(tmp_path, 3, 80) is None


def test_refusals_are_listed_with_their_reason_and_an_alignment_needs_a_longer_length(finished: Path) -> None:
    refused = json.loads((finished / "refused.json").read_text())
    assert set(refused) == {f"no_such_method at {n} tokens" for n in (TRAIN, LONG)} | {f"pmax-model at {TRAIN} tokens"}
    assert "no method 'no_such_method'" in refused[f"no_such_method at {LONG} tokens"]
    page = (finished / "rope_methods.md").read_text()
    assert f"- `no_such_method at {LONG} tokens`: no method" in page


def test_a_second_call_measures_only_what_is_missing(
    finished: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "again"
    first = options(model, out, "none", lengths=(LONG,))
    stories.compare(first)
    before = (out / "cells.jsonl").read_text()
    (gold,) = {path.stat().st_mtime_ns for path in (out / "gold").glob("0-*.npy")}
    asked: list[object] = []
    real = comparison.in_one_forward

    def counted(model: Any, ids: Any, length: int, method: Any, train_length: int) -> Any:
        asked.append((method, length))
        return real(model, ids, length, method, train_length)

    monkeypatch.setattr(comparison, "in_one_forward", counted)
    stories.compare(options(model, out, "none", "log", lengths=(LONG,)))
    assert asked == [("log", LONG)]
    assert (out / "cells.jsonl").read_text().startswith(before)
    assert {path.stat().st_mtime_ns for path in (out / "gold").glob("0-*.npy")} == {gold}
    # The same numbers as in a run that had both from the start
    for name in ("none", "log"):
        ours, theirs = ({cell.key: cell for cell in read_cells(folder)}[name, LONG] for folder in (out, finished))
        assert ours.perplexity == pytest.approx(theirs.perplexity, rel=1e-6)
    page = stories.compare(options(model, out, "none", "log", "infoscale", lengths=(LONG,), page=True))
    assert sorted(page.cells) == [("log", LONG), ("none", LONG)]
    assert "**Unfinished**: 1 cells are missing" in (out / "rope_methods.md").read_text()


def test_time_that_is_up_leaves_a_page_of_what_there_is(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = stories.compare(options(model, tmp_path, "none", minutes=0.0))
    assert found.cells == {}
    assert "0 minutes are over; the same command goes on" in capsys.readouterr().err


def known_results(folder: Path, levels: dict[str, float], within: dict[str, float] | None = None) -> Results:
    """64 tokens in two streams, training length 16: re-encoding's likelihoods plus so much, and a little noise.

    `within` are other levels for the tokens up to the training length.
    """
    randomness = np.random.default_rng(0)
    told = torch.from_numpy(randomness.exponential(1.0, (2, 64)))
    all_cells = Cells(folder)
    for stream in (0, 1):
        save_array(folder / "gold" / f"{stream}-0-64.npy", told[stream])
    for name, level in levels.items():
        nll = told + level + 0.01 * torch.from_numpy(randomness.normal(size=told.shape)) * (level != 0)
        nll[:, :16] += (within or levels)[name] - level
        all_cells.once(name, contenders.filled(name, 64, 16), 64, lambda nll=nll: (nll, 0.5)).make()
    return Results(folder, 2, Reencoding(16), stretch=16)


def test_findings_follow_from_the_numbers(tmp_path: Path) -> None:
    yarn = contenders.YARN
    levels = {
        "none": 5.0,
        "log": 5.5,
        "window": 0.01,
        "window+log": 0.0115,
        yarn: 1.0,
        f"{yarn}+log": 0.5,
        f"{yarn}+infoscale": 1.2,
        "infoscale": 5.0001,
        "{pmax-layer}": 4.0,
        f"{yarn}+{{pmax-layer}}": 0.8,
    }
    results = known_results(tmp_path, levels)
    best = findings.best(results, 64)
    assert best is not None
    assert (best.row.method, best.reached) == ("window", True)
    assert best.row.against is not None
    assert best.row.against.ratio == pytest.approx(math.exp(0.01), abs=2e-3)
    assert best.plain is not None
    assert best.plain.beyond is not None
    assert best.plain.beyond.ratio == pytest.approx(math.exp(5), rel=0.01)

    verdicts = {one.method: (one.other, one.verdict) for one in findings.combinations(results, 64)}
    assert verdicts == {
        "window+log": ("window", "no difference"),
        f"{yarn}+log": (yarn, "better"),
        f"{yarn}+infoscale": (yarn, "worse"),
        f"{yarn}+{{pmax-layer}}": (yarn, "better"),
    }
    table = findings.temperatures(results, 64)
    assert {base: {law: one.verdict for law, one in row.items()} for base, row in table.items()} == {
        "none": {"log": "worse", "infoscale": "no difference", "pmax-layer": "better"},
        "window": {"log": "no difference"},
        yarn: {"log": "better", "infoscale": "worse", "pmax-layer": "better"},
    }
    said = findings.said_of_temperatures(table, {yarn: "yarn:factor=4"})
    # Numbers to two digits, beyond which there is noise: e^-0.5, e^0.5
    assert re.sub(r"(\d\.\d)\d+", r"\1", said[0]) == (
        "`log` helps on `yarn:factor=4` (x 0.6); harms `none` (x 1.6); changes nothing for certain on `window` (x 1.0)."
    )
    # What helps at length and harms short inputs is said to do both
    paid = known_results(tmp_path / "paid", {"none": 5.0, "ssmax": 4.0}, within={"none": 0.0, "ssmax": 0.5})
    (both,) = findings.said_of_temperatures(findings.temperatures(paid, 64), {})
    assert re.sub(r"(\d\.\d)\d+", r"\1", both) == "`ssmax` helps on `none` (x 0.5, but x 1.6 up to the training length)."
    against_yarn = {one.method: one.verdict for one in findings.calibrated(results, 64)}
    assert against_yarn == {"{pmax-layer}": "worse", f"{yarn}+{{pmax-layer}}": "better"}

    facts = {
        "command": "as typed",
        "model": {"name": "m", "weights": "w"},
        "made_with": {"torch": "2"},
        "dtype": "float32",
        "seed": 0,
        "streams": 2,
        "source": "stories",
        "train_length": 16,
        "missing": 0,
    }
    page = write_outcome(tmp_path, results, facts)
    assert "The best method is `window`" in page
    assert "the target of 1.02 is reached" in page
    assert "2 of 4 combinations beat the better of their parts beyond the interval: `yarn:factor=4+log` (x 0.60" in page
    assert "| method | 0-16 | 16-32 | 32-64 | all |" in page
    document = json.loads((tmp_path / "rope_methods.json").read_text())
    assert document["best"] == [{"length": 64, "method": "window", "spec": "window", "target": 1.02, "reached": True}]
    assert [row["method"] for row in document["rows"]][:3] == [GOLD, "window", "window+log"]
    for group in ("positions", "temperatures", "combinations", "calibrated"):
        assert f"![{group}-64.svg]({group}-64.svg)" in page
        assert (tmp_path / f"{group}-64.svg").exists()


def test_a_method_that_is_the_same_is_said_to_be_the_same(tmp_path: Path) -> None:
    results = known_results(tmp_path, {"window": 0.0, "window+log": 0.0})
    (one,) = findings.combinations(results, 64)
    assert one.verdict == "the same"
    said = findings.said_of_temperatures(findings.temperatures(results, 64), {})
    assert said == ["`log` is 1 throughout on `window`."]


def test_likelihoods_that_overflow_are_refused(tmp_path: Path) -> None:
    nan = torch.full((2, 4), math.nan)
    with pytest.raises(lw.BadInput, match="not finite"):
        Cells(tmp_path).once("none", "none", 4, lambda: (nan, 0.5)).make()
    assert read_cells(tmp_path) == []
    (tmp_path / "nll").mkdir()
    (tmp_path / "nll" / "x.npy").write_bytes(b"no array")
    with pytest.raises(lw.BadInput, match=r"cannot read .*x\.npy"):
        read_nll(tmp_path, Cell("none", 4, "none", 1.0, 0.0, "x.npy"))


def test_a_curve_is_the_perplexity_of_stretches_of_the_streams() -> None:
    nll = np.log(np.arange(1, 65, dtype=np.float32))[None].repeat(2, 0)
    found = chart.positions(nll)
    # 0-16, 16-19, 19-23, 23-27, 27-32, 32-38, 38-45, 45-54, 54-64
    assert len(found) == 9
    assert found[0] == pytest.approx((4.0, math.factorial(16) ** (1 / 16)))
    assert found[1] == pytest.approx((math.sqrt(16 * 19), (17 * 18 * 19) ** (1 / 3)))
    assert chart.positions(nll[:, :10]) == [pytest.approx((math.sqrt(10), math.factorial(10) ** (1 / 10)))]


def test_a_picture_is_well_formed_and_names_do_not_overlap() -> None:
    nll = np.full((1, 64), 1.0, dtype=np.float32)
    svg = chart.chart("<all> & more", {f"line {k}": nll + 0.001 * k for k in range(12)}, references=2, train_length=16)
    root = ElementTree.fromstring(svg)
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert texts[0].text == "<all> & more"
    heights = sorted(float(text.attrib["y"]) for text in texts if (text.text or "").startswith("line "))
    assert len(heights) == 12
    assert min(b - a for a, b in pairwise(heights)) >= 15 - 1e-6
    paths = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert sum("stroke-dasharray" in path.attrib for path in paths) == 12 - 2 - len(chart.COLOURS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such/model/here"], "error: no directory no/such/model/here"),
        (["MODEL", "--streams", "0"], "error: --streams must be at least 1, not 0"),
        (["MODEL", "--length", "0"], "error: a length must be at least 1 token, not 0"),
        (["MODEL", "--method", "{nothing}"], "error: '{nothing}' has an unknown place {nothing}"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(
    arguments: list[str], message: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [model if word == "MODEL" else word for word in arguments]
    assert stories.main([*words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)


def test_the_command_line_runs_what_it_was_given(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--length", "40", "--length", "32", "40", "--streams", "1", "--method", "none", "--out", str(tmp_path)]
    assert stories.main([model, *given]) == 0
    captured = capsys.readouterr()
    assert "# Length methods on a model with rotary positions" in captured.out
    assert [cell.length for cell in read_cells(tmp_path)] == [32, 40]
    assert "1 of 2: none at 32 tokens" in captured.err

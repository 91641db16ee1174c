"""Entropy Invariance's experiment on two novels of a hundred signs, with models of a few thousand weights."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import beta

from experiments.entropy_invariance import (
    cosines,
    curves,
    documents,
    figures,
    heatmaps,
    matrices,
    order,
    paper,
    peak,
    prose,
    released,
    scoring,
    tables,
    train,
    verdicts,
)
from experiments.entropy_invariance.batches import Special, Windows, hidden, pose_positions, seeded
from experiments.entropy_invariance.cells import Cell, Exam, read_cells
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.prose import Chapter
from experiments.entropy_invariance.rows import METHODS, RELEASED, ROWS, TABLES, Row
from experiments.entropy_invariance.tables import Call
from experiments.entropy_invariance.train import Loss, Options
from lengthwise.errors import BadInput
from lengthwise.methods.positions import pose
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.masked_tokens import places
from tests.helpers.gau import ids, tiny

SIGNS = [chr(0x4E00 + at) for at in range(100)]
NUMBERS = "一二三四五六七八九"
SPECIAL = Special(cls=2, sep=3, mask=4, vocabulary=384)
SIZES = {"hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "num_hidden_layers": 2, "initializer_range": 0.1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine chapters a novel, in which every sign has one successor in eight cases of ten."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "zh").mkdir()
    (folder / "gau_vocab").mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*SIGNS, *NUMBERS, *"第回"])]
    (folder / "gau_vocab" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    for novel in ("east", "west"):
        drawn = random.Random(novel)
        text = "Title\n"
        for number in NUMBERS:
            at, signs = 0, []
            for _ in range(300):
                at = (at + 1) % 100 if drawn.random() < 0.8 else drawn.randrange(100)
                signs.append(SIGNS[at])
            text += f"\n  第{number}回 {''.join(signs[:50])}\n\n    {''.join(signs[50:])}\n"
        (folder / "zh" / f"{novel}.txt").write_text(text, encoding="utf-8")
    return folder


def options(data: Path, out: Path, **changes: Any) -> Options:
    small = {
        "steps": 12,
        "length": 16,
        "batch": 8,
        "peak": 3e-3,
        "exam": 40,
        "evaluate_every": 6,
        "save_every": 5,
        "log_every": 3,
    }
    return Options(data, out, **{**small, "device": "cpu", "sizes": SIZES, **changes})


def test_novels_are_divided_at_their_headings(data: Path) -> None:
    assert prose.divided("题\n\n第一回 天 地\n 人\n第十二回\t日") == ["题", "第一回天地人", "第十二回日"]
    tokenizer = prose.tokenizer_of(data)
    found = {chapter.name: chapter for chapter in prose.chapters(data, tokenizer)}
    assert len(found) == 20
    assert len(found["east/3"].tokens) == 303
    assert tokenizer.convert_ids_to_tokens(found["west/9"].tokens[:3].tolist()) == ["第", "九", "回"]


def test_about_a_fifth_of_the_chapters_is_held_out_whatever_else_there_is() -> None:
    named = [Chapter(f"novel/{at}", np.zeros(1, np.int64)) for at in range(2000)]
    assert sum(one.held_out for one in named) == pytest.approx(400, abs=60)
    assert named[7].held_out == Chapter("novel/7", np.ones(9, np.int64)).held_out


def test_a_folder_without_prose_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no vocabulary"):
        prose.tokenizer_of(tmp_path)
    with pytest.raises(BadInput, match="holds no novel"):
        prose.chapters(tmp_path, prose.tokenizer_of(data))


def test_windows_stay_within_a_chapter() -> None:
    two = [Chapter("a", np.arange(100, 120)), Chapter("short", np.arange(5)), Chapter("b", np.arange(200, 209))]
    windows = Windows(two, 10, SPECIAL, "cpu")
    drawn = windows.drawn(500, seeded("cpu", 1))
    assert (drawn[:, 0] == 2).all()
    assert (drawn[:, -1] == 3).all()
    inner = drawn[:, 1:-1]
    assert torch.equal(inner, inner[:, :1] + torch.arange(8))
    assert set(inner[:, 0].tolist()) == {*range(100, 113), 200, 201}
    with pytest.raises(BadInput, match="no chapter has 48 tokens"):
        Windows(two, 50, SPECIAL, "cpu")


def test_fifteen_of_a_hundred_tokens_are_asked_for_as_bert_does() -> None:
    tokens = torch.randint(10, 384, (400, 64), generator=torch.Generator().manual_seed(0))
    tokens[:, 0], tokens[:, -1] = SPECIAL.cls, SPECIAL.sep
    inputs, where, targets = hidden(tokens, SPECIAL, seeded("cpu", 5))
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    for row, own in enumerate(where.tolist()):
        assert len(set(own)) == len(own) == 9  # 15 % of 62
        asked[row, own] = True
        assert targets[row].tolist() == [int(tokens[row, at]) for at in own]
    assert not asked[:, [0, -1]].any()
    assert torch.equal(inputs[~asked], tokens[~asked])
    assert float(asked[:, 1:-1].double().mean(0).std()) < 0.03  # no place is likelier than another
    masked = inputs[asked] == SPECIAL.mask
    same = inputs[asked] == tokens[asked]
    assert float(masked.double().mean()) == pytest.approx(0.8, abs=0.03)
    assert float(same.double().mean()) == pytest.approx(0.1, abs=0.02)
    assert len(set(inputs[asked][~masked & ~same].tolist())) > 150


def test_pose_draws_what_the_library_draws() -> None:
    ours = pose_positions(4000, 9, 20, seeded("cpu", 3))
    generator = torch.Generator().manual_seed(4)
    theirs = torch.stack([pose.positions(9, 20, generator) for _ in range(4000)])
    assert set(map(tuple, ours.tolist())) == set(map(tuple, theirs.tolist()))
    torch.testing.assert_close(ours.double().mean(0), theirs.double().mean(0), atol=0.25, rtol=0)
    with pytest.raises(BadInput, match="at least the 9 tokens"):
        pose_positions(1, 9, 8, seeded("cpu", 3))


def test_the_learning_rate_rises_over_a_tenth_and_falls_to_nothing() -> None:
    one = Options(Path(), Path(), steps=100, peak=1.0)
    assert [train.learning_rate(one, step) for step in (0, 4, 9, 10, 55, 99)] == pytest.approx(
        [0.1, 0.5, 1.0, 1.0, 0.5, 1 / 90]
    )


def test_configurations_have_names_and_bases() -> None:
    tuned = Configuration(128.0, method="yarn:factor=16")
    assert tuned.name == "rope-cos128-yarn-factor16"
    assert tuned.base == Configuration(128.0)
    assert Configuration(pose=4096).name == "rope-pose4096"
    assert Configuration(normalisation="infoscale", positions="nope").name == "nope-infoscale"
    assert Configuration(16.0).base is None
    slow = Configuration(128.0, positions="alibi", alibi_slope=3.5e-4)
    assert slow.name == "alibi-slope0.00035-cos128"
    assert slow.model_config(16, head_dim=8).alibi_slope == 3.5e-4
    assert Configuration(positions="alibi").model_config(16, head_dim=8).alibi_slope == 2**-8
    with pytest.raises(BadInput, match=r"slope of 0\.5 is for ALiBi, and this model has rope"):
        Configuration(alibi_slope=0.5)
    with pytest.raises(BadInput, match="PoSE moves rotary positions"):
        Configuration(positions="alibi", pose=128)


def test_a_call_names_its_models() -> None:
    line = "--data d --out o --cos-scale none 8 128 --positions nope --steps 7 --peak 1e-3 --device cpu"
    found = train.options_from(line.split())
    assert [one.name for one in found.configurations] == ["nope", "nope-cos8", "nope-cos128"]
    assert (found.steps, found.peak, found.device, found.batch) == (7, 1e-3, "cpu", 128)


def test_an_interrupted_run_becomes_the_same_model(data: Path, tmp_path: Path) -> None:
    two = (Configuration(), Configuration(16.0))
    assert train.train(options(data, tmp_path / "whole", configurations=two)) == ["rope", "rope-cos16"]
    # Stopped right after its first step, again and again
    parts = options(data, tmp_path / "parts", configurations=two[:1], minutes=1e-9)
    tokenizer = prose.tokenizer_of(data)
    kinds = [[one for one in prose.chapters(data, tokenizer) if one.held_out == held] for held in (False, True)]
    windows = [Windows(kind, 16, Special.of(tokenizer), "cpu") for kind in kinds]
    stops = 0
    while not train.Run(parts, two[0], tokenizer, *windows).go_on(seconds=0):
        stops += 1
    assert stops == 11
    whole, again = (load_file(tmp_path / name / "rope" / "export" / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], again[key]) for key in whole)
    curve = read_lines(tmp_path / "whole" / "rope" / "losses.jsonl", Loss)
    assert [(one.step, one.kind) for one in curve if one.kind == "held out"] == [(6, "held out"), (12, "held out")]
    assert [one.step for one in curve if one.kind == "training"] == [3, 6, 9, 12]
    with pytest.raises(BadInput, match=r"peak was 0\.003, now 1\.0"):
        train.train(options(data, tmp_path / "whole", peak=1.0))


def test_training_learns_and_tuning_starts_from_the_base(data: Path, tmp_path: Path) -> None:
    longer = options(data, tmp_path, steps=120, evaluate_every=120, batch=32, peak=1e-2)
    tuned = (Configuration(pose=64), Configuration(method="interpolation:factor=4"))
    with pytest.raises(BadInput, match="tunes rope, which is not finished"):
        train.train(replace(longer, configurations=tuned))
    train.train(longer)
    (base,) = [one for one in read_lines(tmp_path / "rope" / "losses.jsonl", Loss) if one.kind == "held out"]
    assert base.loss < math.log(116) - 0.5
    short = replace(longer, steps=4, evaluate_every=4, peak=1e-4, configurations=tuned)
    assert train.train(short) == [one.name for one in tuned]
    first = {one.name: read_lines(tmp_path / one.name / "losses.jsonl", Loss)[-1].loss for one in tuned}
    assert first["rope-pose64"] == pytest.approx(base.loss, abs=0.2)
    model, tokenizer = load(str(tmp_path / "rope-interpolation-factor4" / "export"))
    # The method is no part of the model: it is put in place again where the model is used
    assert model.model.rotary_emb.inv_freq.tolist() == pytest.approx([10 ** (-at / 2) for at in range(8)])
    assert tokenizer(SIGNS[3]).input_ids[1] == tokenizer.convert_tokens_to_ids(SIGNS[3])


def test_answers_are_those_of_one_plain_forward_a_token() -> None:
    model = tiny()
    texts = [Chapter(name, ids(60, seed=at)[0].numpy()) for at, name in enumerate("ab")]
    found = scoring.answers(model, texts, 40, 5, SPECIAL, "none", tokens_at_once=100)
    for at, text in enumerate(texts):
        tokens = [2, *text.tokens[:38].tolist(), 3]
        for nth, place in enumerate(places(40, 5, f"{text.name} 40", edge=1)):
            asked = [4 if other == place else token for other, token in enumerate(tokens)]
            with torch.inference_mode():
                row = model(torch.tensor([asked])).logits[0, place].tolist()
            expected = math.log(math.fsum(map(math.exp, row))) - row[tokens[place]]
            assert found.nll[at][nth] == pytest.approx(expected, abs=1e-4)
            assert found.right[at][nth] == int(row.index(max(row)) == tokens[place])
    with pytest.raises(BadInput, match="a has 60 tokens, too few"):
        scoring.answers(model, texts[:1], 80, 5, SPECIAL, "none")


def test_tokens_hidden_together_are_asked_for_in_one_forward() -> None:
    model, text = tiny(), Chapter("a", ids(60)[0].numpy())
    found = scoring.answers(model, [text], 40, 6, SPECIAL, "none", tokens_each=20)
    tokens = [2, *text.tokens[:38].tolist(), 3]
    where = places(40, 6, "a 40", edge=1)
    expected = []
    for group in (where[0::3], where[1::3], where[2::3]):
        asked = [4 if at in group else token for at, token in enumerate(tokens)]
        with torch.inference_mode():
            rows = model(torch.tensor([asked])).logits[0].double().log_softmax(-1)
        expected += [-float(rows[at, tokens[at]]) for at in group]
    assert found.nll[0] == pytest.approx(expected, abs=1e-4)


def test_each_part_gives_its_share_of_documents() -> None:
    parts = np.array([0] * 66 + [1] * 34)
    chosen = documents.stratified(parts, 10, seed=1)
    assert chosen == sorted(set(chosen))
    # 6.6 and 3.4: the larger remainder is rounded up
    assert Counter(parts[chosen].tolist()) == {0: 7, 1: 3}
    assert documents.stratified(parts, 10, seed=2) != chosen
    assert documents.stratified(np.array([0, 1, 1]), 3) == [0, 1, 2]


def test_a_feature_is_the_mean_state_of_the_windows() -> None:
    model, text = tiny(), Chapter("a", ids(50)[0].numpy())
    with torch.inference_mode():
        states = [model.model(ids(50)[:, at : at + 16]).last_hidden_state[0] for at in (0, 16)]
    expected = torch.cat(states).double().mean(0).numpy()
    np.testing.assert_allclose(documents.feature(model, text, 47, 16), expected, atol=1e-5)


def test_documents_come_from_both_clusters_of_long_held_out_chapters() -> None:
    pytest.importorskip("sklearn")
    drawn = np.random.default_rng(0)
    blobs = np.concatenate([drawn.normal(0, 1, (30, 20)), drawn.normal(0, 1, (15, 20)) + 12])
    parts = documents.clusters(blobs)
    assert len(set(parts[:30])) == len(set(parts[30:])) == 1
    assert parts[0] != parts[-1]
    texts = [Chapter(f"n/{at}", ids(40 + at % 3, seed=at)[0].numpy()) for at in range(120)]
    chosen = documents.chosen(tiny(), texts, 43, 6, 16)
    assert len(chosen) == 6
    assert all(one.held_out and len(one.tokens) >= 41 for one in chosen)
    with pytest.raises(BadInput, match="held-out chapters have 43 tokens"):
        documents.chosen(tiny(), texts, 43, 100, 16)


def test_the_papers_tables_are_whole() -> None:
    assert {name: len(rows) for name, rows in TABLES.items()} == {"1": 36, "10": 4, "2": 2, "3": 2, "9": 8, "released": 20}
    # Those of Tables 2, 3 and 9 that Table 10 has not: softmax plus twice, seven other scales
    assert len(ROWS) == len(set(ROWS)) == 36 + 4 + 2 + 7 + 20
    assert all(row.printed(length) is not None for row in ROWS for length in paper.LENGTHS)
    assert len(paper.PRINTED.splitlines()) == 36 + 4 + 2 + 7
    by_hand = {
        ("rerope", 128.0, "infoscale", 4096): ("5.41", "0.67"),
        ("window", 16.0, None, 128): ("2.21", "0.84"),
        ("pi", None, None, 512): (">500", "<0.1"),
        ("gau", None, "softmax_plus", 1024): ("11.02", "0.53"),
        ("gau", 128.0, "softmax_plus", 4096): ("44.08", "0.34"),
        ("gau", 32.0, None, 2048): ("499.79", "<0.1"),
        ("gau", 600.0, None, 2048): ("13.63", "0.53"),
        ("gau", 8.0, None, 256): ("16.14", "0.46"),
    }
    assert all(paper.printed(*key) == paper.Printed(*pair) for key, pair in by_hand.items())
    assert paper.printed("gau", 8.0, "infoscale", 128) is None
    assert (paper.Printed(">500", "<0.1").number, paper.Printed("2.5", "0.7").number) == (math.inf, 2.5)


def test_rows_ask_the_model_that_was_trained_for_them() -> None:
    names = {row.label: (row.configuration.name, row.spec(4096, 64)) for row in ROWS}
    assert len(names) == len(ROWS)
    assert names["pi + InfoScale"] == ("rope-interpolation-factor4", "interpolation:factor=4+infoscale")
    assert names["window + CosScale 16"] == ("rope-cos16", "window")
    assert names["alibi + CosScale 128 + InfoScale"] == ("alibi-cos128", "infoscale")
    assert names["pose"] == ("rope-pose4096", "none")
    assert names["rerope + CosScale 128"] == ("rope-cos128", "rerope")
    assert names["gau + softmax plus"] == ("rope", "softmax_plus")
    assert names["gau + CosScale 600"] == ("rope-cos600", "none")


def test_released_rows_carry_the_faults() -> None:
    rows = {row.label: row for row in TABLES["released"]}
    pi = rows["pi as released + CosScale 128 + InfoScale"]
    assert pi.configuration.name == "rope-cos128-interpolation-factor4-as_releasedtrue"
    assert pi.configuration.base == Configuration(128.0)
    # What is trained with a factor of 4 meets it again at 256 tokens only
    specs = [pi.spec(length, 64) for length in (32, 256, 512)]
    assert specs == [f"interpolation:factor={factor},as_released=true+infoscale" for factor in (1, 4, 8)]
    assert rows["alibi as released"].configuration == Configuration(positions="alibi", alibi_slope=3.5e-4)
    assert rows["alibi as released"].spec(512, 64) == "none"
    assert rows["streaming_llm as released"].spec(512, 64) == "streaming_llm:sinks=4,reindex=false"
    yarn = rows["yarn32 as released + InfoScale"]
    assert (yarn.configuration.method, yarn.spec(96, 64)) == ("yarn:factor=32", "yarn:factor=1.5+infoscale")
    assert set(RELEASED) < set(METHODS)


def cell(row: Row, length: int, nll: float) -> Cell:
    values = [[nll, nll + 0.1 * (at % 3)] for at in range(9)]
    own = (row.method, row.cos, row.law, row.released)
    return Cell(*own, length, row.configuration.name, "w", row.spec(length, 64), 0.1, values, [[1, 0]] * 9)


def measured(*cells: Cell) -> dict[tuple[Row, int], Cell]:
    return {one.key: one for one in cells}


def test_verdicts_compare_with_the_plain_method_as_the_paper_does() -> None:
    plain, cos, info = Row("rerope"), Row("rerope", 128.0), Row("rerope", law="infoscale")
    lower = measured(cell(plain, 4096, 2.0), cell(cos, 4096, 1.0), cell(info, 4096, 2.0))
    found = {one.row: one for one in verdicts.scales(lower)}
    assert set(found) == {cos, info}
    assert found[cos].word == "confirmed"
    assert found[cos].ours.ratio == pytest.approx(math.exp(-1))
    assert found[cos].paper == ("6.36", ">500")
    assert found[info].word == "undecided"
    (higher,) = verdicts.scales(measured(cell(plain, 4096, 2.0), cell(cos, 4096, 2.5)))
    assert higher.word == "refuted"
    (limits,) = verdicts.scales(measured(cell(Row("pi"), 512, 2.0), cell(Row("pi", 128.0), 512, 1.0)))
    assert limits.word == "the paper does not say"
    (unprinted,) = verdicts.scales(measured(cell(plain, 100, 2.0), cell(cos, 100, 1.0)))
    assert (unprinted.word, unprinted.paper) == ("the paper does not say", None)


def test_infoscale_is_set_against_softmax_plus() -> None:
    info, plus = (Row("gau", law=law) for law in ("infoscale", "softmax_plus"))
    cos_info, cos_plus = (Row("gau", 128.0, law) for law in ("infoscale", "softmax_plus"))
    cells = measured(cell(info, 1024, 2.0), cell(plus, 1024, 2.5), cell(cos_info, 1024, 1.0), cell(cos_plus, 1024, 1.2))
    with_cos, without = verdicts.laws(cells)
    # 5.03 against 4.96 and 8.60 against 11.02 in the paper: Table 2 is turned round, Table 3 confirmed
    assert (with_cos.row, with_cos.other, with_cos.word) == (cos_info, cos_plus, "refuted")
    assert (without.row, without.paper, without.word) == (info, ("8.60", "11.02"), "confirmed")
    assert without.ours.ratio == pytest.approx(math.exp(-0.5))


def test_the_best_scale_of_a_length_is_set_against_128() -> None:
    levels = {8.0: 5.0, 64.0: 2.0, 128.0: 2.3, 600.0: 3.0}
    cells = measured(*(cell(Row("gau", scale), length, nll) for scale, nll in levels.items() for length in (128, 4096)))
    near, far = verdicts.best_scales(cells)
    # 2.17 with S = 32 is the lowest of Table 9's first column, 49.45 with S = 128 of its last
    assert (near.ours, near.paper) == (64.0, [32.0])
    assert (far.ours, far.paper) == (64.0, [128.0])
    assert far.against_128 is not None
    assert far.against_128.ratio == pytest.approx(math.exp(-0.3))
    (own,) = verdicts.best_scales(measured(cell(Row("gau", 128.0), 128, 1.0), cell(Row("gau", 8.0), 128, 2.0)))
    assert (own.ours, own.against_128) == (128.0, None)
    assert verdicts.best_scales(measured(cell(Row("gau", 128.0), 128, 1.0))) == []


def test_agreement_is_spearmans_over_the_rows() -> None:
    names = ["streaming_llm", "yarn16", "rerope", "window"]  # 5.42, 26.59, >500 and 4.24 in the paper
    cells = measured(*(cell(Row(name), 4096, 1 + at) for at, name in enumerate(names)), cell(Row("gau", 8.0), 4096, 9))
    # Ours 1 2 3 4 against 2 3 4 1: 1 - 6 (1 + 1 + 1 + 9) / (4 * 15); Table 9's other scales are no methods
    assert order.agreement(cells, 4096) == (pytest.approx(1 - 6 * 12 / 60), 4)
    assert order.agreement(cells, 128) is None


def test_every_row_stands_somewhere_among_the_others() -> None:
    # 5.42, 26.59, >500, >500 and 4.24 in the paper
    levels = {"streaming_llm": 1.0, "yarn16": 2.0, "rerope": 3.0, "pi": 4.0, "window": 2.0}
    found = {one.row.method: one for one in order.standings(measured(*(cell(Row(k), 4096, v) for k, v in levels.items())))}
    # The window should be first: it is only equal to YaRN, behind StreamingLLM, and before the other two
    assert found["window"].sentence == "confirmed 2, refuted 1, undecided 1 of 4"
    assert found["streaming_llm"].sentence == "confirmed 3, refuted 1, undecided 0 of 4"
    # ReRoPE and PI are both beyond the limit, so that pair says nothing
    assert found["pi"].sentence == "confirmed 3, refuted 0, undecided 0 of 3"
    assert {name: one.ranks[4096] for name, one in found.items()} == {
        "streaming_llm": (1.0, 2.0),
        "yarn16": (2.5, 3.0),
        "rerope": (4.0, 4.5),
        "pi": (5.0, 4.5),
        "window": (2.5, 1.0),
    }
    (alone,) = order.standings(measured(cell(Row("gau"), 100, 1.0)))
    assert alone.ranks == {100: (1.0, None)}


def test_what_was_released_is_nearer_to_the_paper_or_not() -> None:
    plain, defined, faulty = Row("gau"), Row("pi"), Row("pi", released=True)
    levels = {
        (plain, 128): 20,
        (plain, 256): 30,
        (defined, 128): 22,
        (defined, 256): 33,
        (faulty, 128): 220,
        (faulty, 256): 900,
    }

    def flat(row: Row, length: int, perplexity: float) -> Cell:
        return replace(cell(row, length, 0.0), nll=[[math.log(perplexity)] * 2] * 9)

    (found,) = released.explanations(measured(*(flat(row, n, p) for (row, n), p in levels.items())))
    # The paper: 24.51 and 10.75 against 2.17 and 2.55
    theirs = [math.log(24.51 / 2.17), math.log(10.75 / 2.55)]
    assert found.defined == pytest.approx(np.mean([abs(math.log(1.1) - one) for one in theirs]))
    ours = [math.log(220 / 20), math.log(500 / 30)]  # 900 is beyond the limit
    assert found.released == pytest.approx(np.mean([abs(a - b) for a, b in zip(ours, theirs, strict=True)]))
    assert found.word == "released"
    assert released.explanations(measured(flat(plain, 128, 2.0), flat(faulty, 128, 3.0))) == []


@pytest.fixture(scope="module")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    small = options(data, out, steps=2, configurations=(Configuration(), Configuration(128.0), Configuration(16.0)))
    train.train(small)
    train.train(replace(small, configurations=(Configuration(method="interpolation:factor=4"),)))
    return out


def test_the_tables_are_measured_once_and_written(data: Path, models: Path) -> None:
    held = [one.name for one in prose.chapters(data, prose.tokenizer_of(data)) if one.held_out and len(one.tokens) > 200]
    call = Call(
        data,
        models,
        lengths=(20, 40),
        tables=("1", "released"),
        methods=("pi", "window", "streaming_llm"),
        documents=len(held),
        count=4,
        window=16,
        device="cpu",
    )
    wanted = ("streaming_llm", 128.0, "infoscale", True)
    text = tables.run(call)
    cells = read_cells(call.folder)
    # PI as released and with CosScale waits; StreamingLLM as released asks models that are there
    assert len(cells) == (2 + 4 + 4 + 4) * 2
    assert Exam.read(call.folder) == Exam(sorted(held), 4, 40, 512)
    assert "12 cells are missing" in text  # 6 rows at 2 lengths
    assert "| `rope-interpolation-factor4` | 2 |" in text  # steps
    assert (call.folder / "tables.md").read_text() == text
    document = json.loads((call.folder / "tables.json").read_text())
    assert len(document["cells"]) == 28
    one = next(
        one
        for one in document["cells"]
        if (one["method"], one["cos"], one["law"], one["released"], one["length"]) == (*wanted, 40)
    )
    own = next(one for one in cells if one.key == (Row(*wanted), 40))
    assert one["perplexity"] == pytest.approx(math.exp(np.mean(own.nll)))
    assert one["accuracy"] == pytest.approx(np.mean(own.right))
    assert own.spec == "streaming_llm:sinks=4,reindex=false+infoscale"
    before = (call.folder / "cells.jsonl").read_bytes()
    assert tables.run(call) == text
    assert tables.run(replace(call, page=True)) == text
    assert (call.folder / "cells.jsonl").read_bytes() == before


def test_a_table_of_another_kind_or_of_nothing_is_refused(data: Path, models: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing is measured"):
        tables.run(Call(data, tmp_path, page=True))
    with pytest.raises(BadInput, match="chosen by the plain model, which is not trained"):
        tables.run(Call(data, tmp_path, device="cpu"))
    call = Call(data, models, name="other", lengths=(20,), methods=("window",), documents=1, count=4, device="cpu")
    name = next(one.name for one in prose.chapters(data, prose.tokenizer_of(data)) if one.held_out)
    (models / "other").mkdir()
    Exam([name], 4, 20, 512).write(models / "other")
    tables.run(call)
    with pytest.raises(BadInput, match="holds tables of 1 documents of 20 tokens with 4 hidden"):
        tables.run(replace(call, count=5))
    cells = models / "other" / "cells.jsonl"
    kept = [json.loads(line) for line in cells.read_text().splitlines()][:1]
    cells.write_text(json.dumps({**kept[0], "weights": "0" * 16}) + "\n")
    with pytest.raises(BadInput, match="rope was trained again since it was measured"):
        tables.run(call)


def first_states(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """What the first layer is given, in float64."""
    with torch.inference_mode():
        x = (model.model.embed_tokens(tokens) + model.model.embed_segments(torch.tensor([[0]])))[0].double()
    return x / x.square().mean(-1, keepdim=True).sqrt()


def queries_and_keys(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first layer's, of length 1, before the rotation."""
    unit = model.model.layers[0].attention
    z = x @ unit.inward.weight.detach().double().T[:, 48:]
    z = z / (1 + (-z).exp())
    q, k = z * unit.gamma_q.detach(), z * unit.gamma_k.detach()
    return q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)


def test_cosines_are_counted_before_the_rotation() -> None:
    model, text = tiny(cos_scale=20.0), Chapter("a", ids(30)[0].numpy())
    counts = peak.measured(model, [text], 20, SPECIAL)
    assert counts.sum(1).tolist() == [400, 400]
    q, k = queries_and_keys(model, first_states(model, torch.tensor([[2, *text.tokens[:18].tolist(), 3]])))
    expected = np.histogram((q @ k.T).numpy().ravel(), 4000, (-1, 1))[0]
    # float32 may move a cosine over the edge of its bin
    assert int(np.abs(counts[0] - expected).sum()) <= 12


def test_a_histogram_has_its_ends_and_weights() -> None:
    at = torch.tensor([[-1.0, -0.99999, 0.0001], [0.99999, 1.0, 1.0000001]])
    plain = cosines.histogram(at)
    assert {int(bin_): int(plain[bin_]) for bin_ in plain.nonzero()[0]} == {0: 2, 2000: 1, 3999: 3}
    heavy = cosines.histogram(at, torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]))
    assert {int(bin_): float(heavy[bin_]) for bin_ in heavy.nonzero()[0]} == {0: 3.0, 2000: 4.0, 3999: 56.0}
    assert cosines.CENTRES[[0, 2000, 3999]].tolist() == pytest.approx([-0.99975, 0.00025, 0.99975])


def theorem(scale: float, size: int) -> float:
    return (math.sqrt((size - 3) ** 2 + 4 * scale**2) - (size - 3)) / (2 * scale)


@pytest.mark.parametrize("scale", [8.0, 64.0, 256.0, 600.0])
def test_weighted_cosines_of_a_sphere_peak_where_the_theorem_says(scale: float) -> None:
    found = peak.top(peak.weighted(peak.uniform_density(128), scale))
    assert found == pytest.approx(theorem(scale, 128), rel=0.005)


@pytest.mark.parametrize("scale", [8.0, 64.0, 256.0])
def test_the_top_of_cosines_drawn_from_the_theorem_is_its_peak(scale: float) -> None:
    eta = np.linspace(-1, 1, 20001)[1:-1]
    log_density = scale * eta + 125 / 2 * np.log1p(-(eta**2))
    density = np.exp(log_density - log_density.max())
    drawn = np.random.default_rng(0).choice(eta, 400_000, p=density / density.sum())
    found = peak.top(np.histogram(drawn, 4000, (-1, 1))[0].astype(float))
    assert found == pytest.approx(theorem(scale, 128), abs=0.015)


def test_bins_are_weighted_by_their_attention() -> None:
    counts = np.zeros(4000)
    counts[[100, 3000, 3200]] = 8.0, 4.0, 2.0
    heavy = peak.weighted(counts, 600.0)
    # Bins are 0.0005 apart: e^(600 * 0.1) lies between the last two
    assert heavy[3200] == 1
    assert heavy[3000] == pytest.approx(2 * math.exp(-60))
    assert heavy[100] == pytest.approx(4 * math.exp(-600 * 1.55))
    assert np.count_nonzero(counts) == 3
    found = peak.Found.of(counts, 600.0)
    assert (found.bare, found.weighted) == pytest.approx((cosines.CENTRES[100], cosines.CENTRES[3200]), abs=0.016)
    assert found.pairs == pytest.approx(2)  # the others weigh nothing
    assert peak.Found.of(counts, 1e-9).pairs == pytest.approx(14)


def test_random_directions_have_cosines_of_their_size() -> None:
    counts = peak.uniform_pairs(16, 3, 100)
    assert counts.sum() == 30_000
    assert float((counts * cosines.CENTRES**2).sum() / counts.sum()) == pytest.approx(1 / 16, rel=0.05)
    assert np.array_equal(counts, peak.uniform_pairs(16, 3, 100))
    expected = peak.uniform_density(16)
    shares = [(counts / counts.sum())[at : at + 400].sum() for at in range(0, 4000, 400)]
    # scipy's: (1 + cos) / 2 is Beta((d - 1) / 2, (d - 1) / 2)
    whole = [beta.cdf((at + 1) / 10, 7.5, 7.5) - beta.cdf(at / 10, 7.5, 7.5) for at in range(10)]
    assert shares == pytest.approx(whole, abs=0.01)
    assert [float(expected[at : at + 400].sum() / expected.sum()) for at in range(0, 4000, 400)] == pytest.approx(
        whole, rel=1e-4
    )


def test_peaks_are_written_beside_the_theorem(data: Path, models: Path) -> None:
    text = peak.run(data, models, length=40, documents=2, device="cpu")
    assert text == (models / "peak.md").read_text().rstrip("\n")
    written = json.loads((models / "peak.json").read_text())
    assert [(one["model"], one["scale"]) for one in written["models"]] == [("rope-cos16", 16.0), ("rope-cos128", 128.0)]
    first = written["models"][0]
    assert first["theory"] == pytest.approx(theorem(16, 16))
    assert len(first["layers"]) == 2
    with np.load(models / "peak.npz") as kept:
        assert set(kept) == {"rope-cos16", "rope-cos128", "sphere"}
        counts = kept["rope-cos16"]
    assert counts.sum(1).tolist() == [2 * 1600, 2 * 1600]
    assert first["layers"][1]["bare"] == peak.top(counts[1].astype(float))
    assert f"{first['whole']['weighted'] / first['theory'] - 1:+.1%}" in text
    assert [one["scale"] for one in written["spheres"]] == [16.0, 128.0]
    with pytest.raises(BadInput, match="no held-out chapter has 4000 tokens"):
        peak.run(data, models, length=4000)
    with pytest.raises(BadInput, match="is trained with CosScale"):
        peak.run(data, models / "nothing")


@pytest.mark.parametrize(("method", "seen"), [("none", 100), ("window:size=6", 6)])
def test_matrices_are_those_of_the_equation(method: str, seen: int) -> None:
    model, tokens = tiny(cos_scale=20.0, num_hidden_layers=1), ids(40)
    found = matrices.matrices(model, tokens[0].numpy(), method)
    q, k = queries_and_keys(model, first_states(model, tokens))
    torch.testing.assert_close(found.before.double(), q @ k.T, atol=1e-5, rtol=0)
    own = torch.tensor([10000.0 ** (-2 * at / 8) for at in range(4)], dtype=torch.float64)
    turns = torch.polar(torch.ones(40, 4, dtype=torch.float64), torch.arange(40)[:, None] * own)
    turned_q, turned_k = (torch.complex(x[:, 0::2], x[:, 1::2]) * turns for x in (q, k))
    after = (turned_q @ turned_k.conj().T).real
    torch.testing.assert_close(found.after.double(), after, atol=1e-5, rtol=0)
    for i in range(40):
        near = [j for j in range(40) if abs(i - j) < seen]
        row = [math.exp(20 * float(after[i, j])) for j in near]
        expected = dict(zip(near, [one / math.fsum(row) for one in row], strict=True))
        assert found.attention[i].tolist() == pytest.approx([expected.get(j, 0.0) for j in range(40)], abs=1e-4)


def test_pooling_keeps_what_it_says() -> None:
    matrix = torch.zeros(512, 512)
    matrix[7, 300], matrix[2, 2] = 4.0, 2.0
    largest, mean = matrices.pooled(matrix, True), matrices.pooled(matrix, False)
    assert largest.shape == mean.shape == (256, 256)
    assert largest.dtype == np.float16
    assert (largest[3, 150], mean[3, 150], mean[1, 1]) == (4.0, 1.0, 0.5)
    assert np.count_nonzero(largest) == 2
    assert matrices.pooled(torch.eye(5), True).tolist() == np.eye(5).tolist()
    assert matrices.logarithm(torch.tensor([[1.0, 0.0], [math.exp(-2), 1e-30]])).tolist() == [[0.0, -40.0], [-2.0, -40.0]]


SMALL = matrices.Sizes(figure_5=40, figure_6=32, figure_7=60, region=(50, 56))


def test_figures_are_measured_into_one_file(data: Path, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = matrices.run(data, models, SMALL, device="cpu")
    assert "rope-cos600 is not trained" in capsys.readouterr().out
    with np.load(models / "figures.npz") as kept:
        assert set(kept) == set(keys)
        shapes = {key: kept[key].shape for key in kept}
        about = json.loads(str(kept["about"]))
        counts, region = kept["6-counts-plain"], kept["7-window-region"]
    assert shapes.pop("about") == ()
    assert shapes == {
        **{f"5-{kind}-{scale}": (40, 40) for kind in ("before", "after") for scale in (16, 128)},
        **{f"6-log-{name}": (32, 32) for name in ("plain", 16, 128)},
        **{f"6-counts-{name}": (4, 4000) for name in ("plain", 16, 128)},
        **{f"7-{name}": (60, 60) for name in ("window", "cosine")},
        **{f"7-{name}-region": (6, 6) for name in ("window", "cosine")},
    }
    assert about["chapter"].split("/")[0] in ("east", "west")
    # Every pair once; every row's attention is 1
    assert counts.sum(1).tolist() == pytest.approx([1024, 32, 1024, 32], rel=1e-4)
    assert 0 < float(region.max()) < 1
    with pytest.raises(BadInput, match="no model of these figures is trained"):
        matrices.run(data, models / "nothing", SMALL)
    with pytest.raises(BadInput, match="no held-out chapter has 4096 tokens"):
        matrices.run(data, models)


def curve(*losses: float) -> list[Loss]:
    return [Loss(10 * (at + 1), "training", loss) for at, loss in enumerate(losses)] + [Loss(20, "held out", 1.5)]


def test_losses_are_drawn_by_what_the_models_start_from() -> None:
    pytest.importorskip("matplotlib")
    tuned, plain = Configuration(128.0, pose=64), Configuration(method="yarn:factor=16")
    losses = {
        Configuration(): curve(4.0, 3.0),
        Configuration(128.0): curve(5.0, 4.5),
        tuned: curve(2.0, 1.0),
        plain: curve(2.5),
    }
    drawn = curves.figure_2_3(losses)
    lines = [{line.get_label(): line for line in axes.get_lines() if line.get_linestyle() != "None"} for axes in drawn.axes]
    assert [set(panel) for panel in lines] == [{"rope", "rope-cos128"}, {"rope-cos128-pose64"}, {"rope-yarn-factor16"}]
    assert lines[0]["rope"].get_xydata().tolist() == [[10, 4.0], [20, 3.0]]
    assert (lines[0]["rope"].get_linestyle(), lines[0]["rope-cos128"].get_linestyle()) == ("--", "-")
    held = [line for line in drawn.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert [line.get_xydata().tolist() for line in held] == [[[20, 1.5]]] * 2


def test_the_theorem_is_drawn_with_what_was_measured() -> None:
    pytest.importorskip("matplotlib")
    layers = [{"bare": 0.1, "weighted": 0.3}, {"bare": 0.2, "weighted": 0.5}]
    model = {"scale": 64.0, "whole": {"bare": 0.15, "weighted": 0.4}, "layers": layers}
    sphere = {"scale": 64.0, "drawn": {"weighted": 0.42}}
    drawn = curves.figure_4({"key_size": 128, "models": [model], "spheres": [sphere]})
    theory, *points = drawn.axes[0].get_lines()
    for scale, value in theory.get_xydata().tolist():
        assert value == pytest.approx(theorem(scale, 128))
    assert [line.get_xydata()[:, 1].tolist() for line in points] == [[0.15], [0.1, 0.2], [0.4], [0.3, 0.5], [0.42]]


def test_perplexities_are_drawn_a_panel_a_method() -> None:
    pytest.importorskip("matplotlib")
    window = [Row("window", cos, law) for law in (None, "infoscale") for cos in (None, 16.0)]
    cells = measured(*(cell(row, n, 1 + at) for at, row in enumerate(window) for n in (128, 256)), cell(Row("gau"), 128, 2))
    panels = {axes.get_title(): axes for axes in curves.perplexities(cells).axes}
    assert set(panels) == set(METHODS)
    lines = {line.get_label(): line.get_xydata().tolist() for line in panels["window"].get_lines()}
    assert set(lines) == {"plain", "CosScale", "InfoScale", "both"}
    # Six likelihoods of 18 are 0.1 and 0.2 higher in turns: 0.3 * 3 / 18
    assert lines["InfoScale"] == [[128, pytest.approx(math.exp(3.05))], [256, pytest.approx(math.exp(3.05))]]
    bands = panels["window"].collections
    assert len(bands) == 4
    score = cells[window[0], 128].score
    ends = bands[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == pytest.approx((score.perplexity_low, score.perplexity_high))


def test_matrices_are_drawn_as_they_were_measured(data: Path, models: Path) -> None:
    pytest.importorskip("matplotlib")
    matrices.run(data, models, SMALL, device="cpu")
    with np.load(models / "figures.npz") as kept:
        arrays = dict(kept)
    images = [axes.get_images()[0] for axes in heatmaps.figure_5(arrays).axes if axes.get_images()]
    pair = [arrays[f"5-{kind}-16"].astype(np.float32) for kind in ("before", "after")]
    ends = (min(one.min() for one in pair), max(one.max() for one in pair))
    # Above and below of S = 16 share their colours; S = 128 has its own
    assert [image.get_clim() == pytest.approx(ends) for image in images] == [True, False, True, False]
    assert np.array_equal(images[2].get_array(), pair[1])
    large = np.arange(256 * 256, dtype=np.float16).reshape(256, 256) / 256
    (image, *_) = heatmaps.figure_5({**arrays, "5-before-16": large}).axes[0].get_images()
    assert image.get_array().shape == (128, 128)
    assert image.get_array()[3, 7] == pytest.approx(large[6:8, 14:16].astype(float).mean(), rel=1e-3)
    drawn = heatmaps.figure_6(arrays).axes
    assert [axes.get_title() for axes in drawn[:3]] == ["plain", "S = 16", "S = 128"]
    for row, patch in zip(arrays["6-counts-16"].tolist(), drawn[1].patches, strict=False):
        values, edges, _ = patch.get_data()
        assert values.tolist() == pytest.approx([sum(row[at : at + 50]) / sum(row) for at in range(0, 4000, 50)], abs=1e-6)
        assert (edges[0], edges[-1], len(drawn[1].patches)) == (-1, 1, 2)
    assert drawn[3].get_images()[0].get_clim() == drawn[5].get_images()[0].get_clim() == (-15, 0)
    whole, corner = (axes.get_images()[0] for axes in heatmaps.figure_7(arrays).axes[:2])
    assert np.array_equal(corner.get_array(), arrays["7-window-region"])
    assert whole.get_clim() == corner.get_clim() == (0, pytest.approx(float(arrays["7-window-region"].max())))
    assert tuple(corner.get_extent()) == (50, 56, 56, 50)


def test_all_figures_are_written_as_small_files(data: Path, models: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(BadInput, match="nothing is measured"):
        figures.run(tmp_path)
    peak.run(data, models, length=40, documents=2, device="cpu")
    matrices.run(data, models, SMALL, device="cpu")
    folder = models / "drawn"
    folder.mkdir()
    AppendOnly(folder / "cells.jsonl", Cell).append([cell(Row("gau"), n, 2.0) for n in (128, 256)])
    names = ["figure_2_3", "figure_4", "figure_5", "figure_6", "figure_7", "perplexity"]
    files = figures.run(models, name="drawn")
    assert files == [models / "figures" / f"{name}.png" for name in names]
    for file in files:
        assert file.stat().st_size < 200_000
        with image.open(file) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10
    (tmp_path / "peak.json").write_text((models / "peak.json").read_text())
    (svg,) = figures.run(tmp_path, kind="svg")
    assert "<svg" in svg.read_text()


def test_drawing_without_matplotlib_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BadInput, match="drawing needs matplotlib"):
        curves.figure_2_3({Configuration(): curve(4.0)})

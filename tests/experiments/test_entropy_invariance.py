"""The experiment of paper 003 on two novels of a hundred signs, with models of a few thousand weights."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from experiments.entropy_invariance import batches, documents, paper, peak, prose, scoring, table1, train, verdicts
from experiments.entropy_invariance.batches import Special, Windows, hidden, pose_positions, seeded
from experiments.entropy_invariance.cells import Cell, Exam, read_cells
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.prose import Chapter
from experiments.entropy_invariance.rows import ROWS, Row
from experiments.entropy_invariance.table1 import Call
from experiments.entropy_invariance.train import Loss, Options
from lengthwise.errors import BadInput
from lengthwise.methods.positions import pose
from lengthwise.models.load import load
from lengthwise.records.append_only import read_lines
from lengthwise.tasks.masked_tokens import places
from tests.gau import ids, tiny

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
    inputs, labels = hidden(tokens, SPECIAL, seeded("cpu", 5))
    asked = labels != batches.IGNORED
    assert not asked[:, [0, -1]].any()
    assert torch.equal(labels[asked], tokens[asked])
    assert torch.equal(inputs[~asked], tokens[~asked])
    assert float(asked[:, 1:-1].double().mean()) == pytest.approx(0.15, abs=0.01)
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
        for order, place in enumerate(places(40, 5, f"{text.name} 40", edge=1)):
            asked = [4 if other == place else token for other, token in enumerate(tokens)]
            with torch.inference_mode():
                row = model(torch.tensor([asked])).logits[0, place].tolist()
            expected = math.log(math.fsum(map(math.exp, row))) - row[tokens[place]]
            assert found.nll[at][order] == pytest.approx(expected, abs=1e-4)
            assert found.right[at][order] == int(row.index(max(row)) == tokens[place])
    with pytest.raises(BadInput, match="a has 60 tokens, too few"):
        scoring.answers(model, texts[:1], 80, 5, SPECIAL, "none")


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


def test_the_papers_table_is_whole() -> None:
    printed = paper.table_1()
    assert len(printed) == 40 * 6
    assert printed["rerope", True, True, 4096] == paper.Printed("5.41", "0.67")
    assert printed["pi", False, False, 512] == paper.Printed(">500", "<0.1")
    assert printed["gau", True, True, 128] == paper.Printed("2.28", "0.82")
    assert {(row.method, row.cos, row.info) for row in ROWS} == {key[:3] for key in printed}


def test_rows_ask_the_model_that_was_trained_for_them() -> None:
    names = {row.label: (row.configuration.name, row.spec) for row in ROWS}
    assert names["pi + InfoScale"] == ("rope-interpolation-factor4", "interpolation:factor=4+infoscale")
    assert names["window + CosScale"] == ("rope-cos16", "window")
    assert names["alibi + CosScale + InfoScale"] == ("alibi-cos128", "infoscale")
    assert names["pose"] == ("rope-pose4096", "none")
    assert names["rerope + CosScale"] == ("rope-cos128", "rerope")


def cell(row: Row, length: int, nll: float) -> Cell:
    values = [[nll, nll + 0.1 * (at % 3)] for at in range(9)]
    return Cell(row.method, row.cos, row.info, length, row.configuration.name, "w", row.spec, 0.1, values, [[1, 0]] * 9)


def test_verdicts_compare_with_the_plain_method_as_the_paper_does() -> None:
    plain, cos, info = Row("rerope", False, False), Row("rerope", True, False), Row("rerope", False, True)
    lower = {one.key: one for one in (cell(plain, 4096, 2.0), cell(cos, 4096, 1.0), cell(info, 4096, 2.0))}
    found = {one.row: one for one in verdicts.verdicts(lower)}
    assert found[cos].word == "confirmed"
    assert found[cos].ours.ratio == pytest.approx(math.exp(-1))
    assert found[cos].paper == ("6.36", ">500")
    assert found[info].word == "undecided"
    higher = {one.key: one for one in (cell(plain, 4096, 2.0), cell(cos, 4096, 2.5))}
    assert verdicts.verdicts(higher)[0].word == "refuted"
    limits = {one.key: one for one in (cell(Row("pi", False, False), 512, 2.0), cell(Row("pi", True, False), 512, 1.0))}
    assert verdicts.verdicts(limits)[0].word == "the paper does not say"


def test_agreement_is_spearmans_over_the_rows() -> None:
    order = ["streaming_llm", "yarn16", "rerope", "window"]  # 5.42, 26.59, >500 and 4.24 in the paper
    cells = {one.key: one for one in (cell(Row(name, False, False), 4096, 1 + at) for at, name in enumerate(order))}
    # Ours 1 2 3 4 against 2 3 4 1: 1 - 6 (1 + 1 + 1 + 9) / (4 * 15)
    assert verdicts.agreement(cells, 4096) == (pytest.approx(1 - 6 * 12 / 60), 4)
    assert verdicts.agreement(cells, 128) is None


@pytest.fixture(scope="module")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    small = options(data, out, steps=2, configurations=(Configuration(), Configuration(128.0), Configuration(16.0)))
    train.train(small)
    train.train(replace(small, configurations=(Configuration(method="interpolation:factor=4"),)))
    return out


def test_the_table_is_measured_once_and_written(data: Path, models: Path) -> None:
    held = [one.name for one in prose.chapters(data, prose.tokenizer_of(data)) if one.held_out and len(one.tokens) > 200]
    call = Call(
        data,
        models,
        lengths=(20, 40),
        methods=("pi", "window", "rerope"),
        documents=len(held),
        count=4,
        window=16,
        device="cpu",
    )
    text = table1.run(call)
    cells = read_cells(call.folder)
    assert len(cells) == (2 + 4 + 4) * 2
    assert Exam.read(call.folder) == Exam(sorted(held), 4, 40)
    assert "2 rows wait for models that are not trained: `rope-cos128-interpolation-factor4`" in text
    assert (call.folder / "table1.md").read_text() == text
    document = json.loads((call.folder / "table1.json").read_text())
    assert len(document["cells"]) == 20
    one = next(
        one
        for one in document["cells"]
        if (one["method"], one["cos"], one["info"], one["length"]) == ("rerope", True, True, 40)
    )
    own = next(one for one in cells if one.key == (Row("rerope", True, True), 40))
    assert one["perplexity"] == pytest.approx(math.exp(np.mean(own.nll)))
    assert one["accuracy"] == pytest.approx(np.mean(own.right))
    assert own.spec == "rerope+infoscale"
    before = (call.folder / "cells.jsonl").read_bytes()
    assert table1.run(call) == text
    assert table1.run(replace(call, page=True)) == text
    assert (call.folder / "cells.jsonl").read_bytes() == before


def test_a_table_of_another_kind_or_of_nothing_is_refused(data: Path, models: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing is measured"):
        table1.run(Call(data, tmp_path, page=True))
    with pytest.raises(BadInput, match="chosen by the plain model, which is not trained"):
        table1.run(Call(data, tmp_path, device="cpu"))
    call = Call(data, models, name="other", lengths=(20,), methods=("window",), documents=1, count=4, device="cpu")
    name = next(one.name for one in prose.chapters(data, prose.tokenizer_of(data)) if one.held_out)
    (models / "other").mkdir()
    Exam([name], 4, 20).write(models / "other")
    table1.run(call)
    with pytest.raises(BadInput, match="holds a table of 1 documents of 20 tokens with 4 hidden"):
        table1.run(replace(call, count=5))
    cells = models / "other" / "cells.jsonl"
    kept = [json.loads(line) for line in cells.read_text().splitlines()][:1]
    cells.write_text(json.dumps({**kept[0], "weights": "0" * 16}) + "\n")
    with pytest.raises(BadInput, match="rope was trained again since it was measured"):
        table1.run(call)


def test_cosines_are_counted_before_the_rotation() -> None:
    model, text = tiny(cos_scale=20.0), Chapter("a", ids(30)[0].numpy())
    counts = peak.measured(model, [text], 20, SPECIAL)
    assert counts.sum(1).tolist() == [400, 400]
    tokens = torch.tensor([[2, *text.tokens[:18].tolist(), 3]])
    with torch.inference_mode():
        hidden_states = model.model.embed_tokens(tokens) + model.model.embed_segments(torch.tensor([[0]]))
    x = hidden_states[0].double()
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    unit = model.model.layers[0].attention
    z = x @ unit.inward.weight.detach().double().T[:, 48:]
    z = z / (1 + (-z).exp())
    q, k = z * unit.gamma_q.detach(), z * unit.gamma_k.detach()
    cosines = (q @ k.T) / (q.norm(dim=-1)[:, None] * k.norm(dim=-1)[None])
    expected = np.histogram(cosines.numpy().ravel(), 400, (-1, 1))[0]
    # float32 may move a cosine over the edge of its bin
    assert int(np.abs(counts[0] - expected).sum()) <= 4


@pytest.mark.parametrize("scale", [8.0, 64.0, 256.0])
def test_the_top_of_cosines_drawn_from_the_theorem_is_its_peak(scale: float) -> None:
    eta = np.linspace(-1, 1, 20001)[1:-1]
    log_density = scale * eta + 125 / 2 * np.log1p(-(eta**2))
    density = np.exp(log_density - log_density.max())
    drawn = np.random.default_rng(0).choice(eta, 400_000, p=density / density.sum())
    found = peak.top(np.histogram(drawn, 400, (-1, 1))[0])
    assert found == pytest.approx((math.sqrt(125**2 + 4 * scale**2) - 125) / (2 * scale), abs=0.015)


def test_peaks_are_written_beside_the_theorem(data: Path, models: Path) -> None:
    text = peak.run(data, models, length=40, documents=2, device="cpu")
    assert text == (models / "peak.md").read_text().rstrip("\n")
    written = json.loads((models / "peak.json").read_text())
    assert [(one["model"], one["scale"]) for one in written] == [("rope-cos16", 16.0), ("rope-cos128", 128.0)]
    # d = 16: (-13 + sqrt(169 + 4 * 256)) / 32
    assert written[0]["theory"] == pytest.approx((math.sqrt(169 + 1024) - 13) / 32)
    assert len(written[0]["layers"]) == 2
    with pytest.raises(BadInput, match="no held-out chapter has 4000 tokens"):
        peak.run(data, models, length=4000)
    with pytest.raises(BadInput, match="is trained with CosScale"):
        peak.run(data, models / "nothing")

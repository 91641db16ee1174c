"""DPE's scales and LongRoPE's factors: found where they are known, written so that the method reads them."""

from __future__ import annotations

import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

import lengthwise as lw
from lengthwise.calibration import position_search
from lengthwise.calibration.answer_cases import CaseGroup, FitCase
from lengthwise.calibration.position_search import Climb, Space, dpe_space, longrope_space, search_positions
from lengthwise.common.progress import no_progress
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import DECODER_SIZES, TRAIN_LENGTH, make, tokens
from tests.helpers.answering import TRAIN_LENGTH as READS
from tests.helpers.answering import answering

LENGTH = 4 * TRAIN_LENGTH


def sharp_llama() -> Any:
    """A Llama to which every position matters: one layer of sharp attention, frequencies that all turn within its training."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 50.0}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**{**DECODER_SIZES, "num_hidden_layers": 1, "rope_parameters": rope})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def climb(model: Any, space: Space, planted: tuple[float, ...], ends: float = math.inf) -> Climb:
    """A search for the numbers under which the model says what it says under those planted."""
    cases = []
    for seed in range(4):
        case = FitCase(tokens(LENGTH, 1, seed), tokens(8, 1, 100 + seed), torch.ones(8, dtype=torch.bool))
        with torch.no_grad(), lw.extend(model, space.make(planted)):
            cases.append(FitCase(case.inputs, case.targets, case.counted, case.logits(model).log_softmax(-1)))
    return Climb(model, TRAIN_LENGTH, space, [CaseGroup("planted", 1.0, cases)], 0, ends, no_progress)


def test_scales_that_are_known_are_found() -> None:
    model = sharp_llama()
    space = dpe_space(anatomy_of(model), LENGTH)
    planted = (1.0, 2.0, *space.starts[0][2:])
    assert planted not in space.starts
    found = climb(model, space, planted)
    assert found.run() == planted
    assert found.held_out(planted)["planted"] == pytest.approx(0, abs=1e-5)
    assert found.held_out(None)["planted"] > 0.1
    assert found.stopped == "as no neighbour was better"


def test_factors_come_nearer_to_those_that_are_known() -> None:
    model = sharp_llama()
    space = longrope_space(anatomy_of(model), LENGTH)
    planted = tuple(min(4.0, 1 + index) for index in range(len(space.starts[0])))
    found = climb(model, space, planted)
    best = found.run()
    least = min(found.tried[start] for start in space.starts)
    assert found.tried[best] < 0.5 * least
    assert all(a <= b for a, b in itertools.pairwise(best))
    assert [step["nats"] for step in found.path] == sorted((step["nats"] for step in found.path), reverse=True)


def test_a_start_that_is_the_one_planted_stays() -> None:
    model = sharp_llama()
    space = longrope_space(anatomy_of(model), LENGTH)
    assert climb(model, space, space.starts[1]).run() == space.starts[1]


def test_the_search_ends_when_the_minutes_are_up_and_after_so_many_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp_llama()
    space = dpe_space(anatomy_of(model), LENGTH)
    late = climb(model, space, (1.0, *space.starts[0][1:]), ends=time.monotonic() - 1)
    assert late.run() in space.starts
    assert (late.stopped, len(late.tried)) == ("when the minutes were up", len(space.starts))
    monkeypatch.setattr(position_search, "MOST_CANDIDATES", 4)
    short = climb(model, space, (1.0, *space.starts[0][1:]))
    short.run()
    assert (short.stopped, len(short.tried)) == ("after 4 candidates", 4)


@pytest.mark.parametrize(("search", "spec"), [("dpe", "dpe:scales={}"), ("longrope", "longrope:factors={}")])
def test_the_file_holds_what_the_method_reads_and_how_it_was_found(
    search: str, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_search, "MOST_CANDIDATES", 4)
    model, tokenizer = answering("llama"), tf.ByT5Tokenizer()
    found = search_positions(model, tokenizer, READS + 64, search, task="passkey", sequences=4, seed=3, show_progress=False)
    found.save(tmp_path / "found.json")
    document = json.loads((tmp_path / "found.json").read_text())
    assert document == json.loads(json.dumps(found.file_content()))
    assert (document["format"], document["length"], document["train_length"]) == ("lengthwise.positions/1", READS + 64, READS)
    assert (document["provenance"]["candidates"], document["provenance"]["stopped"]) == (4, "after 4 candidates")
    assert document["provenance"]["asked"].startswith("answers to passkey")
    assert document["held_out_nats"]["found"].keys() == document["held_out_nats"]["plain"].keys() == {"passkey"}
    ids = tokens(READS + 64)
    space = {"dpe": dpe_space, "longrope": longrope_space}[search](anatomy_of(model), READS + 64)
    with torch.no_grad():
        with lw.extend(model, spec.format(tmp_path / "found.json")):
            read = model(ids).logits
        with lw.extend(model, space.make(found.numbers)):
            torch.testing.assert_close(read, model(ids).logits)
    with pytest.raises(BadInput, match=f"training length of {READS}.*and this model's is {TRAIN_LENGTH}"):
        lw.extend(make("llama"), spec.format(tmp_path / "found.json")).__enter__()


@pytest.mark.parametrize(
    ("family", "search", "how", "words"),
    [
        ("llama", "yarn", {}, "search"),
        ("llama", "dpe", {"minutes": 0}, "minutes must be above 0 and finite, not 0"),
        ("llama", "dpe", {"length": TRAIN_LENGTH}, "is not above the training length"),
        ("llama", "dpe", {"sequences": 1}, "sequences must be at least 2, not 1"),
        ("llama", "dpe", {"method": "rerope"}, "ReRoPE and DPE both fill the rotation slot"),
        ("t5", "dpe", {}, "changes rotary positions, and T5Stack has none"),
    ],
)
def test_what_cannot_be_searched_is_refused(family: str, search: str, how: dict[str, Any], words: str) -> None:
    length = how.pop("length", LENGTH)
    with pytest.raises(BadInput, match=words):
        search_positions(make(family), tf.ByT5Tokenizer(), length, search, show_progress=False, **how)


def test_a_group_stands_for_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def sources(_: str, text: None, files: tuple[()], tasks: list[str], *__: Any) -> None:
        raise BadInput(f"{len(tasks)} tasks, the first {tasks[0]}")

    monkeypatch.setattr(position_search, "text_source", sources)
    with pytest.raises(BadInput, match="13 tasks, the first ruler_niah_single_1"):
        search_positions(make("llama"), tf.ByT5Tokenizer(), LENGTH, "dpe", task="ruler", show_progress=False)

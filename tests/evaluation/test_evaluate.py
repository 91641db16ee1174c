"""Evaluations: what is recorded, what is resumed, what is refused."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
import lengthwise.cli.evaluation as command_line
from lengthwise.evaluation.sweep import cells, in_process
from lengthwise.evaluation.sweep.questions import SPARE
from lengthwise.methods.temperature.aligned import STATISTICS, Calibrated
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.records import Record, Sharpness, read_lines
from lengthwise.records.directory import read_config
from lengthwise.tasks import TASKS, Task
from lengthwise.tasks.line import samples as line_samples
from tests.conftest import Said, make
from tests.helpers.answering import TRAIN_LENGTH, answering_briefly

TOKENIZER = ByT5Tokenizer()
SHORT, LONG = 240, 300


@cache
def shared_t5() -> Any:
    return answering_briefly("t5")


def evaluate(out: Path | None = None, model: Any = None, methods: Any = ("none",), **options: Any) -> list[Record]:
    options = {"tasks": ["passkey"], "lengths": [LONG], "samples": 3, "show_progress": False, **options}
    return lw.evaluate(shared_t5() if model is None else model, TOKENIZER, methods, out=out, **options)


def untimed(records: list[Record]) -> list[Record]:
    return sorted((replace(record, seconds=0.0) for record in records), key=lambda record: record.key)


def on_disk(out: Path) -> list[Record]:
    return untimed(read_lines(out / "records.jsonl", Record))


@pytest.fixture(scope="module")
def alignment() -> lw.Alignment:
    """Far sharper than calibration would make it, so that it shows."""
    fingerprint = model_fingerprint(anatomy_of(answering_briefly("t5")))
    return lw.Alignment("pmax", "model", TRAIN_LENGTH, 0.5, (Calibrated(LONG, 0.2, 0.5, 3),), fingerprint)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """The batches of token ids that models were given, as they come."""
    seen: list[list[list[int]]] = []
    real = cells.greedy_answers

    def answers(model: Any, tokenizer: Any, prompts: list[list[int]], *rest: Any) -> list[str]:
        seen.append(prompts)
        return real(model, tokenizer, prompts, *rest)

    monkeypatch.setattr(cells, "greedy_answers", answers)
    return seen


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_every_method_task_length_and_sample_is_recorded_and_scored(family: str, tmp_path: Path) -> None:
    asked = {"tasks": ["line", "passkey"], "lengths": [LONG, SHORT], "samples": 2, "seed": 3}
    records = evaluate(tmp_path, answering_briefly(family), ["none", "infoscale"], **asked, name="tiny")
    assert len(records) == 16
    assert [record.method for record in records[::2]] == ["none", "infoscale"] * 4
    assert on_disk(tmp_path) == untimed(records)
    for record in records:
        sample = TASKS[record.task].samples(TOKENIZER, record.length, 2, 3)[record.index]
        assert (record.target, record.tokens, record.depth) == (sample.target, sample.tokens, sample.depth)
        assert (record.model, record.data, record.seed) == ("tiny", "", 3)
        assert record.score == TASKS[record.task].score(record.prediction, sample.target)
        assert record.seconds > 0
    assert len({record.prediction for record in records}) > 4
    config = json.loads((tmp_path / "config.json").read_text())
    keys = ["format", "model", "settings", "methods", "reads", "tasks", "samples", "data", "given", "made_with"]
    assert list(config) == keys
    assert config["methods"] == {"none": None, "infoscale": None}
    assert {"seed": 3, "dtype": "float32", "train_length": TRAIN_LENGTH}.items() <= config["settings"].items()
    assert len((tmp_path / "summary.csv").read_text().splitlines()) == 1 + 8
    assert not list(tmp_path.glob(".*"))


def test_without_a_directory_the_records_are_only_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(evaluate()) == 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["evaluate", "reach"])
def test_python_and_the_command_line_have_the_same_defaults(verb: str) -> None:
    python, command = (signature(getattr(module, verb)).parameters for module in (lw, command_line))
    shared = [name for name in python if name in command and name not in ("out", "lengths", "device")]
    assert {"samples", "seed", "train_length", "batch_tokens", "force"} <= {*shared}
    assert [python[name].default for name in shared] == [command[name].default for name in shared]


def test_one_method_task_and_length_need_no_list() -> None:
    records = evaluate(methods="none", tasks="passkey", lengths=LONG, samples=1)
    assert [(record.method, record.task, record.length) for record in records] == [("none", "passkey", LONG)]


def test_a_right_answer_scores_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [sample.target for sample in TASKS["passkey"].samples(TOKENIZER, LONG, 3, 0)]
    said = iter([[f"It is {targets[0]}."], ["no idea"], [f"{targets[2]}, not 7"]])
    monkeypatch.setattr(cells, "greedy_answers", lambda *_: next(said))
    records = evaluate(tmp_path, batch_tokens=1)
    assert [record.score for record in records] == [1.0, 0.0, 1.0]
    assert (tmp_path / "summary.csv").read_text().splitlines()[1].split(",")[5] == "0.6666666666666666"


def test_an_alignment_is_none_exactly_up_to_the_training_length(alignment: lw.Alignment) -> None:
    records = evaluate(None, None, ["none", alignment], lengths=[SHORT, LONG], samples=5)
    of = {(r.method, r.length, r.index): r.prediction for r in records}
    assert {key[0] for key in of} == {"none", "aligned(pmax, model)"}
    assert [of["aligned(pmax, model)", SHORT, i] for i in range(5)] == [of["none", SHORT, i] for i in range(5)]
    assert [of["aligned(pmax, model)", LONG, i] for i in range(5)] != [of["none", LONG, i] for i in range(5)]


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_truncate_reads_the_last_tokens_and_short_prompts_whole(family: str, answered: list[list[list[int]]]) -> None:
    options = {"lengths": [SHORT, LONG], "batch_tokens": 1, "samples": 2}
    records = evaluate(None, answering_briefly(family), ["none", "truncate"], **options)
    assert len(answered) == 8
    short_none, short_cut, long_none, long_cut = ([batch[0] for batch in answered[at : at + 2]] for at in (0, 2, 4, 6))
    assert short_cut == short_none
    # A decoder writes its answer within the training length, too
    room = TRAIN_LENGTH - (TASKS["passkey"].answer_tokens if family == "llama" else 0)
    for whole, cut in zip(long_none, long_cut, strict=True):
        assert len(whole) > TRAIN_LENGTH
        assert cut == whole[-room:]
    # Tokens are those of the whole prompt
    assert [record.tokens for record in records] == [len(prompt) for prompt in [*short_none * 2, *long_none * 2]]
    assert [record.prediction for record in records[:2]] == [record.prediction for record in records[2:4]]


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_a_hedge_answers_short_prompts_as_its_method_and_long_ones_from_two_readings(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    real = cells.Hedge
    monkeypatch.setattr(cells, "Hedge", lambda *given: made.append(real(*given)) or made[-1])
    records = evaluate(None, answering_briefly(family), ["log", "hedge+log"], lengths=[SHORT, LONG], samples=2, batch_tokens=1)
    by_method = {method: [one for one in records if one.method == method] for method in ("log", "hedge+log")}
    assert [one.prediction for one in by_method["log"][:2]] == [one.prediction for one in by_method["hedge+log"][:2]]
    room = TRAIN_LENGTH - (TASKS["passkey"].answer_tokens if family == "llama" else 0)
    assert [len(hedge.ends[0]) for hedge in made[2:]] == [room, room]
    assert [hedge.long for hedge in made[2:]] == [[True], [True]]


def test_a_name_keeps_what_it_reads(tmp_path: Path) -> None:
    evaluate(tmp_path, methods={"mine": "log", "end": "truncate", "both": "hedge+log"}, samples=1)
    assert json.loads((tmp_path / "config.json").read_text())["reads"] == {"mine": "whole", "end": "end", "both": "both"}
    with pytest.raises(lw.BadInput, match="the method 'mine' has changed since"):
        evaluate(tmp_path, methods={"mine": "hedge+log"}, samples=1)


def test_the_predictions_of_batches_are_those_of_single_samples(tmp_path: Path) -> None:
    options = {"methods": ["none", "truncate", "constant:tau=0.5"], "tasks": ["line"], "samples": 5}
    single = evaluate(tmp_path / "single", batch_tokens=1, **options)
    together = evaluate(tmp_path / "together", batch_tokens=1500, **options)
    assert untimed(together) == untimed(single)


def test_a_resumed_evaluation_is_the_undisturbed_one_wherever_it_was_cut(
    tmp_path: Path, answered: list[list[list[int]]]
) -> None:
    options = {"methods": ["none", "truncate"], "lengths": [SHORT, LONG], "samples": 4, "batch_tokens": 600}
    whole = untimed(evaluate(tmp_path / "whole", **options))
    size, randomness = (tmp_path / "whole" / "records.jsonl").stat().st_size, random.Random(0)
    batches_in_all = len(answered)
    for cut in [0, size - 1, *(randomness.randrange(size) for _ in range(4))]:
        out = tmp_path / f"cut-{cut}"
        shutil.copytree(tmp_path / "whole", out)
        os.truncate(out / "records.jsonl", cut)
        del answered[:]
        assert untimed(evaluate(out, **options)) == whole
        assert on_disk(out) == whole
        # Work that was recorded is not done again, but for the batch that was cut
        lost = len(whole) - (tmp_path / "whole" / "records.jsonl").read_bytes()[:cut].count(b"\n")
        assert lost / 2 <= len(answered) <= lost / 2 + 1 <= batches_in_all + 1


def test_a_finished_evaluation_asks_the_model_nothing(tmp_path: Path, answered: list[list[list[int]]]) -> None:
    first = evaluate(tmp_path)
    del answered[:]
    assert evaluate(tmp_path) == first
    assert not answered


def test_more_samples_methods_tasks_and_lengths_add_to_what_is_there(tmp_path: Path, answered: list[list[list[int]]]) -> None:
    options: dict[str, Any] = {"batch_tokens": 1}
    first = evaluate(tmp_path / "grown", samples=2, **options)
    del answered[:]
    options.update(methods=["none", "infoscale"], tasks=["passkey", "line"], lengths=[SHORT, LONG], samples=3)
    grown = evaluate(tmp_path / "grown", **options)
    assert len(answered) == 3 * 2 * 2 * 2 - 2
    assert set(first) <= set(grown)
    assert untimed(grown) == untimed(evaluate(tmp_path / "at once", **options))
    assert json.loads((tmp_path / "grown" / "config.json").read_text())["methods"].keys() == {"none", "infoscale"}
    # Fewer are answered from what is there
    assert len(evaluate(tmp_path / "grown", samples=1, batch_tokens=1)) == 1


def test_another_seed_asks_other_questions() -> None:
    assert [r.target for r in evaluate(seed=1)] != [r.target for r in evaluate(seed=0)]
    assert untimed(evaluate(seed=1)) == untimed(evaluate(seed=1))


def test_an_interruption_keeps_what_was_finished_and_sums_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = cells.greedy_answers, []

    def interrupted(*arguments: Any) -> list[str]:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(cells, "greedy_answers", interrupted)
    model = answering_briefly("t5")
    before = model.config._attn_implementation
    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path, model, batch_tokens=1, samples=4)
    assert model.config._attn_implementation == before
    assert [record.index for record in on_disk(tmp_path)] == [0, 1]
    assert (tmp_path / "summary.csv").read_text().splitlines()[1].split(",")[8] == "2"
    assert len(evaluate(tmp_path, model, batch_tokens=1, samples=4)) == 4
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": answering_briefly("t5", seed=1)}, "was begun with another model: its weights"),
        ({"model": answering_briefly("llama")}, "was begun with another model: its family is t5, this model's is llama"),
        ({"seed": 1}, "was begun with another seed: 0 then, 1 now"),
        ({"train_length": 128}, "was begun with another train_length: 256 then, 128 now"),
        ({"batch_tokens": 99}, "was begun with another batch_tokens: 1024 then, 99 now"),
    ],
)
def test_other_models_and_settings_are_not_mixed_in(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    evaluate(tmp_path, samples=1)
    before = (tmp_path / "records.jsonl").read_bytes()
    with pytest.raises(lw.BadInput, match=message):
        evaluate(tmp_path, **{"samples": 2, **change})
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_the_same_weights_under_another_config_are_not_mixed_in(tmp_path: Path) -> None:
    model = answering_briefly("t5")
    evaluate(tmp_path, model=model, samples=1)
    model.config.relative_attention_max_distance = 64
    with pytest.raises(lw.BadInput, match="another config of the model: its relative_attention_max_distance was 128 and is 64"):
        evaluate(tmp_path, model=model, samples=2)


def test_records_that_do_not_add_up_are_not_added_to(tmp_path: Path) -> None:
    evaluate(tmp_path, samples=1)
    file = tmp_path / "records.jsonl"
    file.write_text(file.read_text().replace('"score": 0.0', '"score": 1.0'))
    with pytest.raises(lw.BadInput, match=r"records\.jsonl has 1 line with another score .* the first is line 1"):
        evaluate(tmp_path, samples=2)


def test_weights_outside_the_encoder_count_too(tmp_path: Path) -> None:
    model = answering_briefly("t5")
    evaluate(tmp_path, model, samples=1)
    model.decoder.block[0].layer[2].DenseReluDense.wo.weight.data[0, 0] += 1
    with pytest.raises(lw.BadInput, match="was begun with another parameters"):
        evaluate(tmp_path, model, samples=1)


def test_a_spec_keeps_its_alignment(alignment: lw.Alignment, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    alignment.save(file)
    evaluate(tmp_path / "run", methods=[f"@{file}"], samples=1)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["methods"] == {f"@{file}": alignment.to_json()}
    replace(alignment, target=0.125).save(file)
    with pytest.raises(lw.BadInput, match=r"the method '@.*a.json' has changed since .*run was begun: its target was"):
        evaluate(tmp_path / "run", methods=[f"@{file}"], samples=2)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_alignments_of_every_statistic_are_gone_on_with_and_reported(
    statistic: str, alignment: lw.Alignment, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    for samples in (1, 2):
        evaluate(tmp_path / "run", None, {"mine": replace(alignment, statistic=statistic)}, samples=samples)
    assert lengthwise("report", tmp_path / "run", "--out", tmp_path / "page.html").status == 0


def test_samples_that_are_no_longer_the_same_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(tmp_path, samples=2)
    real = TASKS["passkey"]

    def others(tokenizer: Any, length: int, n: int, seed: int) -> Any:
        return real.samples(tokenizer, length, n, seed + 1)

    monkeypatch.setitem(TASKS, "passkey", replace(real, samples=others))
    with pytest.raises(lw.BadInput, match="sample 0 of passkey at 300 tokens, none is another one now"):
        evaluate(tmp_path, samples=3)


def of_flowers(samples: Any = None, **other: Any) -> dict[str, Task]:
    samples = samples or partial(line_samples, names=(["red", "white"], ["rose", "lily"]))
    return {"line": replace(TASKS["line"], **{"samples": samples, "material": "names of flowers", **other})}


def test_a_task_may_be_given_samples_of_other_material(tmp_path: Path) -> None:
    records = evaluate(tmp_path, tasks=of_flowers())
    expected = line_samples(TOKENIZER, LONG, 3, 0, names=(["red", "white"], ["rose", "lily"]))
    assert [(record.task, record.target) for record in records] == [("line", sample.target) for sample in expected]
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["tasks"], config["given"]) == ({"line": "names of flowers"}, {"names of flowers": None})
    evaluate(tmp_path, tasks=["passkey"])
    evaluate(tmp_path, tasks=of_flowers() | {"topic": TASKS["topic"]}, lengths=[520], samples=1)
    tasks = json.loads((tmp_path / "config.json").read_text())["tasks"]
    assert tasks == {"line": "names of flowers", "passkey": None, "topic": None}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["line"], "holds samples of line made of names of flowers, and not of what the package brings; give another --out"),
        (of_flowers(material="names of trees"), "made of names of flowers, and not of names of trees"),
    ],
)
def test_materials_are_not_mixed(tasks: Any, message: str, tmp_path: Path) -> None:
    evaluate(tmp_path, tasks=of_flowers(), samples=1)
    before = (tmp_path / "records.jsonl").read_bytes()
    # At another length, where no recorded sample could give the change away
    with pytest.raises(lw.BadInput, match=message):
        evaluate(tmp_path, tasks=tasks, lengths=[SHORT + 20], samples=1)
    assert (tmp_path / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({}, "give at least one task"),
        ({"lines": TASKS["line"]}, "no task 'lines'; did you mean 'line'"),
        (of_flowers(material=""), "say what the other samples of 'line' are made of"),
        (of_flowers(score=TASKS["passkey"].score), "the task 'line' may be given other samples, but must keep its score"),
    ],
)
def test_other_tasks_are_refused(tasks: Any, message: str) -> None:
    with pytest.raises(lw.BadInput, match=message):
        evaluate(tasks=tasks)


def test_an_alignment_of_another_model_needs_force(alignment: lw.Alignment) -> None:
    other = answering_briefly("t5", seed=1)
    with pytest.raises(lw.BadInput, match="made for"):
        evaluate(None, other, [alignment])
    assert len(evaluate(None, other, [alignment], force=True)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["passky"]}, "no task 'passky'; did you mean 'passkey'"),
        (
            {"tasks": ["chess"]},
            "no task 'chess'; the tasks are answer, association, babilong_qa1, .*line, .*passkey, topic, ruler$",
        ),
        ({"tasks": []}, "give at least one task"),
        ({"methods": ["warp"]}, "no method 'warp'"),
        # Not when its turn comes
        ({"methods": ["none", "yarn:factor=2"]}, "Yarn"),
        ({"model": make("bert")}, "BertForMaskedLM cannot write answers"),
        ({"methods": ["truncate+infoscale"]}, "truncate is a baseline of its own"),
        ({"lengths": []}, "give lengths in tokens"),
        ({"lengths": [300.0]}, "lengths must be a whole number or a list, each a whole number, not .300.0."),
        ({"lengths": [0]}, "a length must be at least 1 token, not 0"),
        ({"lengths": [SHORT, 20]}, "a prompt of 20 tokens has no room for the question"),
        ({"samples": 0}, "samples must be at least 1, not 0"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, not 0"),
        ({"train_length": 0}, "train_length must be above 1 token, not 0"),
        ({"train_length": 1}, "train_length must be above 1 token, not 1"),
        ({"data": "cases.jsonl"}, "give lengths or a file of cases"),
        ({"data": "cases.jsonl", "lengths": [], "tasks": ["line", "topic"]}, "holds cases of one task"),
        ({"data": "cases.jsonl", "lengths": []}, "cannot read the cases in cases.jsonl"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(lw.BadInput, match=message):
        evaluate(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["truncate", "hedge+log"])
@pytest.mark.parametrize(("family", "room"), [("t5", 32), ("llama", 32 - TASKS["passkey"].answer_tokens)])
def test_a_question_that_truncation_cannot_keep_is_refused_before_anything_is_asked(
    method: str, family: str, room: int, tmp_path: Path, answered: list[list[list[int]]]
) -> None:
    with pytest.raises(lw.BadInput, match=f"truncate keeps the last {room} tokens"):
        evaluate(tmp_path / "run", answering_briefly(family), ["none", method], train_length=32, lengths=[SHORT, LONG])
    assert not answered
    assert not (tmp_path / "run").exists()


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Four official cases of different lengths."""
    samples = [TASKS["passkey"].samples(TOKENIZER, length, 1, length)[0] for length in (250, 280, 290, 303)]
    lines = [json.dumps({"prompt": sample.prompt, "target": sample.target}) for sample in samples]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    return tmp_path / "cases.jsonl"


def test_the_cases_of_a_file_are_recorded_under_its_name_and_mean_length(cases: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    some = evaluate(out, methods=["none", "truncate"], data=cases, lengths=[], samples=2)
    records = evaluate(out, methods=["none", "truncate"], data=cases, lengths=[])
    lengths = [len(TOKENIZER(json.loads(line)["prompt"]).input_ids) for line in cases.read_text().splitlines()]
    assert len(some) == 4
    assert set(some) < set(records)
    assert {(record.data, record.length) for record in records} == {("cases.jsonl", round(sum(lengths) / 4))}
    assert json.loads((out / "config.json").read_text())["given"] == {"cases.jsonl": str(cases)}
    assert [record.tokens for record in records] == lengths[:3] * 2
    assert [record.depth for record in records] == [None] * 6
    assert not (out / "sharpness.jsonl").read_text()
    # All four of a file of four, whatever was asked for
    assert len(evaluate(out, data=cases, lengths=[], samples=100)) == 4
    with pytest.raises(lw.BadInput, match="truncate keeps the last 16 tokens"):
        evaluate(tmp_path / "tight", methods=["none", "truncate"], data=cases, lengths=[], train_length=16)
    assert not (tmp_path / "tight").exists()


def test_what_is_not_said_is_the_models_name_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    model = answering_briefly("t5")
    model.get_encoder().config._name_or_path = "somewhere/t5"
    (record,) = lw.evaluate(model, TOKENIZER, lengths=LONG, samples=1)
    assert record.model == "somewhere/t5"
    assert capsys.readouterr().err == f"passkey at {LONG} tokens, none\n"


def test_without_a_task_it_is_passkey_or_the_cases_of_a_file(cases: Path) -> None:
    assert {record.task for record in evaluate(tasks=None, samples=1)} == {"passkey"}
    own = {"answer", "answer_exact", "answer_f1"}
    assert {record.task for record in evaluate(tasks=None, samples=1, data=cases, lengths=[])} == own


def test_a_directory_keeps_the_name_that_its_model_had_first(tmp_path: Path) -> None:
    evaluate(tmp_path, samples=1, name="first")
    assert [record.model for record in evaluate(tmp_path, samples=2, name="second")] == ["first", "first"]


def test_a_file_that_has_changed_is_refused(cases: Path, tmp_path: Path) -> None:
    evaluate(tmp_path / "run", data=cases, lengths=[], samples=1)
    cases.write_text(cases.read_text() + "\n")
    with pytest.raises(lw.BadInput, match=r"the data file 'cases.jsonl' has changed"):
        evaluate(tmp_path / "run", data=cases, lengths=[], samples=1)


def test_sharpness_is_that_of_the_first_sample_and_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = answering_briefly("t5")
    options = {"methods": ["none", "truncate", "constant:tau=0.5"], "lengths": [SHORT, LONG]}
    evaluate(tmp_path, model, **options)
    lines = read_lines(tmp_path / "sharpness.jsonl", Sharpness)
    keys = [(m, "passkey", n) for n in (SHORT, LONG) for m in ("none", "constant:tau=0.5")]
    assert [one.key for one in lines] == keys
    for one in lines:
        sample = TASKS["passkey"].samples(TOKENIZER, one.length, 1, 0)[0]
        expected = lw.row_statistics(model, TOKENIZER(sample.prompt, return_tensors="pt"), method=one.method)
        assert one.tokens == sample.tokens
        for found, table in ((one.p_max, expected.p_max), (one.entropy, expected.entropy)):
            assert [value for row in found for value in row] == pytest.approx(table.flatten().tolist(), rel=1e-5)
    # A kill between the records and the sharpness
    whole = (tmp_path / "sharpness.jsonl").read_text()
    (tmp_path / "sharpness.jsonl").write_text("".join(whole.splitlines(True)[:2]))
    evaluate(tmp_path, model, **options)
    assert (tmp_path / "sharpness.jsonl").read_text() == whole
    # Finished: not measured again, and only when wanted
    monkeypatch.setattr(in_process, "sharpness_of", None)
    evaluate(tmp_path, model, **options)
    evaluate(tmp_path, model, **{**options, "lengths": [280]}, sharpness=False)


def test_attention_that_is_not_finite_has_no_sharpness_but_records(tmp_path: Path) -> None:
    model = answering_briefly("t5")
    model.encoder.block[1].layer[0].SelfAttention.k.weight.data[:] = float("nan")
    with pytest.warns(UserWarning, match="attention is not finite, so its sharpness is left out"):
        assert len(evaluate(tmp_path, model)) == 3
    assert not (tmp_path / "sharpness.jsonl").read_text()


def test_samples_are_made_once_for_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = TASKS["passkey"], []

    def counted(tokenizer: Any, length: int, n: int, seed: int) -> Any:
        made.append((length, n))
        return real.samples(tokenizer, length, n, seed)

    monkeypatch.setitem(TASKS, "passkey", replace(real, samples=counted))
    evaluate(methods=["none", "truncate", "infoscale"], lengths=[SHORT, LONG])
    # The shortest has room, but not four times, so that all of it are made at once; then once for truncation, then the others
    assert made == [(SHORT, 1), (SHORT // SPARE, 1), (SHORT, 3), (LONG, 1), (LONG, 3)]


def test_progress_names_the_cells_and_counts_down_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(tmp_path, methods=["none", "truncate"], samples=2, show_progress=True)
    assert capsys.readouterr().err.splitlines() == ["passkey at 300 tokens, none", "passkey at 300 tokens, truncate"]
    totals: list[float] = []
    done: list[float] = []

    class Bar:
        def __init__(self, label: str, total: float, shown: bool) -> None:
            totals.append(total)

        def __enter__(self) -> Callable[..., None]:
            return lambda steps=1.0, label=None: done.append(steps)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(importlib.import_module("lengthwise.evaluation.evaluate"), "progress", Bar)
    evaluate(tmp_path, methods=["none", "truncate", "infoscale"])
    # One more sample of two cells, three and the sharpness of a new one
    assert totals == [pytest.approx(5 * LONG**1.3 + TRAIN_LENGTH**1.3)]
    assert sum(done) == pytest.approx(totals[0])


def test_another_method_under_a_name_of_the_callers_is_refused(tmp_path: Path) -> None:
    evaluate(tmp_path / "run", methods={"mine": "constant:tau=0.9"})
    assert read_config(tmp_path / "run" / "config.json")["specs"] == {"mine": "constant:tau=0.9"}
    with pytest.raises(lw.BadInput, match="the method 'mine' has changed since"):
        evaluate(tmp_path / "run", methods={"mine": "constant:tau=100"})
    evaluate(tmp_path / "run", methods={"mine": " constant:tau=0.9", "other": "constant:tau=100"})

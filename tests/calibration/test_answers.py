"""Temperatures fitted to answers: recovered where they are known, losses written out by hand, nothing else changed."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import lengthwise as lw
from lengthwise.calibration import answer_cases, answers
from lengthwise.calibration.align import SharpnessByLength
from lengthwise.calibration.answer_cases import CaseGroup, FitCase, depends_on_the_far_past, text_cases
from lengthwise.calibration.answers import Fit
from lengthwise.common.progress import ProgressCallback, no_progress
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS
from tests.conftest import TRAIN_LENGTH, make, tokens

TRAINED, LENGTH = 512, 640  # as far as a question in bytes needs


def sharp_t5() -> Any:
    """A T5 whose attention is sharp enough for a temperature to matter."""
    model = make("t5", 0)
    for name, parameter in model.encoder.named_parameters():
        if name.endswith((".q.weight", ".k.weight")):
            parameter.data *= 4
    return model


def flattened(model: Any, tau: torch.Tensor) -> Any:  # [heads]
    """The same model with every head's logits, bias included, divided by its tau in all layers."""
    flat = copy.deepcopy(model)
    for block in flat.encoder.block:
        q = block.layer[0].SelfAttention.q.weight
        q.data = (q.data.view(len(tau), -1, q.shape[1]) / tau[:, None, None]).view_as(q)
    flat.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.data /= tau
    return flat


def fit(
    model: Any,
    original: Any,
    shape: tuple[int, int],
    length: int = 2 * TRAIN_LENGTH,
    end: float = math.inf,
    tick: ProgressCallback = no_progress,
) -> tuple[torch.Tensor, list[Any], dict[str, Any]]:
    """Fit the model to what the original says of eight sequences."""
    cases = []
    for seed in range(8):
        case = FitCase(tokens(length, 1, seed), tokens(6, 1, 100 + seed), torch.ones(6, dtype=torch.bool))
        with torch.no_grad():
            cases.append(FitCase(case.inputs, case.targets, case.counted, case.logits(original).log_softmax(-1)))
    sharpness = SharpnessByLength(TRAIN_LENGTH, 2 * TRAIN_LENGTH)
    return Fit(model, sharpness, [CaseGroup("original", 100.0, cases)], torch.zeros(shape), 0, tick, end).run()


def test_one_number_that_is_known_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ENOUGH", 0.0)
    original = sharp_t5()
    for tau in (1.35, 0.75):
        found, path, expects = fit(flattened(original, torch.full((4,), tau)), original, (1, 1))
        assert abs(float(found) - torch.tensor(tau).log()) <= 0.06
        assert expects["fitted"]["original"] < 0.1 * expects["plain"]["original"]
        # On both sides of 1
        assert min(step["tau"] for step in path) < 1 < max(step["tau"] for step in path)


def test_each_step_of_a_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def tick(done: float = 1.0, label: str | None = None) -> None:
        said.extend([] if label is None else [label])

    monkeypatch.setattr(answers, "STEPS", 3)
    original = sharp_t5()
    fit(flattened(original, torch.full((4,), 1.35)), original, (3, 4), tick=tick)
    start, *steps = said
    assert start.startswith("length 64, as it is: ")
    assert steps == [f"length 64, step {step} of at most 3" for step in (1, 2, 3)]


def test_time_ends_a_fit_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sharp_t5()
    model = flattened(original, torch.full((4,), 1.35))
    found, path, expects = fit(model, original, (3, 4), end=0.0)
    assert [step["step"] for step in path] == [0, 1]
    assert bool(found.any()) == (path[1]["loss"] < path[0]["loss"])
    assert expects["fitted"]["original"] == min(step["original"] for step in path)
    found, path, _ = fit(model, original, (1, 1), end=0.0)
    assert (float(found), [step["tau"] for step in path]) == (0.0, [1.0])
    # What is left is shared among the lengths to come
    monkeypatch.setattr(answers.time, "monotonic", lambda: 10.0)
    assert [answers.end_after(70.0, lengths) for lengths in (3, 1)] == [30.0, 70.0]


@pytest.mark.parametrize(
    ("statistic", "minutes", "told"),
    [
        ("pmax", 1.0, "minutes are for the statistic answers; pmax takes a few forwards"),
        ("answers", 0.0, "minutes must be above 0 and finite, not 0.0"),
        # A file that holds it could not be read again
        ("answers", math.inf, "minutes must be above 0 and finite, not inf"),
    ],
)
def test_minutes_that_cannot_be_are_refused(statistic: str, minutes: float, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        lw.calibrate(make("t5"), None, 128, statistic=statistic, minutes=minutes)


def test_heads_that_are_known_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ENOUGH", 0.0)
    original, tau = sharp_t5(), torch.tensor([1.3, 0.8, 1.0, 1.2])
    model = flattened(original, tau)
    found, path, expects = fit(model, original, (3, 4))
    assert expects["fitted"]["original"] < 0.5 * expects["plain"]["original"]
    # Many tables give much the same outputs; heads that were flattened are sharpened all the same
    assert found.mean(0)[0] > found.mean(0)[2] > found.mean(0)[1]
    assert path[0]["step"] == 0
    # What is kept is the best that cases which were not fitted have seen
    assert expects["fitted"]["original"] == min(step["original"] for step in path)


def test_where_nothing_is_to_be_gained_it_stays_1() -> None:
    original = sharp_t5()
    for shape in ((1, 1), (3, 4)):
        found, _, expects = fit(original, original, shape)
        assert not found.any()
        assert expects["plain"] == expects["fitted"]


def test_prompts_within_the_training_length_say_nothing() -> None:
    original = sharp_t5()
    found, _, _ = fit(flattened(original, torch.full((4,), 1.35)), original, (3, 4), TRAIN_LENGTH)
    assert not found.any()


@torch.no_grad()
def test_the_loss_of_an_answer_is_its_nats(tokenizer: Any) -> None:
    model, sample = make("t5", 1), TASKS["passkey"].samples(tokenizer, LENGTH, 1, 3)[0]
    (case,) = answer_cases.answer_cases(model, tokenizer, [sample])
    ids, labels = (tokenizer(text, return_tensors="pt").input_ids for text in (sample.prompt, sample.target))
    logits = model(input_ids=ids, labels=labels).logits
    assert float(case.loss(model)) == pytest.approx(float(F.cross_entropy(logits[0], labels[0], reduction="sum")), rel=1e-5)


@torch.no_grad()
def test_a_decoder_reads_prompt_and_answer_in_one(tokenizer: Any) -> None:
    model, sample = make("llama", 1), TASKS["passkey"].samples(tokenizer, LENGTH, 1, 3)[0]
    (case,) = answer_cases.answer_cases(model, tokenizer, [sample])
    ids = tokenizer(f"{sample.prompt} {sample.target}", return_tensors="pt").input_ids
    first = len(tokenizer(sample.prompt, add_special_tokens=False).input_ids)
    assert torch.equal(torch.cat([case.inputs, case.targets], 1), ids)
    assert case.inputs.shape[1] == first
    wanted = F.cross_entropy(model(input_ids=ids).logits[0, first - 1 : -1], ids[0, first:], reduction="sum")
    assert float(case.loss(model)) == pytest.approx(float(wanted), rel=1e-5)


def test_far_words_stand_before_but_not_nearby() -> None:
    prefix = torch.tensor([7, 8, 9, 1, 2, 3])
    continuation = torch.tensor([8, 2, 5, 9, 8])
    # 8 and 9 stand further back than the last three; 8 is near once it was said
    assert depends_on_the_far_past(prefix, continuation, 3).tolist() == [True, False, False, True, False]


def test_far_words_count_and_the_others_are_kept(tokenizer: Any) -> None:
    model = make("t5", 0)
    far = text_cases(model, tokenizer, shipped_prose(), 400, TRAIN_LENGTH, 3, 0, far=True)
    near = text_cases(model, tokenizer, shipped_prose(), 400, TRAIN_LENGTH, 3, 0, far=False)
    assert all(case.inputs.shape[1] == 400 for case in far + near)
    text = "".join(tokenizer.decode(case.inputs[0, -TRAIN_LENGTH:], skip_special_tokens=True) for case in far[:1])
    words = tokenizer.decode(far[0].targets[0, far[0].counted])
    assert words
    assert not set(words) & set(text)
    assert all(bool(case.counted.any()) for case in near)
    with pytest.raises(BadInput, match="no word of the text's continuations"):
        text_cases(model, tokenizer, "a" * 2000, 400, TRAIN_LENGTH, 3, 0, far=True)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit of few steps."""
    for name, value in {"STEPS": 2, "CHECK_EVERY": 1, "CASES_A_STEP": 1, "NARROWEST": 0.2}.items():
        monkeypatch.setattr(answers, name, value)


@pytest.mark.usefixtures("few")
@pytest.mark.filterwarnings("ignore:length .*no temperature makes")
@pytest.mark.parametrize(("name", "scope"), [("t5", "head"), ("t5", "layer"), ("t5", "model"), ("llama", "head")])
def test_an_alignment_extends_and_the_model_is_as_it_was(name: str, scope: str, tokenizer: Any, tmp_path: Path) -> None:
    model = make(name, 0).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    lengths = [LENGTH, LENGTH + 64] if scope == "head" else [LENGTH]
    how = {"statistic": "answers", "scope": scope, "task": "passkey", "sequences": 2, "train_length": TRAINED}
    alignment = lw.calibrate(model, tokenizer, lengths, show_progress=False, **how)
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    alignment.save(tmp_path / "a.json")
    assert lw.Alignment.load(tmp_path / "a.json") == alignment
    shape = {"head": (3, 4), "layer": (3,), "model": ()}[scope]
    assert all(torch.tensor(entry.tau).shape == shape and entry.forwards > 0 for entry in alignment.temperatures)
    with lw.extend(model, alignment):
        pass
    told = alignment.provenance["searched"][0]["expects"]
    assert set(told["plain"]) == {"passkey", "prose"}
    assert told["plain"]["prose"] == 0


@pytest.mark.usefixtures("few")
@pytest.mark.filterwarnings("ignore:length .*no temperature makes")
def test_what_a_model_cannot_do_at_training_length_does_not_steer(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cases.CaseMaker, "training_nats", lambda self: {"passkey": (1.0, 0.1), "line": (40.0, 8.0)})
    seen: dict[str, float] = {}
    groups = answer_cases.CaseMaker.all_groups

    def spied(self: Any, length: int, shorter: int, weights: dict[str, float]) -> Any:
        seen.update(weights)
        return groups(self, length, shorter, weights)

    monkeypatch.setattr(answer_cases.CaseMaker, "all_groups", spied)
    how = {"statistic": "answers", "task": ["passkey", "line"], "sequences": 2, "train_length": TRAINED}
    lw.calibrate(make("t5", 0), tokenizer, LENGTH, show_progress=False, **how)
    assert sum(seen.values()) == pytest.approx(1)
    assert seen["passkey"] / seen["line"] == pytest.approx(torch.tensor(8 - 0.1).exp().item(), rel=1e-4)


@pytest.mark.usefixtures("few")
def test_what_is_fitted_is_never_held_out_nor_asked(tokenizer: Any) -> None:
    group = CaseGroup("g", 1.0, list(range(9)))  # type: ignore[arg-type]
    assert [*group.held_out, *group.fitted] == list(range(9))
    assert len(group.held_out) == 2
    asked = {sample.prompt for seed in range(3) for sample in TASKS["passkey"].samples(tokenizer, LENGTH, 8, seed)}
    fitted = {sample.prompt for sample in TASKS["passkey"].samples(tokenizer, LENGTH, 8, answer_cases.FAR_SEEDS)}
    assert not asked & fitted


@pytest.mark.usefixtures("few")
@pytest.mark.filterwarnings("ignore:length .*no temperature makes")
def test_cases_of_a_file_are_asked_at_their_own_lengths(tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    prompts = ["a" * 90, "b" * 95, "c" * 20, "d" * 25]
    file.write_text("".join(json.dumps({"prompt": prompt, "target": "yes"}) + "\n" for prompt in prompts))
    how = {"statistic": "answers", "task": "answer", "data": file, "text": None, "train_length": TRAIN_LENGTH}
    alignment = lw.calibrate(make("t5", 0), tokenizer, 100, show_progress=False, **how)
    assert alignment.provenance["text"].startswith("answers to answer of mine.jsonl")
    with pytest.raises(BadInput, match="has 0 cases of 101 to 200 tokens; at least 2 are needed"):
        lw.calibrate(make("t5", 0), tokenizer, [100, 200], show_progress=False, **how)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistic": "answers", "search": "grid"}, "--search grid is Algorithm 1, which keeps pmax or entropy"),
        ({"statistic": "answers", "data": "x.jsonl"}, "--data holds questions of one task; give one --task, not 0"),
        ({"task": ["line", "passkey"]}, "--statistic pmax reads samples of one task, not of 2; several go with answers"),
        ({"data": "x.jsonl", "task": "answer"}, "which --statistic pmax does not ask"),
        ({"statistic": "answers", "sequences": 1}, "sequences must be at least 2, not 1; with answers some are fitted"),
        ({"statistic": "answers", "task": "passkey"}, "a prompt of 32 tokens has no room for the question"),
    ],
)
def test_what_does_not_go_together_is_refused(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        lw.calibrate(make("t5", 0), tokenizer, 4 * TRAIN_LENGTH, show_progress=False, **options)


@pytest.mark.parametrize("scope", ["model", "head"])
@pytest.mark.parametrize("length", [TRAINED, LENGTH])
def test_likelihoods_that_are_no_numbers_are_refused(
    scope: str, length: int, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a T5 overflows in float16; a file that holds them could not be read again."""
    loss = FitCase.loss
    monkeypatch.setattr(
        FitCase, "loss", lambda case, model: loss(case, model) * (math.nan if case.inputs.shape[1] > length - 99 else 1.0)
    )
    how = {"statistic": "answers", "scope": scope, "task": "passkey", "sequences": 2, "train_length": TRAINED}
    with pytest.raises(BadInput, match=f"answers at {length} tokens are NaN or infinite; give a wider --dtype"):
        lw.calibrate(make("t5", 0), tokenizer, LENGTH, show_progress=False, **how)


@pytest.mark.parametrize("name", ["t5 encoder", "bert"])
def test_a_model_that_writes_nothing_is_refused(name: str, tokenizer: Any) -> None:
    how = {"statistic": "answers", "task": "passkey", "sequences": 2, "train_length": 400}
    with pytest.raises(BadInput, match="cannot write answers; give an encoder-decoder or a decoder"):
        lw.calibrate(make(name), tokenizer, 480, show_progress=False, **how)


def test_one_number_is_left_at_1_where_other_cases_lose_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ENOUGH", 0.0)
    original = sharp_t5()
    model = flattened(original, torch.full((4,), 1.35))
    monkeypatch.setattr(CaseGroup, "held_out", property(lambda group: group.cases[:2]))
    # The cases that are not fitted are told as the model tells them already
    whole = Fit._held_out
    told = iter([0.0, 1.0])
    monkeypatch.setattr(Fit, "_held_out", lambda fit: {name: next(told) for name in whole(fit)})
    found, _, expects = fit(model, original, (1, 1))
    assert float(found) == 0
    assert expects["fitted"] == expects["plain"]

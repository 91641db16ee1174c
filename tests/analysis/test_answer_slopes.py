"""Slopes of answers in the sharpness of every head: against finite differences, and where they are known."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.analysis.answer_slopes import EveryHead, answer_slopes, slopes_of
from lengthwise.analysis.records import AnswerSlopes, read_analysis
from lengthwise.analysis.section import analysis_article, findings
from lengthwise.calibration.answer_cases import FitCase
from lengthwise.common.text import shipped_prose
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make, tokens
from tests.helpers.analysed import analysis

TRAINED, LENGTH = 512, 640  # as far as a question in bytes needs


def sharp() -> Any:
    """A T5 whose encoder is sharp enough for a temperature to matter."""
    model = make("t5", 0)
    for name, parameter in model.encoder.named_parameters():
        if name.endswith((".q.weight", ".k.weight")):
            parameter.data *= 4
    return model


def cases(length: int, many: int = 2) -> list[FitCase]:
    return [FitCase(tokens(length, 1, seed), tokens(6, 1, 9 + seed), torch.ones(6, dtype=torch.bool)) for seed in range(many)]


# Within the training length as well, where a model is otherwise left to its own attention
@pytest.mark.parametrize(("name", "length"), [("t5", TRAIN_LENGTH // 2), ("t5", 2 * TRAIN_LENGTH), ("llama", 2 * TRAIN_LENGTH)])
def test_slopes_are_finite_differences(name: str, length: int) -> None:
    # The losses bend: with steps of 0.02 the first layer's differences are off by a third; these differ by 0.006 between CPUs
    model, asked, step = make(name, 0).eval(), cases(length), 0.001
    nats, slopes = slopes_of(model, anatomy_of(model), asked)
    assert slopes.shape == (2, 3, 4)

    @torch.no_grad()
    def told(log_g: torch.Tensor) -> torch.Tensor:
        with lw.extend(model, EveryHead(log_g), train_length=2):
            return torch.stack([case.loss(model).double() for case in asked])

    with torch.no_grad():
        assert torch.stack([case.loss(model).double() for case in asked]) == pytest.approx(nats, rel=1e-4)
    for place in [(0, 1), (2, 3)]:
        one = torch.zeros(3, 4)
        one[place] = step
        assert slopes[:, *place] == pytest.approx((told(one) - told(-one)) / (2 * step), rel=0.03, abs=1e-2)


def test_a_head_that_is_not_heard_has_no_slope_and_the_model_is_as_it_was() -> None:
    model = sharp().train()
    out = model.encoder.block[1].layer[0].SelfAttention.o.weight
    with torch.no_grad():
        out.view(out.shape[0], 4, -1)[:, 2] = 0
    before = {key: value.clone() for key, value in model.state_dict().items()}
    _, slopes = slopes_of(model, anatomy_of(model), cases(2 * TRAIN_LENGTH))
    assert not slopes[:, 1, 2].any()
    assert (slopes[:, 1, [0, 1, 3]] != 0).all()
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize(("tau", "below_zero"), [(1.5, True), (1 / 1.5, False)])
def test_a_head_that_was_flattened_wants_to_be_sharper(tau: float, below_zero: bool) -> None:
    """What is told is what the same model said before the queries of one head were divided."""
    model, asked = sharp(), cases(2 * TRAIN_LENGTH, 4)
    with torch.no_grad():
        original = [FitCase(c.inputs, c.targets, c.counted, c.logits(model.eval()).log_softmax(-1)) for c in asked]
        query = model.encoder.block[2].layer[0].SelfAttention.q.weight
        query.view(4, -1, query.shape[1])[1] /= tau
    _, slopes = slopes_of(model, anatomy_of(model), original)
    assert bool(slopes.mean(0)[2, 1] < 0) == below_zero


def test_a_task_is_asked_at_a_length_and_left_out_where_it_has_no_room(tokenizer: Any) -> None:
    model = make("t5", 0)
    anatomy = anatomy_of(model, TRAINED)
    told = answer_slopes(model, tokenizer, anatomy, "passkey", LENGTH, 3, 0)
    assert told is not None
    assert (told.length, told.task, told.cases) == (LENGTH, "passkey", 3)
    assert told.slope == pytest.approx(sum(map(sum, told.heads)))
    assert told.low < told.slope < told.high
    assert 1 < told.nats / told.nats_a_token < 8
    assert answer_slopes(model, tokenizer, anatomy, "passkey", TRAIN_LENGTH, 3, 0) is None


def slopes(length: int, slope: float, half: float = 1.0, nats: float = 5.0, a_token: float = 0.5) -> AnswerSlopes:
    heads = [[slope, 0.5, -0.5], [0.0, 0.25, -0.25]]
    return AnswerSlopes(length, "passkey", 8, nats, a_token, slope, slope - half, slope + half, heads)


@pytest.mark.parametrize(
    ("told", "wants"),
    [
        (slopes(512, -3.0), "sharper"),
        (slopes(512, 3.0), "flatter"),
        (slopes(512, 3.0, half=4.0), "unclear"),
        (slopes(512, 3.0, nats=0.05), "nothing to gain"),
        (slopes(512, 3.0, half=math.nan), "unclear"),
    ],
)
def test_what_answers_want_is_said_where_it_is_clear(told: AnswerSlopes, wants: str) -> None:
    assert told.wants == wants


def test_a_warning_where_keeping_p_max_goes_the_other_way() -> None:
    trained = slopes(512, -1.0)
    flatter = " ".join(findings(analysis(answers=(trained, slopes(4096, 3.0)))))
    assert (
        "Answers to passkey at 4,096 tokens: slope +3 nats per unit of ln g [+2, +4]: flattening helps. Keeping P_max"
        in flatter
    )
    assert "(tau 0.730) would sharpen it: the answers want it flatter." in flatter
    sharper = " ".join(findings(analysis(answers=(trained, slopes(4096, -3.0)))))
    assert "sharpening helps." in sharper
    assert "Keeping P_max" not in sharper
    # What a model cannot do at its training length does not tell
    assert "Answers to" not in " ".join(findings(analysis(answers=(slopes(512, -1.0, a_token=3.0), slopes(4096, 3.0)))))


def test_the_page_shows_the_slopes() -> None:
    text = analysis_article(analysis(answers=(slopes(512, -1.0), slopes(4096, 3.0)))).markdown("figures")
    assert r"| 4,096 | passkey | 5 | +3 \[+2, +4] | flatter | 2 of 6 | 0.67 |" in text
    assert "figures/answers.svg" in text
    assert "--task passkey" in text


@pytest.mark.filterwarnings("ignore:PNG figures need")
def test_analyse_asks_tasks_and_adds_them_to_what_is_there(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("lengthwise.analysis.analyse")
    asked: list[tuple[str, int, int, int]] = []

    def told(model: Any, tokenizer: Any, anatomy: Any, *question: Any) -> AnswerSlopes | None:
        asked.append(question)
        return None if question[1] == TRAIN_LENGTH else slopes(question[1], 3.0)

    monkeypatch.setattr(module.png, "available", lambda: False)
    monkeypatch.setattr(module, "answer_slopes", told)
    # Algorithm 1 and many sequences would take most of the time
    monkeypatch.setattr(module, "MEASURED", ())
    monkeypatch.setattr(module, "TOKENS", 1)
    monkeypatch.setattr(module._Job, "check_tasks", lambda self, longest: None)
    how: dict[str, Any] = {"text": shipped_prose()[:4000], "show_progress": False, "seed": 5}
    plain = lw.analyse(make("t5", 0), tokenizer, 48, tmp_path / "a", **how)
    assert plain.answers == ()
    found = lw.analyse(make("t5", 0), tokenizer, 48, tmp_path / "a", tasks=["passkey", "passkey"], **how)
    assert asked == [("passkey", TRAIN_LENGTH, 8, 5), ("passkey", 48, 8, 5)]
    # No room at the training length
    assert found.answers == (slopes(48, 3.0),)
    assert found.lengths == plain.lengths
    assert read_analysis(tmp_path / "a") == found
    assert (tmp_path / "a" / "tables" / "answers.csv").read_text().count("passkey") == 6
    assert (tmp_path / "a" / "figures" / "answers.svg").exists()
    # What is done is not asked again; what had no room is tried again
    assert lw.analyse(make("t5", 0), tokenizer, 48, tmp_path / "a", tasks=["passkey"], **how) == found
    assert asked[2:] == [("passkey", TRAIN_LENGTH, 8, 5)]


@pytest.mark.parametrize(
    ("name", "length", "task", "message"),
    [
        ("t5", 64, "passkey", "has no room for the question"),
        ("t5", 64, "passky", "no task 'passky'; did you mean 'passkey'"),
        ("bert", 64, "passkey", "BertForMaskedLM cannot write answers"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_written(
    name: str, length: int, task: str, message: str, tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(lw.BadInput, match=message):
        lw.analyse(make(name), tokenizer, length, tmp_path / "a", tasks=[task], train_length=32, show_progress=False)
    assert list(tmp_path.iterdir()) == []

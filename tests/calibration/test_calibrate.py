"""Calibration against Algorithm 1 written out on transformers' own eager attention weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import lengthwise as lw
from lengthwise.calibration.calibrate import short_and_long
from lengthwise.common.sequences import long_sequences, short_sequences
from lengthwise.common.text import shipped_prose
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make, tiny_t5
from tests.helpers.sweep import crossed

LENGTH = 4 * TRAIN_LENGTH


def calibrate(model: Any, tokenizer: Any, length: Any = LENGTH, **options: Any) -> lw.Alignment:
    return lw.calibrate(model, tokenizer, length, show_progress=False, **options)


def brute_force(model: Any, tokenizer: Any, length: int, statistic: str, sequences: int) -> tuple[float, float, list[float]]:
    """Algorithm 1: (tau, target, statistic at every tau). The temperature is put in by scaling a copy's weights."""

    def find_s(tau: float, ids: torch.Tensor) -> float:
        scaled = copy.deepcopy(model.encoder)
        scaled.set_attn_implementation("eager")
        for key, parameter in scaled.named_parameters():
            if key.endswith((".q.weight", "relative_attention_bias.weight")):
                parameter.data /= tau
        with torch.no_grad():
            weights = torch.stack(scaled(input_ids=ids, output_attentions=True).attentions).double()
        return float(weights.amax(-1).mean() if statistic == "pmax" else torch.special.entr(weights).sum(-1).mean())

    long = long_sequences(tokenizer, shipped_prose(), length, sequences, seed=0)
    target = find_s(1.0, short_sequences(tokenizer, long, TRAIN_LENGTH))
    grid = [round(1 - 0.05 * step, 2) for step in range(11)]
    values = [find_s(tau, long) for tau in grid]
    nearest = min(range(11), key=lambda i: abs(values[i] - target))
    return grid[nearest], target, values


@pytest.mark.filterwarnings("ignore:.*the grid ends there")
@pytest.mark.parametrize(
    ("case", "statistic"),
    crossed([("t5", 0, 1), ("t5", 1, 3), ("flan-t5", 2, 1), ("umt5", 3, 1)], ["pmax", "entropy"], every=2),
)
def test_grid_is_algorithm_1(tokenizer: Any, statistic: str, case: tuple[str, int, int]) -> None:
    name, seed, sequences = case
    model = make(name, seed)
    tau, target, values = brute_force(model, tokenizer, LENGTH, statistic, sequences)
    alignment = calibrate(model, tokenizer, search="grid", statistic=statistic, sequences=sequences)
    entry = alignment.temperatures[0]
    assert entry.tau == tau
    assert entry.forwards == 11
    assert alignment.target == pytest.approx(target, rel=1e-5)
    measured = [step["statistic"] for step in alignment.provenance["searched"][0]["path"]]
    assert measured == pytest.approx(values, rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*the grid ends there")
# At 640 tokens strips of rows tell how a layer responds; at 256 all rows do, and two forwards are not enough
@pytest.mark.parametrize(("case", "statistic"), crossed([(0, 320, 640), (4, 64, 256)], ["pmax", "entropy"], every=2))
def test_solve_needs_three_or_four_forwards_and_lands_nearer_than_the_grid(
    tokenizer: Any, statistic: str, case: tuple[int, int, int]
) -> None:
    seed, train_length, length = case
    model = tiny_t5(seed, train_length)
    alignment = calibrate(model, tokenizer, length, statistic=statistic)
    solved = alignment.temperatures[0]
    grid = calibrate(model, tokenizer, length, statistic=statistic, search="grid").temperatures[0]
    assert solved.target == pytest.approx(grid.target)
    offs = [abs(step["statistic"] / solved.target - 1) for step in alignment.provenance["searched"][0]["path"]]
    assert solved.forwards == len(offs) <= 4
    assert len(offs) < 4 or min(offs[:3]) > 0.02
    assert abs(solved.statistic / solved.target - 1) < 0.02
    assert abs(solved.statistic - solved.target) <= abs(grid.statistic - grid.target)
    # What was reported is what the temperature gives
    long = long_sequences(tokenizer, shipped_prose(), length, 1, seed=0)
    again = lw.row_statistics(model, long, method=f"constant:tau={solved.tau}").of(statistic).mean()
    assert float(again) == pytest.approx(solved.statistic, rel=1e-4)


@pytest.mark.parametrize(("scope", "statistic"), crossed(["layer", "head"], ["pmax", "entropy"], every=2))
def test_one_forward_aligns_every_layer_and_head(
    tokenizer: Any, statistic: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A head's logits are two blocks
    monkeypatch.setattr("lengthwise.attention.blocks.CPU_BLOCK", 2**17)
    model = tiny_t5(train_length=128)
    alignment = calibrate(model, tokenizer, 512, statistic=statistic, scope=scope)
    entry = alignment.temperatures[0]
    assert entry.forwards == 1
    long = long_sequences(tokenizer, shipped_prose(), 512, 1, seed=0)
    short = short_sequences(tokenizer, long, 128)
    target = lw.row_statistics(model, short).of(statistic)
    reached = lw.row_statistics(model, long, method=alignment).of(statistic)
    if scope == "layer":
        target, reached = target.mean(1), reached.mean(1)
    assert float((reached / target - 1).abs().max()) < 0.02
    torch.testing.assert_close(torch.tensor(entry.statistic), reached, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.tensor(entry.target), target, atol=1e-5, rtol=1e-4)


def test_a_decoder_is_aligned_too(tokenizer: Any) -> None:
    model = make("llama")
    alignment = calibrate(model, tokenizer, [64, 128])
    assert [entry.length for entry in alignment.temperatures] == [64, 128]
    for entry in alignment.temperatures:
        assert entry.statistic == pytest.approx(entry.target, rel=0.02)
    per_layer = calibrate(model, tokenizer, 128, scope="layer").temperatures[0]
    assert per_layer.statistic == pytest.approx(per_layer.target, rel=0.02)


def test_several_lengths_give_one_table_and_text_decides(tokenizer: Any, tmp_path: Any) -> None:
    model = make("t5")
    file = tmp_path / "text.txt"
    file.write_text(shipped_prose()[5000:9000])
    table = calibrate(model, tokenizer, [128, 64], files=[file])
    assert [entry.length for entry in table.temperatures] == [64, 128]
    assert table.provenance["text"] == "text.txt"
    assert table.temperatures == calibrate(model, tokenizer, [64, 128], text=file.read_text()).temperatures
    other = calibrate(model, tokenizer, 128)
    assert other.temperatures[0].target != table.temperatures[1].target


def test_calibration_is_deterministic(tokenizer: Any) -> None:
    first = calibrate(make("t5"), tokenizer, sequences=2, seed=5)
    assert first == calibrate(make("t5"), tokenizer, sequences=2, seed=5)
    assert first.temperatures != calibrate(make("t5"), tokenizer, sequences=2, seed=6).temperatures


def test_samples_of_a_task_can_be_the_text(tokenizer: Any) -> None:
    model = tiny_t5(train_length=256)
    alignment = calibrate(model, tokenizer, 512, task="passkey", sequences=2)
    assert alignment.provenance["text"] == "task passkey"
    assert alignment.temperatures[0].statistic == pytest.approx(alignment.temperatures[0].target, rel=0.02)


def test_an_alignment_can_be_made_on_top_of_a_method(tokenizer: Any) -> None:
    """The two temperatures multiply, so together they are what one alignment alone would be."""
    model = tiny_t5(train_length=128)
    alone = calibrate(model, tokenizer, 256).temperatures[0]
    on_top = calibrate(model, tokenizer, 256, method="log").temperatures[0]
    log_law = torch.log(torch.tensor(128.0)) / torch.log(torch.tensor(256.0))
    assert on_top.tau * float(log_law) == pytest.approx(alone.tau, rel=0.02)


def test_layers_are_aligned_on_top_of_a_method_too(tokenizer: Any) -> None:
    entry = calibrate(make("llama"), tokenizer, 96, scope="layer", method="constant:tau=0.5").temperatures[0]
    assert entry.statistic == pytest.approx(entry.target, rel=0.02)


def test_the_model_is_untouched(tokenizer: Any) -> None:
    model = make("t5")
    before = copy.deepcopy(model.state_dict())
    calibrate(model, tokenizer)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert model.encoder.config._attn_implementation != "lengthwise"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": TRAIN_LENGTH}, "not above the training length 32"),
        ({"length": 10**6}, "fewer than the length 1000000"),
        ({"length": []}, "at least one length"),
        ({"length": 600.0}, "length must be a whole number or a list, each a whole number, not 600.0"),
        ({"length": "15000"}, "length must be a whole number or a list, each a whole number, not '15000'"),
        ({"method": "none+log"}, r"'none\+log': none is the plain model"),
        ({"statistic": "variance"}, "statistic must be one of"),
        ({"scope": "token"}, "scope must be one of"),
        ({"scope": "heads"}, "not 'heads'; did you mean 'head'?"),
        ({"task": "passky"}, "no task 'passky'; did you mean 'passkey'?"),
        ({"search": "luck"}, "search must be one of"),
        ({"scope": "layer", "search": "grid"}, "Algorithm 1"),
        ({"sequences": 0}, "at least 1"),
        ({"task": "chess"}, "no task 'chess'; the tasks are answer, "),
        ({"task": "passkey", "text": "x"}, "not several"),
    ],
)
def test_bad_input_is_refused_in_one_line(tokenizer: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.BadInput, match=message) as caught:
        calibrate(make("t5"), tokenizer, **options)
    assert "\n" not in str(caught.value)


def test_what_was_in_force_is_told(tokenizer: Any) -> None:
    model = make("t5")
    with lw.extend(model, "constant:tau=0.9"):
        found = calibrate(model, tokenizer, 2 * TRAIN_LENGTH)
    assert found.provenance["extended_with"] == ["Constant"]
    assert "extended_with" not in calibrate(model, tokenizer, 2 * TRAIN_LENGTH).provenance


def without_forwards(model: Any) -> Any:
    def forward(*_: Any, **__: Any) -> None:
        pytest.fail("a forward was taken")

    anatomy_of(model).stack.register_forward_pre_hook(forward)
    return model


def test_an_adaptive_method_is_refused_before_the_first_forward(tokenizer: Any) -> None:
    message = "Adaptive answers to every other temperature, so none can be calibrated on top of it"
    with pytest.raises(lw.BadInput, match=message):
        calibrate(without_forwards(make("t5")), tokenizer, method="adaptive")
    model = without_forwards(make("t5"))
    with lw.extend(model, "adaptive"), pytest.raises(lw.BadInput, match=message):
        calibrate(model, tokenizer)


def test_the_seed_moves_both_batches_of_a_task(tokenizer: Any) -> None:
    first, second = (short_and_long(tokenizer, "", "passkey", 1024, 512, 1, seed) for seed in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert one["input_ids"].tolist() != other["input_ids"].tolist()


def test_a_length_past_a_table_of_positions_is_refused_before_the_first_forward(tokenizer: Any) -> None:
    model = without_forwards(make("bert"))
    with pytest.raises(lw.BadInput, match="has a table of 512 absolute positions and was given 520 tokens"):
        calibrate(model, tokenizer, [24, 520], train_length=16)


def test_nan_in_the_weights_is_named(tokenizer: Any) -> None:
    model = make("t5")
    model.encoder.block[1].layer[0].SelfAttention.k.weight.data[0, 0] = float("nan")
    with pytest.raises(lw.BadInput, match=r"NaN or infinity: block\.1\.layer\.0\.SelfAttention\.k\.weight"):
        calibrate(model, tokenizer)


def test_a_target_out_of_reach_is_refused(tokenizer: Any) -> None:
    """Queries of zero and no bias: attention is uniform at every temperature."""
    model = make("t5")
    for key, parameter in model.encoder.named_parameters():
        if key.endswith((".q.weight", "relative_attention_bias.weight")):
            parameter.data.zero_()
    with pytest.raises(lw.BadInput, match="no temperature"):
        calibrate(model, tokenizer)
    with pytest.raises(lw.BadInput, match="no temperature brings layer 0"):
        calibrate(model, tokenizer, scope="layer")
    with pytest.warns(UserWarning, match="no temperature brings layer 0 head 0"):
        calibrate(model, tokenizer, scope="head")


def dull(name: str, weight: float) -> Any:
    """Its attention is nearly uniform at every temperature of the grid."""
    model = make(name)
    for key, parameter in model.encoder.named_parameters():
        if key.endswith((".q.weight", "relative_attention_bias.weight")):
            parameter.data *= weight
    return model


def test_a_grid_that_ends_before_the_target_says_so(tokenizer: Any, tmp_path: Any) -> None:
    with pytest.warns(UserWarning, match="the grid ends there") as caught:
        alignment = calibrate(dull("t5", 0.01), tokenizer, search="grid")
    entry = alignment.temperatures[0]
    assert entry.tau == 0.5
    (line,) = (str(one.message) for one in caught)
    off = 1 - entry.statistic / entry.target
    assert off > 0.5
    assert line == (
        f"length 128: the mean pmax is {entry.statistic:.4g} at tau 0.5, {100 * off:.0f} % off its training value "
        f"{entry.target:.4g}; the grid ends there, so use --search solve, which looks from tau 2 to 0.1"
    )
    alignment.save(tmp_path / "missed.json")
    assert lw.Alignment.load(tmp_path / "missed.json").provenance["searched"][0]["missed"] == [line]


def test_a_solution_off_its_target_says_so(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.calibration.search.MOST_FORWARDS", 1)
    with pytest.warns(UserWarning, match=r"^length (256|512): .* % off its training value .*; try --scope layer") as caught:
        alignment = calibrate(tiny_t5(train_length=128), tokenizer, [256, 512])
    said = [str(one.message) for one in caught]
    assert [line for of in alignment.provenance["searched"] for line in of["missed"]] == said
    assert len(said) == 2


@pytest.mark.parametrize("scope", ["layer", "head"])
def test_layers_and_heads_off_their_targets_are_counted_in_one_line(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    monkeypatch.setattr("lengthwise.calibration.align.AlignInPass.ATTEMPTS", 0)
    with pytest.warns(UserWarning, match=f"{scope}s are more than") as caught:
        alignment = calibrate(tiny_t5(train_length=128), tokenizer, 512, scope=scope)
    (line,) = (str(one.message) for one in caught)
    entry = alignment.temperatures[0]
    off = (torch.tensor(entry.statistic) / torch.tensor(entry.target) - 1).abs()
    missed = int((off > 0.02).sum())
    assert missed > 1
    assert line.startswith(f"length 512: {missed} of {off.numel()} {scope}s are more than 2 % off their training pmax, ")
    assert alignment.provenance["searched"][0]["missed"] == [line]


def test_nothing_is_said_where_the_target_was_met(tokenizer: Any) -> None:
    """Any warning is an error here."""
    for options in ({}, {"search": "grid"}, {"scope": "layer"}, {"scope": "head"}):
        found = calibrate(tiny_t5(train_length=128), tokenizer, 256, **options).provenance["searched"]
        assert all("missed" not in of for of in found)


@pytest.mark.parametrize("scope", ["model", "head"])
def test_token_ids_need_no_tokenizer(tokenizer: Any, scope: str) -> None:
    """A sequence that is the text's own finds what the text finds, but for the token that a tokenizer ends it with."""
    model, ids = tiny_t5(train_length=128), tokenizer(shipped_prose(), verbose=False).input_ids
    alignment = calibrate(model, None, 256, input_ids=torch.tensor([ids[:256]]), scope=scope)
    assert alignment.provenance["text"] == "given input_ids"
    short, long = short_and_long(None, [torch.tensor(ids[:256])], None, 256, 128, 1, 0)
    assert long["input_ids"].tolist() == [ids[:256]]
    assert short["input_ids"].tolist() == [ids[:128], ids[128:256]]
    target, reached = (lw.row_statistics(model, *batch).p_max for batch in ((short,), (long,)))
    assert (target > reached).float().mean() > 0.5
    aligned = lw.row_statistics(model, long, method=alignment).p_max
    assert float(aligned.mean()) == pytest.approx(float(target.mean()), rel=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "without a tokenizer no text can be read; give input_ids"),
        ({"input_ids": [[1] * 100]}, "hold 0 stretches of 128 tokens"),
        ({"input_ids": [[400] * 200]}, "token 400, and the model knows 0 to 383 only"),
        ({"input_ids": [[1] * 200], "text": "a"}, "give a text, text files, input_ids or a task"),
        ({"input_ids": [[1] * 200], "statistic": "answers"}, "answers are asked for in words"),
    ],
)
def test_token_ids_that_cannot_serve_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.BadInput, match=message):
        calibrate(make("t5"), None, **options)

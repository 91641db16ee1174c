"""LoRA with and without the misalignment loss, on a tiny Llama that reads bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ByT5Tokenizer

from experiments._lib import tuning_text
from experiments._lib.fine_tuning import trained
from experiments.misalignment_lora import page, run
from experiments.misalignment_lora.run import Options
from lengthwise.models.load import load
from lengthwise.tasks import Sample
from tests.helpers.answering import answering, saved

LENGTH = 512


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the steps end before they reach", "ignore:.*pairs of .* overlap")
def test_every_kind_is_trained_once_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RULER", ("ruler_niah_single_1", "ruler_niah_single_2"))
    model = saved(answering("llama", max_position_embeddings=LENGTH, num_hidden_layers=1), tmp_path / "tiny")
    names = ("apple", "birch", "cedar")
    for name in names:
        lines = [f"The {name} {k} begins,\nand {name} {k * k} ends." for k in range(300)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(lines))
    books = [tmp_path / f"{name}.txt" for name in names]
    given: dict[str, Any] = {"books": tuple(books[:2]), "held_out": tuple(books[2:]), "seeds": 2, "kinds": 6, "steps": 4}
    given |= {"rank": 2, "rates": (1e-2, 1e-3), "streams": 1, "pairs": 2, "samples": 2, "dtype": "float32", "device": "cpu"}
    asked = Options(model=str(model), out=tmp_path / "out", factors=(1, 2), command="as typed", **given)
    document = run.run(asked)
    results = {(one["factor"], one["alpha"], one["compare"], one["seed"]): one for one in document["results"]}
    kinds = [(factor, *kind) for factor in (1, 2) for kind in run.KINDS]
    assert set(results) == {run.BEFORE.key, *((*kind, seed) for kind in kinds for seed in (0, 1))}
    assert [results[factor, 0.1, "sce", 0]["steps"] for factor in (1, 2)] == [4, 2]
    assert len({json.dumps(one["nll"]) for one in results.values()}) == len(results)
    assert [len(own) for own in results[1, 0.1, "sce", 0]["nll"]] == [1, 1, 1]
    assert {trial["rate"] for trial in document["trials"]} == {1e-2, 1e-3}
    # The model is a stock one with YaRN in its config, and no trained weights are left
    assert load(str(tmp_path / "out" / "model"), device="cpu")[0].config.rope_parameters["rope_type"] == "yarn"
    assert not list((tmp_path / "out" / "runs").iterdir())
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run.run(asked) == document
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    written = (tmp_path / "out" / page.PAGE).read_text()
    assert all(f"| 1 L | {kind} | 2 |" in written for kind in ("alpha 1, KL", "alpha 1", "alpha 0.1, 1..L"))


def test_answers_are_told_by_a_loop_over_their_tokens() -> None:
    model, tokenizer = answering("llama"), ByT5Tokenizer()
    samples = [Sample(f"The number of {name} is", str(number), 0, None, "") for name, number in (("a", 31), ("b", 7))]
    nats, right = run.answered(model, tokenizer, samples)
    for sample, told, mark in zip(samples, nats, right, strict=True):
        ids = tokenizer(sample.prompt).input_ids
        sums, likeliest = 0.0, True
        for token in tokenizer(f" {sample.target}", add_special_tokens=False).input_ids:
            with torch.no_grad():
                said = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            sums -= float(said[token])
            likeliest &= int(said.argmax()) == token
            ids.append(token)
        assert told == pytest.approx(sums, rel=1e-4)
        assert mark == int(likeliest)


@pytest.mark.sweep
def test_code_is_cut_into_text_to_train_on_and_to_measure_on() -> None:
    books, held_out = tuning_text.code_books()
    assert (len(books), len(held_out)) == (6, 2)
    assert all(sum(map(len, book)) > 200_000 for book in (*books, *held_out))
    # Some blocks, such as licences, stand in several modules
    measured = {*held_out[0]}
    assert len(measured & {*books[0]}) < 0.02 * len(measured)


@pytest.mark.sweep
def test_a_seed_draws_other_text_and_what_is_held_back_is_never_trained_on(novels: tuple[Path, ...], tmp_path: Path) -> None:
    books = tuning_text.read_books(novels[:2])
    beginnings = set()
    for seed in range(3):
        files = [Path(file) for file in tuning_text.training_files(books, seed, tmp_path)]
        assert tuning_text.training_files(books, seed, tmp_path) == list(map(str, files))
        read = [file.read_text().strip().split("\n\n") for file in files]
        beginnings |= {book[0] for book in read}
        # Nothing is lost and nothing doubled, and the last tenth is not there
        assert sorted(paragraph for book in read for paragraph in book) == sorted([*books[0][:54], *books[1][:54]])
    assert len(beginnings) == 6
    assert [tuning_text.held_back(book) for book in books] == [book[54:] for book in books]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the steps end before they reach")
@pytest.mark.parametrize("rank", [None, 2])
def test_weights_are_those_of_the_model_that_training_leaves(
    rank: int | None, novels: tuple[Path, ...], tmp_path: Path
) -> None:
    model = str(saved(answering("llama", max_position_embeddings=64, num_hidden_layers=1), tmp_path / "tiny"))
    how = {"alpha": 0.3, "train_length": 64, "steps": 2, "lora_rank": rank, "learning_rate": 0.01, "batch": 2, "device": "cpu"}
    with trained(model, [str(novels[0])], tmp_path / "run", dtype="float32", **how) as weights:
        left = load(str(tmp_path / "run" / "trained" / "model"), "float32", "cpu")[0].state_dict()
    assert not (tmp_path / "run").exists()
    before = load(model, "float32", "cpu")[0].state_dict()
    for name, weight in left.items():
        torch.testing.assert_close(weights[name], weight, msg=name)
    moved = {name for name, weight in before.items() if not torch.equal(weights[name], weight)}
    # LoRA leaves norms and embeddings where they are
    assert moved == ({name for name in before if "_proj" in name} if rank else set(before))


def result(alpha: float, seed: int, nats: float) -> dict[str, Any]:
    about = {"factor": 1, "alpha": alpha, "compare": "sce", "seed": seed, "steps": 4, "rate": 1e-3, "seconds": 1.0}
    return {**about, "nll": [[1.0, 2.0], [nats, nats], []]}


def test_changes_are_paired_over_seeds() -> None:
    """By hand: differences of -0.1, -0.2 and -0.3 have a standard error of 0.1 / sqrt 3, and Student's factor is 4.3027."""
    results = [result(0.0, seed, 3.0 + seed) for seed in range(3)]
    results += [result(0.1, seed, 2.9 + 0.9 * seed) for seed in range(3)]
    at_1, at_2, at_4 = page.changes(page.kinds_of({"results": results}), (1, 0.1, "sce"))
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (at_2.value, at_2.low, at_2.high) == pytest.approx((-0.2, -0.2 - half, -0.2 + half))
    assert at_1.value == 0.0
    # A loss that is not finite has no change
    assert at_4 is None


def test_needles_are_compared_with_alpha_0_in_points_and_agreeing_seeds_have_no_interval() -> None:
    def asked(alpha: float, seed: int, right: float) -> dict[str, Any]:
        ruler = {"1": [[8.0]], "2": [[7.0]]}
        shares = {"1": [[0.5, right]], "2": [[0.5, 0.5]]}
        return {**result(alpha, seed, 3.0), "sce": 4.0 - alpha, "kl": 0.04, "ruler": ruler, "right": shares}

    results = [asked(0.0, seed, 1.0) for seed in range(3)] + [asked(0.1, seed, 0.2 * seed) for seed in range(3)]
    found = {one["measure"]: one for one in page.apart({"corpus": "code", "results": results})}
    assert tuple(found) == page.APART
    assert found["l_misalign"]["value"] == pytest.approx(-0.1)
    half = 100 * 4.302653 * 0.1 / math.sqrt(3)
    right = found["right_1"]
    assert (right["value"], right["low"], right["high"]) == pytest.approx((-40.0, -40 - half, -40 + half))
    *_, at_1, at_2 = page._line(page.kinds_of({"results": results}), (1, 0.1, "sce"))
    assert (at_1, at_2) == ("35 % -40.0 [-64.8, -15.2]", "50 % +0.0")

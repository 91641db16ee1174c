"""RULER's tasks of the harness on the files of RULER's own scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lengthwise.errors import BadInput
from lengthwise.tasks import ruler
from tests.conftest import Said
from tests.evaluation.harness.conftest import DIGITS
from tests.helpers.answering import answering, saved

pytest.importorskip("lm_eval", reason="lm-eval is not installed; pip install 'lengthwise[lm-eval]'")
from lm_eval.tasks._yaml_loader import load_yaml

from lengthwise.evaluation.harness import local_data
from lengthwise.evaluation.harness.ruler_files import documents, files_in, scored, write_tasks

KINDS = [name.removeprefix("ruler_") for name in ruler.NAMES]


def line(**fields: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "input": "A text. What is it?",
        "outputs": [DIGITS[:1]],
        "length": 90,
        "answer_prefix": " It is",
        **fields,
    }


def write(folder: Path, *lines: Any, name: str = "validation") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


@pytest.mark.usefixtures("few_tasks")
def test_ruler_runs_from_its_own_files_with_a_method(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    model, data, out = saved(answering("llama"), tmp_path / "llama"), tmp_path / "\U0001f4c1", tmp_path / "out"
    for length in (64, 128):
        write(data / f"{length}/data/vt", line(outputs=[*"0123456789"]), line(input=f"{length}. It is"))
        write(data / f"{length}/data/qa_1", line(outputs=[*"0123456789", "no"]))
        write(data / f"{length}/pred", line(pred="a prediction, no prompt"), name="vt")
    arguments = ("--model_args", f"pretrained={model},method=log,add_bos_token=False", "--data", data, "--tasks", "ruler")
    said = lengthwise("harness", *arguments, "--output_path", out, "--log_samples")
    assert said.status == 0, said.err
    rows = [[cell.strip() for cell in row.split("|")] for row in said.out.splitlines()]
    lengths = [(row[1], row[5]) for row in rows if "↑" in row]
    assert lengths == [("- ruler_qa_squad", "128"), ("", "64"), ("- ruler_vt", "128"), ("", "64")]

    [samples] = out.rglob("samples_ruler_vt_*.jsonl")
    asked = [json.loads(row) for row in samples.read_text(encoding="utf-8").splitlines()]
    first, second = "A text. What is it? It is", "{}. It is"
    prompts = [first, first, second.format(64), second.format(128)]
    assert [one["arguments"]["gen_args_0"]["arg_0"] for one in asked] == prompts
    assert all(one["arguments"]["gen_args_0"]["arg_1"]["max_gen_toks"] == 30 for one in asked)
    for one, length in zip(asked, ("64", "128", "64", "128"), strict=True):
        answer, references = one["filtered_resps"][0], one["doc"]["outputs"]
        assert one[length] == pytest.approx(sum(reference in answer for reference in references) / len(references))
    assert 0 < asked[0]["64"] < 1
    [samples] = out.rglob("samples_ruler_qa_squad_*.jsonl")
    assert json.loads(samples.read_text(encoding="utf-8").splitlines()[0])["64"] == 1.0


def test_a_mean_is_told_at_lengths_that_all_tasks_have(tmp_path: Path) -> None:
    for kind in KINDS:
        for length in (4096, 512) if kind != "cwe" else (512, 1024):
            write(tmp_path / f"{length}/{kind}", line())
    files = files_in(tmp_path)
    assert list(files) == KINDS
    assert list(files["vt"]) == [512, 4096]
    names = write_tasks(files, tmp_path)
    assert names[-5:] == ["ruler_vt", "ruler_cwe", "ruler_fwe", "ruler_qa_squad", "ruler_qa_hotpot"]
    group = load_yaml(tmp_path / "ruler.yaml")
    assert group["task"] == names
    assert [mean["metric"] for mean in group["aggregate_metric_list"]] == ["512"]
    write_tasks({kind: files[kind] for kind in KINDS[1:]}, tmp_path)
    assert "aggregate_metric_list" not in yaml.safe_load((tmp_path / "ruler.yaml").read_text())


def test_lengths_can_be_chosen_and_come_in_turn(tmp_path: Path) -> None:
    files = {str(n): str(write(tmp_path / f"{n}/vt", line(length=n), line(length=n + 1))) for n in (512, 1024)}
    assert [row["max_length"] for row in documents("vt", files)["test"]] == [512, 1024, 512, 1024]
    chosen = documents("vt", files, max_seq_lengths=[1024], version="1.0", method="log")["test"]
    assert [row["max_length"] for row in chosen] == [1024, 1024]
    with pytest.raises(BadInput, match="no file of vt has prompts of 4096 tokens; there are 512, 1024"):
        documents("vt", files, max_seq_lengths=[1024, 4096])


@pytest.mark.parametrize(("kind", "score"), [("niah_multivalue", 0.5), ("qa_2", 1.0)])
def test_scores_are_rulers(kind: str, score: float) -> None:
    assert scored({"kind": kind, "outputs": ["12", "ANN"], "max_length": 512}, ["it is\nann"]) == {"512": score}


@pytest.mark.parametrize(
    ("folder", "lines", "complaint"),
    [
        ("512/data/vt", [{"input": "x"}], r"line 1 of .* has no key 'outputs'; it should hold the list of references"),
        ("512/data/vt", [line(outputs=[])], "line 1 of .*: 'outputs' should be a list of texts"),
        ("512/data/vt", [], "validation.jsonl holds no cases"),
        ("data/vt", [line()], r"does not tell the length it was made for; let it lie in a folder of that name \(4096/"),
        ("data/vt", [line(max_length="long")], "'max_length' should be the tokens of prompt and answer together"),
        ("data/other", [line()], "holds no file such as qasper_e.jsonl as in LongBench-E or 4096/data/niah_single_1/"),
    ],
)
def test_bad_files_are_refused(folder: str, lines: list[Any], complaint: str, tmp_path: Path) -> None:
    write(tmp_path / folder, *lines)
    with pytest.raises(BadInput, match=complaint):
        local_data.write_tasks(tmp_path, tmp_path)


def test_a_line_that_is_bad_later_on_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "512/vt", line(), line(outputs="Ann"))
    with pytest.raises(BadInput, match=r"line 2 of .*: 'outputs' should be the list of references"):
        documents("vt", {"512": str(path)})


def test_two_files_of_one_length_and_no_folder_at_all_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "512/vt", line(), name="validation")
    write(tmp_path / "512/vt", line(max_length=512), name="test")
    with pytest.raises(BadInput, match="holds two files of vt at 512 tokens; give the folder of one"):
        files_in(tmp_path)
    with pytest.raises(BadInput, match="no is not a folder; give the one that holds LongBench-E's or RULER's files"):
        local_data.write_tasks(tmp_path / "no", tmp_path)

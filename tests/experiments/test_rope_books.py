"""The comparison of length methods on books, with a tiny Llama that reads bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lengthwise as lw
from experiments._lib.likelihood_cells import read_cells, read_nll
from experiments.rope_methods import books, comparison, contenders, gold
from experiments.rope_methods.gold import Reencoding
from lengthwise.evaluation.likelihood import token_nll
from tests.helpers.answering import answering, saved

TRAIN, LONG, STREAMS, STRIDE = 32, 80, 2, 8
PARAGRAPHS = 60


def reader() -> Any:
    return answering("llama", max_position_embeddings=TRAIN)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(reader(), tmp_path_factory.mktemp("model")))


def book(folder: Path, name: str, paragraphs: int = PARAGRAPHS) -> Path:
    """Every paragraph says where it stands, in two printed lines."""
    file = folder / f"{name}.txt"
    file.write_text("\n\n".join(f"{name} {k} begins,\nand {name} {k} ends." for k in range(paragraphs)))
    return file


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    folder = tmp_path_factory.mktemp("library")
    return tuple(book(folder, name) for name in ("apple", "birch", "cedar"))


def options(model: str, out: Path, library: tuple[Path, ...], *methods: str, **changes: Any) -> books.Options:
    given = {"lengths": (TRAIN, LONG), "streams": STREAMS, "stride": STRIDE, "device": "cpu", "command": "as typed"}
    return books.Options(**{"model": model, "out": out, "books": library, "methods": methods, **given, **changes})


METHODS = ("none", "window", "log", "alibi", "window+log", "interpolation:factor={factor}", "{pmax-model}")


@pytest.fixture(scope="module")
def finished(model: str, library: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    books.compare(options(model, out, library, *METHODS))
    return out


def texts(out: Path) -> list[str]:
    """The streams as text; a byte is a token three below its number."""
    streams = json.loads((out / "streams.json").read_text())["tokens"]
    return [bytes(token - 3 for token in stream).decode() for stream in streams]


def test_streams_begin_at_a_paragraph_each_in_another_book(finished: Path) -> None:
    found = texts(finished)
    assert len(found) == STREAMS + 1
    assert {text.split()[0] for text in found} == {"apple", "birch", "cedar"}
    for text in found:
        name, first = text.split()[:2]
        assert text.startswith(f"{name} {first} begins, and {name} {first} ends.\n\n{name} {int(first) + 1} begins, and")
        assert int(first) < PARAGRAPHS // 2
        assert len(text) > LONG


def test_where_books_are_few_streams_come_from_different_parts(library: tuple[Path, ...], tmp_path: Path) -> None:
    found = books._passages([path.read_text() for path in library[:1]], options("m", tmp_path, library[:1]))
    numbers = [{int(line.split()[1]) for line in one.text.split("\n\n")} for one in found]
    assert len(numbers) == STREAMS + 1
    assert sum(map(len, numbers)) == len(set.union(*numbers))
    assert [max(some) for some in numbers] == [19, 39, 59]


def test_streams_follow_from_the_seed_and_a_longer_one_begins_with_the_shorter_one(
    model: str, library: tuple[Path, ...], tmp_path: Path
) -> None:
    def streams(out: str, tokens: int, **changes: Any) -> torch.Tensor:
        asked = options(model, tmp_path / out, library, **changes)
        subject = comparison.Subject(asked, *lw.models.load.load(model, device="cpu"), TRAIN)
        return books.source(subject).read(tokens)[0]

    short = streams("one", 50)
    assert torch.equal(streams("one", 300)[:, :50], short)
    assert torch.equal(streams("two", 50), short)
    assert not torch.equal(streams("three", 50, seed=1), short)
    with pytest.raises(lw.BadInput, match="was begun with another seed: 0 then, 1 now"):
        streams("one", 50, seed=1)
    with pytest.raises(lw.BadInput, match="was begun with another books: "):
        streams("one", 50, books=library[:2])
    with pytest.raises(lw.BadInput, match=r"has [\d,]+ tokens from where a stream begins, and [\d,]+ are needed; give longer"):
        streams("one", 5000)


def windowed(model: Any, ids: torch.Tensor, window: int, stride: int) -> np.ndarray:
    """Token by token: the window that tells it begins at a multiple of the stride, the first from which it can be told."""
    rows = []
    for stream in ids:
        row = []
        for t in range(len(stream) - 1):
            start = 0
            while t - start >= window:
                start += stride
            with torch.no_grad():
                logits = model(input_ids=stream[None, start : t + 1]).logits[0, -1].double()
            row.append(float(-logits.log_softmax(-1)[stream[t + 1]]))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(("stride", "part"), [(1, 7), (5, 12), (8, 1024), (32, 16)])
def test_reencoding_in_parts_tells_each_token_from_its_own_window(
    stride: int, part: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gold, "PART", part)
    ids = torch.randint(3, 380, (2, 78), generator=torch.Generator().manual_seed(0))
    model, reencoding = reader(), Reencoding(TRAIN, stride)
    said: list[str] = []
    for length in (TRAIN, 61, 77):
        reencoding.make(model, ids, length, tmp_path, said.append)
    assert reencoding.read(tmp_path, 2, TRAIN) is None
    assert reencoding.read(tmp_path, 2, 76) is None
    expected = windowed(model, ids, TRAIN, stride)
    for length in (61, 77):
        found = reencoding.read(tmp_path, 2, length)
        assert found is not None
        assert np.allclose(found, expected[:, :length], atol=1e-4)
    assert all(words.startswith(f"{reencoding.name} for stream ") for words in said)


def test_reencoding_is_called_what_it_is() -> None:
    assert Reencoding(8192).name == "re-encoding"
    assert Reencoding(8192, 512).name == "re-encoding every 512 tokens"
    for stride in (0, 8193):
        with pytest.raises(lw.BadInput, match=f"a stride must be from 1 to 8192, the tokens of a window, not {stride}"):
            Reencoding(8192, stride)


def test_cells_hold_the_likelihoods_of_one_forward(finished: Path) -> None:
    found = {cell.key: cell for cell in read_cells(finished)}
    assert set(found) == {(name, n) for name in METHODS for n in (TRAIN, LONG)} - {("{pmax-model}", TRAIN)}
    ids = torch.tensor([row[: LONG + 1] for row in json.loads((finished / "streams.json").read_text())["tokens"]])[:STREAMS]
    for name in ("none", "window", "alibi"):
        nll = token_nll(reader(), ids, method=name)
        assert np.allclose(read_nll(finished, found[name, LONG]), nll.numpy(), atol=1e-5)


def test_the_page_says_which_methods_are_exactly_the_plain_model_up_to_the_training_length(finished: Path) -> None:
    page = (finished / "rope_methods.md").read_text()
    assert "- Up to the training length 4 of 5 methods are exactly the plain model, token by token: perplexity " in page
    assert "The others: `alibi` (x " in page
    assert "| `none`, `window`, `interpolation:factor=1`, `log` and `window+log` | " in page
    document = json.loads((finished / "rope_methods.json").read_text())
    assert document["unchanged"] == [
        {"length": TRAIN, "methods": ["window", "interpolation:factor={factor}", "log", "window+log"], "of": 5}
    ]


def test_the_page_speaks_of_reencoding_only_where_there_is_one(finished: Path) -> None:
    page = (finished / "rope_methods.md").read_text()
    about, *sections = page.split("\n## ")
    assert "streams of books (apple, birch, cedar)" in about
    assert "`re-encoding every 8 tokens`" in about
    short, long = (next(part for part in sections if part.startswith(f"{n} tokens")) for n in (TRAIN, LONG))
    assert "re-encoding" not in short
    assert "| over re-encoding every 8 tokens |" in long
    assert "`re-encoding every 8 tokens` |" in long
    assert "| 0-32 | 32-64 | 64-80 |" in long
    answers = next(part for part in sections if part.startswith("What came out"))
    assert "re-encoding" not in answers.split(f"### {LONG} tokens")[0]
    assert "times re-encoding every 8 tokens" in answers.split(f"### {LONG} tokens")[1]


def test_a_page_written_elsewhere_tells_of_the_machine_that_measured_and_of_pass_keys(
    finished: Path, model: str, library: tuple[Path, ...]
) -> None:
    machine = finished / "made_with.json"
    assert json.loads(machine.read_text())["device"] == "cpu"
    machine.write_text(json.dumps({"device": "a large one"}))
    (finished / "passkey").mkdir()
    (finished / "passkey" / "passkey.md").write_text("# Pass keys in long text\n\nAll were found.\n")
    books.compare(options(model, finished, library, *METHODS, page=True))
    page = (finished / "rope_methods.md").read_text()
    assert "- device: a large one\n" in page
    assert "\n\n## Pass keys\n\nAll were found.\n\n" in page


def test_without_methods_all_of_ours_are_compared_and_alignments_only_beyond_the_training_length(
    model: str, library: tuple[Path, ...], tmp_path: Path
) -> None:
    run = comparison._begun(options(model, tmp_path, library), books.source)
    aligned = {name for name in contenders.NAMES if contenders.split_aligned(name)[1] is not None}
    assert {name for name, n in run.cells if n == LONG} == set(contenders.NAMES)
    assert {name for name, n in run.cells if n == TRAIN} == set(contenders.NAMES) - aligned
    fewer = replace(run, options=replace(run.options, stages=2))
    assert fewer.cells == [(name, n) for stage in contenders.STAGES[:2] for n in (TRAIN, LONG) for name in stage]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: give at least one text file: --books FILE ..."),
        (["--books", "no/such/file"], "error: cannot read the text file no/such/file: No such file or directory"),
        (["--books", "BOOK", "--stride", "33"], "error: a stride must be from 1 to 32"),
        (["--books", "BOOK", "--stages", "0"], "error: --stages must be from 1 to 4, not 0"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(
    arguments: list[str],
    message: str,
    model: str,
    library: tuple[Path, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [str(library[0]) if word == "BOOK" else word for word in arguments]
    assert books.main([model, *words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)

"""Read cases from a file, plain or .gz, or from a data set of the hub: JSON lines with `prompt` and `target`, for every task.

`question` (the end of the prompt) and `depth` (0 to 1) may stand beside them. Without `question` the end of the prompt is taken
from its last question on.
"""

from __future__ import annotations

import gzip
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.common.files import LARGEST, read_file
from lengthwise.common.formats import NOT_JSON, parse_json
from lengthwise.errors import BadInput, require
from lengthwise.tasks.material import hub
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.sample import Sample

SENTENCES = 4  # at the end of a prompt, among which its question is looked for


@dataclass(frozen=True)
class Case:
    """One line of a file; `get` refuses a missing or wrong value and says where it is."""

    place: str
    fields: dict[str, Any]

    def get(self, key: str, kind: type | tuple[type, ...], what: str) -> Any:
        """The value of a key; `what` says in words what it should be."""
        require(key in self.fields, f"{self.place} has no key {key!r}; it should hold {what}")
        value = self.fields[key]
        # JSON's true is no number, though Python's is
        fits = isinstance(value, kind) and not isinstance(value, bool)
        require(fits, f"{self.place}: {key!r} should be {what}, not {str(value)[:40]!r}")
        require(value != "", f"{self.place}: {key!r} is empty; it should be {what}")
        return value


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """The samples of a file with `prompt` and `target` in every line."""
    return read_as(plain, tokenizer, path)


def read_as(layout: Callable[[Any, Case], Sample], tokenizer: Any, path: Path) -> list[Sample]:
    """The samples of a file; `layout` reads lines that have no `target`."""
    return [(plain if "target" in case.fields else layout)(tokenizer, case) for case in cases(Path(path))]


def plain(tokenizer: Any, case: Case) -> Sample:
    """The sample of a line with `prompt` and `target`."""
    prompt = case.get("prompt", str, "a text")
    # Files for training often have the space before an answer in it
    target = str(case.get("target", (str, int), "a text or a whole number")).strip()
    require(target != "", f"{case.place}: 'target' is blank; it should be a text or a whole number")
    question = case.get("question", str, "the end of the prompt") if "question" in case.fields else last_question(prompt)
    require(prompt.endswith(question), f"{case.place}: the prompt does not end with its 'question' {question[:40]!r}")
    depth = float(case.get("depth", (int, float), "a number from 0 to 1")) if case.fields.get("depth") is not None else None
    require(depth is None or 0 <= depth <= 1, f"{case.place}: 'depth' is {depth}; it should be a number from 0 to 1")
    return Sample(prompt, target, token_count(tokenizer, prompt), depth, question)


def asked_at(tokenizer: Any, case: Case, target: str, depth: float) -> Sample:
    """The sample of a line with `prompt` alone, in which the target stands at `depth`."""
    prompt = case.get("prompt", str, "a text")
    return Sample(prompt, target, token_count(tokenizer, prompt), depth, last_question(prompt))


def last_question(prompt: str) -> str:
    """The end of a prompt: its last line from the last question in it on, or that line's last sentence."""
    line = prompt.rstrip().rfind("\n") + 1
    breaks = [line + match.end() for match in re.finditer(r"(?<=[.!?])\s+(?=\S)", prompt[line:])]
    starts = [line, *breaks][-SENTENCES:]
    asks = [start for start, end in itertools.pairwise([*starts, len(prompt)]) if prompt[start:end].rstrip().endswith("?")]
    return prompt[(asks or starts)[-1] :]


def cases(path: Path) -> Iterator[Case]:
    """The lines of a file, blank ones left out, or the rows of a data set (`hub:NAME`)."""
    if hub.is_hub(path):
        yield from (Case(f"row {number} of {path}", row) for number, row in enumerate(hub.rows(path), 1))
        return
    lines = _text(path).split("\n")
    require(any(map(str.strip, lines)), f"{path} holds no cases; it should have one JSON object a line")
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"line {number} of {path}"
            yield Case(place, _object(line, place))


def _text(path: Path) -> str:
    try:
        content = read_file(path)
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(content)) as unpacked:
                content = unpacked.read(LARGEST + 1)
            require(len(content) <= LARGEST, f"{path} is larger than {LARGEST >> 30} GiB unpacked; give a smaller file")
        return content.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInput(f"{path} is not what gzip wrote, or only a part of it; read it again from where it came") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder: give a file of cases, or --length beside it for a task made of folders") from None
    except OSError as error:
        raise BadInput(f"cannot read the cases in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text; a file of cases has one JSON object a line") from None


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        fields = parse_json(line)
    except ValueError as error:
        reason = str(error).removeprefix(f"{NOT_JSON}: ")
        raise BadInput(f"{place} is not JSON ({reason}); a file of cases has one JSON object a line") from None
    require(isinstance(fields, dict), f"{place} is JSON, but no object; a file of cases has one JSON object a line")
    return dict(fields)

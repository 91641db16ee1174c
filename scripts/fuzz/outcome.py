"""Tell how a command ended: done, refused or interrupted in the way that is promised, or failed, and by what."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from scripts.fuzz.forked import Ended

LONGEST = 1200  # letters of a line
DONE, REFUSED, INTERRUPTED = "done", "refused in one line", "interrupted"
TRACEBACK, HANG, HARMED, LINES, STATUS = "traceback", "hang", "a file harmed", "lines", "exit status"
GOOD = (DONE, REFUSED, INTERRUPTED)
OUTCOMES = (*GOOD, TRACEBACK, HANG, HARMED, LINES, STATUS)
SPOKEN, NOTE = "lengthwise: ", "lengthwise: note: "
# Options that `lengthwise harness` passes on are the harness's own to refuse
OF_THE_HARNESS = ("lm-eval: error: ", "lm-eval run: error: ")
# What work that goes on says of itself: a line a step, in the words of progress.py's callers
PROGRESS = re.compile(r"[\w+@:=.,/ -]{1,300}")
LOG = re.compile(r"\d{4}-\d\d-\d\d:\d\d:\d\d:\d\d (INFO|WARNING) .*")  # of lm-evaluation-harness itself
LEFT_OVER = re.compile(r"\.part-|\.claim-|tmp")
# A command that waits for something uses no processor
IDLE = 0.1


@dataclass(frozen=True)
class Outcome:
    kind: str
    why: str = ""


@dataclass(frozen=True)
class Entry:
    """What stands under a name."""

    kind: int
    mode: int
    content: str


def snapshot(folder: Path) -> dict[str, Entry]:
    """Every name below a folder, with what is there; nothing is opened that is no file."""
    entries = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                content = hashlib.blake2b(path.read_bytes()).hexdigest()
            else:
                content = str(path.readlink()) if path.is_symlink() else ""
            entries[str(path.relative_to(folder))] = Entry(stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode), content)
    return entries


def classify(words: Sequence[str], ended: Ended, folder: Path, before: Mapping[str, Entry], damaged: str = "") -> Outcome:
    """The outcome of a command; `damaged` is the file that was no good before it began."""
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return Outcome(TRACEBACK, ended.err.strip().splitlines()[-1][:300])
    if ended.interrupted and (ended.status < 0 or ended.cpu_seconds < IDLE * ended.seconds):
        waited = "waited for something" if ended.status >= 0 else "did not end on Ctrl-C"
        return Outcome(HANG, f"{waited}; {ended.seconds:.0f} s, of which {ended.cpu_seconds:.0f} s at work")
    if harm := next(harms(words, ended.status, folder, before, damaged), ""):
        return Outcome(HARMED, harm)
    lines = [line for line in ended.err.split("\n") if line]
    if long := [line for line in lines if len(line) > LONGEST]:
        return Outcome(LINES, f"a line of {len(long[0]):,} letters: {long[0][:100]} ...")
    if ended.interrupted and ended.status in (1, 130):
        return Outcome(INTERRUPTED) if lines and "interrupted" in lines[-1] else Outcome(LINES, "nothing said of Ctrl-C")
    # A method that was tried and failed
    if ended.status == 0 or (ended.status == 1 and words[:1] == ["methods"] and not lines):
        return _printed_json(words, ended.out)
    if ended.status == 2:
        return _one_line(lines)
    return Outcome(STATUS, f"{ended.status}; {(lines or ['nothing was said'])[-1][:300]}")


def _one_line(lines: Sequence[str]) -> Outcome:
    if lines and lines[-1].startswith(OF_THE_HARNESS):
        return Outcome(REFUSED)
    if not lines or not lines[-1].startswith(SPOKEN):
        return Outcome(LINES, f"the last line is none of ours: {(lines or [''])[-1][:300]}")
    others = [line for line in lines[:-1] if not line.startswith(NOTE)]
    others = [line for line in others if line.startswith(SPOKEN) or not (PROGRESS.fullmatch(line) or LOG.fullmatch(line))]
    return Outcome(LINES, f"{len(others) + 1} lines: {others[0][:300]}") if others else Outcome(REFUSED)


def _printed_json(words: Sequence[str], out: str) -> Outcome:
    if "--json" in words and "--help" not in words and "--version" not in words:
        try:
            json.loads(out, parse_constant=_no_number)
        except ValueError as error:
            return Outcome(LINES, f"--json printed what is no JSON: {error}")
    return Outcome(DONE)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def outputs(words: Sequence[str]) -> list[str]:
    """What a command was asked to write, and what its settings file asks for."""
    given = [value for word, value in itertools.pairwise(words) if word == "--out"]
    given += [word.removeprefix("--out=") for word in words if word.startswith("--out=")]
    return [*given, *(["demo"] if "demo" in words else []), *(["from_settings"] if "--config" in words else [])]


def harms(words: Sequence[str], status: int, folder: Path, before: Mapping[str, Entry], damaged: str) -> Iterator[str]:
    """Yield what is wrong with the files that a command leaves."""
    after = snapshot(folder)
    asked = [os.path.relpath(os.path.realpath(folder / name), folder) for name in outputs(words) if "\0" not in name]
    # A page has tables beside it
    asked += [
        str(Path(name).with_suffix(end)) for name in asked for end in (".md", ".csv") if Path(name).name and "report" in words
    ]
    for name, old in before.items():
        new = after.get(name)
        if old == new:
            continue
        if (new and new.kind) != old.kind and not (new is None and stat.S_ISREG(old.kind)):
            yield f"{name} is no longer what it was, but {'gone' if new is None else 'something else'}"
            continue
        within = any(name == path or path == "." or name.startswith(f"{path}/") for path in asked)
        if not within:
            yield f"{name} was changed, and is none of the outputs"
        elif status == 2 and name in asked and stat.S_ISREG(old.kind):
            yield f"{name} was changed by a command that was refused"
        elif new is not None and new.mode != old.mode:
            yield f"{name} has another mode than it had: {new.mode:o}, not {old.mode:o}"
    for name in after.keys() - before.keys():
        if LEFT_OVER.match(Path(name).name):
            yield f"{name} was left behind"
    for name, new in after.items():
        if new != before.get(name) and stat.S_ISREG(new.kind) and name != damaged and (fault := _half(folder / name)):
            yield f"{name} is half-written: {fault}"


def _half(path: Path) -> str:
    """What is wrong with a file that was written, as far as its kind tells."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "np") as file:
                file.keys()
        elif path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".jsonl":
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                return "its last line has no end"
            for line in content.splitlines():
                json.loads(line)
        elif path.suffix == ".html" and "</html>" not in path.read_text():
            return "its page does not end"
    except (ValueError, SafetensorError) as error:
        return str(error)[:200]
    return ""

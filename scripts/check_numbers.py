"""Hold the numbers of README.md, docs/ and experiments/ against the result files they come from; `make check` runs it.

A measured number is followed by a comment that names a file and a key in it:

    <!--files cells=experiments/retrieval/results/retrieval.json -->
    It finds 99 %<!--= cells#cells[task=line&length=15000]/mean % --> of the lines.

The printed number must be the file's value rounded to the digits that are printed; `%` after the key multiplies the value by
100, and `A / B` and `A - B` are the ratio and the difference of two values; experiments/_lib/keys.py explains keys.
`<!--= given -->` marks a number that is a setting, a definition or a paper's. A decimal number or a percentage in prose or a
table without a mark is an error as well, but for the READMEs of experiments/, which are checked as far as they have marks.

What stands between `<!--generated NAME -->` and `<!--/generated -->` is written by scripts/generated_tables.py:
`python -m scripts.check_numbers --write` brings it up to date.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments._lib.keys import look_up
from scripts.generated_tables import TABLES

ROOT = Path(__file__).parents[1]
# A dated log keeps the figures of its day; equations and how-to pages hold definitions, and the scorecard is all generated
WITHOUT_MARKS = {"log.md", "equations.md", "adding_a_method.md", "evaluating.md", "scorecard.md"}

FILES = re.compile(r"<!--files (.*?)-->", re.DOTALL)
MARK = re.compile(r"(?P<number>[-+]?[\d,]*\.?\d+)(?P<unit>[ ]?%)?[*_]*<!--=\s*(?P<source>.*?)\s*-->", re.DOTALL)
ANY_MARK = re.compile(r"<!--=")
# Between two keys, which may have spaces
OPERATOR = re.compile(r" ([/-]) (?=[^ #]+#)")
GENERATED = re.compile(r"(<!--generated (\S+) -->\n)(.*?)(<!--/generated -->)", re.DOTALL)
CODE = re.compile(r"^```.*?^```|^(?: {4}|\t)[^\n]*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
SOURCE = re.compile(r"(?<=<!--=).*?(?=-->)", re.DOTALL)
LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
UNMARKED = re.compile(r"(?<![\w.])[\d,]*\d(?:\.\d+(?![.\d])|(?= %))(?! ?%?[*_]*<!--=)(?: %)?")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the generated tables anew before checking")
    options = parser.parse_args(arguments)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "experiments").rglob("README.md"))]
    if options.write:
        for page in pages:
            page.write_text(with_tables(page.read_text()))
    errors = [error for page in pages for error in check(page)]
    print("\n".join(errors) or f"{sum(len(MARK.findall(page.read_text())) for page in pages)} numbers are those of their files")
    return 1 if errors else 0


def check(page: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield one line for every number of a page that is not the number of its file, or that names none."""
    text = page.read_text()
    files = dict(pair.split("=", 1) for found in FILES.findall(text) for pair in found.split())
    where = page.relative_to(root) if page.is_relative_to(root) else page

    def at(position: int) -> str:
        return f"{where}:{text.count(chr(10), 0, position) + 1}"

    for mark in MARK.finditer(text):
        if error := _wrong(mark, files, root):
            yield f"{at(mark.start())}: {error}"
    marked = {mark.end() for mark in MARK.finditer(text)}
    for start in (found.start() for found in ANY_MARK.finditer(text)):
        if text.find("-->", start) + 3 not in marked:
            yield f"{at(start)}: a mark that follows no number"
    for block in GENERATED.finditer(text):
        if block[3].strip() != TABLES[block[2]]().strip():
            yield f"{at(block.start())}: the table {block[2]} is out of date; run python -m scripts.check_numbers --write"
    if page.name not in WITHOUT_MARKS and where.parts[0] != "experiments":
        for number in UNMARKED.finditer(_prose(text)):
            if number[0] != "95 %":
                yield f"{at(number.start())}: {number[0]} names no result file; add <!--= FILE#KEY --> or <!--= given -->"


def _wrong(mark: re.Match[str], files: dict[str, str], root: Path) -> str:
    """What is wrong with a marked number, or nothing."""
    if mark["source"] == "given":
        return ""
    printed = mark["number"].replace(",", "")
    digits = len(printed.partition(".")[2])
    try:
        value = _value(mark["source"], files, root)
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        return f"{mark['number']} cannot be looked up: {type(error).__name__}: {error}"
    if abs(float(printed) - value) > 0.5 * 10**-digits + 1e-9 * abs(value):
        return f"{mark['number']} is printed, {value:,.{digits + 2}f} is in {mark['source']}"
    return ""


def _value(source: str, files: dict[str, str], root: Path) -> float:
    one, *rest = OPERATOR.split(source.removesuffix(" %"))
    if any(named.count("#") != 1 for named in (one, *rest[1:])):
        raise ValueError(f"{source!r} is not `FILE#KEY`, `FILE#KEY / FILE#KEY` or `FILE#KEY - FILE#KEY`")
    value = _look_up(one, files, root)
    if rest:
        other = _look_up(rest[1], files, root)
        value = value / other if rest[0] == "/" else value - other
    return 100 * value if source.endswith(" %") else value


def _look_up(source: str, files: dict[str, str], root: Path) -> float:
    file, _, key = source.partition("#")
    return float(look_up(_load(root / files.get(file, file)), key))


@functools.cache
def _load(path: Path) -> Any:
    return json.loads(path.read_text())


def _prose(text: str) -> str:
    """The text with code, links, marks and generated tables blanked out, every character in its place."""
    for pattern in (GENERATED, CODE, LINK, SOURCE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def with_tables(text: str) -> str:
    """A page with its generated tables written anew."""
    return GENERATED.sub(lambda block: f"{block[1]}{TABLES[block[2]]().strip()}\n{block[4]}", text)


if __name__ == "__main__":
    raise SystemExit(main())

"""One page of all that was measured of one model: every table beside the paper's, where each figure is, and verdicts.

    python -m experiments.attention_alignment.summary runs/model --out results/model/README.md

Reads the folder that the other scripts wrote to; no model is loaded. Figures are copied to figures/ beside the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments._lib.command import exit_status
from experiments._lib.draw import save
from experiments._lib.markdown import table
from experiments.attention_alignment import (
    code_outcome,
    dispersion,
    figures_page,
    language_modelling_page,
    page,
    questions_page,
)
from experiments.attention_alignment.by_place import NAME as QUESTIONS
from experiments.attention_alignment.by_place import numbers, read_answers, runs_of, tokens
from experiments.attention_alignment.contenders import DEFAULT, NAMES, temperatures
from experiments.attention_alignment.curve import curve
from experiments.attention_alignment.facts import about, short_name, told
from experiments.attention_alignment.likelihoods import FOLDER, Likelihoods
from experiments.attention_alignment.material import RUNS
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.results import Results, Runs, read_results, trained_on
from experiments.attention_alignment.tables import must_show_told
from experiments.attention_alignment.verdicts import Verdict, by_documents, by_likelihood, by_scores, must_show, summed_up
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.records.directory import CONFIG

FORMAT = "lengthwise.experiments.attention_alignment/1"
COMPARED = """On the same samples, with 95 % intervals: Agresti and Min's for right and wrong, Student's for edit similarity, a
bootstrap over cases for perplexity. p is one-sided, of a difference so far below truncation if there were none: McNemar's exact
for right and wrong, Student's for the others. Holm's correction, at 2.5 %, is made over the tasks at all their lengths (`all`)
and again over the single places; those that share answers, as exact match and edit similarity do, are not independent, and need
not be. Not below for certain is not shown to be level: the intervals tell how far below it may be. Inputs beyond the training
length only; a lower perplexity is above. A hedge may cost up to 2^(1/T) times the better reading's perplexity by construction:
1.1 % for continuations of 64 tokens."""


@dataclass(frozen=True)
class Found:
    """All that the folder of one model holds."""

    out: Path
    default: str = DEFAULT

    @cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        """What the scripts wrote, by their names."""
        names = ("dispersion", "language_modelling", "retrieval", *self.answers, "code")
        paths = {name: self.out / f"{name}.json" for name in names}
        return {name: _document(path) for name, path in paths.items() if path.exists()}

    @cached_property
    def retrieval(self) -> Results | None:
        return self._results(RUNS)

    @cached_property
    def code(self) -> Results | None:
        return self._results(code_outcome.RUNS)

    @cached_property
    def answers(self) -> dict[str, Results]:
        """Of question answering, by the set of questions."""
        names = sorted(path.name for path in self.out.glob(f"{QUESTIONS}*") if any(path.glob(f"*/{CONFIG}")))
        return {name: read_answers(self.out, name, trained_on(self.out, runs_of(name))) for name in names}

    @cached_property
    def likelihoods(self) -> Likelihoods | None:
        return Likelihoods.read(self.out) if (self.out / FOLDER / CONFIG).exists() else None

    @cached_property
    def verdicts(self) -> list[Verdict]:
        found = [] if self.likelihoods is None else by_likelihood(self.likelihoods, self.default)
        for results in (self.retrieval, self.code):
            found += [] if results is None else by_scores(results, self.default)
        for name, results in self.answers.items():
            found += [*by_scores(results, self.default, f"{name} "), *by_documents(results, self.default, f"{name} ")]
        return found

    @cached_property
    def must_show(self) -> list[Shown]:
        return must_show(self.answers, self.likelihoods, self.verdicts, self.default)

    def _results(self, runs: Runs) -> Results | None:
        if not any((self.out / run / CONFIG).exists() for run in runs):
            return None
        return read_results(self.out, trained_on(self.out, runs), runs)


def summary(out: Path, file: Path, default: str = DEFAULT) -> str:
    """Writes the page to `file` and a JSON document of its verdicts beside it; returns the page."""
    found = Found(out, default)
    require(bool(found.documents), f"{out} holds nothing that the scripts here have written; give their --out")
    parts = ["# Verdicts", *_verdicts(found)]
    for section in (_dispersion, _language_modelling, _retrieval, _questions, _code):
        parts += section(found, file.parent)
    parts += ["# Figures 1 to 9", *figures_page.sections(out, file.parent), "# How this was obtained", _made(found)]
    # The scripts' own pages have the same sections a level higher
    below = [f"#{part}" if part.startswith("#") else part for part in parts]
    text = "\n\n".join([f"# Attention alignment: {_model(found)}", *below]) + "\n"
    document = {
        "format": FORMAT,
        "default": default,
        "verdicts": [asdict(one) for one in found.verdicts],
        "must_show": [asdict(one) for one in found.must_show],
    }
    write_whole(file, text)
    write_whole(file.with_suffix(".json"), json.dumps(document, indent=1) + "\n")
    return text


def _verdicts(found: Found) -> list[str]:
    rows = [[one.task, one.at, one.difference, one.said, f"{one.p:.2g}", one.n] for one in found.verdicts]
    head = ["task", "tokens", f"{found.default} - truncate", "it is", "p", "samples"]
    return [summed_up(found.verdicts, found.default), must_show_told(found.must_show), COMPARED, table(head, rows)]


def _dispersion(found: Found, beside: Path) -> list[str]:
    if (document := found.documents.get("dispersion")) is None:
        return _lacking("Table 1: how sharp attention is", "dispersion")
    cells = [dispersion.Dispersion(**cell) for cell in document["cells"]]
    return ["# Table 1: how sharp attention is", *dispersion.sections(cells)]


def _language_modelling(found: Found, beside: Path) -> list[str]:
    title = "Tables 3 and 8: language modelling"
    if (document := found.documents.get("language_modelling")) is None or found.likelihoods is None:
        return _lacking(title, "language_modelling")
    rows = language_modelling_page.by_method(found.likelihoods, list(dict.fromkeys((*NAMES, found.default))))
    train = found.likelihoods.train_length
    taus = temperatures(found.likelihoods.lengths, train, found.out)
    asked = language_modelling_page.ASKED.format(**document)
    return [f"# {title}", asked, *language_modelling_page.sections(rows, train, taus)]


def _retrieval(found: Found, beside: Path) -> list[str]:
    title = "Tables 4 and 9: retrieval"
    if (document := found.documents.get("retrieval")) is None or found.retrieval is None:
        return _lacking(title, "retrieval")
    taus = temperatures(found.retrieval.lengths, found.retrieval.train_length, found.out)
    parts = page.sections(found.retrieval, document["samples"], taus)
    return [f"# {title}", about(found.retrieval.train_length), *parts]


def _questions(found: Found, beside: Path) -> list[str]:
    title = "Tables 5, 10 and 14: multi-document question answering"
    if not found.answers:
        return _lacking(title, "questions")
    parts = []
    for name, results in found.answers.items():
        if (document := found.documents.get(name)) is None:
            parts += _lacking(f"{title}: {name}", "questions", "The page is not written")
            continue
        (material,) = document["materials"].values()
        taus = temperatures(sorted({tokens(results, n) for n in numbers(results)}), results.train_length, found.out)
        for ending in figures_page.ENDINGS:
            drawn = curve(results, f"Lost in the middle: {_model(found)}, {material}")
            save(drawn, beside / figures_page.COPY / f"{name}.{ending}")
        figure = f"{figures_page.COPY}/{name}.{figures_page.ENDINGS[0]}"
        parts += [f"# {title}: {material}", *questions_page.sections(results, document["samples"], taus, figure)]
    return parts


def _code(found: Found, beside: Path) -> list[str]:
    title = "Tables 6, 11, 12 and 13: code"
    if (document := found.documents.get("code")) is None or found.code is None:
        return _lacking(title, "code")
    taus = temperatures(found.code.lengths, found.code.train_length, found.out)
    return [f"# {title}", *code_outcome.sections(found.code, document["samples"], taus)]


def _lacking(title: str, script: str, lacking: str = "Not measured") -> list[str]:
    return [f"# {title}", f"{lacking} yet: `python -m experiments.attention_alignment.{script} MODEL --out OUT`."]


def _model(found: Found) -> str:
    return short_name(str(next(iter(found.documents.values()))["model"]["name"]))


def _made(found: Found) -> str:
    """How everything came about, script by script."""
    parts = []
    for name, document in found.documents.items():
        missing = f" **Unfinished**: {document['missing']:,} are missing." if document.get("missing") else ""
        parts.append(f"<details><summary>{name}</summary>\n\n{told(document)}{missing}\n\n</details>")
    return "\n".join(parts)


def _document(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        raise BadInput(f"{path} is not what a script here wrote; remove it and write its page again (--page)") from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUT", help="folder of one model's experiments")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the page, in Markdown")
    parser.add_argument("--default", default=DEFAULT, help=f"the method held against truncation; {DEFAULT} if not given")
    call = parser.parse_args(arguments)
    return exit_status(lambda: print(summary(call.folder, call.out, call.default)))


if __name__ == "__main__":
    sys.exit(main())

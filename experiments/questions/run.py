"""Multi-document question answering by the place of the gold document: Tables 5, 10 and 14, for any T5.

    python -m experiments.questions.run MODEL --out runs/model
    python -m experiments.questions.run MODEL --questions nq.jsonl.gz --held-out --out runs/model

Ten, twenty or thirty documents as in the paper, and three, which is what a model reads that was trained on 512 tokens.
The same questions among the same documents at every place; made-up ones, or those of a file in the layout of Lost in the
Middle, whose name then stands behind `questions` in OUT.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import alignments, measure, results
from experiments._lib.command import main, option
from experiments._lib.gains import PLAIN, PMAX
from experiments._lib.measure import Answers, Asked, Place, Runs, Subject
from experiments._lib.natural_questions import held_out_questions
from experiments._lib.paired import Paired, paired
from experiments.questions.lost_in_the_middle import RETRIEVED, THEIRS, Passages, reworded, with_retrieved
from experiments.questions.page import FORMAT, OVER_PLACES, POSITIONS, write_pages
from lengthwise.errors import require
from lengthwise.records import mean_interval
from lengthwise.tasks import Sample
from lengthwise.tasks.material.documents import Question, read_questions
from lengthwise.tasks.multi_document_qa import at_position

TASK = "multi_document_qa"
OURS, DRAWN = "ours", "drawn"
PROBES = 8  # samples that tell about how many tokens so many documents have
ROUND = 100  # tokens


@dataclass(frozen=True, kw_only=True)
class Options(measure.Options):
    questions: Path | None = option(None, "file of questions; made-up ones if not given")
    held_out: bool = option(False, "only those of the file that no training here reads")
    around: str = option(DRAWN, "the other documents: any, or those most like the question", choices=(DRAWN, RETRIEVED))
    wording: str = option(OURS, "the package's, or that of Lost in the Middle", choices=(OURS, THEIRS))
    documents: tuple[int, ...] = option(tuple(POSITIONS), "numbers of them", choices=tuple(POSITIONS))

    def __post_init__(self) -> None:
        for name, chosen in (("--held-out", self.held_out), ("--around retrieved", self.around == RETRIEVED)):
            require(self.questions is not None or not chosen, f"{name} chooses among those of a file; give --questions")

    @property
    def name(self) -> str:
        """The name of the experiment's files and run directories."""
        words = [] if self.questions is None else [self.questions.name.split(".")[0]]
        return "-".join(["questions", *words, *(word for word in (self.around, self.wording) if word not in (DRAWN, OURS))])


def questions(options: Options) -> Answers:
    """Measures as much as there is time for, and writes the page of what has been measured so far."""
    read = held_out_questions if options.held_out else read_questions
    given = None if options.questions is None else read(options.questions)
    subject = Subject.of(options)
    places = _places(options, subject.tokenizer, given)
    subject.measure(places)
    runs = runs_of(options.name)
    answers = Answers.read(options.out, subject.train_length, runs)
    if answers.records:
        document = subject.document("questions", places, answers, runs)
        document |= {
            "materials": {"questions": _material(options, given)},
            "gains": gains(answers),
            "pmax_over": pmax_over(answers),
        }
        file = options.out / f"{options.name}.json"
        results.write(file, FORMAT, document["command"], document)
        over = f"{FORMAT.rpartition('/')[0]}_over_places/1"
        results.write(
            file.with_name(options.name + OVER_PLACES),
            over,
            document["command"],
            {**over_places(answers), "made_with": document["made_with"]},
        )
        write_pages(options.out, options.out)
    return answers


def runs_of(name: str) -> Runs:
    """The run directories of one set of questions."""
    tasks = [f"{documents}-{position}" for documents, positions in POSITIONS.items() for position in positions]
    return {f"{name}/{task}": {TASK: task} for task in tasks}


def scores(answers: Answers, method: str, documents: int, positions: Iterable[int] | None = None) -> dict[int, float]:
    """By question: the share of the places at which it was answered rightly, of those that were asked at all of them."""
    wanted = POSITIONS[documents] if positions is None else tuple(positions)
    return answers.means(method, [f"{documents}-{at}" for at in wanted], answers.lengths, len(wanted))


def numbers(answers: Answers) -> list[int]:
    """Numbers of documents that were asked about."""
    return [n for n in POSITIONS if any(task.startswith(f"{n}-") for task in answers.tasks)]


def gain(answers: Answers, method: str, documents: int, positions: Sequence[int] | None = None) -> Paired | None:
    """`method` less the plain model on the same questions, at some places or at all."""
    return paired(*(scores(answers, name, documents, positions) for name in (method, PLAIN)))


def pmax_over(answers: Answers) -> list[dict[str, Any]]:
    """P_max alignment less every other method on the same questions, over all places."""
    rows = []
    for method, documents in product((name for name in answers.methods if name not in (PLAIN, PMAX)), numbers(answers)):
        pair = paired(*(scores(answers, name, documents) for name in (PMAX, method)))
        if pair is not None:
            rows.append({"method": PMAX, "over": method, "documents": documents, **asdict(pair)})
    return rows


def middle_gain(answers: Answers, method: str, documents: int) -> Paired | None:
    """How much more `method` gains over the plain model in the middle than at both ends: the paper expects more there."""
    first, *inner, last = POSITIONS[documents]

    def difference(positions: Iterable[int]) -> dict[int, float]:
        ours, plain = (scores(answers, name, documents, positions) for name in (method, PLAIN))
        return {index: score - plain[index] for index, score in ours.items() if index in plain}

    return paired(difference(inner), difference([first, last]))


def gains(answers: Answers) -> list[dict[str, Any]]:
    """Every method over the plain model: at every place, and (position None) over all."""
    rows = []
    for method in (name for name in answers.methods if name != PLAIN):
        for documents in numbers(answers):
            for position in (*POSITIONS[documents], None):
                pair = gain(answers, method, documents, None if position is None else [position])
                if pair is not None:
                    rows.append({"method": method, "documents": documents, "position": position, **asdict(pair)})
    return rows


def over_places(answers: Answers) -> dict[str, Any]:
    """Percent right over all places, and what is gained in the middle, in points; intervals are over questions."""
    means, middle = [], []
    for documents in numbers(answers):
        for method in answers.methods:
            if known := list(scores(answers, method, documents).values()):
                values = dict(zip(("mean", "low", "high"), (100 * value for value in mean_interval(known)), strict=True))
                means.append({"method": method, "documents": documents, **values})
            pair = middle_gain(answers, method, documents) if method in ("pmax-model", "pmax-layer") else None
            if pair is not None:
                values = {"difference": 100 * pair.difference, "low": 100 * pair.low, "high": 100 * pair.high}
                middle.append({"method": method, "documents": documents, **values})
    return {"means": means, "middle": middle}


def _places(options: Options, tokenizer: Any, given: Sequence[Question] | None) -> list[Place]:
    passages = None
    if options.questions is not None and options.around == RETRIEVED:
        passages = Passages.of([question.gold for question in read_questions(options.questions)])

    def made(tokenizer: Any, documents: int, position: int, n: int, seed: int) -> list[Sample]:
        samples = at_position(tokenizer, documents, position, n, seed, given)
        if passages is not None:
            samples = [with_retrieved(tokenizer, sample, position, passages) for sample in samples]
        return samples if options.wording == OURS else [reworded(tokenizer, sample) for sample in samples]

    places = []
    for documents in options.documents:
        probes = made(tokenizer, documents, 0, PROBES, options.seed)
        length = ROUND * max(1, round(fmean(sample.tokens for sample in probes) / ROUND))
        for position in POSITIONS[documents]:
            task = f"{documents}-{position}"
            material = f"{_material(options, given)}; {documents} documents, the gold one at {position}"

            def make(tokenizer: Any, _: int, n: int, seed: int, at: tuple[int, int] = (documents, position)) -> list[Sample]:
                """The number of documents decides on the tokens; the length only names them."""
                return made(tokenizer, *at, n, seed)

            asked = Asked(task, TASK, f"{options.name}/{task}", make, material)
            places.append(Place(asked, length, options.methods or alignments.NAMES))
    return places


def _material(options: Options, given: Sequence[Question] | None) -> str:
    words = "" if options.around == DRAWN else ", among the passages most like each"
    words += "" if options.wording == OURS else f" in the wording of {options.wording}"
    if options.questions is None or given is None:
        return f"made-up questions{words}"
    return f"{len(given)} questions of {options.questions.name} ({hashlib.sha256(repr(given).encode()).hexdigest()[:8]}){words}"


if __name__ == "__main__":
    sys.exit(main(Options, questions, __doc__))

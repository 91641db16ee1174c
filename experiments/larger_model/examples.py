"""Training examples of the larger T5, and the stream of batches: which source and which length follows from the step.

    shares = early + grown * (weights - early),   grown = (step - curriculum) / curriculum, within 0 and 1

Before step `curriculum` inputs are short and documents few, until finding is learnt; afterwards they grow with the shares. A
batch has two chunks of fixed shapes, so that a compiled model meets no others: short examples of at most 256 tokens, and long
ones, among them a quarter of the batch of the full 512. Early it has three chunks of the short shape.

Made-up questions are on places and people that do not exist, in names that the task of evaluation cannot make; cloze questions
leave a name or a number out of a document's own sentence. Layouts are those of the package's tasks.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments._lib.batches import Bound, Chunk, Example, collate, ends
from experiments._lib.bpe import Pieces
from experiments._lib.made_up import Fact, made_up_facts, made_up_name
from experiments._lib.natural_questions import others, window
from experiments._lib.t5_examples import in_prose
from experiments._lib.t5_training import LONGEST
from experiments.larger_model.data import Stock
from lengthwise.tasks import code_key_retrieval, multi_document_qa
from lengthwise.tasks.material.documents import Document, Question
from lengthwise.tasks.sample import sentences


def bound_answers(pieces: Pieces, tokens: list[int], facts: Sequence[Fact]) -> tuple[Bound, ...]:
    """Each answer, by its first and last token, to its fact's name; the input's end to the first fact's, the one asked."""
    found: list[Bound] = []
    for fact in facts:
        start = _find(tokens, pieces.tokens(f" {fact.sentence}"))
        # A document may have been left out, or cut within the fact
        if start is not None:
            name = ends(pieces.tokens(f" {fact.name}"))
            found += [Bound(start + at, name) for at in _answer_tokens(pieces, fact)]
    return (*found, Bound(len(tokens) - 1, ends(pieces.tokens(f" {facts[0].name}"))))


def _answer_tokens(pieces: Pieces, fact: Fact) -> tuple[int, int]:
    """Its first and its last token, counted from where the sentence starts."""
    answer = fact.question.answers[0]
    before = f" {fact.sentence[: fact.at]}"
    # A space is part of the word behind it, but never of a digit
    first = len(pieces.tokens(before if answer[0].isdigit() else before.removesuffix(" ")))
    return first, len(pieces.tokens(f" {fact.sentence[: fact.at]}{answer}")) - 1


def _find(tokens: list[int], part: list[int]) -> int | None:
    size, first = len(part), part[0]
    places = (at for at in range(len(tokens) - size + 1) if tokens[at] == first and tokens[at : at + size] == part)
    return next(places, None)


# Neither begins its sentence: there every word has a capital
CLOZE_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?: (?:of |the )?[A-Z][a-z]+){0,3}")
CLOZE_NUMBER = re.compile(r"(?<=[a-z,;] )\d[\d,]*\d|(?<=[a-z,;] )\d\b")
FEWEST_WORDS_OF_A_SENTENCE, MOST_WORDS_OF_A_SENTENCE = 6, 40  # words of a sentence
SENTENCE_ENDS = ".!?\"')\u201d\u2019"
NEAR_GAP = 8  # words on each side of a gap


def cloze_of(randomness: random.Random, document: Document) -> Question | None:
    """None where no sentence has anything to ask for."""
    fit = [
        one for one in sentences(document.text) if FEWEST_WORDS_OF_A_SENTENCE <= len(one.split()) <= MOST_WORDS_OF_A_SENTENCE
    ]
    randomness.shuffle(fit)
    for sentence in fit:
        numbers, names = list(CLOZE_NUMBER.finditer(sentence)), list(CLOZE_NAME.finditer(sentence))
        if numbers or names:
            found = randomness.choice(numbers or names if randomness.random() < 0.3 else names or numbers)
            what = "which number" if found in numbers else "what name"
            return Question(_with_gap(randomness, sentence, found, what), (found.group(),), document)
    return None


def _with_gap(randomness: random.Random, sentence: str, found: re.Match[str], what: str) -> str:
    before, after = sentence[: found.start()], sentence[found.end() :].rstrip(SENTENCE_ENDS)
    if randomness.random() < 0.5:
        return f"{before}{what}{after}?"
    left, right = before.split(), after.split()
    near = [
        *left[len(left) - min(len(left), randomness.randint(3, NEAR_GAP)) :],
        what,
        *right[: randomness.randint(0, NEAR_GAP)],
    ]
    return " ".join(near).lower().rstrip(",;:") + "?"


def completion(stock: Stock, randomness: random.Random, length: int) -> Example:
    """What stands before the line, that of its own file and of the one before; the line without its indentation."""
    start, bare, end = map(int, stock.code.asked[randomness.randrange(len(stock.code.asked))])
    row, eos = stock.code.tokens, stock.pieces.eos
    return Example("code completion", [*row[max(0, start - length + 1) : start].tolist(), eos], [*row[bare:end].tolist(), eos])


def key(stock: Stock, randomness: random.Random, length: int) -> Example:
    pieces = stock.pieces
    number = str(randomness.randint(1, 100))
    head = pieces.tokens(f"{code_key_retrieval.INTRODUCTION}\n")
    function = pieces.tokens("".join(f"{line.format(key=number)}\n" for line in code_key_retrieval.FUNCTION))
    tail = [*pieces.tokens(code_key_retrieval.QUESTION), pieces.eos]
    newline = pieces.tokens("\n")
    room = max(0, length - len(head) - len(function) - len(tail) - len(newline))
    first = int(randomness.choice(stock.code.files))
    # The row's end is too short for many tokens; its beginning never is
    first = first if stock.code.lines[first] + room <= len(stock.code.tokens) else 0
    start = int(stock.code.lines[first])
    code = stock.code.tokens[start : start + room].tolist()
    cut = _function_place(stock, first, len(code), randomness.random())
    before, after = (part + newline if part and part[-1:] != newline else part for part in (code[:cut], code[cut:]))
    return Example("code key", [*head, *before, *function, *after, *tail], [*pieces.tokens(number), pieces.eos])


def _function_place(stock: Stock, first: int, tokens: int, depth: float) -> int:
    """The token before which the function stands: a line that begins something new, if there is one near, as in the task."""
    code = stock.code
    start = code.lines[first]
    last = int(np.searchsorted(code.lines, start + tokens))  # the first line that starts behind the code
    count = last - first
    wanted = round(depth * count)
    news = [0, count, *np.flatnonzero(code.begins[first:last]).tolist()]
    nearest = min(news, key=lambda at: abs(at - wanted))
    line = nearest if abs(nearest - wanted) <= code_key_retrieval.NEAR * count else wanted
    return int(code.lines[first + line] - start) if line < count else tokens


MOST_PASSAGES = 5  # of more documents than these only made-up ones
LEAST_DOCUMENT = 12  # tokens of a document that is worth its line
FEWEST_WORDS = 12  # of a passage that is cut


def made_up_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    """Over at most so many documents."""
    count = _how_many(randomness, most)
    facts = list(itertools.islice(made_up_facts(randomness, stock.books.words), count))
    around = (one.question.gold for one in facts[1:])
    made = laid_out(stock, "made-up qa", randomness, length, facts[0].question, around, count)
    return replace(made, bound=bound_answers(stock.pieces, made.tokens, facts))


def natural_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    asked = randomness.choice(stock.questions)
    answer, gold = randomness.choice(asked.standing), asked.question.gold
    # Cut passages leave room for others, and let one question be read in many ways
    if randomness.random() < 0.5:
        gold = Document(gold.title, window(randomness, gold.text, answer, randomness.randint(20, 70)))
    around = others(randomness, asked, stock.questions)
    question = Question(asked.question.text, (answer,), gold)
    return laid_out(stock, "nq", randomness, length, question, around, _how_many(randomness, min(most, MOST_PASSAGES)))


def cloze_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    while True:
        document = _any_document(stock, randomness)
        question = cloze_of(randomness, document)
        if question is not None:
            around = iter(lambda: _any_document(stock, randomness), None)
            count = _how_many(randomness, min(most, MOST_PASSAGES))
            return laid_out(stock, "cloze", randomness, length, question, around, count)


def _how_many(randomness: random.Random, most: int) -> int:
    """In half of the prompts all documents that there is room for."""
    return most if randomness.random() < 0.5 else randomness.randint(1, most)


def _any_document(stock: Stock, randomness: random.Random) -> Document:
    """A passage, or some sentences of a novel under a made-up title."""
    if randomness.random() < 0.5:
        return randomness.choice(stock.questions).question.gold
    text = " ".join(stock.books.stretch(randomness, randomness.randint(40, 120)))
    return Document(made_up_name(randomness, stock.books.words), text)


def laid_out(
    stock: Stock,
    source: str,
    randomness: random.Random,
    length: int,
    asked: Question,
    around: Iterator[Document],
    most: int,
) -> Example:
    """At most so many documents, as many as there is room for; the last one around is cut where the length is reached."""
    pieces, answer = stock.pieces, asked.answers[0]
    head = pieces.tokens(f"{multi_document_qa.INTRODUCTION}\n")
    tail = [*pieces.tokens(multi_document_qa.QUESTION.format(question=asked.text)), pieces.eos]
    frame = len(pieces.tokens(f"Document {most}")) + 1  # tokens that a document's line takes besides the document
    room = length - len(head) - len(tail) - frame
    gold = _gold(pieces, randomness, asked.gold, answer, room)
    lines = [gold]
    room -= len(gold)
    for document in itertools.islice(around, most - 1):
        room -= frame
        if room < LEAST_DOCUMENT:
            break
        tokens = pieces.tokens(f" {document.told}")
        if len(tokens) > room:
            tokens = pieces.tokens(f" {pieces.beginning(document.told, room, len(tokens))}")
        lines.append(tokens)
        room -= len(tokens)
    place = randomness.randrange(len(lines))
    lines = [*lines[1 : 1 + place], gold, *lines[1 + place :]]
    newline = pieces.tokens("\n")
    told = [token for at, line in enumerate(lines, 1) for token in (*pieces.tokens(f"Document {at}"), *line, *newline)]
    return Example(source, [*head, *told, *tail], [*pieces.tokens(answer), pieces.eos])


def _gold(pieces: Pieces, randomness: random.Random, document: Document, answer: str, room: int) -> list[int]:
    """Cut around the answer where it does not fit; never shorter than some words."""
    words = len(document.text.split())
    tokens = pieces.tokens(" " + document.told)
    while len(tokens) > room and words > FEWEST_WORDS:
        words = max(FEWEST_WORDS, min(words - 1, words * room // len(tokens)))
        document = Document(document.title, window(randomness, document.text, answer, words))
        tokens = pieces.tokens(" " + document.told)
    return tokens


FEW_DOCUMENTS, MOST_DOCUMENTS = 4, 12  # documents


@dataclass(frozen=True)
class Stage:
    early: bool  # whether all inputs are short
    documents: int  # the most that a question stands over
    grown: float  # the part of the way from the early shares to the final ones


def stage_of(step: int, curriculum: int) -> Stage:
    if step < curriculum:
        return Stage(True, min(FEW_DOCUMENTS, 1 + 2 * FEW_DOCUMENTS * step // curriculum), 0.0)
    grown = min(1.0, (step - curriculum) / curriculum) if curriculum else 1.0
    return Stage(False, FEW_DOCUMENTS + round(grown * (MOST_DOCUMENTS - FEW_DOCUMENTS)), grown)


SHORTEST, SHORT = 60, 256  # tokens
TARGET = 64  # tokens, the most of any target
SHORT_SHARE, FULL = 0.375, 0.25  # shares of a batch: short examples, and those with as many tokens as there may be
EARLY_CHUNKS = 3
# Share of each source early and in the end; what the first three go on with cannot be known beforehand, as an answer can
SHARES = {
    "text": (0.10, 0.22),
    "prose of code": (0.00, 0.05),
    "code completion": (0.10, 0.19),
    "code key": (0.20, 0.12),
    "passkey prose": (0.18, 0.08),
    "made-up qa": (0.30, 0.18),
    "nq": (0.04, 0.11),
    "cloze": (0.08, 0.05),
}
QUESTIONS = {"made-up qa": made_up_question, "nq": natural_question, "cloze": cloze_question}
RETRIEVED = {"code completion": completion, "code key": key, "passkey prose": in_prose}
SOURCES = tuple(SHARES)
CONTINUED = SOURCES[:3]


def mixed_shares(grown: float) -> list[float]:
    return [early + grown * (late - early) for early, late in SHARES.values()]


def batch(stock: Stock, size: int, curriculum: int, seed: int, step: int) -> list[Chunk]:
    """The examples of a step; those of the first `curriculum` steps are short."""
    randomness, stage = random.Random(f"{seed} {step}"), stage_of(step, curriculum)
    short, full = round(SHORT_SHARE * size), round(FULL * size)
    sizes = [(SHORT, short)] * EARLY_CHUNKS if stage.early else [(SHORT, short), (LONGEST, size - short)]
    chunks = []
    for most, count in sizes:
        examples = []
        for at in range(count):
            length = most if most == LONGEST and at < full else draw_length(randomness, most)
            source = randomness.choices(SOURCES, mixed_shares(stage.grown))[0]
            made = make(stock, source, randomness, length, stage.documents)
            # A question may need more than a short length, which does no harm, but never more than the chunk's
            while len(made.tokens) > most or not 0 < len(made.target) <= TARGET:
                made = make(stock, source, randomness, length, stage.documents)
            examples.append(made)
        chunks.append(collate(examples, SOURCES, most, TARGET))
    return chunks


def draw_length(randomness: random.Random, most: int) -> int:
    """Long ones are more likely within the short chunk; in the long one all are alike."""
    if most == SHORT:
        return SHORTEST + int((SHORT + 1 - SHORTEST) * randomness.random() ** 0.5)
    return randomness.randint(SHORT + 1, most)


def make(stock: Stock, source: str, randomness: random.Random, length: int, documents: int) -> Example:
    """An example of about so many tokens, a question over at most so many documents."""
    if source in QUESTIONS:
        return QUESTIONS[source](stock, randomness, length, documents)
    if source in RETRIEVED:
        return RETRIEVED[source](stock, randomness, length)
    rows = stock.books.texts if source == "text" else [stock.prose]
    return stock.continued(source, rows, randomness, length, randomness.randint(32, TARGET))

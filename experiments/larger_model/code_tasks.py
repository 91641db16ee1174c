"""The next line of code, and a number among code: the layouts of code_completion and code_key_retrieval, out of tokens."""

from __future__ import annotations

import random

import numpy as np

from experiments.larger_model.stock import Example, Stock
from lengthwise.tasks.code_key_retrieval import FUNCTION, INTRODUCTION, NEAR, QUESTION


def completion(stock: Stock, randomness: random.Random, length: int) -> Example:
    """What stands before the line, that of its own file and of the one before; the line without its indentation."""
    start, bare, end = map(int, stock.code.asked[randomness.randrange(len(stock.code.asked))])
    tokens = stock.code.before(start, length - 1)
    target = stock.code.tokens[bare:end].tolist()
    return Example("code completion", [*tokens, stock.pieces.eos], [*target, stock.pieces.eos])


def key(stock: Stock, randomness: random.Random, length: int) -> Example:
    pieces = stock.pieces
    number = str(randomness.randint(1, 100))
    head = pieces.tokens(f"{INTRODUCTION}\n")
    function = pieces.tokens("".join(f"{line.format(key=number)}\n" for line in FUNCTION))
    tail = [*pieces.tokens(QUESTION), pieces.eos]
    newline = pieces.tokens("\n")
    room = max(0, length - len(head) - len(function) - len(tail) - len(newline))
    first, code = stock.code.from_a_file(randomness, room)
    cut = _place(stock, first, len(code), randomness.random())
    before, after = (part + newline if part and part[-1:] != newline else part for part in (code[:cut], code[cut:]))
    return Example("code key", [*head, *before, *function, *after, *tail], [*pieces.tokens(number), pieces.eos])


def _place(stock: Stock, first: int, tokens: int, depth: float) -> int:
    """The token before which the function stands: a line that begins something new, if there is one near, as in the task."""
    code = stock.code
    start = code.lines[first]
    last = int(np.searchsorted(code.lines, start + tokens))  # the first line that starts behind the code
    count = last - first
    wanted = round(depth * count)
    news = [0, count, *np.flatnonzero(code.begins[first:last]).tolist()]
    nearest = min(news, key=lambda at: abs(at - wanted))
    line = nearest if abs(nearest - wanted) <= NEAR * count else wanted
    return int(code.lines[first + line] - start) if line < count else tokens

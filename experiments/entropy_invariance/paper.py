"""Entropy Invariance's Tables 1, 2, 3, 9 and 10 as printed, a line a row: PPL and ACC at six lengths.

Rows that several tables print stand here once; they agree. Cells beyond what the paper cares for are limits, >500 and <0.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
# CosScale's S, and another one with windowed attention
SCALE, WINDOW_SCALE = 128.0, 16.0
# Those of Table 9
SCALES = (8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 600.0)
LAWS = {"info": "infoscale", "plus": "softmax_plus"}

PRINTED = """\
pi            plain       | 24.51 10.75 >500 >500 >500 >500            | 0.46 0.55 <0.1 <0.1 <0.1 <0.1
pi            cos128      | 10.38 10.46 >500 >500 >500 >500            | 0.52 0.53 <0.1 <0.1 <0.1 <0.1
pi            info        | 21.67 8.14 >500 >500 >500 >500             | 0.48 0.61 <0.1 <0.1 <0.1 <0.1
pi            cos128+info | 9.59 10.15 >500 >500 >500 >500             | 0.54 0.54 <0.1 <0.1 <0.1 <0.1
alibi         plain       | 151.00 271.97 346.88 401.87 488.47 >500    | <0.1 <0.1 <0.1 <0.1 <0.1 <0.1
alibi         cos128      | 151.57 263.90 335.35 392.22 468.78 486.49  | <0.1 <0.1 <0.1 <0.1 <0.1 <0.1
alibi         info        | 150.74 270.76 353.25 404.16 478.59 >500    | <0.1 <0.1 <0.1 <0.1 <0.1 <0.1
alibi         cos128+info | 147.23 258.90 322.28 386.62 444.07 473.05  | 0.11 <0.1 <0.1 <0.1 <0.1 <0.1
pose          plain       | 1.97 2.23 2.61 14.74 240.25 >500           | 0.85 0.81 0.77 0.46 0.10 <0.1
pose          cos128      | 2.07 2.29 2.34 3.35 12.37 22.03            | 0.84 0.81 0.81 0.73 0.51 0.41
pose          info        | 1.95 2.10 2.15 6.32 73.80 354.50           | 0.85 0.83 0.82 0.60 0.23 <0.1
pose          cos128+info | 2.06 2.24 2.28 3.30 11.20 18.41            | 0.84 0.82 0.81 0.74 0.53 0.44
streaming_llm plain       | 2.18 2.55 2.85 4.27 4.88 5.42              | 0.84 0.80 0.78 0.71 0.69 0.67
streaming_llm cos128      | 2.31 2.72 2.97 4.13 4.59 4.88              | 0.82 0.78 0.77 0.72 0.70 0.69
streaming_llm info        | 2.18 2.53 2.85 4.76 4.84 5.20              | 0.83 0.80 0.79 0.70 0.70 0.68
streaming_llm cos128+info | 2.29 2.68 2.94 4.13 4.54 4.83              | 0.82 0.79 0.78 0.72 0.71 0.70
yarn16        plain       | 2.41 2.99 3.37 7.07 15.34 26.59            | 0.81 0.76 0.73 0.60 0.48 0.41
yarn16        cos128      | 2.57 3.09 3.09 4.79 6.28 7.73              | 0.78 0.75 0.75 0.67 0.63 0.59
yarn16        info        | 2.26 2.58 2.61 4.37 7.49 12.38             | 0.82 0.80 0.78 0.70 0.61 0.53
yarn16        cos128+info | 2.47 2.83 2.75 4.30 5.84 7.52              | 0.79 0.77 0.77 0.70 0.65 0.60
yarn32        plain       | 2.65 3.35 3.88 7.94 16.68 27.59            | 0.79 0.74 0.71 0.58 0.47 0.40
yarn32        cos128      | 2.70 3.29 3.40 5.29 6.87 8.50              | 0.78 0.73 0.73 0.65 0.61 0.58
yarn32        info        | 2.42 2.74 2.75 4.40 7.04 10.56             | 0.81 0.78 0.77 0.69 0.62 0.55
yarn32        cos128+info | 2.57 2.98 3.00 4.68 6.26 8.28              | 0.79 0.76 0.75 0.68 0.63 0.59
window        plain       | 2.19 2.55 2.82 3.69 3.87 4.24              | 0.84 0.80 0.78 0.74 0.73 0.71
window        cos16       | 2.21 2.67 2.93 3.81 4.02 4.44              | 0.84 0.79 0.78 0.73 0.73 0.71
window        info        | 2.19 2.53 2.83 3.73 3.92 4.32              | 0.83 0.80 0.79 0.74 0.74 0.72
window        cos16+info  | 2.17 2.51 2.72 3.54 3.72 4.06              | 0.84 0.81 0.80 0.75 0.75 0.73
lm_infinite   plain       | 12.25 18.65 21.66 30.72 32.04 32.56        | 0.55 0.46 0.43 0.39 0.38 0.37
lm_infinite   cos128      | 4.09 6.63 7.99 10.88 11.83 12.91           | 0.69 0.61 0.58 0.54 0.53 0.50
lm_infinite   info        | 12.66 26.64 28.47 30.90 29.92 32.81        | 0.54 0.42 0.40 0.38 0.38 0.37
lm_infinite   cos128+info | 3.97 6.22 7.26 9.82 10.42 11.11            | 0.71 0.63 0.60 0.56 0.56 0.54
rerope        plain       | 15.61 46.44 151.22 295.42 475.82 >500      | 0.49 0.33 0.18 0.12 <0.1 <0.1
rerope        cos128      | 3.69 3.62 3.88 5.10 5.55 6.36              | 0.72 0.72 0.71 0.67 0.66 0.63
rerope        info        | 14.77 23.61 52.86 115.83 210.78 311.24     | 0.50 0.43 0.32 0.23 0.17 0.12
rerope        cos128+info | 3.64 3.47 3.63 4.74 4.97 5.41              | 0.72 0.73 0.73 0.69 0.69 0.67
gau           plain       | 2.17 2.55 3.05 17.12 327.44 >500           | 0.84 0.80 0.76 0.46 0.10 <0.1
gau           cos128      | 2.29 2.70 2.92 5.03 24.03 49.45            | 0.82 0.78 0.77 0.68 0.43 0.32
gau           info        | 2.16 2.48 2.71 8.60 109.15 >500            | 0.84 0.81 0.78 0.58 0.23 <0.1
gau           cos128+info | 2.28 2.64 2.86 5.03 23.24 44.07            | 0.82 0.79 0.78 0.68 0.44 0.34
gau           plus        | 2.57 2.85 3.05 11.02 145.16 >500           | 0.80 0.78 0.76 0.53 0.19 <0.1
gau           cos128+plus | 2.56 2.82 2.92 4.96 23.01 44.08            | 0.78 0.77 0.77 0.68 0.44 0.34
gau           cos8        | 2.86 16.14 237.15 >500 >500 >500           | 0.77 0.46 0.11 <0.1 <0.1 <0.1
gau           cos16       | 2.30 4.38 30.16 320.84 >500 >500           | 0.83 0.70 0.37 0.12 <0.1 <0.1
gau           cos32       | 2.17 2.73 4.63 76.40 499.79 >500           | 0.84 0.78 0.68 0.26 <0.1 <0.1
gau           cos64       | 2.21 2.60 2.84 5.73 42.32 267.49           | 0.82 0.78 0.77 0.64 0.34 0.13
gau           cos96       | 2.23 2.63 2.83 5.12 25.20 65.72            | 0.82 0.78 0.77 0.67 0.42 0.29
gau           cos256      | 2.65 3.23 3.48 4.72 18.34 60.67            | 0.78 0.74 0.74 0.69 0.49 0.31
gau           cos600      | 3.82 4.61 4.80 6.14 13.63 79.33            | 0.72 0.69 0.68 0.64 0.53 0.28
"""


@dataclass(frozen=True)
class Printed:
    """One cell; a limit has no number."""

    perplexity: str
    accuracy: str

    @property
    def number(self) -> float:
        """The perplexity; a limit is beyond all numbers, and as large as any other limit."""
        return math.inf if self.perplexity.startswith(">") else float(self.perplexity)


def printed(method: str, cos: float | None, law: str | None, length: int) -> Printed | None:
    """None for what the paper does not print."""
    return _cells().get((method, cos, law, length))


@cache
def _cells() -> dict[tuple[str, float | None, str | None, int], Printed]:
    cells = {}
    for line in PRINTED.splitlines():
        label, *numbers = line.split("|")
        method, extra = label.split()
        words = extra.split("+")
        cos = next((float(word.removeprefix("cos")) for word in words if word.startswith("cos")), None)
        law = next((LAWS[word] for word in words if word in LAWS), None)
        for length, *pair in zip(LENGTHS, *(part.split() for part in numbers), strict=True):
            cells[method, cos, law, length] = Printed(*pair)
    return cells

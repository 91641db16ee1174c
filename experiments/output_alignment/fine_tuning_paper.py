"""Tables 2 to 7 and 9 to 11 of Output Alignment, as printed: Llama2-7B, perplexity at 8,192 tokens after 50, 100 and 200 steps.

Tables 9 and 10 have fewer steps where alpha is above 0, for equal computing time. LongBench-E scores are left out: nothing here
compares with them.
"""

from __future__ import annotations

STEPS = (50, 100, 200)
CHEAPER = (47, 95, 190)  # with the misalignment loss, at the cost of so many without it
Perplexities = tuple[float, float, float]

# By corpus and alpha; CLEX, trained at 4,096 tokens
TABLE_2: dict[str, dict[float, Perplexities]] = {
    "RedPajama-Book": {0.0: (7.21, 6.56, 6.12), 0.1: (6.89, 6.24, 5.88), 0.5: (7.44, 7.01, 6.54)},
    "PG19": {0.0: (8.92, 7.89, 7.45), 0.1: (8.95, 7.92, 7.3), 0.5: (9.42, 8.59, 8.2)},
}
# By adjustment and alpha; trained at 8,192 tokens
TABLE_3: dict[tuple[str, float], Perplexities] = {
    ("longqlora", 0.0): (6.82, 6.41, 5.82),
    ("longqlora", 0.1): (6.72, 6.39, 5.77),
    ("longqlora", 0.5): (7.07, 6.62, 5.92),
    ("eabf", 0.0): (6.89, 6.52, 6.01),
    ("eabf", 0.1): (6.92, 6.43, 5.91),
    ("eabf", 0.5): (7.14, 6.78, 6.34),
}
# As Table 2, RedPajama-Book
TABLE_4: dict[float, Perplexities] = {
    0.0: (7.21, 6.56, 6.12),
    0.1: (6.89, 6.24, 5.88),
    0.3: (6.95, 6.35, 5.98),
    0.5: (7.44, 7.01, 6.54),
    1.0: (16.21, 14.12, 12.92),
}
# By the range of e; LongQLora at 8,192, alpha 0.1
TABLE_5: dict[str, Perplexities] = {
    "1..L/2": (6.72, 6.39, 5.77),
    "1..L/4": (6.77, 6.29, 5.81),
    "L/4..L/2": (6.82, 6.47, 5.94),
    "1..L": (15.65, 13.59, 12.52),
}
# BABILong in percent, by alpha: at 4K, 8K and 16K, which are 1, 2 and 4 training lengths
TABLE_6: dict[float, dict[int, float]] = {0.0: {1: 48.2, 2: 42.4, 4: 37.9}, 0.1: {1: 49.1, 2: 44.4, 4: 40.1}}
# Question type 1 at 16K, by depth
TABLE_7: dict[float, dict[float, float]] = {
    0.0: {0.0: 75, 0.25: 64, 0.5: 30, 0.75: 69},
    0.1: {0.0: 73, 0.25: 64, 0.5: 38, 0.75: 74},
}
# Table 2, alpha above 0 after 47, 95 and 190 steps
TABLE_9: dict[str, dict[float, Perplexities]] = {
    "RedPajama-Book": {0.0: (7.21, 6.56, 6.12), 0.1: (6.92, 6.27, 5.91), 0.5: (7.62, 7.16, 6.61)},
    "PG19": {0.0: (8.92, 7.89, 7.45), 0.1: (9.02, 8.01, 7.39), 0.5: (9.82, 8.62, 8.29)},
}
# Table 3 likewise
TABLE_10: dict[tuple[str, float], Perplexities] = {
    ("longqlora", 0.0): (6.82, 6.41, 5.82),
    ("longqlora", 0.1): (6.79, 6.42, 5.74),
    ("longqlora", 0.5): (7.19, 6.65, 5.96),
    ("eabf", 0.0): (6.89, 6.52, 6.01),
    ("eabf", 0.1): (7.01, 6.48, 5.86),
    ("eabf", 0.5): (7.32, 6.88, 6.42),
}
# Each technique alone, trained at 8,192: plain fine-tuning (its "raw"), two adjustments, the misalignment loss
TABLE_11: dict[tuple[str, float], Perplexities] = {
    ("none", 0.0): (21.73, 18.52, 16.13),
    ("longqlora", 0.0): (6.82, 6.41, 5.82),
    ("eabf", 0.0): (6.89, 6.52, 6.01),
    ("none", 0.1): (19.25, 15.47, 11.24),
}

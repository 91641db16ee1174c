"""Numbers of Chi et al. (attention alignment, T5), as printed: figures only, by table and row."""

from __future__ import annotations

# What the columns of Tables 4 and 9 count: topics, lines, and what the paper calls sentences and can only be characters
SIZES = {
    "topic": (5, 10, 15, 20, 25),
    "line": (200, 300, 400, 500, 600, 680),
    "passkey": (20000, 30000, 40000, 50000, 55000),
}
UNITS = {"topic": "topics", "line": "lines", "passkey": "characters of filler"}
TRAIN_LENGTH = 512

Row = dict[str, tuple[float, ...]]

# Table 1: mean of all rows of Flan-T5-XL's encoder without a method, (512 tokens, 15k tokens)
TABLE_1_MODEL = "Flan-T5-XL"
TABLE_1_LENGTHS = (512, 15000)
TABLE_1: dict[str, Row] = {
    "pmax": {"topic": (0.28, 0.12), "line": (0.27, 0.11), "passkey": (0.32, 0.24)},
    "entropy": {"topic": (3.47, 6.63), "line": (3.47, 7.04), "passkey": (3.09, 5.97)},
}

# Table 3: perplexity of LM-adapted T5, (model, method) by length; ">1000" is how it is printed
TABLE_3_LENGTHS = (1024, 2048, 4096, 8192, 15000)
TABLE_3: dict[tuple[str, str], tuple[float | str, ...]] = {
    ("T5-Large-LM", "none"): (35.9, 40.1, ">1000", ">1000", ">1000"),
    ("T5-Large-LM", "pmax"): (34.7, 45.5, 45.2, 45.5, 52.7),
    ("T5-Large-LM", "entropy"): (40.2, 43.9, 45.6, 54.6, 56.0),
    ("T5-Large-LM", "log"): (39.8, 38.2, 47.4, 45.3, 55.9),
    ("T5-XL-LM", "none"): (28.3, ">1000", ">1000", ">1000", ">1000"),
    ("T5-XL-LM", "pmax"): (30.2, 36.0, 31.6, 41.7, 50.0),
    ("T5-XL-LM", "entropy"): (30.4, 36.8, 38.4, 53.3, 63.4),
    ("T5-XL-LM", "log"): (27.3, 29.4, 31.7, 39.3, 45.8),
    ("T5-XXL-LM", "none"): (109, ">1000", ">1000", ">1000", ">1000"),
    ("T5-XXL-LM", "pmax"): (32.2, 29.7, 29.5, 36.6, 44.3),
    ("T5-XXL-LM", "entropy"): (26.8, 28.1, 34.2, 37.8, 43.8),
    ("T5-XXL-LM", "log"): (27.1, 36.1, 33.9, 246, 43.8),
}

# Table 8: temperatures of language modelling at the lengths of Table 3; the log law's do not depend on the model
TABLE_8: dict[tuple[str, str], tuple[float, ...]] = {
    ("T5-Large-LM", "pmax"): (0.9, 0.85, 0.8, 0.75, 0.7),
    ("T5-Large-LM", "entropy"): (0.8, 0.7, 0.6, 0.5, 0.5),
    ("T5-XL-LM", "pmax"): (0.9, 0.85, 0.75, 0.7, 0.6),
    ("T5-XL-LM", "entropy"): (0.85, 0.7, 0.55, 0.5, 0.5),
    ("T5-XXL-LM", "pmax"): (0.9, 0.85, 0.65, 0.55, 0.5),
    ("T5-XXL-LM", "entropy"): (0.85, 0.7, 0.7, 0.55, 0.5),
    ("any", "log"): (0.9, 0.82, 0.75, 0.69, 0.65),
}

# Table 7: largest entry of the sorted, averaged logits of Flan-T5-XL's first layer, (512 tokens, 15k tokens)
TABLE_7: Row = {"topic": (8.61, 8.8), "line": (8.71, 8.97), "passkey": (8.75, 8.85)}

# Table 4: percent right, (model, method) by task and size; none, P_max-aligned, entropy-aligned, the log law
TABLE_4: dict[tuple[str, str], Row] = {
    ("Flan-T5-Large", "none"): {
        "topic": (99, 100, 97, 97, 83),
        "line": (97, 100, 92, 96, 93, 92),
        "passkey": (62, 47, 31, 16, 9),
    },
    ("Flan-T5-Large", "pmax"): {
        "topic": (96, 90, 86, 94, 98),
        "line": (99, 98, 98, 98, 98, 100),
        "passkey": (84, 90, 85, 79, 85),
    },
    ("Flan-T5-Large", "entropy"): {
        "topic": (59, 32, 16, 0, 3),
        "line": (97, 90, 94, 83, 93, 88),
        "passkey": (29, 25, 21, 15, 22),
    },
    ("Flan-T5-Large", "log"): {
        "topic": (88, 79, 75, 61, 55),
        "line": (99, 99, 98, 99, 97, 98),
        "passkey": (74, 63, 51, 41, 35),
    },
    ("Flan-T5-XL", "none"): {
        "topic": (100, 100, 100, 100, 100),
        "line": (96, 90, 77, 57, 45, 26),
        "passkey": (100, 100, 100, 100, 100),
    },
    ("Flan-T5-XL", "pmax"): {
        "topic": (100, 100, 100, 100, 100),
        "line": (97, 90, 89, 80, 70, 62),
        "passkey": (100, 99, 100, 100, 100),
    },
    ("Flan-T5-XL", "entropy"): {
        "topic": (99, 98, 97, 96, 96),
        "line": (95, 87, 88, 79, 70, 71),
        "passkey": (100, 100, 100, 100, 100),
    },
    ("Flan-T5-XL", "log"): {
        "topic": (99, 100, 100, 100, 100),
        "line": (98, 88, 81, 86, 60, 67),
        "passkey": (100, 100, 100, 100, 99),
    },
    ("Flan-T5-XXL", "none"): {
        "topic": (100, 100, 100, 99, 99),
        "line": (100, 100, 98, 95, 84, 82),
        "passkey": (100, 100, 100, 100, 100),
    },
    ("Flan-T5-XXL", "pmax"): {
        "topic": (100, 100, 100, 99, 99),
        "line": (97, 99, 96, 97, 94, 95),
        "passkey": (100, 98, 100, 100, 100),
    },
    ("Flan-T5-XXL", "entropy"): {
        "topic": (100, 100, 97, 98, 94),
        "line": (99, 92, 92, 76, 58, 58),
        "passkey": (100, 100, 100, 100, 100),
    },
    ("Flan-T5-XXL", "log"): {
        "topic": (100, 100, 99, 98, 92),
        "line": (100, 98, 94, 93, 84, 90),
        "passkey": (100, 100, 100, 100, 100),
    },
    ("LongChat", "none"): {
        "topic": (100, 100, 100, 99, 89),
        "line": (100, 91, 93, 83, 78, 59),
        "passkey": (100, 100, 99, 100, 99),
    },
}

# Table 9: temperatures, (model, method) by task and size; the log law's do not depend on the model
TABLE_9: dict[tuple[str, str], Row] = {
    ("Flan-T5-Large", "pmax"): {
        "topic": (0.85, 0.8, 0.75, 0.75, 0.75),
        "line": (0.85, 0.8, 0.8, 0.75, 0.75, 0.75),
        "passkey": (0.85, 0.8, 0.8, 0.75, 0.75),
    },
    ("Flan-T5-Large", "entropy"): {
        "topic": (0.7, 0.6, 0.55, 0.5, 0.5),
        "line": (0.65, 0.55, 0.55, 0.5, 0.5, 0.5),
        "passkey": (0.6, 0.55, 0.5, 0.5, 0.5),
    },
    ("Flan-T5-XL", "pmax"): {
        "topic": (0.8, 0.75, 0.7, 0.65, 0.65),
        "line": (0.8, 0.75, 0.75, 0.7, 0.7, 0.7),
        "passkey": (0.85, 0.8, 0.75, 0.75, 0.75),
    },
    ("Flan-T5-XL", "entropy"): {
        "topic": (0.7, 0.55, 0.55, 0.5, 0.5),
        "line": (0.6, 0.55, 0.55, 0.5, 0.5, 0.5),
        "passkey": (0.7, 0.65, 0.6, 0.6, 0.6),
    },
    ("Flan-T5-XXL", "pmax"): {
        "topic": (0.85, 0.8, 0.75, 0.75, 0.75),
        "line": (0.8, 0.8, 0.75, 0.75, 0.75, 0.75),
        "passkey": (0.85, 0.8, 0.8, 0.75, 0.75),
    },
    ("Flan-T5-XXL", "entropy"): {
        "topic": (0.75, 0.65, 0.6, 0.55, 0.55),
        "line": (0.65, 0.6, 0.6, 0.55, 0.55, 0.55),
        "passkey": (0.65, 0.6, 0.55, 0.55, 0.5),
    },
    ("any", "log"): {
        "topic": (0.79, 0.72, 0.69, 0.67, 0.65),
        "line": (0.74, 0.71, 0.69, 0.67, 0.66, 0.65),
        "passkey": (0.73, 0.69, 0.67, 0.66, 0.65),
    },
}


def tokens(task: str) -> list[int]:
    """About how many tokens the inputs of a task's sizes have: Table 9's log temperature is ln 512 / ln tokens."""
    return [100 * round(TRAIN_LENGTH ** (1 / tau) / 100) for tau in TABLE_9["any", "log"][task]]

"""Multi-document question answering in Chi et al., as printed: Tables 14 (of which Table 5 holds means and gains) and 10."""

from __future__ import annotations

# Places of the gold document, from 0 on, by the number of documents
POSITIONS = {
    10: (0, 4, 9),
    20: (0, 4, 9, 14, 19),
    30: (0, 4, 9, 14, 19, 24, 29),
}

# Table 14: percent right, (model, method) by number of documents and position. One gain of Table 5 does not follow from it:
# Flan-T5-Large, 30 documents, position 4 is printed as +1.5, and its cells say +2.5
TABLE_14: dict[tuple[str, str], dict[int, tuple[float, ...]]] = {
    ("Flan-T5-Large", "none"): {
        10: (60.6, 48.5, 48.0),
        20: (54.5, 44.0, 39.6, 38.0, 40.2),
        30: (52.6, 42.0, 36.5, 34.0, 33.9, 33.9, 37.9),
    },
    ("Flan-T5-Large", "pmax"): {
        10: (60.9, 49.8, 48.6),
        20: (53.5, 45.6, 40.8, 39.7, 41.3),
        30: (50.8, 44.5, 39.5, 36.4, 35.9, 35.8, 37.0),
    },
    ("Flan-T5-Large", "entropy"): {
        10: (58.9, 50.1, 47.3),
        20: (52.4, 45.2, 40.4, 38.0, 40.0),
        30: (47.6, 41.1, 35.2, 33.5, 32.2, 33.3, 34.2),
    },
    ("Flan-T5-Large", "log"): {
        10: (60.2, 51.1, 48.4),
        20: (53.8, 46.0, 41.4, 39.4, 41.7),
        30: (50.6, 44.1, 39.3, 36.3, 35.8, 35.8, 37.2),
    },
    ("Flan-T5-XL", "none"): {
        10: (64.0, 55.4, 58.9),
        20: (60.6, 47.9, 45.1, 47.3, 55.3),
        30: (58.4, 44.6, 40.0, 39.9, 41.7, 46.4, 54.8),
    },
    ("Flan-T5-XL", "pmax"): {
        10: (65.3, 57.3, 60.8),
        20: (62.2, 51.6, 49.0, 49.4, 56.0),
        30: (60.9, 49.1, 46.0, 44.9, 46.3, 49.1, 55.7),
    },
    ("Flan-T5-XL", "entropy"): {
        10: (64.7, 56.7, 60.0),
        20: (59.3, 50.1, 47.9, 49.8, 55.1),
        30: (52.4, 43.5, 42.1, 40.3, 42.0, 42.9, 51.3),
    },
    ("Flan-T5-XL", "log"): {
        10: (65.1, 57.0, 60.6),
        20: (62.2, 51.7, 48.8, 49.5, 56.0),
        30: (61.0, 49.1, 46.1, 44.7, 46.1, 48.7, 55.4),
    },
    ("Flan-T5-XXL", "none"): {
        10: (65.1, 61.0, 64.6),
        20: (61.1, 53.9, 52.4, 54.7, 62.4),
        30: (58.9, 49.1, 48.1, 47.5, 48.9, 53.1, 61.2),
    },
    ("Flan-T5-XXL", "pmax"): {
        10: (66.2, 61.8, 63.2),
        20: (62.8, 55.9, 54.4, 55.6, 59.6),
        30: (60.4, 52.5, 51.0, 50.2, 51.3, 53.5, 59.1),
    },
    ("Flan-T5-XXL", "entropy"): {
        10: (67.3, 62.1, 61.3),
        20: (63.2, 56.1, 54.1, 54.3, 57.6),
        30: (61.0, 53.4, 50.8, 50.3, 50.7, 51.9, 55.7),
    },
    ("Flan-T5-XXL", "log"): {
        10: (66.7, 61.9, 63.1),
        20: (63.1, 56.0, 54.7, 55.1, 59.0),
        30: (61.5, 53.3, 51.3, 50.3, 51.1, 53.0, 57.2),
    },
}

# Table 10: temperatures, (model, method) by number of documents; the log law's do not depend on the model
TABLE_10_TOKENS = {10: 1700, 20: 3300, 30: 5000}
TABLE_10: dict[tuple[str, str], tuple[float, ...]] = {
    ("Flan-T5-Large", "pmax"): (0.9, 0.85, 0.8),
    ("Flan-T5-Large", "entropy"): (0.75, 0.65, 0.6),
    ("Flan-T5-XL", "pmax"): (0.85, 0.75, 0.75),
    ("Flan-T5-XL", "entropy"): (0.75, 0.65, 0.55),
    ("Flan-T5-XXL", "pmax"): (0.9, 0.8, 0.8),
    ("Flan-T5-XXL", "entropy"): (0.75, 0.7, 0.65),
    ("any", "log"): (0.84, 0.77, 0.73),
}


def mean(model: str, method: str, documents: int) -> float:
    """Over positions, as Table 5 has it."""
    values = TABLE_14[model, method][documents]
    return sum(values) / len(values)


def gains(model: str, documents: int) -> list[float]:
    """By position: P_max-aligned less plain, in points."""
    pairs = zip(TABLE_14[model, "pmax"][documents], TABLE_14[model, "none"][documents], strict=True)
    return [aligned - plain for aligned, plain in pairs]

"""Draw the README's figure, docs/images/reach.png, from the results of a T5 that others trained.

python -m scripts.readme_figure
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments._lib import draw

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments"
MODEL = "flan_t5_small"
METHODS = {
    "answers-head": "temperatures fitted to made-up answers, one a head",
    "none": "as it is",
    "truncate": "the last 512 tokens",
    "pmax-model": "one temperature, as sharp as at 512 tokens",
}
QUESTIONS = {"made_up": "made-up questions", "natural_questions": "Natural Questions, not fitted"}
DOCUMENTS = (3, 10, 20, 30)
Points = list[tuple[int, float, float, float]]  # tokens, percent right, and its interval


def read(path: str) -> Any:
    return json.loads((RESULTS / path).read_text())


def in_novels() -> dict[str, Points]:
    """Numbers found in a novel, by length."""
    points: dict[str, Points] = {method: [] for method in METHODS}
    for cell in read(f"retrieval/results/{MODEL}.json")["cells"]:
        if cell["task"] == "passkey-novels" and cell["method"] in points:
            points[cell["method"]].append((cell["length"], *(100 * cell[field] for field in ("mean", "low", "high"))))
    return points


def answered(kind: str) -> dict[str, Points]:
    """Questions answered, over all places of the answer, by the length of the documents."""
    cells = read(f"questions/results/{MODEL}-{kind}.json")["cells"]
    lengths = {int(cell["task"].split("-")[0]): cell["length"] for cell in cells}
    means = {(m["method"], m["documents"]): m for m in read(f"questions/results/{MODEL}-{kind}.over_places.json")["means"]}
    return {
        method: [(lengths[n], *(means[method, n][field] for field in ("mean", "low", "high"))) for n in DOCUMENTS]
        for method in METHODS
    }


def main() -> None:
    drawn = {"a number hidden in a novel": in_novels()} | {title: answered(kind) for kind, title in QUESTIONS.items()}
    figure, panels = draw.panels(len(drawn), width=3.1, height=2.3, titles=list(drawn), share_y=True, key=0.5)
    for axes, points in zip(panels, drawn.values(), strict=True):
        for at, (method, name) in enumerate(METHODS.items()):
            lengths, *percents = zip(*sorted(points[method]), strict=True)
            draw.curve(axes, lengths, *percents, label=name, at=at)
        # The last two of the novels stand too near each other to be named both
        draw.length_axis(axes, [length for length in lengths if length != 8192])
        draw.train_length(axes, 512)
    panels[0].set_ylabel("percent right")
    draw.key(figure, panels[0], columns=2)
    draw.save(figure, ROOT / "docs/images/reach.png")


if __name__ == "__main__":
    main()

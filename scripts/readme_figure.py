"""Draw the README's figure, docs/images/reach.png, from the records of the retrieval experiment.

python -m scripts.readme_figure
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments._lib import draw

ROOT = Path(__file__).parents[1]
METHODS = {"pmax-model": "calibrated (P_max aligned)", "none": "as it is", "truncate": "last 512 tokens"}
TASKS = {
    "passkey-novels": "a number hidden in a novel",
    "line": "a line of a long record",
    "topic": "a conversation's first topic",
}


def main() -> None:
    cells = json.loads((ROOT / "experiments/retrieval/results/embedded.json").read_text())["cells"]
    figure, panels = draw.panels(len(TASKS), width=3.1, height=2.3, titles=list(TASKS.values()), share_y=True, key=0.3)
    for axes, task in zip(panels, TASKS, strict=True):
        for at, (method, name) in enumerate(METHODS.items()):
            some = sorted(
                (c for c in cells if (c["task"], c["method"], c["data"]) == (task, method, "")), key=lambda c: c["length"]
            )
            mean, low, high = ([100 * cell[field] for cell in some] for field in ("mean", "low", "high"))
            draw.curve(axes, [cell["length"] for cell in some], mean, low, high, label=name, at=at)
        draw.length_axis(axes, [512, 1024, 2048, 4096, 15000])
        draw.train_length(axes, 512)
    panels[0].set_ylabel("percent right")
    draw.key(figure, panels[0])
    draw.save(figure, ROOT / "docs/images/reach.png")


if __name__ == "__main__":
    main()

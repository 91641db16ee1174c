"""The page of a model: percent of pass keys found, by length and by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table
from experiments._lib.page import read_all
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.passkey/1"
ABOUT = """Percent of {samples} pass keys found, with Wilson's 95 % interval: a number of up to five digits, stated twice in
{material}. Prompt and answer together take the length; the model was trained on {train:,} tokens."""
DRAWN = ("none", "streaming_llm", "yarn:factor={factor}", "rerope:window={half}", "truncate")

Numbers = Mapping[str, Any]


def write_pages(results: Path, out: Path) -> None:
    """A page and a figure for every model with results."""
    for name, document in read_all(results, FORMAT):
        write_whole(out / f"{name}.md", page(document, f"{name}.svg"))
        draw.save(chart(document), out / f"{name}.svg")


def page(document: Numbers, figure: str) -> str:
    config, train = document["config"], document["train_length"]
    model, settings = config["model"], config["settings"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {train:,} tokens"]
    lines += [f"{key}: {value}" for key, value in config["made_with"].items()]
    lines += [f"{key}: {settings[key]}" for key in ("dtype", "seed")]
    lines.append(f"command: `{document['command']}`")
    parts = ["# Pass keys in long text", "\n".join(f"- {line}" for line in lines)]
    if document["missing"]:
        parts.append(f"**Unfinished**: {document['missing']:,} answers are missing. The same command goes on.")
    parts.append(ABOUT.format(samples=document["samples"], material=config["tasks"]["passkey"], train=train))
    parts += [f"![Pass keys found]({figure})", _table(document["by_length"], document["samples"], "{:,}")]
    if document["by_depth"]:
        parts += ["By depth, all lengths beyond the training length together; 0 is the beginning:"]
        parts.append(_table(document["by_depth"], 0, "{}"))
    if document["refused"]:
        parts.append("\n".join(["Refused:", "", *(f"- `{name}`: {why}" for name, why in document["refused"].items())]))
    return "\n\n".join(parts) + "\n"


def _table(scores: Sequence[Numbers], samples: int, head: str) -> str:
    """A line a method; how many were asked, where they are fewer than `samples`."""
    places = sorted({score["at"] for score in scores})
    by_place = {(score["method"], score["at"]): score for score in scores}
    names = dict.fromkeys(score["method"] for score in scores)
    rows = [[f"`{name}`", *(_cell(by_place.get((name, at)), samples) for at in places)] for name in names]
    return table(["method", *map(head.format, places)], rows)


def _cell(score: Numbers | None, samples: int) -> str:
    if score is None:
        return ""
    few = f", n {score['n']}" if score["n"] < samples else ""
    return f"{100 * score['mean']:.0f} [{100 * score['low']:.0f}, {100 * score['high']:.0f}{few}]"


def chart(document: Numbers) -> Any:
    figure, (axes,) = draw.panels(1, width=6)
    scores = document["by_length"]
    for at, name in enumerate(name for name in DRAWN if any(score["method"] == name for score in scores)):
        own = sorted((score for score in scores if score["method"] == name), key=lambda score: score["at"])
        bands = ([100 * score[key] for score in own] for key in ("mean", "low", "high"))
        draw.curve(axes, [score["at"] for score in own], *bands, label=name, at=at)
    draw.length_axis(axes, sorted({score["at"] for score in scores}))
    draw.train_length(axes, document["train_length"])
    axes.set(ylabel="pass keys found, percent", ylim=(0, 100))
    axes.legend(frameon=False, fontsize=draw.SMALL)
    return figure

"""The page of the tuning: held-out tasks at 512 tokens before and after."""

from __future__ import annotations

from pathlib import Path

from experiments._lib.markdown import table
from experiments._lib.page import read_all
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.tuned_flan/1"
ABOUT = """{steps:,} of {planned:,} steps of {batch} examples, seed {seed}, {seconds:,} seconds. Percent right, or percent of
edit similarity, of {samples} held-out cases of the experiments' own tasks at 512 tokens; the tuning reads other wordings, other
questions, other code and other novels. A perplexity is lower when better."""


def write_pages(folder: Path, out: Path) -> None:
    for name, document in read_all(folder, FORMAT):
        before, after = (document["held_out"][which] for which in ("as found", "tuned"))
        rows = [[task, f"{before[task]:.1f}", f"{after[task]:.1f}"] for task in after]
        made = [f"- {key}: {value}" for key, value in document["made_with"].items()] + [f"- command: `{document['command']}`"]
        parts = [f"# Tuned for minutes: {Path(document['model']).name}", ABOUT.format(**document)]
        parts += [table(["held out", "as found", "tuned"], rows), "\n".join(made)]
        write_whole(out / f"{name}.md", "\n\n".join(parts) + "\n")

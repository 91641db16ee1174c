"""Figure by figure: where ours is, what it says, and what the paper says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments._lib.markdown import table
from experiments.attention_alignment import paper, paper_code, paper_questions
from experiments.attention_alignment.figures import LAST, PROSE, folder_of
from lengthwise.analysis.records import Analysis, Temperatures, read_analysis
from lengthwise.analysis.tables import notes
from lengthwise.common.files import write_whole
from lengthwise.report.formatting import plain

ENDINGS = ("svg", "png")
GAUSSIAN = "close to the straight line at 512 and at 15,000 tokens: highly Gaussian (Flan-T5-XL)"
BIAS = "one head of Flan-T5-XL looks at near tokens, another at remote ones only"
OBSERVED = """The paper observes that entropy lowers the temperature more than P_max does, and that the log law's is too high
for language modelling and too low for topics. Ours, by text:"""
WANTING = "Temperatures that are missing, or not to be trusted:"
STEP = 0.05  # of the paper's temperatures
COPY = "figures"  # folder of the copies, beside the page


@dataclass(frozen=True)
class Figure:
    """One of the paper's, and which of ours it is."""

    number: str
    title: str
    text: str  # that was analysed
    file: str  # of our figures
    paper: str  # what the paper prints


def _papers(title: str, taus: dict[tuple[str, str], float]) -> str:
    """Temperatures at the longest length: of several models the lowest and the highest."""
    said = []
    for method in ("pmax", "entropy", "log"):
        values = [tau for (_, name), tau in taus.items() if name == method]
        low, high = min(values), max(values)
        said.append(f"{method} {low:g}" if low == high else f"{method} {low:g} to {high:g}")
    return f"{title}: {', '.join(said)}"


def _last_of(task: str) -> dict[tuple[str, str], float]:
    return {key: row[task][-1] for key, row in paper.TABLE_9.items()}


FIGURES = (
    Figure("1", "learned bias of every head", PROSE, "bias", BIAS),
    Figure("2", "QQ plot of the first layer's logits, prose", PROSE, "qq", GAUSSIAN),
    Figure(
        "3",
        "temperatures, language modelling",
        PROSE,
        "temperatures",
        _papers("15,000 tokens (Table 8)", {key: row[-1] for key, row in paper.TABLE_8.items()}),
    ),
    Figure("4", "temperatures, topics", "topic", "temperatures", _papers("25 topics (Table 9)", _last_of("topic"))),
    Figure("5", "QQ plot, topics", "topic", "qq", GAUSSIAN),
    Figure("5", "QQ plot, lines", "line", "qq", GAUSSIAN),
    Figure("5", "QQ plot, pass keys", "passkey", "qq", GAUSSIAN),
    Figure("6", "temperatures, lines", "line", "temperatures", _papers("680 lines (Table 9)", _last_of("line"))),
    Figure("7", "temperatures, pass keys", "passkey", "temperatures", _papers("55,000 letters (Table 9)", _last_of("passkey"))),
    Figure(
        "8",
        "temperatures, multi-document QA",
        "multi_document_qa",
        "temperatures",
        _papers("30 documents (Table 10)", {key: row[-1] for key, row in paper_questions.TABLE_10.items()}),
    ),
    Figure(
        "9",
        "temperatures, code completion",
        "code_completion",
        "temperatures",
        _papers("16,000 tokens (Table 11)", {(paper_code.MODEL, key): row[-1] for key, row in paper_code.TABLE_11.items()}),
    ),
)


def sections(out: Path, beside: Path) -> list[str]:
    """Of the analyses in `out`; figures are copied to a folder `beside` which the page will stand."""
    found = {text: _read(folder_of(out, text)) for text in dict.fromkeys(one.text for one in FIGURES)}
    known = {text: analysis for text, analysis in found.items() if analysis is not None}
    if not known:
        return ["Not drawn yet: `python -m experiments.attention_alignment.figures MODEL --out OUT`."]
    rows = []
    for one in FIGURES:
        if (analysis := known.get(one.text)) is None:
            rows.append([one.number, one.title, "not drawn yet", one.paper, ""])
        else:
            rows.append([one.number, one.title, _ours(one, analysis), one.paper, _copied(one, out, beside)])
    head = ["figure", "what", "ours", "the paper", "drawn"]
    return [table(head, rows, numbers=False), *_notes(known), *_largest(known), *_findings(known)]


def _read(folder: Path) -> Analysis | None:
    """None before figures are drawn: a killed analysis has numbers, and nothing to show."""
    return read_analysis(folder) if (folder / LAST).exists() else None


def _ours(one: Figure, analysis: Analysis) -> str:
    if one.file == "bias":
        sights = [sight.sight_train for sight in analysis.sights]
        if not sights:
            return "no learned bias"
        return f"by their bias alone heads look {min(sights):.0f} to {max(sights):.0f} tokens away at {analysis.train_length:,}"
    if one.file == "qq":
        ends = [analysis.lengths[0], analysis.lengths[-1]]
        return ", ".join(f"r {_number(at.qq_r)} at {at.length:,} tokens" for at in ends)
    last = analysis.temperatures[-1]
    return f"{last.length:,} tokens: {', '.join(f'{name} {_number(tau)}' for name, tau in _accounts(last))}"


def _accounts(at: Temperatures) -> Iterator[tuple[str, float | None]]:
    yield from (("pmax", at.pmax), ("entropy", at.entropy), ("log", at.log_law))
    yield from (("Proposition 1", at.proposition_1), ("Proposition 2", at.proposition_2))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _notes(known: dict[str, Analysis]) -> list[str]:
    """What is missing from these temperatures or not to be trusted, by text."""
    lines = [f"- {text}, {plain(note)}" for text, analysis in known.items() for note in notes(analysis)]
    return [WANTING, "\n".join(lines)] if lines else []


def _copied(one: Figure, out: Path, beside: Path) -> str:
    """A link, relative to the page."""
    name = f"{folder_of(out, one.text).name}-{one.file}"
    for ending in ENDINGS:
        source = folder_of(out, one.text) / "figures" / f"{one.file}.{ending}"
        if source.exists():
            write_whole(beside / COPY / f"{name}.{ending}", source.read_bytes())
    return f"[{name}]({COPY}/{name}.{ENDINGS[0]})"


def _largest(known: dict[str, Analysis]) -> list[str]:
    """Table 7."""
    rows: list[Sequence[object]] = []
    for text, analysis in known.items():
        first, last = analysis.lengths[0], analysis.lengths[-1]
        rows.append([f"ours, {text}", f"{first.top:.2f} at {first.length:,}", f"{last.top:.2f} at {last.length:,}"])
    rows += [[f"{paper.TABLE_1_MODEL}, {task}", *pair] for task, pair in paper.TABLE_7.items()]
    head = ["largest entry of the first layer's sorted, averaged logits", "short", "long"]
    return ["## Table 7: the largest logit", table(head, rows)]


def _findings(known: dict[str, Analysis]) -> list[str]:
    """The paper's two observations on these curves, held against ours."""
    lines = []
    for text, analysis in known.items():
        last = analysis.temperatures[-1]
        if last.pmax is None or last.entropy is None:
            lines.append(f"- {text}: no temperature brings a statistic back at {last.length:,} tokens")
            continue
        entropy = "lowers" if last.entropy < last.pmax else "does not lower"
        apart = last.log_law - last.pmax
        log = "about right" if abs(apart) < STEP / 2 else "too high" if apart > 0 else "too low"
        lines.append(
            f"- {text}, {last.length:,} tokens: entropy {entropy} the temperature more than P_max does ({last.entropy:.3f} "
            f"against {last.pmax:.3f}); the log law's {last.log_law:.3f} is {log} for P_max"
        )
    return [OBSERVED, "\n".join(lines)]

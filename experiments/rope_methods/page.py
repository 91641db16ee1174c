"""The page: what came out, tables with intervals, and the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments._lib.markdown import table
from experiments.rope_methods import findings
from experiments.rope_methods.contenders import ALIGNED, PLAIN, TEMPERATURES
from experiments.rope_methods.findings import TARGET, Against
from experiments.rope_methods.results import GOLD, Results
from lengthwise.report.formatting import listed
from lengthwise.tasks.perplexity import Bucket, Ratio

ABOUT = """Perplexity of {streams} streams of {source}, each read in one forward, by position; the columns up to {train} hold
the predictions from no more tokens than the model was trained on. {gold}In brackets 95 % bootstrap intervals over {resampled};
of a hundred comparisons between equals about five would fall outside theirs. Every method is training-free."""
EXACT = """`{name}` reads the last {window} tokens afresh for every token: what the model can do at best without any method, at
{window} times the work. Ratios are perplexities over those of re-encoding, or of another method, on the same tokens. """
STRIDED = """`{name}` reads the last {window} tokens afresh every {stride} tokens, so that all later ones are told from {least}
tokens or more: what is done without any method, at {times} times the work. Ratios are perplexities over those of this
re-encoding, or of another method, on the same tokens. """


def page(
    results: Results, facts: Mapping[str, Any], refused: Mapping[str, str], pictures: Sequence[str], passkey: str | None = None
) -> str:
    """`passkey` is what the other experiment of the same folder has to say."""
    parts = ["# Length methods on a model with rotary positions", _told(facts)]
    if facts["missing"]:
        parts.append(f"**Unfinished**: {facts['missing']:,} cells are missing. The same command goes on.")
    if results.lengths:
        parts.append(_about(results, facts["source"]))
    parts += ["## What came out", *(said for length in results.lengths for said in _answers(results, length))]
    for length in results.lengths:
        parts += [f"## {length:,} tokens", *_tables(results, length, pictures)]
    if passkey is not None:
        parts += ["## Pass keys", passkey]
    if refused:
        parts += ["## Refused", "\n".join(f"- `{name}`: {why}" for name, why in refused.items())]
    return "\n\n".join(parts) + "\n"


def _about(results: Results, source: str) -> str:
    kinds = [row.whole.resampled for length in results.lengths for row in results.rows(length)[:1]]
    told = listed(list(dict.fromkeys(kinds)))
    gold, said = results.reencoding, ""
    if any(results.nll(GOLD, length) is not None for length in results.lengths):
        said = (EXACT if gold.stride == 1 else STRIDED).format(
            name=gold.name,
            window=f"{gold.window:,}",
            stride=f"{gold.stride:,}",
            least=f"{gold.window - gold.stride + 1:,}",
            times=f"{gold.window / gold.stride:.3g}",
        )
    return ABOUT.format(streams=results.streams, source=source, train=f"{gold.window:,}", gold=said, resampled=told)


def _tables(results: Results, length: int, pictures: Sequence[str]) -> list[str]:
    if findings.unchanged(results, length) is not None:
        return [_ranking(results, length)]
    shown = [f"![{name}]({name})" for name in pictures if name.endswith(f"-{length}.svg")]
    tables = [*_combined(results, length), *_temperatures(results, length), *_calibrated(results, length)]
    return [*shown, _ranking(results, length), *tables]


def _told(facts: Mapping[str, Any]) -> str:
    model = facts["model"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {facts['train_length']:,} tokens"]
    lines += [f"{key}: {value}" for key, value in facts["made_with"].items()]
    lines += [f"{key}: {facts[key]}" for key in ("dtype", "seed", "streams")]
    return "\n".join(f"- {line}" for line in [*lines, f"command: `{facts['command']}`"])


def _answers(results: Results, length: int) -> list[str]:
    """The questions of the comparison, answered from the numbers."""
    if (same := findings.unchanged(results, length)) is not None:
        return [f"### {length:,} tokens", f"- {_unchanged(results, length, len(same))}"]
    lines = []
    if (best := findings.best(results, length)) is not None:
        lines.append(_best(best, results.reencoding.name))
    combined = findings.combinations(results, length)
    if combined:
        better = [one for one in combined if one.verdict == "better"]
        named = [f"`{results.spec(one.method, length)}` ({findings.times(one.ratio)})" for one in better]
        which = f": {listed(named)}" if named else ""
        lines.append(
            f"{len(better)} of {len(combined)} combinations beat the better of their parts beyond the interval{which}."
        )
    specs = {name: results.spec(name, length) for name in results.methods(length)}
    lines += findings.said_of_temperatures(findings.temperatures(results, length), specs)
    return [f"### {length:,} tokens", "\n".join(f"- {line}" for line in lines)] if lines else []


def _unchanged(results: Results, length: int, same: int) -> str:
    plain = next(row for row in results.rows(length) if row.method == PLAIN)
    others = findings.changed(results, length)
    said = f"Up to the training length {same} of {same + len(others)} methods are exactly the plain model, token by token"
    said += f": perplexity {_cell(plain.whole)}."
    named = [f"`{results.spec(one.method, length)}` ({findings.times(one.ratio)})" for one in others]
    return f"{said} The others: {listed(named)}." if named else said


def _best(best: findings.Best, gold: str) -> str:
    row, plain = best.row, best.plain
    said = f"The best method is `{row.spec}`: perplexity {_cell(row.whole)}"
    if row.against is not None:
        target = f"the target of {TARGET:g} is {'reached' if best.reached else '**not reached**'}"
        beyond = f", {_ratio(row.beyond)} beyond the training length" if row.beyond is not None else ""
        said += f", {_ratio(row.against)} times {gold}{beyond}; {target}"
    if plain is not None:
        times = f", {_ratio(plain.against)} times {gold}" if plain.against is not None else ""
        said += f". The plain model: {_cell(plain.whole)}{times}"
    return said + "."


def _ranking(results: Results, length: int) -> str:
    """Columns against re-encoding only where there is one; methods that are exactly the plain model share its line."""
    rows, same = results.rows(length), findings.unchanged(results, length) or []
    edges = [f"{bucket.first:,}-{bucket.last:,}" for bucket in rows[0].buckets]
    compared = rows[0].method == GOLD
    against = [f"over {results.reencoding.name}", "beyond training length"] if compared else []
    lines = []
    for row in rows:
        if row.method in same:
            continue
        named = [row.spec, *(results.spec(name, length) for name in same)] if row.method == PLAIN else [row.spec]
        ratios = [_ratio(row.against), _ratio(row.beyond)] if compared else []
        seconds = "" if row.seconds is None else f"{row.seconds:.0f}"
        lines.append([listed([f"`{name}`" for name in named]), *map(_cell, row.buckets), _cell(row.whole), *ratios, seconds])
    return table(["method", *edges, "all", *against, "seconds"], lines)


def _combined(results: Results, length: int) -> list[str]:
    found = sorted(findings.combinations(results, length), key=lambda one: one.ratio.ratio)
    if not found:
        return []
    rows = [_against(results, one) for one in found]
    return [
        "### Combinations against the better of their parts",
        table(["combination", "part", "ratio", ""], rows, numbers=False),
    ]


def _temperatures(results: Results, length: int) -> list[str]:
    found = findings.temperatures(results, length)
    laws = [law for law in (*TEMPERATURES, *ALIGNED) if any(law in row for row in found.values())]
    if not laws:
        return []
    rows = [
        [f"`{results.spec(base, length)}`", *(_ratio(row[law].ratio) if law in row else "" for law in laws)]
        for base, row in found.items()
    ]
    about = "With the temperature over without it, in perplexity; below 1 it helps."
    return ["### Temperatures", about, table(["on", *laws], rows)]


def _calibrated(results: Results, length: int) -> list[str]:
    found = sorted(findings.calibrated(results, length), key=lambda one: one.ratio.ratio)
    if not found:
        return []
    about = "Perplexity over that of YaRN with the temperature it was given by hand."
    rows = [_against(results, one) for one in found]
    return ["### Calibrated against YaRN's factor", about, table(["method", "against", "ratio", ""], rows, numbers=False)]


def _against(results: Results, one: Against) -> list[str]:
    specs = [f"`{results.spec(name, one.length)}`" for name in (one.method, one.other)]
    return [*specs, _ratio(one.ratio), one.verdict]


def _cell(bucket: Bucket) -> str:
    return f"{_number(bucket.perplexity)} [{_number(bucket.low)}, {_number(bucket.high)}]"


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{_fine(ratio.ratio)} [{_fine(ratio.low)}, {_fine(ratio.high)}]"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _fine(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"

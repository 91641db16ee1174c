"""Write the GPU tables of docs/benchmarks.md from the records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.gpu.results import Record, find
from benchmarks.gpu.targets import promises, times_as_fast
from experiments._lib.markdown import table

ATTENTION = ("lengthwise", "lengthwise+statistics", "torch_flash", "cudnn", "flex", "sdpa_dense_bias", "eager")
OURS, MARKS = ("lengthwise", "lengthwise+statistics"), ("torch_flash", "cudnn")
ENCODER = ("lengthwise", "transformers_sdpa", "transformers_eager")
NOTHING = "-"
TITLES = {
    "attention": "Forward",
    "backward": "Forward and backward",
    "dropout": "Forward and backward with a dropout of 0.1",
}


def page(records: Sequence[Record]) -> str:
    parts = [_head(records)]
    for what, title in TITLES.items():
        if some := [r for r in records if r["what"] == what]:
            parts += [f"### {title}", _times(some), _ratios(what, some)]
            parts += [_memory(some)] if any(r["extra_gb"] is not None for r in some) else []
    if some := [r for r in records if r["what"] in ("encoder", "longest")]:
        parts += ["### Whole encoders", _encoders(some)]
    if some := [r for r in records if r["what"] == "training"]:
        parts += ["### Training steps", _models("training", some)]
    if some := [r for r in records if r["what"] == "calibration"]:
        parts += ["### Calibration", _calibrations(some)]
    parts += ["### Targets, set beforehand", "\n".join(f"- {promise}" for promise in promises(records))]
    return "\n\n".join(parts)


def _head(records: Sequence[Record]) -> str:
    """The machine and its two ceilings."""
    machine = "; ".join(
        dict.fromkeys(f"{r['device']}, {', '.join(f'{k} {v}' for k, v in r['versions'].items())}" for r in records)
    )
    runs = dict.fromkeys(r["run"] for r in records)
    products, copies = ([r for r in records if r["implementation"] == name] for name in ("matmul", "copy"))
    found = []
    if products:
        found.append(f"a matrix product ({products[0]['shape']}) ran at {_each(products, 'tflops', '.0f')} TFLOP/s")
    if copies:
        found.append(f"a copy in device memory at {_each(copies, 'tb_s', '.2f')} TB/s, read and written")
    when = "In the same run" if len(runs) == 1 else f"The records are of {len(runs)} runs and every ratio is of one; in them"
    return f"{machine}. {when} {' and '.join(found)}." if found else f"{machine}."


def _each(records: Sequence[Record], field: str, form: str) -> str:
    return ", ".join(format(record[field], form) for record in records)


def _times(records: Sequence[Record]) -> str:
    def cell(record: Record) -> str:
        alone = record.get("backward_seconds")
        extra = "" if alone is None else f" ({_figure(1e3 * alone)})"
        return f"{_figure(1e3 * record['seconds'])}{extra}, {record['tflops']:.0f}"

    note = "Milliseconds" + ("" if records[0]["what"] == "attention" else " (of the backward alone)") + ", TFLOP/s:"
    return f"{note}\n\n{_grid(records, cell)}"


def _memory(records: Sequence[Record]) -> str:
    def cell(record: Record) -> str:
        return _figure(record["extra_gb"])

    return f"Gigabytes above the inputs:\n\n{_grid([r for r in records if r['extra_gb'] is not None], cell)}"


def _ratios(what: str, records: Sequence[Record]) -> str:
    """Speed as a multiple of the marks', measured in turns with them; short calls also without the host's part."""
    mine = [name for name in OURS if any(r["implementation"] == name for r in records)]
    pairs = [(own, mark) for own in mine for mark in MARKS]
    kinds = [("", "seconds")]
    kinds += [(", as a CUDA graph", "graph_seconds")] if what == "attention" else [(", backward alone", "backward_seconds")]
    rows = []
    for length in _lengths(records):
        for words, field in kinds:
            values = [times_as_fast(records, what, length, own, mark, field=field) for own, mark in pairs]
            if any(value is not None for value in values):
                rows.append([f"{length:,}{words}", *(NOTHING if value is None else f"{value:.2f}" for value in values)])
        direct = {(OURS[0], mark): times_as_fast(records, what, length, "accelerate", mark) for mark in MARKS}
        if any(direct.values()):
            rows.append([f"{length:,}, under accelerate", *(f"{direct[p]:.2f}" if direct.get(p) else NOTHING for p in pairs)])
    return f"Times as fast:\n\n{table(['length', *(f'{own} / {mark}' for own, mark in pairs)], rows)}"


def _encoders(records: Sequence[Record]) -> str:
    text = _models("encoder", [r for r in records if r["what"] == "encoder"])
    fits = [f"{r['shape']}, {r['implementation']}: {r['length']:,}, {r['note']}" for r in records if r["what"] == "longest"]
    return (
        "\n".join([text, "", "The longest length that fits, by doubling:", "", *(f"- {one}" for one in fits)]) if fits else text
    )


def _models(what: str, some: Sequence[Record]) -> str:
    head = ["shape", "length", *(f"{name}, {unit}" for name in ENCODER for unit in ("s, TFLOP/s", "GB")), "times as fast"]
    rows = []
    for shape in dict.fromkeys(sorted(r["shape"] for r in some)):
        same = [r for r in some if r["shape"] == shape]
        for length in _lengths(same):
            found = [find(same, implementation=name, length=length) for name in ENCODER]
            cells = [_or_note(r, lambda r: f"{_figure(r['seconds'])}, {r['tflops']:.0f}") for r in found]
            memory = [NOTHING if r is None or r["extra_gb"] is None else _figure(r["extra_gb"]) for r in found]
            ratios = [times_as_fast(same, what, length, ENCODER[0], name) for name in ENCODER[1:]]
            least = min((ratio for ratio in ratios if ratio is not None), default=None)
            ratio = NOTHING if least is None else f"{least:.1f}"
            rows.append(
                [shape, _sequences(found, length), *(c for pair in zip(cells, memory, strict=True) for c in pair), ratio]
            )
    return table(head, rows)


def _sequences(found: Sequence[Record | None], length: int) -> str:
    rows = max((r.get("rows", 1) for r in found if r is not None), default=1)
    return f"{length:,}" if rows == 1 else f"{rows} x {length:,}"


def _calibrations(records: Sequence[Record]) -> str:
    rows = [
        [r["shape"], f"{r['length']:,}", r["scope"], _or_note(r, lambda r: _figure(r["seconds"])), r.get("forwards", NOTHING)]
        for r in records
    ]
    return table(["shape", "length", "scope", "seconds a sequence", "long forwards"], rows)


def _grid(records: Sequence[Record], cell: Callable[[Record], str]) -> str:
    """A row a length, a column an implementation."""
    names = [name for name in ATTENTION if any(r["implementation"] == name for r in records)]
    rows = [
        [f"{length:,}", *(_or_note(find(records, implementation=name, length=length), cell) for name in names)]
        for length in _lengths(records)
    ]
    return table(["length", *names], rows)


def _or_note(record: Record | None, cell: Callable[[Record], str]) -> str:
    if record is None:
        return NOTHING
    if record["seconds"] is None:
        return str(record.get("note", NOTHING)).split(":")[0]
    return cell(record)


def _figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _lengths(records: Iterable[Record]) -> list[int]:
    return sorted({r["length"] for r in records})

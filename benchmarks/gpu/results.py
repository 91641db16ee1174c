"""The records of a run: one list in one file, rewritten whole after every change, so that a killed run keeps what it has."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput
from lengthwise.models.fingerprint import versions

Record = dict[str, Any]
# What tells one record from another; calibrations have a scope
KEY = ("what", "implementation", "shape", "length", "scope")


@dataclass
class Results:
    """`seconds` is None where an implementation could not run; `note` then says why."""

    out: Path | None
    device: str
    records: list[Record] = field(default_factory=list)
    run: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def add(
        self,
        what: str,
        implementation: str,
        shape: str,
        length: int,
        *,
        seconds: float | None = None,
        tflops: float | None = None,
        extra_gb: float | None = None,
        **more: Any,
    ) -> None:
        """Add a record in place of an earlier one of the same thing."""
        record = {
            "what": what,
            "implementation": implementation,
            "shape": shape,
            "length": length,
            "seconds": _digits(seconds),
            "tflops": _digits(tflops),
            "extra_gb": _digits(extra_gb),
            **{name: _digits(value) for name, value in more.items()},
            "device": self.device,
            "run": self.run,
            "versions": _versions(),
        }
        self.records = [*(r for r in self.records if _key(r) != _key(record)), record]
        self._write()
        print(_line(record), flush=True)

    @contextmanager
    def attempt(self, what: str, implementation: str, shape: str, length: int, **more: Any) -> Iterator[None]:
        """Record that something cannot run here, with the reason."""
        try:
            yield
        except torch.OutOfMemoryError:
            self.add(what, implementation, shape, length, note="out of memory", **more)
        except Exception as error:
            lines = str(error).strip().splitlines()
            self.add(what, implementation, shape, length, note=": ".join([type(error).__name__, *lines[:1]]), **more)

    def mark(self, record: Record, **more: Any) -> None:
        """Add what was learnt later about a record."""
        record.update({name: _digits(value) for name, value in more.items()})
        self._write()

    def has(self, what: str, implementation: str, shape: str, length: int | None = None, **more: Any) -> bool:
        wanted = {**more} if length is None else {"length": length, **more}
        return find(self.records, what=what, implementation=implementation, shape=shape, **wanted) is not None

    def _write(self) -> None:
        if self.out is not None:
            write_whole(self.out, json.dumps(self.records, indent=1) + "\n")


def find(records: Iterable[Record], **wanted: Any) -> Record | None:
    """The last record that agrees with all that is wanted."""
    found = [r for r in records if all(r.get(name) == value for name, value in wanted.items())]
    return found[-1] if found else None


def read(path: Path) -> list[Record]:
    try:
        records = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"there are no results at {path}; run the benchmark first, or give --out") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path} is not a list of records in JSON ({error}); give another --out") from None
    if not isinstance(records, list) or not all(
        isinstance(r, dict) and {"what", "implementation"} <= r.keys() for r in records
    ):
        raise BadInput(f"{path} is not a list of this benchmark's records; give another --out")
    return records


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"


def _versions() -> dict[str, str]:
    found = {**versions(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        import triton
    except ImportError:
        return {name: str(version) for name, version in found.items()}
    return {name: str(version) for name, version in {**found, "triton": triton.__version__}.items()}


def _key(record: Record) -> tuple[Any, ...]:
    """Every run has ceilings of its own."""
    run = record.get("run") if record["what"] == "ceiling" else None
    return (run, *(record.get(name) for name in KEY))


def _digits(value: Any) -> Any:
    """Round to four significant digits: more would only be noise in the file."""
    if isinstance(value, dict):
        return {name: _digits(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _line(record: Record) -> str:
    name = " ".join(str(record[key]) for key in KEY if record.get(key) is not None)
    if record["seconds"] is None:
        return f"{name}: {record.get('note', '')}"
    parts = [f"{record['seconds'] * 1e3:.3f} ms"]
    parts += [f"{record['tflops']:.0f} TFLOP/s"] if record["tflops"] is not None else []
    parts += [f"{record['extra_gb']:.2f} GB"] if record["extra_gb"] is not None else []
    parts += [f"+-{record['spread']:.0%}"] if "spread" in record else []
    parts += [f"backward alone {record['backward_seconds'] * 1e3:.3f} ms"] if "backward_seconds" in record else []
    return f"{name}: {', '.join(parts)}"

"""Plant small defects in the package, one at a time, and name those that no test notices.

    python -m scripts.mutants interface caches --mutants 40 --seed 1

A first run of the tests notes which of them execute which statement. Each mutant then meets those of its statement, the
quickest first, and if they pass those beside them, in a copy of the repository. They run in forks of this process, which has
torch and transformers imported.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from scripts.mutants.changes import Mutant, mutants_of, noting

ROOT = Path(__file__).parents[2]
SOURCES, ARGUED = "src/lengthwise", Path(__file__).parent / "argued.json"
# Not what takes minutes (Ray), nor what counts or compiles statements, which differ while they are noted
LEFT_OUT = "evaluation/sweep/test_on_ray models/test_interrupts models/test_state models/test_gau_alpha models/test_load"
MODELS = "tests/models tests/methods/positions tests/methods/temperature/test_adaptive.py"
EVALUATION = "tests/evaluation tests/models/test_patches.py"
# Files with mutants, and the tests that they meet
TARGETS = {
    "interface": ("models/attention_interface.py", MODELS),
    "caches": ("models/cache.py models/masks.py", MODELS),
    "evaluate": ("evaluation/evaluate.py", EVALUATION),
    "cells": ("evaluation/sweep/[!_o]*.py", EVALUATION),
    "harness": ("evaluation/harness/*.py", "tests/evaluation/harness"),
    "training": ("training/*.py", "tests/training"),
}
CONTROLS = 60  # tests that must still pass in a fork
OURS = ("lengthwise", "tests", "scripts", "noted", "__")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--mutants", type=int, default=40, help="at most as many of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="results of an earlier run: plant only what survived then")
    parser.add_argument("--out", type=Path, help="file of results, of which these targets' are written anew")
    options = parser.parse_args(arguments)
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    earlier = json.loads(options.again.read_text()) if options.again else {}
    for tests, targets in groupby(options.targets, key=lambda target: TARGETS[target][1]):
        every = {target: _mutants(target, options.seed) for target in targets}
        with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
            bench = Bench(Path(folder), {mutant.file for mutants in every.values() for mutant in mutants}, tests.split())
            for target, mutants in every.items():
                chosen = mutants[: options.mutants]
                if earlier:
                    chosen = [mutant for mutant in mutants if mutant.name in earlier[target]["survivors"]]
                survivors = [mutant.name for mutant in chosen if not bench.catches(mutant)]
                print(f"{target}: {len(chosen) - len(survivors)} of {len(chosen)} mutants are caught", flush=True)
                results[target] = {"possible": len(mutants), "planted": len(chosen), "survivors": survivors}
                if options.out:
                    options.out.write_text(json.dumps(results, indent=2) + "\n")
    argued = json.loads(ARGUED.read_text())
    return int(any(name not in argued for target in options.targets for name in results[target]["survivors"]))


def _mutants(target: str, seed: int) -> list[Mutant]:
    """All mutants of a target in an order that depends on the seed and on each one's name alone."""
    paths = [path for pattern in TARGETS[target][0].split() for path in (ROOT / SOURCES).glob(pattern)]
    mutants = [mutant for path in paths for mutant in mutants_of(path.read_bytes(), path.relative_to(ROOT).as_posix())]
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())


class Bench:
    """A copy of the repository, and forks of this process that run tests there."""

    def __init__(self, folder: Path, files: Collection[str], tests: Sequence[str]) -> None:
        self.folder, self.tree = folder, folder / "tree"
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        for name in listed.stdout.decode().splitlines():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.tree / name)
        os.environ.setdefault("TRITON_INTERPRET", "1")
        _write_bytecode(True)
        (self.tree / "noted.py").write_text("def note(place):\n    pass\n")
        self.sources = {file: (self.tree / file).read_bytes() for file in files}
        for file, source in self.sources.items():
            self._write(file, noting(source, file).encode())
        begun = time.monotonic()
        left_out = [f"--ignore=tests/{name}.py" for name in LEFT_OUT.split()]
        if self._status([*tests, *left_out, "-m", "not sweep"], 3600, Notes(folder / "notes.json")) != 0:
            raise SystemExit(f"the tests fail without any mutant:\n{self._printed()}")
        noted = json.loads((folder / "notes.json").read_text())
        self.seconds: dict[str, float] = noted["seconds"]
        self.tests: dict[str, list[str]] = noted["tests"]
        for file, source in self.sources.items():
            self._write(file, source)
        print(f"{len(self.seconds)} tests took {time.monotonic() - begun:.0f} s", flush=True)
        _write_bytecode(False)
        for name in (*noted["modules"], "hypothesis"):
            with suppress(Exception):
                importlib.import_module(name)
        # Each look through a million objects would copy their pages into the fork
        gc.freeze()
        if self._fails(sorted(self.seconds, key=self.seconds.__getitem__)[:CONTROLS]):
            raise SystemExit(f"the tests fail in a fork that has everything imported:\n{self._printed()}")

    def catches(self, mutant: Mutant) -> bool:
        close = set(self.tests.get(f"{mutant.file}:{mutant.line}", ()))
        file = {test for place, tests in self.tests.items() if place.startswith(mutant.file + ":") for test in tests}
        # What a fixture of a module executes is noted for its first test only, and what a test only looks at for none
        modules = {test.partition("::")[0] for test in close or file}
        beside = {test for test in self.seconds if test.partition("::")[0] in modules} - close
        begun = time.monotonic()
        self._write(mutant.file, mutant.source)
        caught = any(self._fails(sorted(tests, key=self.seconds.__getitem__)) for tests in (close, beside) if tests)
        self._write(mutant.file, self.sources[mutant.file])
        print(f"{'caught  ' if caught else 'SURVIVES'} {time.monotonic() - begun:4.0f} s  {mutant.name}", flush=True)
        return caught

    def _write(self, file: str, source: bytes) -> None:
        path = self.tree / file
        path.write_bytes(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def _printed(self) -> str:
        return (self.folder / "printed").read_text()[-4000:]

    def _fails(self, tests: Sequence[str]) -> bool:
        return self._status([*tests, "-x"], 30 + 4 * sum(self.seconds[test] for test in tests)) != 0

    def _status(self, words: Sequence[str], seconds: float, *plugins: object) -> int:
        """The exit status of pytest; -1 where it was killed after some seconds."""
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _be_forked(lambda: pytest.main([*words, "-W", "ignore:Module already imported"], plugins), self.tree, self.folder)
        end = time.monotonic() + seconds
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended[0]:
            os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(ended[1]) if ended[0] else -1


def _write_bytecode(wanted: bool) -> None:
    """Let the first run compile everything, and no mutant be taken for another one of the same second and size."""
    sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = not wanted, "" if wanted else "1"


def _be_forked(work: Callable[[], int], tree: Path, folder: Path) -> None:
    """Never returns."""
    status = 70
    try:
        os.setsid()
        printed = os.open(folder / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(tree)
        ours = [str(tree / "src"), str(tree)]
        sys.path[:] = [*ours, *(path for path in sys.path if path not in ("", str(ROOT), str(ROOT / "src")))]
        os.environ |= {"PYTHONPATH": ":".join(ours), "TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}
        tempfile.tempdir = None
        for name in [name for name in sys.modules if name.partition(".")[0] in ("scripts", "tests", "lengthwise")]:
            del sys.modules[name]
        status = int(work())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Notes:
    """Notes which tests execute which statements, how long each takes, and what is imported in the end."""

    def __init__(self, out: Path) -> None:
        self.out, self.seconds, self.tests = out, dict[str, float](), defaultdict[str, set[str]](set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        noted: Any = importlib.import_module("noted")
        begun, noted.note = time.perf_counter(), lambda place: self.tests[place].add(item.nodeid)
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.perf_counter() - begun

    def pytest_sessionfinish(self) -> None:
        tests = {place: sorted(names) for place, names in self.tests.items()}
        modules = [name for name in sys.modules if not name.startswith(OURS)]
        self.out.write_text(json.dumps({"tests": tests, "seconds": self.seconds, "modules": modules}))


if __name__ == "__main__":
    raise SystemExit(main())

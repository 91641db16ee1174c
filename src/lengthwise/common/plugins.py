"""Methods and tasks of a user's own: in a Python file that is named, or in an installed package that announces them.

    FILE.py:NAME        a path, and the name of a class (a method) or of a Task in that file
    NAME                an entry point of the group `lengthwise.methods` or `lengthwise.tasks`

A `+` or a `:` belongs to the path where a `/` stands before it: ./a+b.py:NAME is one file, a+b.py:NAME is a sum.

A file is run because somebody typed its name. What is read out of a file must not name another one, see `refuse_code`. Nothing
is imported before it is asked for. What was imported is told apart by a digest, so that a run never mixes two versions.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lengthwise.common.files import read_file
from lengthwise.errors import BadInput, did_you_mean, is_out_of_memory, require

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

IN_A_FILE = re.compile(r"(?P<path>[^/+:@,=]+\.py|[^+:@,=]*/.*?\.py):(?P<name>[^\W\d]\w*)(?=\s*(?:[:+]|$))", re.DOTALL)
MODULE = "lengthwise_plugin_"  # begins the names of modules that are made of files
# By the names of modules: where the code of a plug-in stands, and a digest of it
CODE: dict[str, dict[str, str]] = {}


@dataclass(frozen=True)
class Plugin:
    """A method or a task that is not of this package."""

    value: Any  # a class, or a Task
    code: dict[str, str]  # its file or package, and a digest of its source


def find(kind: str, name: str, known: Collection[str]) -> Plugin | None:
    """The plug-in of a name, None where there is none; `kind` is method or task, `known` are the names of this package."""
    if (file := IN_A_FILE.fullmatch(name)) is not None:
        return _from_file(kind, file["path"], file["name"])
    entries = [entry for entry in announced(kind) if entry.name == name]
    if not entries:
        return None
    packages = " and ".join([*["lengthwise"] * (name in known), *map(package_of, entries)])
    alone = len(entries) == 1 and name not in known
    require(alone, f"{packages} both have a {kind} {name!r}; uninstall one, or have its entry point renamed")
    with one_line_errors(f"the {kind} {name!r} of {packages} cannot be loaded", of_any_code=True):
        value = entries[0].load()
    module = value.__module__ if isinstance(value, type) else entries[0].module
    source = Path(getattr(sys.modules[module], "__file__", None) or "")
    code = {"package": packages, "digest": _digest(read_file(source) if source.is_file() else b"")}
    return Plugin(value, CODE.setdefault(module, code))


@cache
def announced(kind: str) -> tuple[EntryPoint, ...]:
    """Methods or tasks of installed packages, none of them imported."""
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=f"lengthwise.{kind}s"), key=lambda entry: entry.name))


def package_of(entry: EntryPoint) -> str:
    """The package that announces something, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"


def code_of(value: object) -> dict[str, str] | None:
    """Where an object of a plug-in's class comes from, with a digest; None for all others."""
    return CODE.get(type(value).__module__)


def modules_of_files() -> list[ModuleType]:
    """The modules that were made of files, which no other process can import."""
    return [sys.modules[name] for name in CODE if name.startswith(MODULE)]


def refuse_code(name: str, path: str) -> None:
    """Refuse a plug-in's file that another file names: only what somebody typed is run."""
    if (file := IN_A_FILE.search(name)) is not None:
        raise BadInput(f"{path} asks for code in {file['path']}, and no file may do that; type it yourself: {name}")


def _from_file(kind: str, path: str, name: str) -> Plugin:
    try:
        source = read_file(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the {kind} {path}:{name}: {getattr(error, 'strerror', None) or error}") from None
    module = _module(path, source)
    named = vars(module).items()
    classes = [key for key, value in named if isinstance(value, type) and value.__module__ == module.__name__]
    offered = classes if kind == "method" else [key for key, value in named if type(value).__name__ == "Task"]
    hint = did_you_mean(name, offered, f"it has {', '.join(offered) or f'no {kind}'}")
    require(hasattr(module, name), f"{path} has no {name!r}; {hint}")
    return Plugin(getattr(module, name), CODE[module.__name__])


def _module(path: str, source: bytes) -> ModuleType:
    """The file as a module; a content is run once a process, so that two specs of it make the same class."""
    place = os.path.realpath(path)
    name = f"{MODULE}{_digest(place.encode() + source)}"
    if name in CODE:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = place
    # Dataclasses and annotations look their module up
    sys.modules[name] = module
    try:
        with one_line_errors(f"{path} does not import", of_any_code=True):
            exec(compile(source, place, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    CODE[name] = {"file": Path(path).name, "digest": _digest(source)}
    return module


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@contextmanager
def one_line_errors(what: str, of_any_code: bool = False) -> Iterator[None]:
    """Turn an error of a plug-in's code into one line with its place; errors of other code too with `of_any_code`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        line = raised_in(error)
        if isinstance(error, BadInput) or is_out_of_memory(error) or not (line or of_any_code):
            raise
        raise BadInput(f"{what}: {line or _in_words(error)}") from error


def raised_in(error: BaseException) -> str | None:
    """An error of a plug-in's code in one line, with its place; None for errors of other code."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_plugin(frame.f_globals)]
    if frames:
        frame, line = frames[-1]
        function = "" if frame.f_code.co_name == "<module>" else f", in {frame.f_code.co_name}"
        return f"{Path(frame.f_code.co_filename).name}, line {line}{function}: {_in_words(error)}"
    return None


def _is_plugin(names: dict[str, Any]) -> bool:
    name = str(names.get("__name__"))
    return name in CODE or name.startswith(MODULE)


def _in_words(error: BaseException) -> str:
    line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{line}{type(error).__name__}: {' '.join(text.split())}".rstrip(": ")

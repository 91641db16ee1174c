"""The command line of an experiment: options from one dataclass, and the exit status.

@dataclass(frozen=True)
class Options:
    model: str = option("embedded", "directory, hub name, or embedded", positional=True)
    lengths: tuple[int, ...] = option((512, 4096), "tokens", flag="--length")
    out: Path = option(help="folder of the run")                 # no default: required

sys.exit(main(Options, measure, __doc__))
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lengthwise.errors import BadInput

Options = TypeVar("Options")


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",  # noqa: A002
    flag: str | None = None,
    positional: bool = False,
    choices: Sequence[Any] | None = None,
) -> Any:
    """A field of an options dataclass; its flag is the field's name unless given, and a field without a default is required."""
    metadata = {"help": help, "flag": flag, "positional": positional, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def main(
    options: type[Options], work: Callable[[Options], object], doc: str | None, arguments: Sequence[str] | None = None
) -> int:
    """Reads the command line into `options`, does the work, and returns the exit status."""
    return exit_status(lambda: work(parse(options, doc, arguments)))


def exit_status(work: Callable[[], object]) -> int:
    """0 when the work is done, 2 on bad input with one line that says what is wrong."""
    try:
        work()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(options: type[Options], doc: str | None, arguments: Sequence[str] | None = None) -> Options:
    """The options as typed; a field `command` holds the words themselves."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    hints = typing.get_type_hints(options)
    fields = [field for field in dataclasses.fields(options) if field.init and "help" in field.metadata]  # type: ignore[arg-type]
    for field in fields:
        _add(parser, field, hints[field.name])
    given = {name: value for name, value in vars(parser.parse_args(typed)).items() if value is not None}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    if "command" in hints:
        values["command"] = shlex.join(typed)
    return options(**values)


def _add(parser: argparse.ArgumentParser, field: dataclasses.Field[Any], hint: Any) -> None:
    """One argument; a tuple takes several words, and a flag that is True by default becomes --no-FLAG."""
    meta, required = field.metadata, field.default is dataclasses.MISSING
    many = typing.get_origin(hint) is tuple
    # The type without `| None`
    kind = typing.get_args(hint)[0] if many or typing.get_origin(hint) is types.UnionType else hint
    how: dict[str, Any] = {"help": meta["help"], "default": None}
    if meta["positional"]:
        count = "+" if many else None if required else "?"
        parser.add_argument(field.name, nargs=count, type=kind, metavar=field.name.upper(), **how)
        return
    flag = meta["flag"] or "--" + field.name.replace("_", "-")
    if kind is bool:
        flag = flag.replace("--", "--no-", 1) if field.default else flag
        parser.add_argument(flag, dest=field.name, action="store_const", const=not field.default, **how)
        return
    if many:
        how |= {"nargs": "+", "action": "extend"}
    parser.add_argument(flag, dest=field.name, type=kind, required=required, choices=meta["choices"], **how)

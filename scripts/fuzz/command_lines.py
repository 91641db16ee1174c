"""Command lines drawn from the options that the commands declare themselves, with good, odd and hostile values."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from random import Random
from typing import Any

import typer

from lengthwise.cli import app
from lengthwise.methods.registry import METHODS, factory
from lengthwise.tasks import TASKS
from scripts.fuzz.values import ALWAYS, GOOD, GOOD_FOR, MY_METHODS, MY_TASKS, NUMBERS, PLACES, SPECS, TEXTS, WEIGHTS


def command_line(random: Random) -> list[str]:
    """The words of one command."""
    commands = _commands()
    names = sorted(commands)
    name = random.choices(names, [WEIGHTS.get(name, 1.0) for name in names])[0]
    if random.random() < 0.02:
        return [_text(random), *random.sample(["--json", "--help", "--version", name], 2)]
    # Half of all commands have nothing odd, or little; the others much
    odd = random.choice((0.0, 0.05, 0.15, 0.4))
    words = [name]
    for parameter in commands[name].params:
        words += _given(name, parameter, random, odd)
    if name == "harness":
        words += _of_the_harness(random)
    if random.random() < odd / 2:
        words.insert(
            random.randrange(1, len(words) + 1),
            random.choice(["--no-such", "--leng", "extra", "--json=1", "--seed", _text(random)]),
        )
    return words


@cache
def _commands() -> dict[str, Any]:
    return typer.main.get_command(app).commands  # type: ignore[attr-defined,no-any-return]


def _given(command: str, parameter: Any, random: Random, odd: float) -> list[str]:
    """The words for one option or argument; none where it is left out."""
    needed = parameter.required or parameter.name in ALWAYS or (command, parameter.name) in GOOD_FOR
    if random.random() > (1 - odd / 5 if needed else 0.15):
        return []
    if getattr(parameter, "is_flag", False):
        return [parameter.opts[0]]
    words = []
    for _ in range(random.choice((1, 1, 2)) if parameter.multiple or parameter.nargs == -1 else 1):
        value = _bad(parameter, random) if random.random() < odd else _good(command, parameter.name, random)
        option = parameter.opts[0]
        if parameter.param_type_name == "argument":
            words.append(value)
        else:
            words += [f"{option}={value}"] if random.random() < 0.2 else [option, value]
    return words


def _good(command: str, name: str, random: Random) -> str:
    if name in ("method", "check"):
        others = random.choice(["truncate", "@alignment.json", *METHODS])
        return random.choice(["none", "log", "infoscale", "yarn:factor=2", others, random.choice(MY_METHODS)])
    if name == "task":
        return random.choice(["passkey", "passkey", "line", random.choice(["ruler", *TASKS]), random.choice(MY_TASKS)])
    return random.choice(GOOD_FOR.get((command, name)) or GOOD.get(name) or TEXTS)


def _bad(parameter: Any, random: Random) -> str:
    kind = str(parameter.type_descriptor.annotation)
    if "int" in kind or "float" in kind:
        return random.choice(NUMBERS if random.random() < 0.9 else TEXTS)
    if parameter.name in ("method", "adjustment", "check", "spec"):
        return random.choice(SPECS) if random.random() < 0.6 else _spec(random)
    if parameter.name == "ray":
        return _text(random).replace(":", "")
    if "Path" in kind or parameter.name in ("model", "out", "data"):
        return random.choice(PLACES + TEXTS)
    return random.choice([*TEXTS, *NUMBERS[:8], "pmx", "passkeyy", "cuda", "meta", "cpu:99", "float8", "modle"])


def _spec(random: Random) -> str:
    """A method with parameters, some of which it has not, or which cannot have such a value."""
    name = random.choice(list(METHODS))
    made = factory(name)
    known = [field.name for field in fields(made)] if is_dataclass(made) else []
    keys = random.sample([*known, "factor", "windw"], min(2, len(known) + 2))
    return f"{name}:" + ",".join(f"{key}={random.choice([*NUMBERS, 'true', 'x', '2', '4', '16'])}" for key in keys)


def _of_the_harness(random: Random) -> list[str]:
    model = f"pretrained={random.choice(['llama', 'missing', 't5', ''])},method={_good('harness', 'method', random)}"
    words = ["--model_args", model, "--tasks", random.choice(["no_such_task", "", "longbench_hotpotqa_e"])]
    return random.sample(words, 3) if random.random() < 0.2 else words


def _text(random: Random) -> str:
    return random.choice(TEXTS)

"""How the numbers of a page came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.attention_alignment.arguments import Call
from experiments.attention_alignment.contenders import left_out
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of

ABOUT = """Percent right with its 95 % interval. `none` is the model as it is, `truncate` reads the last {train} tokens, `log`
is the log law, `pmax-model` the paper's P_max alignment and `entropy-model` its entropy alignment; `-layer` and `-head` align
every layer or every head by itself, `hedge-` mixes that reading with what `truncate` reads. Alignments were solved for once, on
the package's prose and not on the task; the paper calibrates on each task, on a grid of 0.05."""


def about(train_length: int) -> str:
    """What the tables of a page show."""
    return ABOUT.format(train=train_length)


def facts_of(script: str, call: Call, model: Any, methods: Sequence[str], materials: Mapping[str, str]) -> dict[str, Any]:
    anatomy = anatomy_of(model, call.train_length)
    return {
        "command": f"python -m experiments.attention_alignment.{script} {call.command}",
        "model": {**fingerprint_of(anatomy), "name": call.model},
        "made_with": made_with(next(model.parameters()).device.type),
        "dtype": dtype_of(model),
        "seed": call.seed,
        "samples": call.samples,
        "train_length": anatomy.train_length,
        "materials": dict(materials),
        "left_out": left_out(methods, call.out),
    }


def short_name(model: str) -> str:
    """The last part that tells models apart: every training run here exports to a folder of that name."""
    *before, last = Path(model).parts or (model,)
    return before[-1] if last == "export" and before else last


def told(facts: Mapping[str, Any]) -> str:
    """As a list in Markdown."""
    model = facts["model"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {facts['train_length']:,} tokens"]
    lines += [f"{key}: {value}" for key, value in facts["made_with"].items()]
    lines += [f"{key}: {facts[key]}" for key in ("dtype", "seed", "samples")]
    lines += [f"{task}: made of {made_of}" for task, made_of in facts["materials"].items()]
    lines += [f"left out: {name}: {why}" for name, why in facts["left_out"].items()]
    return "\n".join(f"- {line}" for line in [*lines, f"command: `{facts['command']}`"])

"""`lengthwise export`: an extended model as files that stock engines run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.calibration.export.card import Card
from lengthwise.calibration.export.packages import check_packages
from lengthwise.calibration.export.plan import Plan, carry_out, make_plan
from lengthwise.calibration.export.verify import PROMPTS, Expected, compare, expected
from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.files import check_writable, save_whole
from lengthwise.common.progress import stage
from lengthwise.errors import BadInput, require, require_one_of
from lengthwise.methods.recipe import Recipe, recipe_at
from lengthwise.methods.spec import Spec, short_name
from lengthwise.models.anatomy import unwrapped
from lengthwise.models.suitability import Method

# Where each target is written; imported when it is asked for, as each needs a package of its own
TARGETS = {
    "transformers": "lengthwise.calibration.export.checkpoint",
    "gguf": "lengthwise.calibration.export.gguf_file",
    "ctranslate2": "lengthwise.calibration.export.ctranslate2_model",
    "onnx": "lengthwise.calibration.export.onnx_graphs",
}
ANSWERING = ("ctranslate2", "onnx")  # of a model without a decoder or a head they would make one up, or fail


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, the engine, the length, and what was changed and compared, in words."""

    out: Path
    to: str
    length: int
    says: tuple[str, ...]  # each change, and each difference from the extended model
    compared: tuple[str, ...]  # what `verify` measured
    rope_parameters: dict[str, Any] | None
    tau: Any  # folded into weights: a number, or one a layer, or one a layer and head; None where nothing is


@typed
def export(
    model: nn.Module,
    method: Method,
    *,
    to: str = "transformers",
    out: str | Path,
    length: int | None = None,
    tokenizer: Any = None,
    train_length: int | None = None,
    verify: bool = False,
    overwrite: bool = False,
    force: bool = False,
    inplace: bool = False,
    command: str | None = None,
) -> Exported:
    """Write the model under a method as files that an engine runs without lengthwise; what cannot be expressed is refused.

    `length` is the one that temperatures are folded for; by default that of the recipe, the alignment or the factor. `inplace`
    changes the model instead of a copy. The folder appears when it is whole; an existing one is kept unless `overwrite`.
    """
    out = Path(out)
    check_place(out, to, overwrite, verify)
    tokenizer = _tokenizer_of(model) if tokenizer is None else tokenizer
    require_tokenizer(tokenizer)
    recipe = _recipe(method)
    if recipe is not None and length is None:
        length = recipe.length
    plan = make_plan(model, method, length, train_length, force)
    target = import_module(TARGETS[to])
    target.check(plan)
    problem = f"--to {to} writes models that answer, and {type(unwrapped(model)).__name__} does not; use --to transformers"
    require(to not in ANSWERING or unwrapped(model).can_generate(), problem)
    check_packages(to, verify)
    stage(f"reading {PROMPTS} prompts here and in the engine", verify)
    wanted = expected(model, tokenizer, method, plan, force) if verify else None
    card = Card(_name(model), _in_words(method, plan), to, plan, command, () if recipe is None else recipe.says)
    stock = carry_out(model, plan, inplace)
    folder = _Export(target, stock, tokenizer, card, wanted)
    save_whole(out, [folder], overwrite=overwrite)
    rope = None if plan.rope is None else plan.rope.whole
    tau = stock.config.lengthwise["tau"] if plan.folds else None
    return Exported(out, to, plan.length, tuple(folder.card.lines), folder.card.compared, rope, tau)


def check_place(out: Path, to: str, overwrite: bool, verify: bool) -> None:
    """Refuse, before any work, targets that cannot be written, or run, and places that cannot be written or are taken."""
    require_one_of("--to", to, [*TARGETS])
    # Nobody should install a package for a model that is refused all the same: where some are, that comes first
    if to not in ANSWERING:
        check_packages(to, verify)
    require(out.suffix != ".gguf", f"{out} names a file; give a directory, in which model.gguf and its card are written")
    check_writable(out / "README.md")
    taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    require(not taken or (overwrite and out.is_dir()), f"{out} exists already; give a new directory, or --overwrite")


@dataclass
class _Export:
    """All that stands in the folder, written by `save_whole` as a model is."""

    target: Any
    stock: Any
    tokenizer: Any
    card: Card
    wanted: Expected | None

    def save_pretrained(self, folder: Path) -> None:
        notes = tuple(self.target.write(self.stock, self.tokenizer, self.card.plan, folder))
        compared: tuple[str, ...] = ()
        if self.wanted is not None:
            compared = tuple(compare(self.target.ask(folder, self.wanted.prompts, self.wanted.greedy), self.wanted))
        self.card = replace(self.card, target_notes=notes, compared=compared)
        (folder / "README.md").write_text(self.card.to_markdown(), encoding="utf-8")


def _recipe(method: Method) -> Recipe | None:
    """The recipe, where the method is one, or a spec that names its file alone."""
    if isinstance(method, str) and method.strip().startswith("@"):
        return recipe_at(method.strip()[1:])
    return method if isinstance(method, Recipe) else None


def _name(model: nn.Module) -> str:
    path = str(getattr(unwrapped(model).config, "_name_or_path", "") or type(unwrapped(model)).__name__)
    # What stands on somebody's disk is named without where
    return Path(path).name if Path(path).exists() else path


def _in_words(method: Method, plan: Plan) -> str:
    if isinstance(method, Recipe | Spec):
        method = method.method if isinstance(method, Recipe) else method.text
    return short_name(method) if isinstance(method, str) else " + ".join(plan.slots.names)


def _tokenizer_of(model: nn.Module) -> Any:
    """The tokenizer beside the weights that the model was loaded from."""
    from transformers import AutoTokenizer

    place = str(getattr(unwrapped(model).config, "_name_or_path", ""))
    try:
        return AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadInput("export writes the tokenizer too, and this model does not tell it; give tokenizer=...") from error

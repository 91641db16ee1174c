"""A recipe: what `recommend` found for one model at one length. Methods take it as `@recipe.json`, or as it is.

The file holds everything: specs of methods as text, alignments whole. Its format is `lengthwise.recipe/1`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from lengthwise.common.files import write_whole
from lengthwise.common.formats import Whole, checked, read_json
from lengthwise.common.plugins import refuse_code
from lengthwise.errors import BadInput, require
from lengthwise.methods import hub
from lengthwise.methods.spec import TRUNCATE
from lengthwise.methods.temperature.aligned import Alignment

FORMAT = "lengthwise.recipe/1"
Part = str | Alignment


@dataclass(frozen=True)
class MadeFor:
    """Stands before the methods of a recipe and fills no slot: says for which model they were chosen."""

    fingerprint: dict[str, Any]
    document: dict[str, Any] | None = None  # what the file of a recipe installs, so that no run mixes two contents

    def to_json(self) -> dict[str, Any] | None:
        return self.document


@dataclass(frozen=True)
class Recipe:
    """What to use for one model at one length, and the evidence."""

    method: str  # its name; `none` is the plain model, `truncate` reads the last tokens only
    parts: tuple[Part, ...]  # what is installed: specs and alignments
    length: int
    train_length: int
    says: tuple[str, ...]  # the recommendation in words
    evidence: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def installs(self) -> list[Part | MadeFor]:
        """What `extend` installs, and before it the model it was made for."""
        advice = (
            f"the recipe for {self.length} tokens is to keep truncating: give the model the last {self.train_length} tokens"
        )
        require(self.method != TRUNCATE, f"{advice}; `evaluate --method truncate` scores that")
        return [MadeFor(self.made_for), *self.parts]

    @property
    def made_for(self) -> dict[str, Any]:
        """The model's fingerprint, as far as the recipe tells it."""
        model = self.provenance.get("model", {})
        return model if isinstance(model, dict) else {}

    def to_json(self) -> dict[str, Any]:
        parts = [part if isinstance(part, str) else part.file_content() for part in self.parts]
        return {"format": FORMAT, **asdict(self), "says": list(self.says), "parts": parts}

    def save(self, path: str | Path) -> None:
        write_whole(path, json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def of_document(cls, document: Any, path: str) -> Recipe:
        try:
            content: dict[str, Any] = {**checked(RecipeFile, document)}
        except ValueError as error:
            raise BadInput(f"{path} is damaged: {error}") from None
        for part in content["parts"]:
            if isinstance(part, str):
                refuse_code(part, path)
        parts = [part if isinstance(part, str) else Alignment.of_document(part, path) for part in content["parts"]]
        return cls(**{**content, "parts": tuple(parts), "says": tuple(content["says"])})


class RecipeFile(TypedDict):
    """A recipe's file, beside its `format`."""

    method: str
    parts: list[str | dict[str, Any]]
    length: Whole
    train_length: Whole
    says: list[str]
    evidence: dict[str, Any]
    provenance: dict[str, Any]


def recipe_at(path: str | Path) -> Recipe | None:
    """The recipe that a file holds; None where it is something else."""
    try:
        document = read_json(path)
    except (OSError, ValueError):
        return None
    is_recipe = isinstance(document, dict) and document.get("format") == FORMAT
    return Recipe.of_document(document, str(path)) if is_recipe else None


def parts_of(path: str | Path) -> list[Part | MadeFor]:
    """What a file named behind `@` holds, on the disk or the hub: an alignment, or what a recipe installs."""
    if str(path).startswith(hub.PREFIX):
        path = hub.fetched(str(path))
    if (recipe := recipe_at(path)) is not None:
        # Alignments tell their content themselves
        specs = [part for part in recipe.parts if isinstance(part, str)]
        _, *parts = recipe.installs
        return [MadeFor(recipe.made_for, {"recipe": recipe.method, "specs": specs}), *parts]
    return [Alignment.load(path)]

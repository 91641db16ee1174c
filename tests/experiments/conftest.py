"""What several experiments are tried on, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.answering import DIGITS, answering, saved


@pytest.fixture(scope="session")
def byte_t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A T5 with a training length of 512 that reads bytes and answers with a few digits, of which two end an answer."""
    model = answering("t5", n_positions=512, num_heads=2)
    model.generation_config.eos_token_id = [1, DIGITS.stop - 2, DIGITS.stop - 1]
    return str(saved(model, tmp_path_factory.mktemp("byte_t5")))


@pytest.fixture(scope="session")
def novels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Three of sixty paragraphs, each of which says where it stands."""
    folder = tmp_path_factory.mktemp("novels")
    for name in ("apple", "birch", "cedar"):
        (folder / f"{name}.txt").write_text("\n\n".join(f"The {name} {k} begins,\nand {name} {k * k} ends." for k in range(60)))
    return tuple(sorted(folder.iterdir()))

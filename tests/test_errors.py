"""Refusals of bad input."""

from __future__ import annotations

import math

import pytest

from lengthwise.errors import BadInput, did_you_mean, require


def test_what_does_not_hold_is_refused_and_nan_never_holds() -> None:
    require(True, "never said")
    with pytest.raises(BadInput, match="a length is at least 1"):
        require(math.nan >= 1, "a length is at least 1")


def test_a_misspelt_name_gets_the_nearest_one() -> None:
    assert did_you_mean("passky", ["line", "passkey"], "the tasks are ...") == "did you mean 'passkey'?"
    assert did_you_mean("chess", ["line", "passkey"], "the tasks are ...") == "the tasks are ..."
    assert did_you_mean("none", ["none", "nope"]) == ""
    assert did_you_mean("embedding", ["embedded"], cutoff=0.8) == ""


def test_initials_stand_for_names() -> None:
    names = ["--learning-rate", "--lora-rank", "--length"]
    assert did_you_mean("--lr", names) == "did you mean '--learning-rate' or '--lora-rank'?"
    assert did_you_mean("tl", ["train_length"]) == "did you mean 'train_length'?"
    assert did_you_mean("--l", names) == ""

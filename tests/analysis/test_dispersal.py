"""Which heads disperse most."""

from __future__ import annotations

import pytest

from lengthwise.analysis.dispersal import dispersal
from tests.helpers.analysed import at


def test_the_head_that_loses_most_comes_first() -> None:
    trained = at(32, p_max=[[0.5, 0.04], [0.3, 0.2]], entropy=[[1.0, 3.0], [2.0, 2.5]])
    longest = at(64, p_max=[[0.3, 0.01], [0.05, 0.25]], entropy=[[1.5, 4.0], [3.0, 2.4]])
    found = dispersal(trained, longest)
    assert [(one.layer, one.head) for one in found] == [(2, 1), (1, 1), (1, 2), (2, 2)]
    # By what is lost and not by its share: head 2 of layer 1 keeps only a quarter
    assert [one.fall for one in found] == pytest.approx([0.25, 0.2, 0.03, -0.05])
    assert (found[0].p_max_train, found[0].p_max_longest) == (0.3, 0.05)
    assert (found[0].entropy_train, found[0].entropy_longest) == (2.0, 3.0)

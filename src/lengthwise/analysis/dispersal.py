"""Which heads disperse most: by how much the P_max of each falls from the training length to the longest."""

from __future__ import annotations

from lengthwise.analysis.records import AtLength, Dispersal


def dispersal(trained: AtLength, longest: AtLength) -> list[Dispersal]:
    """All heads of all layers, the largest fall first."""
    found = [
        Dispersal(
            layer=layer + 1,
            head=head + 1,
            p_max_train=p_max,
            p_max_longest=longest.p_max[layer][head],
            entropy_train=trained.entropy[layer][head],
            entropy_longest=longest.entropy[layer][head],
        )
        for layer, heads in enumerate(trained.p_max)
        for head, p_max in enumerate(heads)
    ]
    return sorted(found, key=lambda one: -one.fall)

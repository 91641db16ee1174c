"""The bias by distance against an explicit double loop."""

from __future__ import annotations

import pytest
import torch

from lengthwise.attention.bias import DistanceBias, toeplitz

# Two heads, radius 2: distances -2 ... 2
TABLE = [[-20.0, -10.0, 0.0, 10.0, 20.0], [1.0, 2.0, 3.0, 5.0, 8.0]]
BIAS = DistanceBias(torch.tensor(TABLE))


def by_hand(head: int, distance: int) -> float:
    return TABLE[head][min(max(distance, -2), 2) + 2]


def test_the_radius_is_half_the_table() -> None:
    assert BIAS.radius == 2
    assert DistanceBias(torch.zeros(4, 1)).radius == 0


def test_the_line_is_constant_beyond_the_radius() -> None:
    assert BIAS.line(-5, 4).tolist() == [
        [-20.0, -20.0, -20.0, -20.0, -10.0, 0.0, 10.0, 20.0, 20.0, 20.0],
        [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.0, 8.0],
    ]


def test_the_line_includes_both_ends() -> None:
    assert BIAS.line(1, 1).tolist() == [[10.0], [5.0]]
    assert BIAS.line(900, 902).tolist() == [[20.0] * 3, [8.0] * 3]


def test_the_bias_at_a_matrix_of_distances_puts_heads_first() -> None:
    distance = torch.tensor([[0, -1, 7], [2, -700, 1]])
    expected = [[[by_hand(head, d) for d in row] for row in distance.tolist()] for head in range(2)]
    assert BIAS.at(distance).tolist() == expected


def test_a_table_of_one_number_adds_it_at_every_distance() -> None:
    assert DistanceBias(torch.tensor([[7.0]])).at(torch.tensor([-3, 0, 3])).tolist() == [[7.0, 7.0, 7.0]]


@pytest.mark.parametrize(
    ("queries", "keys", "first_query"), [(1, 1, 0), (4, 4, 0), (3, 7, 4), (6, 2, 0), (1, 9, 8), (5, 5, -3)]
)
def test_the_strided_matrix_equals_a_double_loop(queries: int, keys: int, first_query: int) -> None:
    last_query = first_query + queries - 1
    matrix = toeplitz(BIAS.line(-last_query, keys - 1 - first_query), queries, keys)
    assert matrix.shape == (2, queries, keys)
    for head in range(2):
        for i in range(queries):
            for j in range(keys):
                # Queries run backwards
                assert float(matrix[head, i, j]) == by_hand(head, j - (last_query - i))


def test_the_strided_matrix_is_no_copy() -> None:
    line = BIAS.line(-99, 99)
    matrix = toeplitz(line, 100, 100)
    assert matrix.data_ptr() == line.data_ptr()
    assert matrix.untyped_storage().nbytes() == 2 * 199 * 4

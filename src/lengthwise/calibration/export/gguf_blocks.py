"""Multiply quantised weights through the scales of their blocks, and leave every quantised number as it is.

A block of most types is numbers of a few bits and one or two scales in float16, whose product they are. A row times a factor
is then the same numbers with other scales: exact but for the rounding of each scale, 2^-11 of it. Types without such scales are
refused.
"""

from __future__ import annotations

from typing import Any

import numpy

from lengthwise.errors import BadInput

# Bytes of a block at which its scales of float16 stand; the second, where there is one, scales what is added
SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
PLAIN = ("F32", "F16", "F64")

Array = numpy.ndarray[Any, Any]


def scaled_rows(name: str, kind: str, data: Array, factors: Array, block: int) -> Array:
    """Rows of a tensor as it stands in the file, each times its factor; `block` is how many bytes a block has."""
    if kind in PLAIN:
        shape = (-1,) + (1,) * (data.ndim - 1)
        return (data.astype(numpy.float64) * factors.reshape(shape)).astype(data.dtype)
    if kind == "BF16":
        return _scaled_bfloat16(data, factors)
    if kind not in SCALES:
        raise BadInput(f"{name} is quantised as {kind}, whose blocks cannot be multiplied; give a file of another type")
    rows = data.reshape(len(factors), -1, block).copy()  # [rows, blocks, bytes]
    for place in SCALES[kind]:
        scales = numpy.ascontiguousarray(rows[..., place : place + 2]).view(numpy.float16)[..., 0]
        with numpy.errstate(over="ignore"):
            larger = (scales.astype(numpy.float64) * factors[:, None]).astype(numpy.float16)
        if not numpy.isfinite(larger).all():
            raise BadInput(f"{name} has scales of {kind} that grow out of float16; give a file of another type")
        rows[..., place : place + 2] = larger[..., None].view(numpy.uint8)
    return rows.reshape(data.shape)


def _scaled_bfloat16(data: Array, factors: Array) -> Array:
    """bfloat16 stands in the file as pairs of bytes, of which numpy knows no type."""
    wide = (data.reshape(len(factors), -1).view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    product = (wide.astype(numpy.float64) * factors[:, None]).astype(numpy.float32).view(numpy.uint32)
    # To the nearest, ties to even
    rounded = (product + 0x7FFF + ((product >> 16) & 1)) >> 16
    return rounded.astype(numpy.uint16).view(data.dtype).reshape(data.shape)

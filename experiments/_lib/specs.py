"""Specs with places to fill, such as `yarn:factor={factor}`: what suits one length does not suit another."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lengthwise.errors import require


def filled(spec: str, values: Mapping[str, float | str]) -> str:
    """`spec` with the values in the places that bear their names."""

    def value(found: re.Match[str]) -> str:
        place = found[1]
        require(place in values, f"{spec!r} has an unknown place {{{place}}}; known are {', '.join(values)}")
        given = values[place]
        return given if isinstance(given, str) else f"{given:.10g}"

    return re.sub(r"\{([^}]*)\}", value, spec)

"""Where a decoder rotates its queries and keys, and how a method takes that over.

Frequencies that never change are put in place of the model's own; nothing else needs to know. Everything else needs unrotated
keys: a key's rotation then depends on the row that reads it. So the model's rotary embedding is told to leave them as they are
(cos 1, sin 0), the cache keeps them so, and the attention function rotates, with the family's own tables and its own formula.
Where all that a token generated sees stands in line, as under StreamingLLM, they stay rotated, and few of them are turned on.
That this is what the model itself does is not assumed: `rotary_proof` runs a few tokens.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lengthwise.errors import BadInput, require
from lengthwise.models.anatomy import FREQUENCIES, FULL, Anatomy

# Rope types that recompute their frequencies in every forward
FOLLOWS_LENGTH = ("dynamic", "longrope")

# What of a query or key a layer rotates, in the order in which it is tried: the formulas of GPT-NeoX and GLM pass over the
# rest themselves, Phi cuts the first part out before, DeepSeek the last; SmolLM3, Cohere2 and EXAONE-4 have layers that rotate
# nothing
PARTS = ("all of it", "its first part", "its last part", "nothing")


@dataclass(frozen=True)
class Rotary:
    """A stack's rotary embedding, or its share for one type of layers."""

    module: nn.Module
    layer_type: str | None = None  # whose frequencies these are, where each type of layer has its own
    # Positions are counted in laps of so many tokens, so that angles stay exact however far a stream of text goes
    lap: int | None = None

    def serves(self, layer_type: str | None) -> bool:
        return self.layer_type in (None, layer_type)

    @property
    def buffer(self) -> str:
        """What the embedding calls its frequencies."""
        return FREQUENCIES if self.layer_type is None else f"{self.layer_type}_{FREQUENCIES}"

    @property
    def trained(self) -> Tensor:  # [pairs]
        """The model's frequencies in radians a token; others after the model was given another data type or device."""
        frequencies = self.module._buffers[self.buffer]
        assert frequencies is not None
        return frequencies

    @cached_property
    def only_turns(self) -> bool:
        """Whether a position of 0 changes nothing; some families scale both tables, as for YaRN."""
        return bool((self.tables(self.trained.new_zeros(1, 1, 1), self.trained.new_zeros(1, 1))[0] == 1).all())

    @property
    def takes_frequencies(self) -> bool:
        """Whether twice the frequencies are what twice the position is."""
        zeros = self.trained.new_zeros(1, 1, 1)
        doubled, twice = self.tables(zeros, zeros[0] + 1, 2 * self.trained), self.tables(zeros, zeros[0] + 2)
        return all(torch.allclose(*pair) for pair in zip(doubled, twice, strict=True))

    def tables(self, like: Tensor, positions: Tensor, frequencies: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """cos and sin at `positions`, as a `Part` has them, laid out as the family does: [batch or 1, tokens, size].

        Where positions differ by head they are [batch or 1, key_heads, tokens, size].
        """
        if positions.dim() > 2 and self.lap is None:
            return self._by_head(like, positions, frequencies)
        if frequencies is not None and frequencies.requires_grad:
            # The families' own tables carry no gradient
            return self._laid_out(like, positions[..., None].float() * frequencies)
        if self.lap is not None:
            return self._in_laps(like, positions, self.lap)
        return self._own_tables(self.module if frequencies is None else self._with(frequencies), like, positions)

    def without_scaling(self) -> Rotary:
        """The same rotation without the factor that some families put on both tables: for what is rotated already."""
        module = _copy(self.module)
        module.__dict__.update({name: 1.0 for name in module.__dict__ if name.endswith("attention_scaling")})
        return replace(self, module=module)

    def _own_tables(self, module: nn.Module, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        own = () if self.layer_type is None else (self.layer_type,)
        cos, sin = type(self.module).forward(module, like, positions, *own)
        return cos, sin

    def _with(self, frequencies: Tensor) -> nn.Module:
        return _copy(self.module, **{self.buffer: frequencies})

    def _in_laps(self, like: Tensor, positions: Tensor, lap: int) -> tuple[Tensor, Tensor]:
        """The family's own tables within a lap, turned on by the laps before; in the first lap bit for bit its own.

        In float32 a position of a million times a frequency is known to a sixteenth of a radian, and distances no better.
        """
        exact, one_lap = self._one_lap(lap)
        laps = positions.div(lap, rounding_mode="floor")
        cos, sin = self._own_tables(self.module, exact, positions - laps * lap)
        # Some families make one table of several axes of positions, which are alike here
        laps = laps if cos.dim() > laps.dim() else laps[0]
        angles = laps[..., None] * one_lap
        cos_laps, sin_laps = angles.cos(), angles.sin()
        turned_cos = torch.addcmul(cos * cos_laps, sin, sin_laps, value=-1)
        turned_sin = torch.addcmul(sin * cos_laps, cos, sin_laps)
        return turned_cos.to(like.dtype), turned_sin.to(like.dtype)

    def _one_lap(self, lap: int) -> tuple[Tensor, Tensor]:
        """What asks for tables in float32, and the angle [size] by which a lap turns each of their columns.

        Made anew once the model was given another data type or device.
        """
        made: tuple[Tensor, Tensor, Tensor] | None = self.__dict__.get("_lap")
        trained = self.trained
        if made is None or made[0] is not trained:
            frequencies = (trained.double() * lap).remainder(2 * math.pi).float()
            exact = frequencies.new_zeros(1, 1, 1)
            alone = self.without_scaling()
            cos, sin = alone._own_tables(alone._with(frequencies), exact, exact[0] + 1)
            made = self.__dict__["_lap"] = trained, exact, torch.atan2(sin, cos)[0, 0]
        return made[1:]

    def _by_head(self, like: Tensor, positions: Tensor, frequencies: Tensor | None) -> tuple[Tensor, Tensor]:
        batch, heads, flat = *positions.shape[:2], positions.flatten(0, 1)
        by_pair = positions.dim() == 4
        cos, sin = self._laid_out(like, flat.float() * self.trained) if by_pair else self.tables(like, flat, frequencies)
        return (cos, sin) if heads == 1 else (cos.view(batch, heads, *cos.shape[1:]), sin.view(batch, heads, *sin.shape[1:]))

    def _laid_out(self, like: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:  # [batch or 1, tokens, pairs]
        """Tables of any angles, also with a gradient; how the family lays pairs out is seen on one that tells them apart."""
        pairs = angles.shape[-1]
        apart = torch.arange(1, pairs + 1, device=like.device) * (3 / (pairs + 1))
        with torch.no_grad():
            cos, sin = (table[0, 0] for table in self.tables(like.new_zeros(1, 1, 1).float(), apart.new_ones(1, 1), apart))
        pair = (torch.atan2(sin.abs(), cos) * (pairs + 1) / 3).round().long() - 1  # [size]
        # Some families scale both, as for YaRN
        factor = torch.hypot(cos, sin)
        cos, sin = angles.cos()[..., pair] * factor, angles.sin()[..., pair] * factor * sin.sign()
        return cos.to(like.dtype), sin.to(like.dtype)


class HalfTables(NamedTuple):
    """cos, and sin with the sign of its half, for `_turned_in_halves`: both [batch or 1, key_heads or 1, tokens, size]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, tables: tuple[Tensor, Tensor]) -> HalfTables:
        cos, sin = tables if tables[0].dim() == 4 else (tables[0][:, None], tables[1][:, None])
        first, second = sin.chunk(2, -1)
        return cls(cos, torch.cat((-first, second), -1))


def _turned_in_halves(states: Tensor, tables: HalfTables) -> Tensor:
    """Llama's formula in three steps: a generation turns all keys of its cache for every token."""
    cos, sin = tables
    if 1 < cos.shape[1] < states.shape[1]:
        cos, sin = (table.repeat_interleave(states.shape[1] // cos.shape[1], 1) for table in tables)
    return torch.addcmul(states * cos, states.roll(states.shape[-1] // 2, -1), sin)


@cache
def turns_halves(formula: Callable[..., Any]) -> bool:
    """Whether it turns each number in the first half of a key with its counterpart in the second, as Llama's does."""
    drawn = torch.randn(1, 4, 3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states, cos, sin = drawn[:, :2], drawn[:, 2], drawn[:, 3]
    try:
        theirs: Tensor = formula(states, states[:, :0], cos, sin)[0]
    except (RuntimeError, IndexError, TypeError):
        return False  # tables of another size
    return theirs.shape == states.shape and torch.allclose(theirs, _turned_in_halves(states, HalfTables.of((cos, sin))))


def rotated(module: nn.Module, part: str, states: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """`states` [batch, heads, tokens, key_size] with this `part` of each turned by the attention module's own formula."""
    if part == "nothing":
        return states
    if isinstance(tables, HalfTables):
        return _turned_in_halves(states, tables)
    if tables[0].dim() == 4:
        # Formulas know no tables of heads: each becomes a sequence of its own
        batch, heads = states.shape[:2]
        shared = heads // tables[0].shape[1]
        cos, sin = (table.repeat_interleave(shared, 1).expand(batch, -1, -1, -1).flatten(0, 1) for table in tables)
        return rotated(module, part, states.flatten(0, 1)[:, None], (cos, sin)).view(batch, heads, *states.shape[2:])
    whole, size = states.shape[-1], tables[0].shape[-1]
    start, stop = {"all of it": (0, whole), "its first part": (0, size), "its last part": (whole - size, whole)}[part]
    turned = states[..., start:stop]
    # The formula takes queries and keys together: no heads of the second are asked for
    turned = formula_of(module)(turned, turned[:, :0], *tables)[0]
    return turned if part == "all of it" else torch.cat((states[..., :start], turned, states[..., stop:]), -1)


def no_rotation(rotary: Rotary) -> Callable[..., tuple[Tensor, Tensor]]:
    """A forward for the rotary embedding that leaves queries and keys exactly as they are: cos 1, sin 0."""
    sizes: dict[Any, int] = {}  # of tables that follow positions in their shape, and queries in their data type

    def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        positions, kind = _one_axis_positions(*args, **kwargs), _layer_type(*args, **kwargs)
        like: Tensor = kwargs["x"] if "x" in kwargs else args[0]
        known = sizes.get((kind, like.dtype))
        if known is not None and positions is not None and positions.dim() == 2:
            shape = (*positions.shape, known)
            return like.new_ones(shape), like.new_zeros(shape)
        cos, sin = type(rotary.module).forward(rotary.module, *args, **kwargs)
        if not rotary.serves(kind):
            return cos, sin
        alike = cos.shape == sin.shape and cos.dtype == sin.dtype == like.dtype and not torch.compiler.is_compiling()
        if alike and positions is not None and cos.shape[:-1] == positions.shape:
            sizes[kind, like.dtype] = cos.shape[-1]
        return torch.ones_like(cos), torch.zeros_like(sin)

    return forward


def rotation_in_laps(rotary: Rotary) -> Callable[..., tuple[Tensor, Tensor]]:
    """A forward for the rotary embedding that rotates as it does, and exactly however far the positions go."""

    def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        positions = _one_axis_positions(*args, **kwargs)
        if positions is None or not rotary.serves(_layer_type(*args, **kwargs)):
            cos, sin = type(rotary.module).forward(rotary.module, *args, **kwargs)
            return cos, sin
        return rotary.tables(kwargs["x"] if "x" in kwargs else args[0], positions)

    return forward


def _one_axis_positions(*args: Any, **kwargs: Any) -> Tensor | None:
    """The positions that a rotary embedding was given; refused where they have several axes."""
    positions = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
    if isinstance(positions, Tensor) and positions.dim() == 3 and bool((positions != positions[:1]).any()):
        raise BadInput("these positions have several axes, as pictures do, and this method knows one; leave it out")
    return positions


def _layer_type(*args: Any, **kwargs: Any) -> str | None:
    given: str | None = kwargs.get("layer_type", args[2] if len(args) > 2 else None)
    return given


def changed_rotation(
    module: nn.Module, buffers: Callable[[], dict[str, Tensor]] = dict
) -> Callable[..., tuple[Tensor, Tensor]]:
    """A forward for the rotary embedding that runs with these buffers, and leaves the embedding itself as it is.

    They are asked for again once the model was given another data type or device, which replaces its buffers.
    """
    before, copied = dict(module._buffers), _copy(module, **buffers())

    def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        nonlocal before, copied
        if any(before[name] is not buffer for name, buffer in module._buffers.items()):
            before, copied = dict(module._buffers), _copy(module, **buffers())
        cos, sin = type(module).forward(copied, *args, **kwargs)
        return cos, sin

    return forward


def _copy(module: nn.Module, **buffers: Tensor) -> nn.Module:
    """A shallow copy, some of whose buffers are others."""
    copied = copy.copy(module)
    copied.__dict__["_buffers"] = {**module._buffers, **buffers}
    return copied


def length_dependent(anatomy: Anatomy) -> nn.Module | None:
    """The rotary embedding, where it notes its longest input and goes by that."""
    module: Any = getattr(anatomy.stack, "rotary_emb", None)
    kinds = getattr(module, "rope_type", "default")
    follows = any(kind in FOLLOWS_LENGTH for kind in (kinds.values() if isinstance(kinds, dict) else [kinds]))
    return module if follows else None


def rotary_of(anatomy: Anatomy, method: str) -> Rotary:
    """The stack's rotary embedding, or why `method` cannot take it over."""
    name, module = type(anatomy.stack).__name__, getattr(anatomy.stack, "rotary_emb", None)
    if module is None:
        raise BadInput(f"{method} changes rotary positions, and {name} has none: this {anatomy.family} model cannot use it")
    rotary = Rotary(module) if module._buffers.get(FREQUENCIES) is not None else Rotary(module, FULL)
    if module._buffers.get(rotary.buffer) is None or not any(rotary.serves(kind) for kind in anatomy.layer_types):
        raise BadInput(f"{name} has frequencies for types of layers, and no layer of full attention; {method} has no use there")
    kinds: Any = getattr(module, "rope_type", "default")
    kind = str(kinds.get(FULL) if isinstance(kinds, dict) else kinds)
    if kind in FOLLOWS_LENGTH:
        raise BadInput(f"the frequencies of this {anatomy.family} model change with length ({kind}); leave out {method}")
    formula_of(anatomy.layers[0])
    anew = f"{type(module).__name__} computes its frequencies anew in every forward, and takes no others"
    require(rotary.takes_frequencies, f"{anew}: {method} cannot be used on this {anatomy.family} model")
    return rotary


def formula_of(module: nn.Module) -> Callable[..., Any]:
    formula: Callable[..., Any] | None = sys.modules[type(module).__module__].__dict__.get("apply_rotary_pos_emb")
    if formula is None:
        raise BadInput(f"{type(module).__name__} has no rotation formula that lengthwise can find")
    return formula

"""One layer of a cache that keeps only what a rolling method still sees: the first few keys, its sinks, and the most recent.

Until a key is dropped it is a plain cache. From then on, where keys are cached rotated, a token takes the slot of the one that
leaves the window, token i the slot i modulo the window, and sinks are turned on by as many positions as tokens were dropped:

    slots    | sinks as they came | sinks turned on | window |

A single query that sees all of them does not mind their order, so nothing else moves. Others are given a copy in order: several
tokens at once, and keys that are rotated where they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from lengthwise.errors import require

# Sinks are turned for so many tokens at once: on a GPU a token then waits for one copy
AHEAD = 64

# Keys [batch, heads, sinks, size], turned on by `first`, `first` + 1, ... positions: [batch, heads, count, sinks, size]
Turn = Callable[[Tensor, int, int], Tensor]
States = tuple[Tensor, Tensor]  # keys and values, [batch, heads, slots, size]


class RollingLayer(DynamicLayer):  # type: ignore[misc]
    """The first `sinks` keys and the last `window` - 1: all that the next query can see beside itself."""

    is_croppable = False
    keys: Tensor  # [batch, heads, slots, size]
    values: Tensor

    def __init__(self, sinks: int, window: int, method: str, turn: Turn | None = None) -> None:
        super().__init__()
        self.sinks, self.window, self.method, self.turn = sinks, window, method, turn
        self.room = sinks + window - 1  # keys that the next token sees beside its own, at most
        self.seen = 0  # tokens
        self._turned: tuple[Tensor, int, tuple[Tensor, ...]] | None = None  # for which keys, from which shift on
        self._shown: tuple[States, States, Tensor] | None = None  # of which keys and values: what a token sees, and the sinks

    @property
    def stored(self) -> int:
        """How many keys the next token sees beside its own."""
        return min(self.seen, self.room)

    @property
    def _in_turns(self) -> bool:
        """Whether tokens have been dropped and take turns in the slots of the window."""
        return self.turn is not None and self.seen > self.room

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> States:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.keys.is_inference() and not torch.is_inference_mode_enabled():
            self.keys, self.values = self.keys.clone(), self.values.clone()
        with_gradient = torch.is_grad_enabled() and key_states.requires_grad
        if key_states.size(-2) == 1 and self._in_turns and not with_gradient:
            return self._take_turn(key_states, value_states)
        dropped, came = self._in_turns, (key_states, value_states)
        keys, values = (torch.cat([*line, new], -2) for line, new in zip(self._lines(), came, strict=True))
        self.seen += key_states.size(-2)
        former, self.keys = self.keys, self._kept(self.keys, keys, dropped)
        self.values = self._kept(self.values, values, dropped)
        if self._turned is not None and self._turned[0] is former and dropped:
            self._turned = (self.keys, *self._turned[1:])
        return keys, values

    def _take_turn(self, key: Tensor, value: Tensor) -> States:
        """Write one token over the one that leaves the window, and turn the sinks on."""
        slot = 2 * self.sinks + self.seen % self.window
        self.keys.narrow(2, slot, 1).copy_(key)
        self.values.narrow(2, slot, 1).copy_(value)
        # Whoever gives this layer other keys, as a beam search does, makes views of the former ones worthless
        if self._shown is None or self._shown[0][0] is not self.keys or self._shown[0][1] is not self.values:
            seen = self.keys[:, :, self.sinks :], self.values[:, :, self.sinks :]
            self._shown = (self.keys, self.values), seen, self.keys[:, :, self.sinks : 2 * self.sinks]
        _, seen, sinks = self._shown
        if self.sinks:
            sinks.copy_(self._turned_on())
        self.seen += 1
        return seen

    def _lines(self) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values that the next token sees beside its own, as pieces in order."""
        if not self._in_turns:
            return ([self.keys], [self.values]) if self.seen else ([], [])
        window, next_slot = 2 * self.sinks, 2 * self.sinks + self.seen % self.window
        keys, values = ([states[:, :, next_slot + 1 :], states[:, :, window:next_slot]] for states in (self.keys, self.values))
        return [self._turned_on(), *keys], [self.values[:, :, : self.sinks], *values]

    def _kept(self, former: Tensor, line: Tensor, dropped: bool) -> Tensor:
        """What is stored of keys, or values, in order; where some were dropped, the `former` begin with sinks as they came."""
        if self.seen == self.stored:
            return line
        sinks = (former if dropped else line)[:, :, : self.sinks]
        if self.turn is None:
            return torch.cat([line[:, :, : self.sinks], line[:, :, line.size(2) - self.window + 1 :]], 2)
        return torch.cat([sinks, sinks, line[:, :, -self.window :].roll(self.seen % self.window, 2)], 2)

    def _turned_on(self) -> Tensor:  # [batch, heads, sinks, size]
        """The sinks where the next token must see them."""
        shift = self.seen - self.stored
        if self._turned is None or self._turned[0] is not self.keys or not 0 <= shift - self._turned[1] < AHEAD:
            assert self.turn is not None
            sinks = self.keys[:, :, : self.sinks]
            turned = self.turn(sinks, shift, AHEAD) if self.sinks else sinks[:, :, None].expand(-1, -1, AHEAD, -1, -1)
            self._turned = self.keys, shift, turned.unbind(2)
        return self._turned[2][shift - self._turned[1]]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.stored + query_length, self.seen - self.stored

    def get_seq_length(self) -> int:
        return self.seen

    def reset(self) -> None:
        super().reset()
        self.seen, self._turned, self._shown = 0, None, None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its own views, and the model that admits it turns its sinks: no pickle can hold a model."""
        return {**self.__dict__, "turn": None, "_turned": None, "_shown": None}

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, as assisted decoding does with those that were guessed wrong."""
        if tokens_to_remove == 0:
            return
        require(
            self.seen == self.stored,
            f"assisted decoding takes keys back, and {self.method} has dropped some at {self.seen} tokens, beyond the "
            f"{self.room} that it keeps; generate without assistant_model or prompt_lookup_num_tokens, or give a larger window",
        )
        # A number or a tensor: below 0 so many go; above, in older transformers, so many stay
        count = int(tokens_to_remove)
        self.seen = self.seen + count if count < 0 else min(self.seen, count)
        self.keys, self.values = self.keys[:, :, : self.seen], self.values[:, :, : self.seen]

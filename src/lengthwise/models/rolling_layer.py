"""One layer of a cache that keeps only what a rolling method still sees: the first few keys, its sinks, and the most recent.

Tokens are written behind one another into storage with some slots to spare; once these are used up, what is still seen moves to
the front of new storage. The sinks stay in the first slots as they came, and are written once more just before the window, over
keys that no row sees any longer. So what the next token sees is one stretch of the storage, in order, and nothing is copied.

    slots    | sinks as they came | unused or no longer seen | sinks | window | to spare |

Where keys are cached rotated, the sinks in line are turned on by as many positions as tokens have been dropped.
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


class RollingLayer(DynamicLayer):  # type: ignore[misc]
    """The first `sinks` keys and the last `window` - 1: all that the next query can see beside itself."""

    is_croppable = False
    keys: Tensor  # [batch, heads, slots, size]
    values: Tensor

    def __init__(self, sinks: int, window: int, method: str, turn: Turn | None = None) -> None:
        super().__init__()
        self.sinks, self.window, self.method, self.turn = sinks, window, method, turn
        self.seen = self.end = 0  # tokens, and slots that are in use
        self._turned: tuple[Tensor, int, Tensor] | None = None  # for which keys, from which shift on

    @property
    def stored(self) -> int:
        """How many keys the next token sees beside its own."""
        return min(self.seen, self.sinks + self.window - 1)

    @property
    def _to_spare(self) -> int:
        return max(AHEAD, self.window // 8)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.keys.is_inference() and not torch.is_inference_mode_enabled():
            self.keys, self.values = self.keys.clone(), self.values.clone()
        new = key_states.shape[-2]
        if not self.seen or new > self._to_spare or (torch.is_grad_enabled() and key_states.requires_grad):
            return self._read_prompt(key_states, value_states)
        if self.end + new > self.keys.shape[-2] or not self._has_room_for_sinks:
            self._move_to_new_storage()
        self.keys[..., self.end : self.end + new, :] = key_states
        self.values[..., self.end : self.end + new, :] = value_states
        keys, values = self._in_line(new)
        self.seen, self.end = self.seen + new, self.end + new
        return keys, values

    def _read_prompt(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Many tokens at once, or with a gradient: all are seen now, and few are kept."""
        keys, values = key_states, value_states
        dropped = self.seen > self.stored
        if self.seen:
            if not self._has_room_for_sinks:
                self._move_to_new_storage()
            keys, values = (torch.cat(both, -2) for both in zip(self._in_line(), (key_states, value_states), strict=True))
        # Sinks as they came: those in line have been turned
        with_sinks = (self.keys, self.values) if dropped else (keys, values)
        self.seen += key_states.shape[-2]
        self._keep(with_sinks, (keys, values))
        return keys, values

    @property
    def _has_room_for_sinks(self) -> bool:
        """Whether there is room before the window for the sinks beside those in the first slots."""
        return self.seen == self.stored or self.end - self.stored >= self.sinks

    def _move_to_new_storage(self) -> None:
        self._keep((self.keys, self.values), (self.keys[..., : self.end, :], self.values[..., : self.end, :]))

    def _keep(self, with_sinks: tuple[Tensor, Tensor], with_recent: tuple[Tensor, Tensor]) -> None:
        """Store the keys and values of the sinks, which are first in the one, and the window's, last in the other."""
        start, recent = (0, self.seen) if self.seen == self.stored else (2 * self.sinks, self.window - 1)
        self.end = start + recent
        kept = []
        for sinks, states in zip(with_sinks, with_recent, strict=True):
            storage = states.new_empty((*states.shape[:-2], self.end + self._to_spare, states.shape[-1]))
            storage[..., start : self.end, :] = states[..., states.shape[-2] - recent :, :]
            if start:
                storage[..., : self.sinks, :] = sinks[..., : self.sinks, :]
            kept.append(storage)
        self.keys, self.values = kept

    def _in_line(self, new: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values that are stored, and so many behind them, in order."""
        first, dropped = self.end - self.stored, self.seen - self.stored
        if dropped and self.sinks:
            before = slice(first, first + self.sinks)
            self.keys[..., before, :] = self._turned_by(dropped)
            self.values[..., before, :] = self.values[..., : self.sinks, :]
        return self.keys[..., first : self.end + new, :], self.values[..., first : self.end + new, :]

    def _turned_by(self, shift: int) -> Tensor:  # [batch, heads, sinks, size]
        sinks = self.keys[..., : self.sinks, :]
        if self.turn is None:
            return sinks
        # Whoever gives this layer other keys, as a beam search does, makes the turned ones worthless
        if self._turned is None or self._turned[0] is not self.keys or not 0 <= shift - self._turned[1] < AHEAD:
            self._turned = self.keys, shift, self.turn(sinks, shift, AHEAD)
        return self._turned[2][:, :, shift - self._turned[1]]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.stored + query_length, self.seen - self.stored

    def get_seq_length(self) -> int:
        return self.seen

    def reset(self) -> None:
        super().reset()
        self.seen, self.end, self._turned = 0, 0, None

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, as assisted decoding does with those that were guessed wrong."""
        if tokens_to_remove == 0:
            return
        room = self.sinks + self.window - 1
        require(
            self.seen == self.stored,
            f"assisted decoding takes keys back, and {self.method} has dropped some at {self.seen} tokens, beyond the {room} "
            "that it keeps; generate without assistant_model or prompt_lookup_num_tokens, or give a larger window",
        )
        # Older transformers say how many shall stay
        left = self.seen + tokens_to_remove if tokens_to_remove < 0 else min(self.seen, tokens_to_remove)
        self.seen = self.end = left

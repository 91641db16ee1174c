"""transformers' masks as runs of keys.

Registered beside the attention function, this builds, once a forward, what every layer then reads: start, stop and position of
each row as one small integer tensor, [batch, 1, queries, 3]; 4 where it must say, too, where a sequence began, which a window's
rows do not show. Four axes, because transformers passes four-dimensional masks through untouched, and a tensor, because caches,
hooks and batch-splitting know how to carry one. In a graph that is traced tensors are all that layers share: there it holds, in
one line, what the kernels read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, bidirectional_mask_function, causal_mask_function

from lengthwise.attention import DistanceBias, Visible
from lengthwise.errors import BadInput, require
from lengthwise.models.state import MASK


@dataclass
class ForwardMask:
    """What one forward shares between its layers."""

    visible: Visible
    # How transformers itself would have made this mask, by the name of an implementation; unset when it cannot be known
    stock: Callable[[str], Tensor | None] | None = None
    dropped: int = 0  # keys that a cache with a window has let go
    computed: dict[Any, Any] = field(default_factory=dict)  # stock masks, biases and tables, at most once a forward
    token_plans: dict[Any, Any] = field(default_factory=dict)  # see `next_token`

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, computed at the first call only; what carries a gradient is computed at every one.

        Layers that are computed again in the backward pass must do again what they did, and so must find nothing here.
        """
        key = (torch.is_grad_enabled(), key)
        if key in self.computed:
            return self.computed[key]
        value = make()
        if not any(tensor.requires_grad for tensor in _tensors(value)):
            self.computed[key] = value
        return value

    def of_tensor(self, tensor: Tensor, make: Callable[[], Any]) -> Any:
        """What `make` returns, computed once for a tensor that layers hand on, as T5's bias, with its gradient or without."""
        made: tuple[Tensor, Any] | None = self.computed.get("of tensor")
        if made is None or made[0] is not tensor:
            made = self.computed["of tensor"] = tensor, make()
        return made[1]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, DistanceBias):
        yield value.table
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def build_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | None = None,
    **kwargs: Any,
) -> Tensor:
    """The entry for transformers' AttentionMaskInterface."""
    if attention_mask is not None and attention_mask.dim() == 4:
        return attention_mask
    device = attention_mask.device if attention_mask is not None else device
    if isinstance(q_offset, Tensor):
        # A static cache counts on in it, and `stock` is asked later
        q_offset = q_offset.clone()
    offset = q_offset - kv_offset
    if mask_function in (causal_mask_function, bidirectional_mask_function):
        causal = mask_function is causal_mask_function
        visible = _built(q_length, kv_length, causal, offset, device)
    else:
        visible = _runs_of_rule(mask_function, batch_size, q_length, kv_length, q_offset, kv_offset, device)
    if attention_mask is not None:
        shown, end = attention_mask.bool(), kv_offset + kv_length
        if shown.shape[1] < end:
            shown = torch.nn.functional.pad(shown, (0, end - shown.shape[1]))
        if shown.shape[1] > kv_length:
            shown = shown[:, kv_offset:end]
        # What a decoder reads of an encoder: its own tokens stand on none of these keys
        across = mask_function is bidirectional_mask_function and getattr(kwargs.get("config"), "is_decoder", False)
        if torch.compiler.is_compiling() or not bool(shown.all()):
            # Some key is hidden: no device is asked for that again
            visible = visible.without(shown, rows=not across).knowing(is_full=False)
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        # The rows of a window do not show where their sequence began
        before = torch.zeros((1, 1), device=device).long() if attention_mask is None else _padding_before(attention_mask)
        visible.knowing(first=before - kv_offset)

    def stock(name: str) -> Tensor | None:
        make = ALL_MASK_ATTENTION_FUNCTIONS[name]
        sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length}
        offsets = {"q_offset": q_offset, "kv_offset": kv_offset, "device": device}
        mask: Tensor | None = make(**sizes, **offsets, mask_function=mask_function, attention_mask=attention_mask, **kwargs)
        return mask

    return encode(ForwardMask(visible, stock, kv_offset), batch_size)


def _built(queries: int, keys: int, causal: bool, offset: int | Tensor, device: torch.device | None) -> Visible:
    """`Visible.build`, which is made once for the sizes of a mask; one that is traced, or of a static cache, every time."""
    if torch.compiler.is_compiling() or isinstance(offset, Tensor):
        return Visible.build(queries, keys, causal=causal, offset=offset, device=device)
    if causal and queries == 1 and offset == keys - 1:
        return Visible.one_row(0, keys, offset, keys, device)
    if is_in_torch_dispatch_mode():
        # A later forward could not read what is made of fake tensors
        return Visible.build(queries, keys, causal=causal, offset=offset, device=device)
    return _built_once(queries, keys, causal, offset, str(device), torch.is_inference_mode_enabled())


@lru_cache(maxsize=64)
def _built_once(queries: int, keys: int, causal: bool, offset: int, device: str, _: bool) -> Visible:
    return Visible.build(queries, keys, causal=causal, offset=offset, device=None if device == "None" else device)


def forget_masks() -> None:
    """Give back the masks that are kept for later forwards."""
    _built_once.cache_clear()


def _padding_before(attention_mask: Tensor) -> Tensor:  # [batch, tokens] -> [batch, 1]
    return attention_mask.bool().int().argmax(-1, keepdim=True)


def encode(mask: ForwardMask, batch_size: int) -> Tensor:  # [batch, 1, queries, 3 or 4]
    visible = mask.visible
    if torch.compiler.is_compiling():
        return _in_one_line(visible, batch_size)
    rows = visible.facts.get("rows")
    if rows is None:
        more = visible.stop, visible.position, *_told_first(visible)
        rows = torch.stack([visible.start, *(field.expand_as(visible.start) for field in more)], -1)
    tensor = rows[:, None].expand(batch_size, -1, -1, -1)
    if visible.hidden is not None:
        # Holes do not fit into runs: the plain mask of transformers says all
        tensor = visible.mask()[:, None].expand(batch_size, -1, -1, -1)
    MASK.put(tensor, mask)
    return tensor


def _told_first(visible: Visible) -> list[Tensor]:
    """`Visible.first` where the maker of the mask knew it; elsewhere the rows tell it."""
    return [visible.first] if "first" in visible.facts else []


def _in_one_line(visible: Visible, batch_size: int) -> Tensor:  # [batch, 1, 1, 3 queries (+ keys + 1) (+ 1)]
    """Starts, stops, positions, `Visible.flagged` where keys may be hidden within runs, and `_told_first`."""
    line = visible.packed.flatten(1)
    flagged = [] if visible.hidden is None else [visible.flagged]
    more = [*flagged, *(first.int().expand(line.shape[0], -1) for first in _told_first(visible))]
    line = torch.cat([line, *more], -1) if more else line
    return line[:, None, None].expand(batch_size, -1, -1, -1)


def _read_line(tensor: Tensor, queries: int, keys: int) -> Visible:
    line = tensor[:, 0, 0]
    packed = line[:, : 3 * queries].unflatten(-1, (3, queries))  # type: ignore[no-untyped-call]
    start, stop, position = packed.unbind(1)
    flagged, facts = line[:, 3 * queries :], {"packed": packed}
    if flagged.shape[-1] in (1, keys + 2):
        flagged, facts["first"] = flagged[:, :-1], flagged[:, -1:]
    hidden = flagged[:, :keys] != 0 if flagged.shape[-1] > 0 else None
    visible = Visible(start, stop, position[0], keys, hidden).knowing(**facts)
    return visible if hidden is None else visible.knowing(flagged=flagged)


def _in_runs(tensor: Tensor) -> bool:
    """Whether this is what `encode` makes of runs: start, stop and position of each row, and where its sequence began."""
    return tensor.dim() == 4 and tensor.dtype == torch.int64 and tensor.shape[-1] in (3, 4)


def _is_line(tensor: Tensor, queries: int, keys: int) -> bool:
    """Whether this has the shape of one line of `encode`."""
    return tensor.shape[2:-1] == (1,) and tensor.shape[-1] - 3 * queries in (0, 1, keys + 1, keys + 2)


def _is_callers(tensor: Tensor, keys: int) -> bool:
    """Whether whole numbers in a shape of ours are a caller's zeros and ones, one a key; ours tell positions above 1.

    What a graph holds cannot be looked at, and is taken for ours.
    """
    return not torch.compiler.is_compiling() and tensor.shape[-1] == keys and int(tensor.amax()) <= 1


def real_tokens(mask: Any, queries: int) -> Tensor | None:  # [batch or 1, queries]
    """Which of the last tokens are no padding, by a caller's mask or by ours, made ahead; None where it cannot be known."""
    mask = next(iter(mask.values()), None) if isinstance(mask, dict) else mask
    if not isinstance(mask, Tensor):
        return None
    if mask.dim() == 2:
        return mask[:, -queries:].bool()
    known = MASK.on(mask)
    if known is not None:
        return known.visible.count > 0
    # One made ahead of a graph that is traced is known by its numbers alone
    if _in_runs(mask):
        return mask[:, 0, :, 0] < mask[:, 0, :, 1]
    # One of the caller's, which says of each query what it sees
    return _seen(mask)[:, 0].any(-1) if _is_dense(mask) and mask.shape[1:3] == (1, queries) else None


def _is_dense(mask: Tensor) -> bool:
    return mask.dtype == torch.bool or mask.is_floating_point()


def _seen(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def decode(
    tensor: Tensor | None,
    queries: int,
    keys: int,
    causal: bool,
    device: torch.device,
    read: dict[Any, ForwardMask] | None = None,
    empties_padding: bool = True,
) -> ForwardMask:
    """What a layer was handed: our runs, a boolean or additive mask of the caller's, or nothing.

    With `empties_padding` a query that is padding itself sees no key; those that read another stack see its keys all the same.
    `read` holds the callers' masks that this forward has read; each keeps its tensor, so that no other has its id.
    """
    if tensor is None:
        return ForwardMask(Visible.build(queries, keys, causal=causal, device=device))
    known = MASK.on(tensor)
    if known is not None and known.visible.keys == keys and known.visible.start.device == device:
        return known
    in_line = tensor.dtype == torch.int32 and (torch.compiler.is_compiling() or _is_line(tensor, queries, keys))
    if in_line and not _is_callers(tensor, keys):
        return ForwardMask(_read_line(tensor, queries, keys))
    if _in_runs(tensor) and not _is_callers(tensor, keys):
        start, stop, position, *first = tensor[:, 0].unbind(-1)
        visible = Visible(start, stop, position[0], keys)
        return ForwardMask(visible.knowing(first=first[0][:, :1]) if first else visible)
    # A graph that is traced must leave nothing behind
    read = {} if read is None or torch.compiler.is_compiling() else read
    key = (id(tensor), queries, keys, empties_padding)
    if key not in read:
        # Switch makes a dense mask whatever the implementation, and so may a caller: its own implementation takes it as it is
        read[key] = ForwardMask(_runs_of_dense(tensor, queries, keys, causal, empties_padding), lambda _: tensor)
    return read[key]


def _runs_of_dense(mask: Tensor, queries: int, keys: int, causal: bool, empties_padding: bool) -> Visible:
    if mask.dim() != 4 or mask.shape[1] != 1 or mask.shape[-1] < keys:
        raise BadInput(f"an attention mask of shape {tuple(mask.shape)} cannot be read; give one of shape [batch, tokens]")
    read = _is_dense(mask)
    require(read, f"an attention mask of {mask.dtype} cannot be read; give truth values, or one of shape [batch, tokens]")
    seen = _seen(mask)
    if mask.dtype != torch.bool:
        _require_zeros(mask.masked_fill(~seen, 0.0))
    seen = seen[:, 0, :, :keys].expand(-1, queries, -1)
    position = torch.arange(queries, device=mask.device) + keys - queries
    if causal and queries < keys:
        # A static cache has room behind the queries: each stands on the last key that it sees
        last = keys - 1 - seen.flip(-1).int().argmax(-1)
        position = torch.where(seen.any(-1), last, 0).amax(0)
    common = seen.any(1)
    padded = Visible.build(queries, keys, device=mask.device).without(common, rows=empties_padding)
    if queries == keys and not torch.compiler.is_compiling() and bool((seen == common[:, None]).all()):
        return padded
    visible = Visible.of_mask(lambda rows: seen[:, rows], queries, keys, position, padded.hidden)
    return visible if padded.hidden is None else visible.knowing(holes=padded.holes)


def _require_zeros(shown: Tensor) -> None:
    adds = "this attention mask adds numbers to the logits; lengthwise reads masks that only hide keys"
    if torch.compiler.is_compiling():
        torch._assert_async((shown == 0).all(), adds)
    elif bool((shown != 0).any()):
        raise BadInput(adds)


def _runs_of_rule(
    rule: Callable[..., Tensor], batch: int, queries: int, keys: int, q_offset: int | Tensor, kv_offset: int, device: Any
) -> Visible:
    """A sliding window, packed sequences, chunks: ask transformers' rule, a few rows at a time."""
    b = torch.arange(batch, device=device)[:, None, None]
    h = torch.zeros((), dtype=torch.long, device=device)
    k = torch.arange(keys, device=device) + kv_offset

    def mask(rows: Tensor) -> Tensor:
        seen = rule(b, h, (rows + q_offset)[None, :, None], k[None, None, :])
        return seen.expand(batch, len(rows), keys)

    return Visible.of_mask(mask, queries, keys, torch.arange(queries, device=device) + q_offset - kv_offset)

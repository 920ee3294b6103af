"""Which tokens lie in which KV cache.

A phrase may begin in tokens that an earlier forward pass consumed, so each cache carries the
ids of what it holds. The record follows the cache through chunked prefill, rollback, beams
and copies; where it cannot be known it is an error, never a guess.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import NO_TOKEN

Tokens = NDArray[np.int64]

# The record is an attribute of the cache, not an entry in a table of ours: it then dies with
# the cache, and copy.deepcopy (the usual way to reuse a prompt's cache) copies it too.
_ATTRIBUTE = "_phrasemem_history"


class HistoryError(PhraseMemError):
    """A forward pass whose preceding tokens cannot be known."""


class _Record:
    def __init__(self, owner: CacheHistories, tokens: Tokens) -> None:
        self.owner = weakref.ref(owner)
        self.tokens = tokens

    def __deepcopy__(self, memo: dict[int, Any]) -> _Record:
        owner = self.owner()
        return self if owner is None else _Record(owner, self.tokens)


class CacheHistories:
    """The token records of one attachment's KV caches.

    Notes
    -----
    Threads may share it as long as each uses its own caches, as transformers itself requires.
    Tokens are matched along the sequence as the cache holds it: sequences that are packed into
    one row by ``position_ids`` alone are not told apart.
    """

    def __init__(self) -> None:
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()

    def tokens_in(self, cache: Any) -> Tokens | None:
        """Return the (B, L) ids that a cache holds; None for no or an empty cache.

        Raises
        ------
        HistoryError
            If the cache holds tokens that no attached forward pass put there.
        """
        length = cache_length(cache)
        if length == 0:
            return None
        record = self._record(cache)
        known = 0 if record is None else record.tokens.shape[1]
        if record is None or known < length:
            raise HistoryError(
                "the KV cache holds tokens that the memory did not see",
                expected=f"a history of {length} tokens",
                found=known,
                hint="attach before the prefill, or begin with an empty cache",
            )
        # A rollback (crop) shortens the cache without telling: its length decides.
        return record.tokens[:, :length]

    def append(self, cache: Any, before: Tokens | None, new: Tokens) -> None:
        """Record that a cache now holds ``before`` (as :meth:`tokens_in` gave it) and ``new``."""
        tokens = new if before is None else np.concatenate([before, new], axis=1)
        record = self._record(cache)
        if record is None:
            _watch(cache)
            self._caches.add(cache)
            setattr(cache, _ATTRIBUTE, _Record(self, tokens))
        else:
            record.tokens = tokens

    def forget(self) -> None:
        """Drop all records and give the caches their own methods back."""
        for cache in list(self._caches):
            for name in (_ATTRIBUTE, *_PERMUTE):
                vars(cache).pop(name, None)
        self._caches.clear()

    def _record(self, cache: Any) -> _Record | None:
        record = getattr(cache, _ATTRIBUTE, None)
        if record is None or record.owner() is not self:
            return None
        self._caches.add(cache)
        return record


def cache_length(cache: Any) -> int:
    """Return how many positions a KV cache holds.

    Raises
    ------
    HistoryError
        If it is not a ``transformers`` cache.
    """
    if cache is None:
        return 0
    if not hasattr(cache, "get_seq_length"):
        raise HistoryError(
            "cannot read the length of this KV cache",
            expected="a transformers Cache",
            found=type(cache).__name__,
        )
    return int(cache.get_seq_length())


def new_tokens(ids: torch.Tensor, mask: Any, past: int) -> Tokens:
    """Return a forward pass' new tokens, with ``NO_TOKEN`` where the mask says padding.

    Parameters
    ----------
    ids : (B, T) int64
    mask : None, (B, past + T), (B, 1, T, keys) bool or additive, or a dict of those
        As transformers passes it to a model; the 4-D forms come with static caches.
    past : int
        Positions in the KV cache.

    Raises
    ------
    HistoryError
        If the mask has a form from which padding cannot be read.
    """
    tokens = ids.detach().cpu().numpy().astype(np.int64)
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None:
        return tokens
    real = _real(mask, past, tokens.shape[1])
    return np.where(real.cpu().numpy(), tokens, NO_TOKEN)


def _real(mask: Any, past: int, count: int) -> torch.Tensor:
    if isinstance(mask, torch.Tensor) and mask.ndim == 2 and mask.shape[1] >= past + count:
        return mask[:, past : past + count] != 0
    if isinstance(mask, torch.Tensor) and mask.ndim == 4 and mask.shape[2] == count:
        # A token that is not padding always attends to itself. The keys of a full sliding
        # window are the newest ones, those of any other cache begin at position 0.
        keys = mask.shape[3]
        first = past if keys >= past + count else keys - count
        own = mask[:, 0, :, first : first + count].diagonal(dim1=1, dim2=2)
        return own if own.dtype == torch.bool else own == 0
    raise HistoryError(
        "cannot tell padding from this attention mask",
        expected=f"(B, {past + count}) or (B, 1, {count}, keys)",
        found=tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__,
        hint="pass a 2-D attention_mask",
    )


def _reorder_cache(cache: Any, beam_idx: torch.Tensor) -> None:
    record = getattr(cache, _ATTRIBUTE)
    type(cache).reorder_cache(cache, beam_idx)
    record.tokens = record.tokens[beam_idx.cpu().numpy()]


def _batch_repeat_interleave(cache: Any, repeats: int) -> None:
    record = getattr(cache, _ATTRIBUTE)
    type(cache).batch_repeat_interleave(cache, repeats)
    record.tokens = record.tokens.repeat(repeats, axis=0)


def _batch_select_indices(cache: Any, indices: torch.Tensor) -> None:
    record = getattr(cache, _ATTRIBUTE)
    type(cache).batch_select_indices(cache, indices)
    record.tokens = record.tokens[indices.cpu().numpy()]


_PERMUTE: dict[str, Callable[..., None]] = {
    "reorder_cache": _reorder_cache,
    "batch_repeat_interleave": _batch_repeat_interleave,
    "batch_select_indices": _batch_select_indices,
}


def _watch(cache: Any) -> None:
    for name, method in _PERMUTE.items():
        if hasattr(type(cache), name):
            # A bound method, because deepcopy binds it to the copied cache.
            setattr(cache, name, types.MethodType(method, cache))

"""Which positions of the sequence a hidden state's entries are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError

Shape = tuple[int, ...]


class ShapeError(PhraseMemError):
    """A hidden state whose positions cannot be told."""


def positions_of(hidden: torch.Tensor, shape: Shape, keep: Any = 0) -> NDArray[np.int64]:
    """Return flat (B, T) indices of the states that enter an injection point.

    Parameters
    ----------
    hidden : (B, T', dim) or (n, dim)
        Fewer positions than (B, T) where ``logits_to_keep`` chose some.
    shape : (B, T)
    keep : int or tensor
        ``logits_to_keep``: the last so many, (T',) or (B, T') positions, or a (B, T) bool mask.

    Raises
    ------
    ShapeError
        If what entered is neither all positions nor those of ``keep``.
    """
    every = torch.arange(shape[0] * shape[1]).reshape(*shape, 1)
    kept = _keep(every, keep)
    for chosen in (kept, every):
        if hidden.shape[:-1] == chosen.shape[:-1]:
            flat: NDArray[np.int64] = chosen.reshape(-1).numpy()
            return flat
    raise ShapeError(
        "the injection point sees other positions than the model",
        expected=" or ".join(sorted({str(tuple(c.shape[:-1])) for c in (kept, every)})),
        found=tuple(hidden.shape[:-1]),
    )


def _keep(every: torch.Tensor, keep: Any) -> torch.Tensor:
    """Slice (B, T, 1) as transformers slices hidden states before the head."""
    if not isinstance(keep, torch.Tensor):
        return every[:, -(keep or 0) :]
    keep = keep.cpu()
    if keep.ndim < 2:
        return every[:, keep]
    return every[keep] if keep.dtype == torch.bool else every.take_along_dim(keep[..., None], 1)


def replace_hidden(
    args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Change the hidden state among a module's arguments.

    It is the first positional argument, or ``hidden_states`` or ``input`` by name.

    Raises
    ------
    ShapeError
        If there is none.
    """
    if args and isinstance(args[0], torch.Tensor):
        return (change(args[0]), *args[1:]), kwargs
    for name in ("hidden_states", "input"):
        if isinstance(kwargs.get(name), torch.Tensor):
            return args, kwargs | {name: change(kwargs[name])}
    raise ShapeError("no hidden state among the arguments", found=sorted(kwargs))

"""What calibration learns from: hidden states at positions where a phrase of the memory ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import NO_TOKEN
from phrasemem.runtime.documents import Batch, Window, batches
from phrasemem.runtime.matcher import Matcher
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.positions import replace_hidden

BATCH_TOKENS = 2048
Progress = Callable[[str], None]


class CalibrationError(PhraseMemError):
    """Text or a model that no adapter can be fitted on."""


@dataclass(frozen=True)
class Samples:
    """Positions where a phrase ends and the next token is known.

    Parameters
    ----------
    states : (n, dim_out)
        What enters the injection point, in the model's dtype.
    next_tokens : (n,) int64
    vectors : (n, dim_in) float32
        The phrases' encoder vectors.
    documents : (n,) int64
    tokens : dict of str to int
        All tokens that were run, by kind.
    """

    states: torch.Tensor
    next_tokens: torch.Tensor
    vectors: torch.Tensor
    documents: NDArray[np.int64]
    tokens: dict[str, int]

    def __len__(self) -> int:
        return len(self.next_tokens)

    def counts(self) -> dict[str, Any]:
        """Return what a report says of them."""
        tokens = self.tokens
        return {"tokens": sum(tokens.values()), "tokens_by_kind": tokens, "hits": len(self)}

    def of(self, documents: NDArray[np.bool_]) -> Samples:
        """Return some of the documents' samples."""
        return self.where(torch.from_numpy(documents[self.documents]))

    def where(self, kept: torch.Tensor) -> Samples:
        """Return the samples under an (n,) bool mask."""
        return Samples(
            self.states[kept],
            self.next_tokens[kept],
            self.vectors[kept],
            self.documents[kept.numpy()],
            self.tokens,
        )

    def thinned(self, share: float) -> Samples:
        """Return about so large a share of the samples, evenly spread; at least one."""
        if share >= 1:
            return self
        count = max(1, round(share * len(self)))
        kept = torch.zeros(len(self), dtype=torch.bool)
        kept[torch.linspace(0, len(self) - 1, count).round().long()] = True
        return self.where(kept)


def collect(
    model: nn.Module,
    point: nn.Module,
    memory: PhraseMemory,
    windows: Sequence[Window],
    progress: Progress,
) -> Samples:
    """Run a frozen model over windows and keep the states at hits.

    Parameters
    ----------
    model : nn.Module
    point : nn.Module
        The module whose input is kept; nothing after it is computed.
    memory : PhraseMemory
    windows : sequence of Window
    progress : callable
        Is told what was done, about every five seconds.

    Raises
    ------
    CalibrationError
        If no phrase of the memory occurs.
    """
    matcher = Matcher(memory.reader, memory.payload, memory.tier)
    states, targets, vectors, documents = [], [], [], []
    total = sum(len(window.tokens) for window in windows)
    done, told = 0, time.monotonic()
    for batch, hidden in states_entering(point, model, batches(windows, BATCH_TOKENS)):
        ids = np.where(batch.mask.numpy() > 0, batch.ids.numpy(), NO_TOKEN)
        following = np.pad(ids[:, 1:], ((0, 0), (0, 1)), constant_values=NO_TOKEN).reshape(-1)
        positions = np.flatnonzero(following != NO_TOKEN)
        hits = matcher.fetch(matcher.candidates(None, ids), positions)
        places = positions[hits.places]
        owners = np.array([window.document for window in batch.windows])
        states.append(hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(places)])
        targets.append(following[places])
        vectors.append(hits.vectors[hits.which])
        documents.append(owners[places // ids.shape[1]])
        done += int(batch.mask.sum())
        if time.monotonic() - told > 5:
            progress(f"{done:,} of {total:,} tokens")
            told = time.monotonic()
    if not sum(map(len, targets)):
        raise CalibrationError("no phrase of the memory occurs in the calibration text")
    by_kind: Counter[str] = Counter()
    for window in windows:
        by_kind[window.kind] += len(window.tokens)
    return Samples(
        torch.cat(states),
        torch.from_numpy(np.concatenate(targets)),
        torch.from_numpy(np.concatenate(vectors)),
        np.concatenate(documents),
        dict(sorted(by_kind.items())),
    )


class _Reached(Exception):  # noqa: N818 - not an error: it ends a forward pass early
    pass


def states_entering(
    point: nn.Module, model: nn.Module, source: Iterator[Batch]
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Run a model up to the input of one of its modules.

    Raises
    ------
    CalibrationError
        If the module does not run.
    """
    seen: list[torch.Tensor] = []

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(hidden)
        raise _Reached

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        replace_hidden(args, kwargs, keep)

    handle = point.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        for batch in source:
            try:
                with torch.no_grad():
                    model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
            except _Reached:
                yield batch, seen.pop()
            else:
                raise CalibrationError("the injection point did not run", where=type(point))
    finally:
        handle.remove()

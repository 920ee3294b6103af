"""Perplexity on held-out text: frozen, with memory, and with its vectors shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from phrasemem.backbone import backbone_fingerprint, unwrap
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.runtime.adapter import Adapter, load_adapter
from phrasemem.runtime.attach import attach
from phrasemem.runtime.calibrate import calibrated_on
from phrasemem.runtime.documents import Document, cut
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.perplexity import losses
from phrasemem.runtime.samples import Progress

WINDOW = 1024
SHUFFLE_SEED = 0
CONDITIONS = ("frozen", "attached", "shuffled")


class EvaluationError(PhraseMemError):
    """Text on which a figure would mean nothing."""


@dataclass(frozen=True)
class KindResult:
    """Perplexities on one kind of text, over ``tokens`` predicted tokens."""

    tokens: int
    frozen: float
    attached: float
    shuffled: float


def evaluate(
    memory: PhraseMemory,
    model: Any,
    tokenizer: Any,
    documents: Sequence[Document],
    *,
    max_tokens: int | None = 10_000,
    progress: Progress = lambda _: None,
) -> dict[str, KindResult]:
    """Measure perplexity by kind, each condition with a real attachment.

    Parameters
    ----------
    memory : PhraseMemory
    model : nn.Module
    tokenizer : fast tokenizer
    documents : sequence of Document
    max_tokens : int, optional
        Tokens of each kind; None for all.
    progress : callable
        Is told, in a few words, what was done.

    Raises
    ------
    EvaluationError
        If a document was used in calibration, or nothing was predicted.
    """
    adapter = load_adapter(memory.path, backbone_fingerprint(unwrap(model)))
    _refuse_overlap(adapter, documents)
    windows = cut(documents, tokenizer, width=WINDOW, budget=max_tokens)
    if not windows:
        raise EvaluationError("no document has two tokens", found=f"{len(documents)} documents")
    measured = {}
    for condition in CONDITIONS:
        with _condition(condition, model, memory, tokenizer, adapter):
            measured[condition] = losses(model, windows)
        progress(condition)
    return {
        kind: KindResult(
            loss.tokens, *(measured[condition][kind].perplexity for condition in CONDITIONS)
        )
        for kind, loss in measured["frozen"].items()
    }


@contextmanager
def _condition(
    name: str, model: Any, memory: PhraseMemory, tokenizer: Any, adapter: Adapter
) -> Iterator[None]:
    seed = SHUFFLE_SEED if name == "shuffled" else None
    with (
        nullcontext()
        if name == "frozen"
        else attach(model, memory, tokenizer=tokenizer, adapter=adapter, shuffle_seed=seed)
    ):
        yield


def _refuse_overlap(adapter: Adapter, documents: Sequence[Document]) -> None:
    shared = [document.digest for document in documents if calibrated_on(adapter, document)]
    if shared:
        raise EvaluationError(
            "the adapter was calibrated on documents that it would be judged by",
            found=f"{len(shared)} of {len(documents)}, such as the one with SHA-256 {shared[0]}",
            hint="leave them out, or calibrate on other text",
        )

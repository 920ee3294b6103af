"""Fits the adapter of a backbone to a memory: no gradient descent, one pass over some text.

The map is fitted on some documents and judged on others. Where nothing helps there, the scale is
0 and attaching changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemem.backbone import backbone_fingerprint, decoder_blocks, output_head, unwrap
from phrasemem.runtime.adapter import Adapter, Gate, save_adapter
from phrasemem.runtime.compatibility import check_tokenizer
from phrasemem.runtime.documents import Document, Window, cut, read_held_out
from phrasemem.runtime.head_fit import Fit, fit_head
from phrasemem.runtime.layer_fit import fit_layer
from phrasemem.runtime.memory import PhraseMemory
from phrasemem.runtime.samples import CalibrationError, Progress, collect

DEFAULT_MAX_TOKENS = 50_000
WINDOW = 1024
_DIGITS = 16


def calibrate(
    memory_path: str | Path,
    model: Any,
    tokenizer: Any,
    *,
    documents: Sequence[Document] | None = None,
    point: str = "head",
    gate: Gate | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    progress: Progress = lambda _: None,
) -> Adapter:
    """Fit an adapter and write it into the memory.

    Parameters
    ----------
    memory_path : path-like
    model : nn.Module
        The backbone, frozen.
    tokenizer : fast tokenizer
    documents : sequence of Document, optional
        The memory's own calibration documents if not given.
    point : str
        ``head``, or ``layer:K`` for the input of decoder block K.
    gate : {"none", "relu-cos"}, optional
        ``none`` at the head, ``relu-cos`` at a layer if not given.
    max_tokens : int
        Shared evenly by the kinds of text.
    progress : callable
        Is told, in a few words, what was done.

    Returns
    -------
    Adapter
        With the report. Equal for equal inputs, thread count and processor.

    Raises
    ------
    CalibrationError
        If the text is too little, or the point does not fit the model.
    """
    memory_path = Path(memory_path)
    documents = read_held_out(memory_path, "calibration") if documents is None else documents
    inner = unwrap(model)
    with PhraseMemory.open(memory_path) as memory, torch.no_grad():
        check_tokenizer(inner, memory, tokenizer)
        kinds = len({document.kind for document in documents})
        windows = cut(documents, tokenizer, width=WINDOW, budget=max(2, max_tokens // kinds))
        used = sorted({window.document for window in windows})
        if point == "head":
            head = output_head(inner)
            fit = _fit_head(inner, head, memory, windows, gate, progress)
        else:
            fit = fit_layer(
                inner, _block(inner, point), point, gate or "relu-cos",
                memory, tokenizer, windows, _chooses(documents), progress,
            )  # fmt: skip
        adapter = Adapter(
            projection=fit.projection,
            bias=fit.bias,
            scale=fit.scale,
            point=point,
            gate=gate or ("none" if point == "head" else "relu-cos"),
            payload=memory.payload.info.name,
            source=memory.payload.info.source,
            report=fit.report
            | {
                "documents": [documents[i].digest[:_DIGITS] for i in used],
                "documents_sha256": _digest(documents, used),
                "dtype": str(inner.dtype).removeprefix("torch."),
                "threads": torch.get_num_threads(),
            },
        )
    save_adapter(adapter, memory_path, backbone_fingerprint(inner))
    return adapter


def calibrated_on(adapter: Adapter, document: Document) -> bool:
    """Tell whether an adapter was calibrated on a document."""
    return document.digest[:_DIGITS] in adapter.report.get("documents", ())


def _fit_head(
    model: Any,
    head: Any,
    memory: PhraseMemory,
    windows: Sequence[Window],
    gate: Gate | None,
    progress: Progress,
) -> Fit:
    if gate not in (None, "none"):
        raise CalibrationError("the head takes no gate", expected="none", found=gate)
    samples = collect(model, head, memory, windows, progress)
    fit = fit_head(head, samples, progress)
    return Fit(fit.projection, fit.bias, fit.scale, fit.report | samples.counts())


def _chooses(documents: Sequence[Document]) -> NDArray[np.bool_]:
    """Return which documents choose: a quarter, by content, whatever else is there."""
    return np.array([int(document.digest[:8], 16) % 4 == 0 for document in documents])


def _block(model: Any, point: str) -> Any:
    blocks = decoder_blocks(model)
    kind, _, number = point.partition(":")
    if kind != "layer" or not number.isdecimal() or int(number) >= len(blocks):
        raise CalibrationError(
            "no such injection point",
            expected=f"head or layer:0..{len(blocks) - 1}",
            found=point,
        )
    return blocks[int(number)]


def _digest(documents: Sequence[Document], used: Sequence[int]) -> str:
    joined = "".join(documents[i].digest for i in used)
    return hashlib.sha256(joined.encode()).hexdigest()

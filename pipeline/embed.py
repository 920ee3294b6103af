"""Stage ``embed``: the external encoder's vector of every phrase's text, as float16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.catalogue_table import read_rows
from phrasemem.pipeline.encoder import (
    Encoder,
    EncoderError,
    is_static,
    load_encoder,
    reference_of,
)
from phrasemem.pipeline.encoder_options import EncoderOptions
from phrasemem.pipeline.stage import Report, appears

PAYLOAD = "semantic"
MIN_COSINE = 0.999
_CHECKED = 64
_TOKENIZED_TOGETHER = 4096
# Texts are mostly of 3 to 6 tokens: longer ones come in fewer, so that a batch stays in the cache.
_TOKENS_A_TEXT = 4


def embed_part(
    folder: Path,
    key: str,
    *,
    catalogue: str,
    start: int,
    stop: int,
    encoder: EncoderOptions,
    batch_size: int,
    kept: Sequence[str] = (),
) -> Report:
    """Encode the phrases ``start..stop`` of the catalogue as ``KEY.npy``, (phrases, dim) float16.

    A phrase that one of the memories ``kept`` has keeps its vector, from the first that has it;
    they must have the same encoder.

    Vectors move a little with the number of threads and the shape of a batch, so there is one
    thread, and batches are cut by position in the catalogue.

    Returns
    -------
    dict
        ``phrases``, ``dim``, ``encoded``.

    Raises
    ------
    EncoderError
        If the encoder cannot be used so, or int8 vectors are not those of float32.
    """
    table = read_rows(Path(catalogue), start, stop, ["text", "tokens"])
    texts: list[str] = table["text"].to_pylist()
    vectors, new = kept_vectors(table["tokens"].to_pylist(), kept)
    if len(new):
        fresh = encode([texts[i] for i in new.tolist()], load_encoder(encoder), batch_size)
        if len(new) == len(texts):
            vectors = fresh
        vectors[new] = fresh
    with appears(folder / f"{key}.npy") as temporary, temporary.open("wb") as file:
        np.save(file, vectors, allow_pickle=False)
    return {"phrases": len(texts), "dim": int(vectors.shape[1]), "encoded": len(new)}


def kept_vectors(
    keys: Sequence[Sequence[int]], memories: Sequence[str]
) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    """Collect the vectors that keys have in memories.

    Returns
    -------
    vectors : (len(keys), dim) float16
        Not set where no memory has the key; dim is 0 without memories.
    missing : (m,) int64
        Positions of these keys, rising.
    """
    vectors = np.empty((len(keys), 0), np.float16)
    missing = np.arange(len(keys))
    for memory in memories:
        with MemoryReader.open(memory) as reader:
            payload = reader.payload(PAYLOAD)
            if not vectors.shape[1]:
                vectors = np.empty((len(keys), payload.dim), np.float16)
            rows = reader.get_many([keys[place] for place in missing.tolist()])
            here = rows >= 0
            vectors[missing[here]] = payload.gather(rows[here])
        missing = missing[~here]
    return vectors, missing


def encode(
    texts: list[str], encoder: Encoder, batch_size: int, *, checked: bool = True
) -> NDArray[np.float16]:
    """Return the vectors of texts, (len(texts), dim) float16, in their order.

    Parameters
    ----------
    texts : list of str
    encoder : Encoder
    batch_size : int
        Most texts in a batch.
    checked : bool
        Compare a sample of int8 vectors with float32.

    Raises
    ------
    EncoderError
        If a vector is not finite in float16, or int8 vectors are not those of float32.
    """
    if checked and encoder.options.compute == "int8":
        _check_int8(texts[:: max(1, len(texts) // _CHECKED)], encoder, batch_size)
    vectors = _in_order(texts, encoder, batch_size)
    with np.errstate(over="ignore"):
        result = vectors.astype(np.float16)
    if not (finite := np.isfinite(result).all(axis=1)).all():
        raise EncoderError(
            f"{int((~finite).sum()):,} vectors are not finite in float16",
            where=encoder.options.id,
            found=f"compute {encoder.options.compute}, normalize {encoder.options.normalize}",
            hint="set encoder.compute: float32 or bfloat16, and encoder.normalize: true",
        )
    return result


def _in_order(texts: list[str], encoder: Encoder, batch_size: int) -> NDArray[np.float32]:
    import torch

    # Spellings that an uncased encoder reads alike stand side by side, to be encoded once.
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), texts[i].lower(), texts[i]))
    result = None
    with torch.inference_mode():
        for begin in range(0, len(order), _TOKENIZED_TOGETHER):
            places = order[begin : begin + _TOKENIZED_TOGETHER]
            vectors = _block([texts[place] for place in places], encoder, batch_size)
            if result is None:
                result = np.empty((len(texts), vectors.shape[1]), np.float32)
            result[places] = vectors
    if result is None:
        raise EncoderError("there is no text to encode")
    return result


def _block(texts: list[str], encoder: Encoder, batch_size: int) -> NDArray[np.float32]:
    """Tokenize texts once, and encode those of each length together: nothing is padding."""
    features = encoder.model.preprocess(texts, prompt=encoder.prompt)
    mask = features.get("attention_mask")
    if is_static(encoder.model):
        return _forward(features, encoder)
    if mask is None or mask.ndim != 2:
        return _by_the_library(texts, encoder, batch_size)
    pieces = []
    places = []
    for rows, group, repeats in by_length(features):
        step = max(1, min(batch_size, _TOKENS_A_TEXT * batch_size // group["input_ids"].shape[1]))
        batches = (_cut(group, begin, begin + step) for begin in range(0, _rows(group), step))
        pieces.append(np.concatenate([_forward(batch, encoder) for batch in batches])[repeats])
        places.append(rows)
    result = np.empty((len(texts), pieces[0].shape[1]), np.float32)
    result[np.concatenate(places)] = np.concatenate(pieces)
    return result


Features = dict[str, Any]


def by_length(
    features: Mapping[str, Any],
) -> Iterator[tuple[NDArray[np.int64], Features, NDArray[np.int64]]]:
    """Part padded texts by their number of tokens, shortest first.

    Parameters
    ----------
    features : mapping
        What a tokenizer gives: ``input_ids`` and ``attention_mask``, (texts, tokens), padded at
        one side, and more of that shape; what is not a tensor holds for all.

    Yields
    ------
    rows : (r,) int64
        The texts of one length.
    group : dict
        Features of those that differ, (u, length) without padding.
    repeats : (r,) int64
        Which of these each row is.
    """
    mask = features["attention_mask"].numpy()
    ids = features["input_ids"].numpy()
    lengths = mask.sum(axis=1)
    at_the_left = not mask[:, 0].all()
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        columns = slice(mask.shape[1] - length, None) if at_the_left else slice(0, length)
        _, first, repeats = np.unique(
            ids[rows, columns], axis=0, return_index=True, return_inverse=True
        )
        kept = rows[first]
        group = {
            name: value[kept, columns] if getattr(value, "shape", ()) == mask.shape else value
            for name, value in features.items()
        }
        yield rows, group, repeats.reshape(-1)


def _rows(group: Features) -> int:
    return int(group["input_ids"].shape[0])


def _cut(group: Features, begin: int, end: int) -> Features:
    shape = group["input_ids"].shape
    return {
        name: value[begin:end] if getattr(value, "shape", ()) == shape else value
        for name, value in group.items()
    }


def _forward(features: Mapping[str, Any], encoder: Encoder) -> NDArray[np.float32]:
    on_device = {name: _moved(value, encoder) for name, value in features.items()}
    return _finished(encoder.model(on_device)["sentence_embedding"], encoder)


def _moved(value: Any, encoder: Encoder) -> Any:
    """Copy a tensor to the card from pinned memory, so that the copy does not wait."""
    if encoder.options.device == "cpu" or not hasattr(value, "pin_memory"):
        return value
    return value.pin_memory().to(encoder.options.device, non_blocking=True)


def _by_the_library(texts: list[str], encoder: Encoder, batch_size: int) -> NDArray[np.float32]:
    """Encode by ``SentenceTransformer.encode``, for models whose features have no mask."""
    vectors = encoder.model.encode(
        texts,
        prompt=encoder.prompt,
        batch_size=batch_size,
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    return _finished(vectors, encoder)


def _finished(vectors: Any, encoder: Encoder) -> NDArray[np.float32]:
    import torch

    options = encoder.options
    vectors = vectors.float()[:, : options.dims]
    if options.normalize:
        vectors = torch.nn.functional.normalize(vectors, dim=1)
    result: NDArray[np.float32] = vectors.cpu().numpy()
    return result


def _check_int8(texts: list[str], encoder: Encoder, batch_size: int) -> None:
    """Refuse int8 where it changes vectors; the sample is of the part, not of the worker."""
    found = _in_order(texts, encoder, batch_size)
    expected = _in_order(texts, reference_of(encoder), batch_size)
    if (lowest := cosines(found, expected).min()) < MIN_COSINE:
        raise EncoderError(
            "int8 changes the vectors of this encoder too much",
            where=encoder.options.id,
            expected=f"cosine to float32 of at least {MIN_COSINE}",
            found=f"{lowest:.4f}, the least of {len(texts)} phrases",
            hint="set encoder.compute: auto",
        )


def cosines(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each row of one array and the same row of the other."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    result: NDArray[np.float64] = (a * b).sum(axis=1) / norms
    return result


def dimension_of(options: EncoderOptions) -> int:
    """Return how many numbers a vector of an encoder has, by making one."""
    return int(encode(["a"], load_encoder(options), 1, checked=False).shape[1])

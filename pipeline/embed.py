"""Stage ``embed``: the external encoder's vector of every phrase's text, as float16."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem import artifacts
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.stage import Report, appears

PAYLOAD = "semantic"


class EncoderError(PhraseMemError):
    """An encoder that cannot be loaded."""


def resolve_compute(wanted: str) -> str:
    """Return ``bfloat16`` where the CPU multiplies in it, else ``float32``; no torch needed."""
    if wanted != "auto":
        return wanted
    cpuinfo = Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not cpuinfo.exists():
        return "float32"
    flags = next((line for line in cpuinfo.read_text().splitlines() if line[:5] == "flags"), "")
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(flags.split()) else "float32"


def embed_part(
    folder: Path,
    key: str,
    *,
    catalogue: str,
    start: int,
    stop: int,
    encoder: str,
    compute: str,
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
    """
    table = pq.read_table(catalogue, columns=["text", "tokens"])[start:stop]
    texts: list[str] = table["text"].to_pylist()
    vectors, new = kept_vectors(table["tokens"].to_pylist(), kept)
    if len(new):
        fresh = encode([texts[i] for i in new.tolist()], _encoder(encoder, compute), batch_size)
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


def encode(texts: list[str], model: Any, batch_size: int) -> NDArray[np.float16]:
    """Return unit vectors, (len(texts), dim) float16, in the order of the texts.

    Batches hold texts of as many tokens: padding is costly for short phrases. Of the default
    catalogue 1,220 a second and core are encoded so, and 830 when sorted by characters.
    """
    import torch

    lengths = [len(ids) for ids in model.tokenizer(texts)["input_ids"]]
    order = sorted(range(len(texts)), key=lambda place: (lengths[place], texts[place]))
    pieces = []
    for begin in range(0, len(order), batch_size):
        batch = [texts[place] for place in order[begin : begin + batch_size]]
        with torch.inference_mode():
            vectors = model.encode(
                batch, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
            )
        pieces.append(torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy())
    result = np.empty((len(texts), pieces[0].shape[1]), np.float16)
    result[order] = np.concatenate(pieces)
    return result


@lru_cache(maxsize=1)
def _encoder(reference: str, compute: str) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    source = str(artifacts.fetch(reference)) if artifacts.is_reference(reference) else reference
    try:
        return SentenceTransformer(
            source,
            device="cpu",
            trust_remote_code=False,
            local_files_only=Path(source).is_dir(),
            model_kwargs={"dtype": getattr(torch, compute)},
        )
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise EncoderError(f"cannot load the encoder {reference}: {first}") from error


def dimension_of(encoder: str, compute: str) -> int:
    """Return how many numbers a vector of an encoder has, by making one."""
    return int(encode(["a"], _encoder(encoder, compute), 1).shape[1])

"""Vectors of a catalogue's phrases on one core, against ``SentenceTransformer.encode``.

    python -m benchmarks.embed [--full] [--memory build/memory]

The rival is ``encode`` with defaults, in float32, on the same phrases; the sides take turns, and
seconds are CPU time of the one thread, so that a busy machine falls on neither. Phrases are drawn
over the catalogue of a memory; without one, of the ``tiny`` profile, mined in ``build/bench``.
Cosines are of the float16 vectors that are stored, to the rival's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks._harness import OUT, Result, report
from phrasemem.pipeline.config import BuildConfig, Encoder, load_config
from phrasemem.pipeline.embed import MIN_COSINE, cosines, encode
from phrasemem.pipeline.encoder import load_encoder
from phrasemem.pipeline.encoder_options import EncoderOptions, resolve_compute
from phrasemem.pipeline.plan import BATCH_SIZES
from phrasemem.pipeline.run import build

_BATCH = BATCH_SIZES["cpu"]
_TURNS = 3
_WHEEL = "pypi:wordllama==0.4.0.post1/wordllama"
_STATIC = EncoderOptions(
    f"{_WHEEL}/weights/l2_supercat_256.safetensors",
    kind="static",
    tokenizer=f"{_WHEEL}/tokenizers/l2_supercat_tokenizer_config.json",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="12,000 phrases instead of 1,500")
    parser.add_argument("--memory", type=Path, help="a memory whose phrases to take")
    arguments = parser.parse_args()
    config = load_config(Path("corpora.yaml"), "tiny")
    catalogue = (arguments.memory or _mined(config)) / "catalogue.parquet"
    phrases = _sample(catalogue, 12_000 if arguments.full else 1_500)
    report(_results(phrases, config.encoder.id), "embed")


def _mined(config: BuildConfig) -> Path:
    """Mine the phrases of the profile; a static encoder, since vectors are made again here."""
    encoder = Encoder(id=_STATIC.id, kind="static", tokenizer=_STATIC.tokenizer)
    out = OUT / "embed-phrases"
    build(config.model_copy(update={"encoder": encoder}), out, workers=1)
    return out


def _sample(catalogue: Path, wanted: int) -> list[str]:
    texts: list[str] = pq.read_table(catalogue, columns=["text"])["text"].to_pylist()
    places = np.random.default_rng(0).permutation(len(texts))[:wanted]
    return [texts[place] for place in np.sort(places).tolist()]


def _results(phrases: list[str], reference: str) -> list[Result]:
    plain = EncoderOptions(reference)
    rival = load_encoder(plain).model
    formats = ["float32", "int8"]
    if resolve_compute("auto") == "bfloat16":
        formats.insert(1, "bfloat16")
    results = [_against(rival, phrases, EncoderOptions(reference, each)) for each in formats]
    return [*results, _against(rival, phrases, _STATIC)]


def _against(rival: Any, phrases: list[str], options: EncoderOptions) -> Result:
    ours = _encoding(options)
    ours(phrases[:256])
    rival.encode(phrases[:256])
    seconds, vectors = [0.0, 0.0], [np.empty(0), np.empty(0)]
    sides: tuple[Callable[[list[str]], Any], ...] = (ours, rival.encode)
    for turn in range(_TURNS):
        for side in (turn % 2, 1 - turn % 2):
            begin = time.process_time()
            vectors[side] = sides[side](phrases)
            seconds[side] += time.process_time() - begin
    rates = [_TURNS * len(phrases) / each for each in seconds]
    static = options.kind == "static"
    note = "" if static else _described(cosines(vectors[0], vectors[1]))
    return Result(
        name="embed/static" if static else f"embed/{options.compute}",
        value=rates[0],
        unit="phrases/s of CPU time",
        rival="SentenceTransformer.encode, float32",
        rival_value=rates[1],
        state="warm",
        higher_is_better=True,
        target=1.5 if options.compute == resolve_compute("auto") and not static else None,
        note=f"{note} {len(phrases):,} phrases".strip(),
    )


def _encoding(options: EncoderOptions) -> Callable[[list[str]], Any]:
    encoder = load_encoder(options)
    if options.compute != "int8":
        return lambda texts: encode(texts, encoder, _BATCH)
    # A build refuses int8 below the least cosine; here it is shown what it would give.
    return lambda texts: encode(texts, encoder, _BATCH, checked=False)


def _described(found: Any) -> str:
    verdict = "" if found.min() >= MIN_COSINE else f", below {MIN_COSINE}: refused by a build"
    return f"cosine min {found.min():.5f}, mean {found.mean():.5f}{verdict};"


if __name__ == "__main__":
    main()

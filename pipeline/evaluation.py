"""Stage ``evaluation``: the long n-grams of evaluation files, which no mined document may share.

Long n-grams of words are what GPT-3 was decontaminated by (Brown et al. 2020, appendix C: 13 words,
case and punctuation folded).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem import artifacts
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.words import Hashes, Words, gram_hashes, members, split_words

_SCHEMA = pa.schema([("hash", pa.uint64())])
_RECORDS = (".jsonl", ".ndjson")


class EvaluationError(PhraseMemError):
    """An evaluation file that is not there or cannot be read."""


def evaluation_files(patterns: Sequence[str]) -> dict[str, str]:
    """Return the files that paths and globs name, each with its SHA-256, in the order of names.

    Raises
    ------
    EvaluationError
        If one names no file: evaluation text that is not looked for must not go unnoticed.
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        paths = [Path(path) for path in glob(pattern, recursive=True)]  # noqa: PTH207
        if not has_magic(pattern):
            paths = [Path(pattern)]
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise EvaluationError(
                "no such evaluation file", where=pattern, hint="see cleaning.decontaminate"
            )
        found |= {str(path): artifacts.sha256_of(path) for path in paths}
    return dict(sorted(found.items()))


def evaluation_part(folder: Path, key: str, *, files: Sequence[str], words: int) -> Report:
    """Write the distinct n-grams of ``words`` words of all files as hashes, ascending.

    Returns
    -------
    dict
        ``texts``, ``grams``, and ``too_short``: texts that have no n-gram, so cannot be found.
    """
    hashes = [np.zeros(0, np.uint64)]
    texts = too_short = 0
    for file in files:
        found = list(evaluation_texts(Path(file)))
        split = split_words(found)
        grams, starts = gram_hashes(split, words)
        texts += len(found)
        # Documents ascend, so each new number is a text that has an n-gram.
        numbers = split.documents[starts]
        too_short += len(found) - int((np.diff(numbers, prepend=-1) != 0).sum())
        hashes.append(grams)
    ordered = np.sort(np.concatenate(hashes))
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    with appears(folder / f"{key}.parquet") as temporary:
        pq.write_table(pa.table([distinct], schema=_SCHEMA), temporary)
    return {"texts": texts, "grams": len(distinct), "too_short": too_short}


def evaluation_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file: every string of every record of JSON lines, or the file's text."""
    bare = path.name.lower().removesuffix(".gz")
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            if bare.endswith(_RECORDS):
                yield from _strings_of_records(file, path)
            else:
                yield _encodable(file.read())
    except (OSError, EOFError) as error:
        raise EvaluationError(f"cannot be read: {error}", where=path) from error


def _strings_of_records(file: IO[Any], path: Path) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise EvaluationError(f"no JSON: {error.msg}", where=f"{path}:{number}") from error
        yield from map(_encodable, _strings(record))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def contaminated(words: Words, evaluation: Hashes, length: int) -> NDArray[np.bool_]:
    """Whether each text shares an n-gram of ``length`` words with the evaluation files."""
    hashes, starts = gram_hashes(words, length)
    found = np.zeros(len(words.offsets) - 1, np.bool_)
    found[words.documents[starts[members(hashes, evaluation)]]] = True
    return found

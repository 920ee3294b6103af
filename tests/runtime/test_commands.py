"""The commands that run a model, from the command line's end."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

from phrasemem.cli import cli, main
from phrasemem.runtime.explain import continue_both


@pytest.fixture
def folder(make_model, tokenizer, tmp_path):
    """A model and its tokenizer, saved as Hugging Face saves them."""
    make_model("llama", seed=3).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


def run(*arguments):
    result = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_calibrate_eval_and_generate_work_together(held_out, folder):
    common = ("--memory", held_out, "--model", folder, "--dtype", "float32")
    said = run("calibrate", *common, "--max-tokens", "3000")
    assert "calibrated on 3,000 tokens" in said
    printed = json.loads(run("eval", *common, "--json", "--max-tokens", "0"))
    assert list(printed) == ["kinds"]
    assert sorted(printed["kinds"]) == ["science", "web"]
    for result in printed["kinds"].values():
        assert list(result) == ["tokens", "frozen", "attached", "shuffled"]
        assert result["attached"] < result["frozen"]
        assert result["attached"] < result["shuffled"]
    table = run("eval", *common)
    web = printed["kinds"]["web"]
    assert f"{web['attached'] / web['frozen'] - 1:+.2%}" in table
    assert f"{web['attached'] / web['shuffled'] - 1:+.2%}" in table
    generated = run("generate", *common, "--prompt", "w3 w5 w3 w7", "--max-new-tokens", "9")
    assert "ms a token" in generated
    assert "forward passes" in generated


def test_eval_reads_a_text_file(held_out, folder, tmp_path):
    common = ("--memory", held_out, "--model", folder)
    run("calibrate", *common, "--point", "layer:1")
    text = tmp_path / "a.txt"
    text.write_text("w3 w4 w5 w6 w7 w8")
    printed = json.loads(run("eval", *common, "--text", text, "--json"))
    assert printed["kinds"]["text"]["tokens"] == 5


def test_errors_are_one_line_and_a_non_zero_exit(held_out, tmp_path, capsys):
    for arguments, message in [
        (["generate", "--memory", held_out, "--model", "./none", "--prompt", "a"], "no such model"),
        (["eval", "--memory", tmp_path], "memory"),
        (["calibrate", "--memory", held_out], "words"),
    ]:
        with pytest.raises(SystemExit) as stopped:
            main([str(a) for a in arguments])
        assert stopped.value.code == 1
        said = capsys.readouterr().err.strip()
        assert message in said
        assert said.startswith("phrasemem: ")
        assert "\n" not in said


def test_continue_both_names_the_phrases_that_fired(
    held_out, tiny, make_model, make_adapter, install, tokenizer, memory
):
    model = make_model("llama", seed=4)
    install(model, make_adapter())
    words = [f"w{t}" for t in tiny.stitched(20, seed=1)]
    frozen, attached = continue_both(
        model, memory, tokenizer, " ".join(words), max_new_tokens=8, temperature=0.8, seed=5
    )
    again = continue_both(
        model, memory, tokenizer, " ".join(words), max_new_tokens=8, temperature=0.8, seed=5
    )
    assert (frozen.text, attached.text) == (again[0].text, again[1].text)
    assert frozen.stats is None
    assert attached.stats.injections > 0
    assert frozen.fired == []
    for phrase in attached.fired:
        last = phrase.phrase.split()[-1]
        assert last == phrase.token.strip()
        if phrase.position < 20:
            begin = phrase.position + 1 - len(phrase.phrase.split())
            assert phrase.phrase.split() == words[begin : phrase.position + 1]
    assert len([p for p in attached.fired if p.position < 20]) > 5
    assert math.isfinite(frozen.seconds_per_token)

"""``phrasemem mine``: corpora to chosen phrases, and why a phrase is in or out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import cluster_options, corpora_options, pipeline_needed

if TYPE_CHECKING:
    from phrasemem.pipeline.explain_phrase import Explained
    from phrasemem.pipeline.mine import Mined


@click.command(name="mine")
@corpora_options
@click.option("--model", help="Backbone whose tokenizer the keys are in: pypi:, folder or name.")
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("build/work"),
    show_default=True,
    help="Folder of the stages; `phrasemem build` goes on from there.",
)
@cluster_options
@click.option("--top", type=click.IntRange(min=0), default=20, show_default=True)
@click.option("--explain", metavar="PHRASE", help="Say why this phrase is in or out.")
@click.option(
    "--memory",
    type=MEMORY,
    help="With --explain: ask this finished memory alone, without corpora and work folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    config_path: Path,
    profile: str | None,
    model: str | None,
    work: Path,
    workers: int | None,
    scheduler: str | None,
    top: int,
    explain: str | None,
    memory: Path | None,
    as_json: bool,
) -> None:
    """Mine corpora up to the catalogue, without vectors, and show the best phrases.

    The work folder then holds score/scored.parquet: all candidates, with every score and why
    each is in or out.
    """
    with pipeline_needed("mining"):
        from phrasemem.pipeline.config import load_config
        from phrasemem.pipeline.mine import mine, quiet
        from phrasemem.pipeline.run import Workplace

    if memory is not None:
        if explain is None:
            raise click.UsageError("--memory goes with --explain")
        from phrasemem.pipeline.explain_memory import explain_in_memory

        _print_explained(explain_in_memory(explain, memory, model), as_json=as_json)
        return
    config = load_config(config_path, profile, model=model)
    silent = quiet(work)
    where = Workplace(silent.work, scheduler, workers, silent.reporter)
    mined = mine(config, where, config_path.absolute().parent)
    if explain is not None:
        from phrasemem.pipeline.explain_phrase import explain as explained

        _print_explained(explained(explain, config, mined), as_json=as_json)
        return
    best = _best(mined, top)
    if as_json:
        click.echo(json.dumps(_summary(mined, best), ensure_ascii=False))
    else:
        click.echo(f"{mined.phrases:,} phrases of {mined.candidates:,} candidates: {mined.scored}")
        for name, rows in best.items():
            click.echo(f"\n{name}")
            for row in rows:
                click.echo(f"  {row['score']:8.3f}  {row['count']:8,}  {row['text']}")


def _best(mined: Mined, top: int) -> dict[str, list[dict[str, Any]]]:
    import duckdb

    from phrasemem.pipeline.database import PARQUET, rows_of

    query = (
        f"SELECT text, count, documents, score FROM {PARQUET} "
        "WHERE verdict = 'chosen' AND home = ? ORDER BY place LIMIT ?"
    )
    return {
        corpus.name: rows_of(duckdb.execute(query, [[str(mined.scored)], corpus.name, top]))
        for corpus in mined.corpora
    }


def _summary(mined: Mined, best: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "candidates": mined.candidates,
        "phrases": mined.phrases,
        "scored": str(mined.scored),
        "catalogue": str(mined.catalogue),
        "corpora": {
            corpus.name: {"phrases": corpus.phrases, "best": best[corpus.name]}
            for corpus in mined.corpora
        },
    }


def _print_explained(found: list[Explained], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([one.as_json() for one in found], ensure_ascii=False))
    else:
        click.echo("\n\n".join(_lines(one) for one in found))


def _lines(one: Explained) -> str:
    pieces = " ".join(f"[{piece}]" for piece in one.pieces)
    lines = [f"{one.spelling!r}  {pieces}", f"  {one.verdict}"]
    if one.detail:
        lines[1] += f": {one.detail}"
    if one.count is not None:
        documents = "" if one.documents is None else f", {one.documents:,} documents"
        lines.append(f"  count {one.count:,}{documents}")
    lines += [
        f"  {name}: {numbers['count']:,}, {numbers['documents']:,} documents"
        for name, numbers in one.corpora.items()
        if numbers["count"]
    ]
    if one.scores:
        scores = (
            f"{name} {'unknown' if value is None else f'{value:.3f}'}"
            for name, value in one.scores.items()
        )
        lines.append(f"  {', '.join(scores)}")
    return "\n".join(lines)

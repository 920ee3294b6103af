"""``phrasemem pull``: fetch a memory from a registry."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("pull")
@click.argument("source", metavar="SOURCE[@VERSION]")
@click.argument("dest", type=click.Path(path_type=Path), required=False)
@click.option("--replace", is_flag=True, help="Replace the memory that stands at DEST.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Files that travel at the same time.",
)
def command(source: str, dest: Path | None, replace: bool, workers: int) -> None:
    """Fetch a memory from the registry SOURCE: a folder, http(s)://..., s3://... or hf://...

    VERSION is a version or an alias, latest if it is not given. Without DEST the memory goes to
    the cache folder. DEST appears when all is there and was verified; the same command after a
    failure goes on where it stopped.
    """
    from phrasemem.cli.verify_command import print_report
    from phrasemem.memfmt.remote.pull import pull
    from phrasemem.memfmt.verify import verify
    from phrasemem.remote_cache import open_memory_path

    if dest is None:
        folder = open_memory_path(source)
        print_report(verify(folder))
        click.echo(f"{'pulled':<10} {folder}")
        return
    done = pull(source, dest, replace=replace, workers=workers)
    print_report(done.report)
    click.echo(f"{'version':<10} {done.version.version}")
    click.echo(f"{'fetched':<10} {done.fetched:,} bytes; {done.reused:,} were here")
    click.echo(f"{'pulled':<10} {dest}")

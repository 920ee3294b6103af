"""``phrasemem push``: publish a memory in a registry."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("push")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("dest")
@click.option("--version", metavar="NAME", help="Name of the version; the next of v1, v2, ...")
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="Move this alias to it.")
@click.option("--no-latest", is_flag=True, help="Do not move the alias latest to it.")
@click.option(
    "--accept-licence",
    is_flag=True,
    help="Publish although the licence of a corpus is unknown or does not allow it.",
)
@click.option(
    "--check-blobs", is_flag=True, help="Read what is there already, and replace what was altered."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Files that travel at the same time.",
)
def command(
    path: Path,
    dest: str,
    version: str | None,
    aliases: tuple[str, ...],
    no_latest: bool,
    accept_licence: bool,
    check_blobs: bool,
    workers: int,
) -> None:
    """Publish the memory at PATH in the registry DEST, a folder, s3://... or hf://...

    Versions never change; aliases move. Only what DEST does not hold travels, and the same
    command after a failure goes on where it stopped. Fetch it with: phrasemem pull DEST@VERSION
    """
    from phrasemem.memfmt.remote.push import push
    from phrasemem.memfmt.remote.reference import LATEST

    names = dict.fromkeys([*([] if no_latest else [LATEST]), *aliases])
    done = push(
        path,
        dest,
        version=version,
        aliases=list(names),
        accept_licence=accept_licence,
        check_blobs=check_blobs,
        workers=workers,
    )
    name = done.version.version
    lines = {
        "version": f"{name} (it was there already)" if done.already else name,
        "aliases": ", ".join(names) or "none moved",
        "files": f"{len(done.version.files)} files, {done.version.bytes:,} bytes",
        "sent": f"{done.sent} blobs, {done.sent_bytes:,} bytes; {done.kept} were there",
        "fetch": f"phrasemem pull {dest.rstrip('/')}@{name}",
    }
    for title, value in lines.items():
        click.echo(f"{title:<10} {value}")

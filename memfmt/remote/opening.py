"""From the URL of a registry to its files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from phrasemem.memfmt.errors import MissingExtraError
from phrasemem.memfmt.remote.errors import RegistryError
from phrasemem.memfmt.remote.folder_store import FolderStore
from phrasemem.memfmt.remote.http_store import HttpStore
from phrasemem.memfmt.remote.reference import is_url
from phrasemem.memfmt.remote.s3_store import S3Store
from phrasemem.memfmt.remote.store import Store

# What a protocol needs besides fsspec, and the extra that installs it.
_EXTRAS = {
    "http": ("aiohttp", "remote"),
    "https": ("aiohttp", "remote"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "hf": ("huggingface_hub", "hub"),
}
_SECONDS_TO_CONNECT = 30
_SECONDS_OF_SILENCE = 60
# Every byte is compared with the checksums of the version as it arrives. Those that a server
# keeps beside an object are stale in some servers after the object was replaced.
_S3_CONFIG = {"response_checksum_validation": "when_required"}


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """Open the file system behind a URL or folder, as fsspec is configured.

    Parameters
    ----------
    url : str
        Of the registry, without a version. Options such as an endpoint or an anonymous login
        come from fsspec's configuration and the environment.

    Raises
    ------
    MissingExtraError
        If a package is not installed, with the line that installs it.
    RegistryError
        If the URL means nothing to fsspec, or is a chain of several.
    """
    if "::" in url:
        raise RegistryError("a registry is one place, not a chain of file systems", found=url)
    protocol = url.partition("://")[0].lower() if is_url(url) else "file"
    package, extra = _EXTRAS.get(protocol, ("fsspec", "remote"))
    for needed in dict.fromkeys(("fsspec", package)):
        _need(needed, extra, url)
    store = _store(url, protocol)
    try:
        yield store
    finally:
        store.close()


def _need(package: str, extra: str, url: str) -> None:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{url} needs {error.name}", hint=f'pip install "phrasemem[{extra}]"'
        ) from error


def _store(url: str, protocol: str) -> Store:
    import fsspec

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if protocol in ("http", "https"):
        options["client_kwargs"] = _http_options()
    if protocol == "hf":
        options = {}
    if protocol in ("s3", "s3a"):
        options["config_kwargs"] = _S3_CONFIG | fsspec.config.conf.get("s3", {}).get(
            "config_kwargs", {}
        )
    try:
        filesystem, root = fsspec.core.url_to_fs(url, **options)
    except (ValueError, ImportError) as error:
        raise RegistryError(f"cannot open this registry: {error}", where=url) from error
    if protocol in ("file", "local"):
        return FolderStore(filesystem, root, url)
    if protocol in ("http", "https"):
        return HttpStore(filesystem, root, url)
    if protocol in ("s3", "s3a"):
        return S3Store(filesystem, root, url)
    # Each write to the hub is a commit, and commits at the same time refuse each other.
    return Store(filesystem, root, url, writers=1 if protocol == "hf" else None)


def _http_options() -> dict[str, Any]:
    import aiohttp

    # No limit on the whole: a large file takes as long as it takes, but silence is a failure.
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_SECONDS_TO_CONNECT, sock_read=_SECONDS_OF_SILENCE
    )
    # What lies in the buffer is lost when the connection is: keep it small.
    return {"timeout": timeout, "trust_env": True, "read_bufsize": 1 << 16}

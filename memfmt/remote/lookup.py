"""From a name in a registry to the version that it stands for."""

from __future__ import annotations

from phrasemem.memfmt.remote.errors import RegistryError
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.store import Store
from phrasemem.memfmt.remote.version import (
    MAX_ALIAS_BYTES,
    MAX_VERSION_BYTES,
    Version,
    alias_name,
    parse_alias,
    parse_version,
    version_name,
)


def resolve(store: Store, name: str, patience: Patience) -> Version:
    """Read a version by its name or by an alias.

    Raises
    ------
    RegistryError
        If the registry has no such name, or its files are wrong.
    """
    version = read_version(store, name, patience)
    if version is not None:
        return version
    where = store.where(alias_name(name))
    try:
        data = patience.call(where, lambda: store.read(alias_name(name), MAX_ALIAS_BYTES))
    except FileNotFoundError as error:
        raise RegistryError(f"no version or alias is named {name!r}", where=store.url) from error
    target = parse_alias(data, where, name).version
    version = read_version(store, target, patience)
    if version is None:
        raise RegistryError(f"{name!r} stands for a version that is missing", where=store.url)
    return version


def read_version(store: Store, name: str, patience: Patience) -> Version | None:
    """Read a version by its own name; None if there is none."""
    where = store.where(version_name(name))
    try:
        data = patience.call(where, lambda: store.read(version_name(name), MAX_VERSION_BYTES))
    except FileNotFoundError:
        return None
    return parse_version(data, where, name)

"""``REGISTRY@VERSION``: where a memory is published, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phrasemem.memfmt.remote.errors import RegistryError

LATEST = "latest"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Reference:
    """A registry, and a version or alias in it.

    Parameters
    ----------
    registry : str
        URL or folder, without a final slash.
    name : str
        Version or alias; ``latest`` where none was given.
    """

    registry: str
    name: str = LATEST

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Split at the last ``@`` after the last slash.

        So a user in a URL (``https://me@host/registry``) or a revision on the hub
        (``hf://datasets/me/memory@main/@v3``) is no version.

        Raises
        ------
        RegistryError
            If there is no registry, or the name is not one.
        """
        folder, slash, last = text.rpartition("/")
        # What follows http:// is a host, in which an @ ends a user's name.
        only_host = re.fullmatch(r"https?:/", folder) is not None
        base, mark, name = ("", "", "") if only_host else last.rpartition("@")
        base, name = (f"{folder}{slash}{base}", name) if mark else (text, LATEST)
        registry = base.rstrip("/")
        if not registry or registry.endswith(":"):
            raise RegistryError("no registry is named", expected="REGISTRY[@VERSION]", found=text)
        return cls(registry, checked_name(name))

    def __str__(self) -> str:
        short = f"{self.registry}@{self.name}"
        # After a bare host, the short form would name a user.
        return short if Reference.parse(short) == self else f"{self.registry}/@{self.name}"


def checked_name(name: str) -> str:
    """Return the name of a version or alias, or refuse it.

    Raises
    ------
    RegistryError
        If it is not of letters, digits, ``.``, ``_`` and ``-``, or too long.
    """
    if _NAME.fullmatch(name) is None:
        raise RegistryError(
            "not a name of a version",
            expected="1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
            found=repr(name[:80]),
        )
    return name


def is_url(text: str) -> bool:
    """Tell a URL from a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None

"""Errors of publishing and fetching."""

from __future__ import annotations

from phrasemem.memfmt.errors import PhraseMemError


class RegistryError(PhraseMemError):
    """A registry, version or name that is wrong or is not there."""


class TransferError(PhraseMemError):
    """Bytes that could not be carried over, or arrived different."""


class LicenceError(PhraseMemError):
    """Corpora whose licences do not allow to pass the memory on."""

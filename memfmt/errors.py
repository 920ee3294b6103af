"""Errors that a user can act on: what was expected, what was found, where, what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class PhraseMemError(Exception):
    """Base of every error that phrasemem raises on purpose.

    The command line prints ``str(error)`` as one line; ``--debug`` adds the traceback.

    Parameters
    ----------
    message : str
        What went wrong, without a final full stop.
    expected, found : object, optional
        The two sides of a failed comparison.
    where : object, optional
        File, key or position.
    hint : str, optional
        What the user can do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        where: object = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is rebuilt from its positional arguments, which a subclass may order as
        # it likes; an error must arrive whole from a worker process.
        return _restore, (type(self), vars(self).copy())

    def __str__(self) -> str:
        text = self.message
        if self.where is not None:
            text += f" in {self.where}"
        if self.expected is not None:
            text += f": expected {self.expected}, found {self.found}"
        elif self.found is not None:
            text += f": found {self.found}"
        if self.hint is not None:
            text += f" ({self.hint})"
        return " ".join(text.split())


def _restore(cls: type[PhraseMemError], state: dict[str, Any]) -> PhraseMemError:
    error = cls.__new__(cls)
    PhraseMemError.__init__(error, state["message"])
    vars(error).update(state)
    return error


class Reason(StrEnum):
    """Stable codes of what can be wrong with a memory; SPEC.md lists them."""

    NOT_A_MEMORY = "not-a-memory"
    MANIFEST_SYNTAX = "manifest-syntax"
    MANIFEST_CHECKSUM = "manifest-checksum"
    MANIFEST_SCHEMA = "manifest-schema"
    UNKNOWN_MAJOR = "unknown-major"
    UNKNOWN_FEATURE = "unknown-feature"
    UNSAFE_PATH = "unsafe-path"
    FILE_MISSING = "file-missing"
    FILE_UNLISTED = "file-unlisted"
    FILE_LENGTH = "file-length"
    BLOCK_CHECKSUM = "block-checksum"
    FILE_CHECKSUM = "file-checksum"
    KEYS_DAMAGED = "keys-damaged"
    KEYS_ORDER = "keys-order"
    INDEX_DAMAGED = "index-damaged"
    INDEX_ROWS = "index-rows"
    ROWS_DAMAGED = "rows-damaged"
    KEYS_ROWS = "keys-rows"
    PAYLOAD_MISSING = "payload-missing"
    PAYLOAD_BASE = "payload-base"
    PAYLOAD_NAME = "payload-name"


class MissingExtraError(PhraseMemError):
    """Something that needs a package of an extra that is not installed."""


class FormatError(PhraseMemError):
    """A memory that breaks the format; ``reason`` is a stable code."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        where: object = None,
        hint: str | None = None,
    ) -> None:
        self.reason = reason
        super().__init__(message, expected=expected, found=found, where=where, hint=hint)

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.reason.value}]"

"""The one record type of the readers, and what a reader says about a record it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phrasemem.memfmt.errors import PhraseMemError


class ReadError(PhraseMemError):
    """A source that cannot be read at all."""


class DamageError(Exception):
    """Where a file is damaged: a reader turns it into a bad record and stops or goes on.

    Attributes
    ----------
    reason : str
        As in :class:`LeftOut`.
    where : str
        Byte of the file as it is stored.
    """

    def __init__(self, reason: str, where: str, detail: str = "") -> None:
        super().__init__(f"{reason} at {where}: {detail}")
        self.reason = reason
        self.where = where
        self.detail = detail

    def as_left_out(self) -> LeftOut:
        """Return the damage as a bad record."""
        return LeftOut(self.reason, self.where, detail=self.detail)


def is_of_the_content(error: Exception) -> bool:
    """Whether an error that a library raised is about what a file holds.

    Parsers raise plain OSErrors without a number. Those of a disk have one, those of a network are
    of a class of their own: they come and go, so that what they hide must not be taken for damage.
    """
    return not isinstance(error, OSError) or (
        error.errno is None and not isinstance(error, TimeoutError | ConnectionError)
    )


@dataclass(frozen=True, slots=True)
class Document:
    """One document. ``id`` is unique and stable within its corpus."""

    id: str
    corpus: str
    kind: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is no document.

    Attributes
    ----------
    reason : str
        A short stable name, such as ``redirect``; reports count by it.
    where : str
        Position in the file: byte, ordinal or id.
    bad : bool
        True for a damaged record, which goes to the quarantine file; False for a record
        that is sound but not wanted, which is only counted.
    detail : str
        What exactly was wrong.
    """

    reason: str
    where: str
    bad: bool = True
    detail: str = ""


Records = Iterator[Document | LeftOut]

"""PubMed citation XML: title and abstract."""

from __future__ import annotations

from lxml import etree

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.bounded import Bounded
from phrasemem.pipeline.read.document import Document, LeftOut, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source

_ARTICLE = "PubmedArticle"
_DELETED = "DeleteCitation"
# Text nodes alone: `itertext` would also give the names of unexpanded entities, and comments.
_TEXT = etree.XPath(".//text()")


def read_pubmed(source: Source, corpus: Corpus) -> Records:
    """Read the citations that have an abstract; no entity is expanded, no DTD loaded.

    ``Language`` is the language of the article: the abstract of an article in French is
    English in all but a few. So the language is not judged here but by detection, later.
    """
    deleted: set[str] = set()
    records = 0
    with opened(source) as file:
        content = Bounded(file, source.max_record_bytes)
        events = etree.iterparse(
            content,
            events=("end",),
            tag=(_ARTICLE, _DELETED),
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
        )
        try:
            for _, element in events:
                if element.tag == _DELETED:
                    deleted.update(pmid.text or "" for pmid in element.iterfind("PMID"))
                else:
                    yield _citation(element, corpus)
                _forget(element)
                content.record_ended()
                records += 1
        except etree.XMLSyntaxError as error:
            yield LeftOut("bad-xml", f"after record {records}", detail=str(error))
    for pmid in sorted(deleted):
        yield LeftOut("deleted-citation", f"PMID {pmid}", bad=False)


def _citation(element: etree._Element, corpus: Corpus) -> Document | LeftOut:
    citation = element.find("MedlineCitation")
    article = None if citation is None else citation.find("Article")
    pmid = element.findtext("MedlineCitation/PMID")
    if article is None or not pmid:
        return LeftOut("no-citation", f"PMID {pmid}")
    if citation is not None and citation.get("Status") == "Deleted":
        return LeftOut("deleted-citation", f"PMID {pmid}", bad=False)
    sections = [_flat(part) for part in article.iterfind("Abstract/AbstractText")]
    if not any(sections):
        return LeftOut("no-abstract", f"PMID {pmid}", bad=False)
    title = _title(article)
    version = element.find("MedlineCitation/PMID")
    number = "1" if version is None else version.get("Version", "1")
    return Document(
        id=pmid if number == "1" else f"{pmid}.{number}",
        corpus=corpus.name,
        kind=corpus.kind,
        title=title,
        text="\n".join(part for part in (title, *sections) if part),
    )


def _title(article: etree._Element) -> str:
    element = article.find("ArticleTitle")
    title = "" if element is None else _flat(element)
    # A translated title stands in brackets: "[The title]."
    if title.startswith("[") and title.rstrip(".").endswith("]"):
        title = title.rstrip(".")[1:-1] + "."
    return title


def _flat(element: etree._Element) -> str:
    pieces = _TEXT(element)
    return " ".join("".join(map(str, pieces)).split()) if isinstance(pieces, list) else ""


def _forget(element: etree._Element) -> None:
    """Free the element and what stood before it: iterparse keeps the whole tree otherwise."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]

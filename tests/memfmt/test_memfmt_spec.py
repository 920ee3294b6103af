"""The specification is run, and names everything that the code names."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from phrasemem.memfmt import added_payload, manifest
from phrasemem.memfmt.errors import Reason

SPEC = Path(__file__).parents[2] / "memfmt" / "SPEC.md"


def test_the_worked_example_is_true():
    result = doctest.testfile(str(SPEC), module_relative=False)
    assert result.failed == 0
    assert result.attempted >= 15


def names_in_table(text: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))


def test_every_reason_code_and_manifest_field_is_specified():
    sections = {
        s.split("\n")[0]: s for s in re.split(r"^## ", SPEC.read_text(), flags=re.MULTILINE)
    }
    codes = names_in_table(sections["7. What a reader must check"])
    assert codes == {reason.value for reason in Reason}
    fields, versions = map(names_in_table, sections["3. manifest.json"].split("### Versions"))
    assert versions == manifest.READER_FEATURES
    assert fields == {*manifest.Manifest.model_fields, "checksum"}
    added = sections["4. rows-PAYLOAD.arrow"].split("### Payloads that are added")[1]
    fields = names_in_table(added.split("with these fields and no others:")[1])
    assert fields == {*added_payload.AddedPayload.model_fields, "checksum"}


def test_every_reason_code_has_a_test():
    sources = [path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py")]
    tested = set(re.findall(r"Reason\.([A-Z_]+)\b", "\n".join(sources)))
    assert {reason.name for reason in Reason} <= tested


def test_the_version_is_the_one_in_the_title_and_in_the_changes():
    text = SPEC.read_text()
    assert text.startswith(f"# memfmt {manifest.FORMAT_VERSION}\n")
    assert f"- **{manifest.FORMAT_VERSION}**" in text.split("## 10. Changes")[1]

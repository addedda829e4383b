"""What the charts render is what was reviewed: `make charts` rewrites the golden files, and the diff is read."""

import os
from pathlib import Path

import pytest
from cases import CASES, Case
from rendering import Helm

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_release_renders_as_reviewed(case: Case, helm: Helm) -> None:
    rendered = helm.render(case.chart, case.values, release=case.release, namespace=case.namespace)
    text = as_text(rendered.files)
    golden = GOLDEN / f"{case.name}.yaml"
    if os.environ.get("WALRUS_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "`make charts` rewrites the golden files, if this is meant"


def test_every_golden_file_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {case.name for case in CASES}


def as_text(files: dict[str, str]) -> str:
    """All files of a release in one, without the CRDs, which are copies of crds/ and compared elsewhere."""
    parts = []
    for path, text in sorted(files.items()):
        if path.endswith("crds.yaml") or not text.strip():
            continue
        body = text.strip()
        if path.endswith("NOTES.txt"):
            body = "\n".join(f"# {line}".rstrip() for line in body.splitlines())
        parts.append(f"# Source: {path}\n{body.removeprefix('---').strip()}\n")
    return "---\n".join(parts)

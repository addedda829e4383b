"""The code blocks and YAML that the documentation shows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes object in the examples and in the pages, with where it stands."""
    for path in sorted(DOCS.glob("examples/*.yaml")):
        yield from ((path.name, manifest) for manifest in yaml.safe_load_all(path.read_text()))
    for page in sorted(DOCS.rglob("*.md")):
        for block in blocks(page, "yaml"):
            yield from ((page.name, manifest) for manifest in yaml.safe_load_all(block) if "kind" in manifest)

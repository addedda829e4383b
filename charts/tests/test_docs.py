"""What the documentation shows is accepted: by the operator's models, by Kubernetes' schemas, by Helm."""

import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documents import DOCS, manifests
from rendering import Helm
from walrus_operator.api.cluster import parse_spec

ROOT = DOCS.parent

SHOWN = list(manifests())


@pytest.mark.parametrize(("place", "manifest"), SHOWN, ids=[f"{place}-{m['kind']}" for place, m in SHOWN])
def test_every_shown_manifest_is_valid(place: str, manifest: dict[str, Any]) -> None:
    if manifest["apiVersion"] == "walrus.dev/v1alpha1":
        parse_spec(manifest["spec"])
    else:
        kubernetes_validate.validate(manifest, "1.36", strict=True)


def test_the_notes_of_the_operator_show_a_valid_cluster(helm: Helm) -> None:
    notes = helm.render("walrus-operator", {}, release="walrus-operator", namespace="walrus-system").notes
    (shown,) = re.findall(r"<<'END'[^\n]*\n(.*?)^  END$", notes, re.MULTILINE | re.DOTALL)
    parse_spec(yaml.safe_load(shown)["spec"])


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_every_helm_install_that_is_shown_renders(page: Path, helm: Helm) -> None:
    for command in re.findall(r"helm install .*", page.read_text()):
        release, chart, settings = parsed(command)
        assert helm.render(chart, helm.values(settings), release=release, namespace="shop").manifests


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_every_linked_file_is_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def parsed(command: str) -> tuple[str, str, list[str]]:
    """Release, chart and settings of `helm install RELEASE charts/CHART [--set key=value]...`."""
    words = shlex.split(command.strip("`"))
    chart = words[3]
    assert (ROOT / chart).is_dir(), command
    settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return words[2], chart.removeprefix("charts/"), settings

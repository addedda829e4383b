"""What the documentation shows is accepted: by the operator's models, by Kubernetes' schemas, by Helm."""

import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documents import DOCS, blocks, manifests
from rendering import Helm
from walrus_operator.api.cluster import ClusterSpec, parse_spec
from walrus_operator.api.topic import parse_topic
from walrus_operator.plan.actions import REFUSED, Gate
from walrus_operator.plan.topics import TopicGate
from walrus_operator.status.conditions import Reason, Type
from walrus_operator.status.topics import TopicType

TUTORIAL = DOCS / "tutorial-kubernetes.md"
ROOT = DOCS.parent
PACKAGES = sorted(
    page
    for pattern in (
        "storage_core/crates/*/README.md",
        *(f"{name}/README.md" for name in ("node_image", "client", "operator")),
    )
    for page in ROOT.glob(pattern)
)
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("charts/*/README.md"), *PACKAGES, ROOT / "README.md"])

SHOWN = list(manifests())


@pytest.mark.parametrize(("place", "manifest"), SHOWN, ids=[f"{place}-{m['kind']}" for place, m in SHOWN])
def test_every_shown_manifest_is_valid(place: str, manifest: dict[str, Any]) -> None:
    if manifest["kind"] == "WalrusTopic":
        assert parse_topic(manifest["spec"]).settings()
    elif manifest["apiVersion"] == "walrus.dev/v1alpha1":
        parse_spec(manifest["spec"])
    else:
        kubernetes_validate.validate(manifest, "1.36", strict=True)


def test_the_tutorial_shows_the_example_that_it_applies() -> None:
    (shown,) = blocks(TUTORIAL, "yaml")
    example = (DOCS / "examples/walruscluster.yaml").read_text()
    assert yaml.safe_load(shown) == yaml.safe_load(example)


def test_the_way_of_the_readme_is_that_of_the_tutorial_which_a_test_walks() -> None:
    (readme,) = [block for block in blocks(ROOT / "README.md", "sh") if "helm install" in block]
    images, *commands = readme.splitlines()
    assert images.startswith("make images "), "before an install that pulls them"
    walked = "".join(blocks(TUTORIAL, "sh")).splitlines()
    assert [command for command in commands if not any(line.startswith(command) for line in walked)] == []


def cpu_asked_for(spec: ClusterSpec) -> dict[str, Any]:
    return {pool.name: pool.resources and (pool.resources.requests or {}).get("cpu") for pool in spec.pools}


def test_the_brokers_of_the_example_ask_for_cpu() -> None:
    example = yaml.safe_load((DOCS / "examples/walruscluster.yaml").read_text())
    assert cpu_asked_for(parse_spec(example["spec"])) == {"general": "250m"}


def test_the_brokers_of_the_chart_ask_for_cpu_by_default(helm: Helm) -> None:
    manifests = helm.render("walrus", {}, release="orders", namespace="shop").manifests
    (cluster,) = [manifest for manifest in manifests if manifest["kind"] == "WalrusCluster"]
    assert cpu_asked_for(parse_spec(cluster["spec"])) == {"general": "250m"}


def test_the_notes_of_the_operator_show_a_valid_cluster_whose_brokers_ask_for_cpu(helm: Helm) -> None:
    notes = helm.render("walrus-operator", {}, release="walrus-operator", namespace="walrus-system").notes
    (shown,) = re.findall(r"<<'END'[^\n]*\n(.*?)^  END$", notes, re.MULTILINE | re.DOTALL)
    assert cpu_asked_for(parse_spec(yaml.safe_load(shown)["spec"])) == {"general": "250m"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_helm_install_that_is_shown_renders(page: Path, helm: Helm) -> None:
    for command in re.findall(r"helm install .*", page.read_text()):
        release, chart, settings = parsed(command)
        assert helm.render(chart, helm.values(settings), release=release, namespace="shop").manifests


def linked(page: Path) -> list[Path]:
    """Files that a page links to, as it names them."""
    return [page.parent / target for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_linked_file_is_there(page: Path) -> None:
    assert [target for target in linked(page) if not target.exists()] == []


def test_the_ways_through_a_node_name_files_that_are_there() -> None:
    page = (DOCS / "internals/architecture.md").read_text()
    named = re.findall(r"`((?:[\w-]+/)+(?:[\w.]+\.(?:rs|py))?)`", page)
    roots = [
        ROOT,
        ROOT / "storage_core",
        *(ROOT / "storage_core/crates").glob("*/src"),
        ROOT / "node_image/src",
        ROOT / "operator/src",
    ]
    assert len(named) > 20
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", PACKAGES, ids=lambda page: str(page.parent.relative_to(ROOT)))
def test_the_files_that_the_page_of_a_package_names_are_there(page: Path) -> None:
    cells = re.findall(r"^\| (`[^|]+) \|", page.read_text(), re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([\w/]+(?:\.rs|\.py|/))`", cell)]
    there = {f"/{path.relative_to(page.parent)}{'/' if path.is_dir() else ''}" for path in page.parent.rglob("*")}
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_every_package_of_the_workspace_has_a_page_that_the_landing_page_names() -> None:
    named = {target.resolve() for target in linked(DOCS / "README.md")}
    crates = {manifest.parent for manifest in ROOT.glob("storage_core/crates/*/Cargo.toml")}
    assert [crate.name for crate in sorted(crates) if crate / "README.md" not in named] == []


def test_every_page_is_two_steps_from_the_landing_page_which_the_readme_names() -> None:
    landing = DOCS / "README.md"
    assert landing in linked(ROOT / "README.md")
    one_step = {target.resolve() for target in linked(landing)}
    two_steps = {target.resolve() for page in one_step if page.suffix == ".md" for target in linked(page)}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - one_step - two_steps - {landing} == set()


def test_the_list_of_decisions_has_each_with_its_title_the_newest_first() -> None:
    folder = DOCS / "decisions"
    pages = sorted(folder.glob("2*.md"), reverse=True)
    titles = [page.read_text().splitlines()[0].removeprefix("# ") for page in pages]
    rows = [f"| {page.name[:10]} | [{title}]({page.name}) |" for page, title in zip(pages, titles, strict=True)]
    assert [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| 2")] == rows


def test_the_guide_to_conditions_names_every_condition_gate_and_reason() -> None:
    conditions, refusals, gates = (tables := tables_of(DOCS / "guides/conditions.md"))
    assert len(tables) == 3
    assert {row[0] for row in conditions} == {f"`{type_}`" for type_ in Type}
    assert {row[1] for row in refusals} == {f"`{gate}`" for gate in REFUSED}
    assert {row[0] for row in gates} == {f"`{gate}`" for gate in set(Gate) - REFUSED}
    reasons = {reason for row in conditions for reason in re.findall(r"`(\w+)`", row[2])}
    assert reasons <= {*map(str, Reason), *map(str, Gate)}


def test_the_guide_to_topics_names_every_condition_and_what_each_waits_for() -> None:
    conditions, gates = tables_of(DOCS / "guides/topics.md")
    assert [row[0] for row in conditions] == [f"`{type_}`" for type_ in TopicType]
    assert [row[0] for row in gates] == [f"`{gate}`" for gate in TopicGate]


def test_the_guide_to_topics_shows_the_example() -> None:
    (shown,) = blocks(DOCS / "guides/topics.md", "yaml")
    assert yaml.safe_load(shown) == yaml.safe_load((DOCS / "examples/walrustopic.yaml").read_text())


def tables_of(page: Path) -> list[list[list[str]]]:
    """The tables of a page, as rows of cells, without their heads."""
    found = re.findall(r"^\|(?: ---? ?-*\s?\|)+\n((?:\|.*\|\n)+)", page.read_text(), re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in found]


def parsed(command: str) -> tuple[str, str, list[str]]:
    """Release, chart and settings of `helm install RELEASE charts/CHART [--set key=value]...`."""
    words = shlex.split(command.strip("`"))
    chart = words[3]
    assert (ROOT / chart).is_dir(), command
    settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return words[2], chart.removeprefix("charts/"), settings

"""docs/tutorial-kubernetes.md, as it stands there, in one shell."""

import re

import pytest
from harness.kube.installed import Installed
from harness.kube.kubectl import Kubectl, run
from harness.kube.machines import restored
from harness.kube.repository import ROOT

PAGE = ROOT / "docs/tutorial-kubernetes.md"


def script() -> str:
    """The blocks of the page from top to bottom."""
    parts = ["set -euxo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for language, text in re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        parts.append(text if language == "sh" else f"python - <<'END'\n{text}END")
    return "\n".join(parts)


@pytest.fixture
def without_operator(operator: Installed):
    operator.uninstall()
    yield
    here = Kubectl("default")
    here("delete", "wc,persistentvolumeclaims", "--selector=walrus.dev/cluster=orders", "--ignore-not-found")
    here("delete", "wc", "orders", "--ignore-not-found")
    operator.install()


def test_the_commands_of_the_tutorial_do_what_it_says(without_operator) -> None:
    with restored():
        said = run("bash", "-c", script(), timeout_s=540)
    assert "hello, walrus" in said
    assert "1000 payments" in said
    assert "1000 payments in Spark" in said
    assert not Kubectl("default").list("persistentvolumeclaims", "walrus.dev/cluster=orders")

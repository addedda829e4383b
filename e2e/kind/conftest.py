"""One operator for all tests, a namespace for each cluster, and the operator's log read after each test."""

import re
from collections.abc import Iterator

import pytest
from harness.kube.cluster import Cluster
from harness.kube.figures import figures, table
from harness.kube.installed import Installed
from harness.kube.kubectl import CommandError, Kubectl, NewNamespace
from harness.kube.repository import CHARTS, EXAMPLES
from harness.kube.workbench import Workbench
from harness.waiting import wait_until

UNEXPECTED = re.compile(r" (ERROR|CRITICAL) |Traceback|Unclosed|never awaited")


@pytest.fixture(scope="session")
def operator() -> Installed:
    installed = Installed(CHARTS / "walrus-operator")
    installed.keep_logs()
    installed.install()
    return installed


@pytest.fixture(autouse=True)
def _quiet_log(operator: Installed, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which the operator logged what it should not have, in whichever of its pods.

    What a test brings about is named by its mark `said`, an expression that these lines match.
    """
    allowed = re.compile("|".join(mark.args[0] for mark in request.node.iter_markers("said")) or r"\b\B")
    before = operator.logs()
    yield
    after = operator.logs()
    said = [line for file, lines in after.items() for line in lines[len(before.get(file, ())) :]]
    assert not [line for line in said if UNEXPECTED.search(line) and not allowed.search(line)]


@pytest.fixture(scope="module")
def new_namespace() -> Iterator[NewNamespace]:
    """Makes namespaces that go with the module; only restricted pods may run in them, unless told otherwise."""
    made: list[Kubectl] = []

    def new(name: str, *, security: str = "restricted") -> Kubectl:
        kubectl = namespace(name, security=security)
        made.append(kubectl)
        return kubectl

    yield new
    for kubectl in made:
        kubectl("delete", "namespace", kubectl.namespace, "--ignore-not-found", "--wait=false")


def namespace(name: str, *, security: str) -> Kubectl:
    """Makes a namespace, or takes the one that a run before has left."""
    labels = {"pod-security.kubernetes.io/enforce": security}
    kubectl = Kubectl(name)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return kubectl


@pytest.fixture
def quiet() -> None:
    """Waits until what the modules before made is gone: its brokers stop on the cores of those that are measured."""

    def is_quiet() -> bool:
        return all(one["status"]["phase"] == "Active" for one in Kubectl("default").list("namespaces"))

    wait_until("the namespaces of the modules before to be gone", is_quiet, timeout_s=180, every_s=0.5)


@pytest.fixture(scope="session")
def orders(operator: Installed) -> Cluster:
    """The cluster of docs/examples/walruscluster.yaml, three brokers; it stays until the end."""
    kubectl = namespace("orders", security="restricted")
    cluster = Cluster(kubectl, "orders")
    kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.wait_ready()
    return cluster


@pytest.fixture(scope="session")
def workbench(orders: Cluster) -> Workbench:
    image = orders.pods()[0]["spec"]["containers"][0]["image"]
    return Workbench(Kubectl("default"), image)


def pytest_configure(config: pytest.Config) -> None:
    """Names the mark of these tests."""
    config.addinivalue_line("markers", "said(expression): lines that the operator logs as an error in this test")


def pytest_sessionstart() -> None:
    """Says what is missing where there is no cluster, instead of a failure of each test."""
    try:
        Kubectl("default")("get", "nodes")
    except (OSError, CommandError) as failure:
        pytest.exit(f"these tests need the cluster of `make e2e` (or e2e/kind/up and e2e/kind/run): {failure}", 4)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what was measured, and the limits that it was held against."""
    terminalreporter.section("figures")
    for line in table() if figures else ():
        terminalreporter.write_line(line)

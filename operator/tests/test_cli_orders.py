"""`kubectl walrus roll|drain|replace`: what is ordered, who may, what comes of it and how it is taken back."""

import pytest
from driving import Operator, converge, status
from examples import SMALLEST, with_pool
from simhttp import Kubernetes, kubeconfig, run
from test_orders import DRAIN, FOUR, ROLL, disk_of, started
from test_replacing import REPLACE, lose_node
from typer.testing import CliRunner
from walrus_client.cli.exit_codes import Failed
from walrus_operator.cli import following
from walrus_operator.cli.app import app
from walrus_operator.objects import CLUSTER, Ref

ORDERS = Ref(CLUSTER.name, "shop", "orders")


@pytest.fixture
def kube():
    return started()


@pytest.fixture
def server(kube, tmp_path, monkeypatch):
    made = Kubernetes(kube)
    kubeconfig(made, tmp_path, monkeypatch)
    monkeypatch.setattr(following, "EACH_S", 0.0)
    yield made
    made.close()


@pytest.fixture
def moving(server, kube):
    """An operator and the world go on whenever somebody looks."""

    def moves():
        Operator(kube).once()
        kube.step()

    server.moves = moves
    return server


def annotations(kube):
    return kube.objects[ORDERS]["metadata"]["annotations"]


def test_a_roll_is_ordered_and_followed_until_every_broker_has_restarted(moving, kube):
    before = {pod["metadata"]["uid"] for pod in kube.pods().values()}
    said = run("roll", "orders", "--wait")
    assert "Ordered: all brokers restart, one after the other." in said
    assert f"Take it back: kubectl -n shop annotate wc orders {ROLL}-" in said
    assert "2 of 4 brokers have restarted" in said
    assert said.endswith("Done: 4 of 4 brokers have restarted.\n")
    assert not {pod["metadata"]["uid"] for pod in kube.pods().values()} & before
    assert {pod["metadata"]["annotations"][ROLL] for pod in kube.pods().values()} == {annotations(kube)[ROLL]}


def test_a_broker_is_drained_by_its_pod_and_the_order_names_its_disk(moving, kube):
    disk = disk_of(kube, 1)
    said = run("drain", "orders", "orders-general-1", "--wait")
    assert annotations(kube) == {DRAIN: disk}
    assert f"Ordered: orders-general-1 (disk {disk}) hands over what it has, and stays." in said
    assert "held up by Draining" in said
    assert said.endswith("Done: orders-general-1 has handed over 100 %.\n")
    assert kube.draining == {disk: 0}
    assert "Done" in run("drain", "orders", disk, "--wait")
    with pytest.raises(Failed, match=f"disk {disk} is drained, and one at a time is. First: kubectl -n shop annotate"):
        run("drain", "orders", "orders-general-2")


def test_what_there_is_not_is_not_ordered(server, kube):
    with pytest.raises(
        Failed, match=r"no broker of orders is called general-1, or is on such a disk: orders-general-0"
    ):
        run("drain", "orders", "general-1")
    with pytest.raises(Failed, match=r"orders has no disk nothing\. Away are: none"):
        run("replace", "orders", "nothing", "--yes")
    with pytest.raises(Failed, match=r"is there \(Alive\), and only a disk that will never come back"):
        run("replace", "orders", disk_of(kube, 1), "--yes")
    with pytest.raises(Failed, match="there are orders"):
        run("roll", "bills")
    assert annotations(kube) == {}


def test_a_lost_disk_is_replaced_once_somebody_has_said_yes(moving, kube):
    lost = lose_node(kube, 1)
    assert CliRunner().invoke(app, ["replace", "orders", lost], input="n\n").exit_code == 1
    assert annotations(kube) == {}
    said = run("replace", "orders", lost, "--wait", answer="y\n")
    assert annotations(kube) == {REPLACE: lost}
    assert "afterwards nothing brings it back" in said
    assert f"Done: disk {lost} is out of the cluster; orders-general-1 serves on disk" in said
    assert lost not in kube.members["cluster-1"]
    assert disk_of(kube, 1) != lost


def test_what_holds_an_order_up_is_said_when_it_is_given(server, kube):
    kube.put("orders", FOUR, annotations={"walrus.dev/pause": "moving house"})
    converge(kube)
    said = run("roll", "orders")
    assert "Nothing is done while the cluster is paused by walrus.dev/pause: moving house." in said
    kube.put("orders", FOUR)
    kube.stuck.add("orders-general-4")
    kube.put("orders", with_pool(SMALLEST, replicas=5))
    converge(kube)
    said = run("roll", "orders")
    assert "Held up now by PodPending: " in said
    assert "Who can lift it: it opens by itself" in said
    del kube.objects[ORDERS]["status"]
    assert "No operator has looked at the cluster yet" in run("roll", "orders")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (403, "nothing is ordered: .*no such right. Whoever may patch walrusclusters in namespace shop can do it"),
        (404, "nothing is ordered, as WalrusCluster orders is gone or another one since"),
        (409, "nothing is ordered, as WalrusCluster orders is gone or another one since"),
        (500, "nobody knows whether it is ordered: .* Ask again"),
    ],
)
def test_an_order_that_is_not_taken_is_told_with_who_can_give_it(server, kube, code, expected):
    server.denied = (code, "no such right")
    with pytest.raises(Failed, match=expected):
        run("roll", "orders")
    assert annotations(kube) == {}


def test_an_order_lands_on_no_other_cluster_of_the_same_name(server, kube):
    found = server.http.RequestHandlerClass._found

    def then_another(handler, *asked):
        listed = [{**one, "metadata": dict(one["metadata"])} for one in found(handler, *asked)]
        kube.objects[ORDERS]["metadata"]["uid"] = "another"
        return listed

    server.http.RequestHandlerClass._found = then_another
    with pytest.raises(Failed, match="gone or another one since"):
        run("roll", "orders")


def test_who_waits_is_told_when_the_operator_refuses(moving, kube):
    kube.put("orders", SMALLEST)
    converge(kube)
    with pytest.raises(Failed, match="does not carry it out as it is, and it is still ordered: 3 copies"):
        run("drain", "orders", "orders-general-1", "--wait")
    assert status(kube)["plan"]["blockedBy"] == "DrainRefused"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda kube: kube.put("orders", FOUR), "someone took the order back, or gave another one"),
        (lambda kube: kube.objects.pop(ORDERS), "WalrusCluster orders was deleted meanwhile"),
    ],
    ids=["taken back", "deleted"],
)
def test_who_waits_is_told_when_there_is_nothing_to_wait_for_any_more(server, kube, change, expected):
    server.moves = lambda: change(kube)
    with pytest.raises(Failed, match=expected):
        run("roll", "orders", "--wait")


def test_who_waits_long_enough_is_told_that_the_order_stands(server, kube):
    with pytest.raises(Failed, match="not done after 0 s, and still ordered: 0 of 4 brokers have restarted"):
        run("roll", "orders", "--wait", "--timeout", "0")
    assert ROLL in annotations(kube)


def test_who_waits_goes_on_when_kubernetes_does_not_answer_for_a_moment(moving, kube):
    handler = moving.http.RequestHandlerClass
    look, failed = handler._looked_at, []

    def once_away(self, path):
        if "/walrusclusters/" in path and not failed:
            failed.append(path)
            self._answer(503, b'{"message": "later"}')
            raise ConnectionAbortedError
        return look(self, path)

    handler._looked_at = once_away
    said = run("drain", "orders", "orders-general-1", "--wait")
    assert "Kubernetes does not answer" in said
    assert "Done: orders-general-1 has handed over 100 %" in said

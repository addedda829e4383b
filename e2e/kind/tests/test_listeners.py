"""Clients of Kafka reach the brokers from inside and from outside of Kubernetes, while brokers restart and move."""

from collections.abc import Sequence
from typing import Any

from harness.kube import kafka
from harness.kube.cluster import Cluster
from harness.kube.figures import timed
from harness.kube.kubectl import Kubectl
from harness.kube.workbench import Workbench

INSIDE = [{"name": name} for name in ("kafka", "text", "grpc")]
OUTSIDE = {"name": "outside", "protocol": "kafka", "port": 9094, "type": "NodePort"}
TOPIC = "listened"


def image_of_client(orders: Cluster) -> str:
    """The image beside that of the brokers."""
    return str(orders.pods()[0]["spec"]["containers"][0]["image"]).replace("walrus-node", "walrus-test-client")


def row(orders: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in orders.resource()["status"]["listeners"] if one["name"] == name)
    return found


def restart_all(orders: Cluster, memory: str) -> None:
    """Another spec of the pods; returns once all brokers of it serve."""
    orders.set_requests(memory=memory)
    orders.wait_ready(timeout_s=400)


def acked(events: Sequence[dict[str, Any]]) -> set[int]:
    return {event["acked"] for event in events if "acked" in event}


def test_a_java_client_in_a_pod_and_one_outside_lose_nothing_while_brokers_roll(
    orders: Cluster, workbench: Workbench
) -> None:
    image = image_of_client(orders)
    workbench.walrus("register", TOPIC, "--addr", orders.text_address)
    in_pod, outside = kafka.InPod(Kubectl("default"), image), kafka.OnMachine(image)
    inside = "orders.orders.svc:9092"
    with kafka.producing(in_pod.command(), inside, TOPIC, "inside") as near:
        near.wait_for_more("acked", 200)
        orders.kubectl.patch("wc", "orders", {"spec": {"listeners": [*INSIDE, OUTSIDE]}})
        with timed("a listener for the outside: three brokers restarted, each with an address of its own"):
            orders.wait_ready(timeout_s=400)
        brokers = row(orders, "outside")["brokers"]
        assert [one["pod"] for one in brokers] == [pod["metadata"]["name"] for pod in orders.pods()]
        assert len({one["address"] for one in brokers}) == 3
        bootstrap = ",".join(row(orders, "outside")["addresses"])
        with (
            kafka.producing(outside.command(), bootstrap, TOPIC, "outside") as far,
            kafka.reading(outside.command(), bootstrap, TOPIC) as reader,
        ):
            far.wait_for_more("acked", 200)
            restart_all(orders, "144Mi")
            far.wait_for_more("acked", 200)
            near.wait_for_more("acked", 200)
            sent = {"inside": near.finish(), "outside": far.finish()}
            total = sum(len(acked(events)) for events in sent.values())
            reader.wait_for_more("read", max(0, total - reader.count("read")))
            read = reader.finish()
    failures = [event for events in (*sent.values(), read) for event in events if "error" in event]
    assert failures == [], "what Apache Kafka would not have told its clients either"
    values = [event["value"].split()[:2] for event in read if "read" in event]
    for producer, events in sent.items():
        numbers = [int(number) for name, number in values if name == producer]
        assert acked(events) <= set(numbers), f"{producer}: nothing that was acknowledged is lost"
        assert numbers == sorted(set(numbers)), f"{producer}: nothing is there twice or out of order"

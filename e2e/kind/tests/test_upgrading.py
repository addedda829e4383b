"""A cluster tries another release under load, goes back, and stays once the level of its metadata is final."""

from harness.kube.cluster import Cluster
from harness.kube.figures import timed
from harness.kube.kubectl import NewNamespace
from harness.kube.repository import EXAMPLES
from harness.kube.workbench import Workbench

BY_HAND = {"finalize": "Manual"}


def test_another_image_is_tried_and_taken_back_and_not_any_more_once_the_level_is_final(
    new_namespace: NewNamespace, workbench: Workbench
) -> None:
    cluster = Cluster(new_namespace("upgraded"), "orders")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "walruscluster.yaml"))
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"deletionPolicy": "Delete", "updatePolicy": BY_HAND}})
    cluster.wait_ready()
    present = image_of(cluster)
    later = present.replace("walrus-node", "walrus-test-later")
    level = cluster.resource()["status"]["level"]["used"]
    with workbench.producing(cluster.bootstrap, "upgraded") as load:
        load.wait_for_more(2_000)
        with timed("three brokers run another image, and the one of before again, under load"):
            for image, known in ((later, level + 1), (present, level)):
                set_image(cluster, image)
                cluster.wait_ready(timeout_s=400)
                assert image_of(cluster) == image
                cluster.wait_for("its level", lambda seen, known=known: seen["status"]["level"]["knownByAll"] == known)
                load.wait_for_more(2_000)
        assert any(f"to try image {later}" in event["message"] for event in cluster.kubectl.list("events"))
        set_image(cluster, later)
        cluster.wait_ready(timeout_s=400)
        assert cluster.resource()["status"]["level"] == {"used": level, "knownByAll": level + 1}
        cluster.kubectl("annotate", "wc", cluster.name, f"walrus.dev/finalize={level + 1}")
        cluster.wait_for("the level", lambda seen: seen["status"]["level"]["used"] == level + 1)
        load.wait_for_more(2_000)
    workbench.check(cluster.bootstrap, "upgraded", load.acked)
    release = {"image": None, "version": present.rpartition(":")[2]}
    cluster.kubectl.patch("wc", cluster.name, {"spec": release})
    cluster.wait_for("a refusal", lambda _: cluster.condition("SpecAccepted").get("reason") == "ReleaseRefused")
    assert image_of(cluster) == later


def set_image(cluster: Cluster, image: str) -> None:
    """Names the image instead of a version."""
    cluster.kubectl.patch("wc", cluster.name, {"spec": {"image": image, "version": None}})


def image_of(cluster: Cluster) -> str:
    """The image of all its brokers."""
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()}
    return str(image)

"""Disks that are gone are told while nobody leads, too, and what was founded is not founded again."""

from driving import Operator, condition, converge, status
from examples import SMALLEST
from simkube import SimKube
from walrus_operator.objects import Ref

CLUSTER = Ref("WalrusCluster", "shop", "orders")


def started():
    kube = SimKube()
    kube.put("orders", SMALLEST)
    converge(kube)
    return kube


def lose(kube, *ordinals):
    """The claims and their pods. Returns the disks that were on them."""
    lost = [kube.identity(Ref("Pod", "shop", f"orders-general-{number}"))["disk"] for number in ordinals]
    for number in ordinals:
        kube.remove("Pod", f"orders-general-{number}")
        kube.remove("PersistentVolumeClaim", f"data-orders-general-{number}")
    return lost


def test_two_of_three_lost_disks_are_told_although_nobody_leads():
    """Who is a member was asked of the leader alone: without a majority there is none, and nothing was told."""
    kube = started()
    lost = lose(kube, 1, 2)
    converge(kube)
    told = condition(kube, "StorageHealthy")
    assert (told["status"], told["reason"]) == ("False", "LostDisk")
    assert all(f"{disk} still votes" in told["message"] for disk in lost)
    assert "until a majority leads the metadata" in told["message"]
    assert [row["uuid"] for row in status(kube)["members"] if row["state"] == "Lost"] == lost


def test_a_disk_that_waits_to_be_let_in_is_no_lost_one():
    kube = started()
    kube.put("orders", {**SMALLEST, "pools": [{**SMALLEST["pools"][0], "replicas": 4}]})
    kube.members["cluster-1"] |= {f"disk-away-{number}": f"away-{number}" for number in range(3)}
    kube.scale("orders-general", 4)
    for _ in range(3):
        kube.step()
    Operator(kube).once()
    assert condition(kube, "StorageHealthy")["reason"] != "LostDisk"


def test_a_cluster_whose_status_is_pruned_is_not_founded_again_over_its_lost_disks():
    """Only the status knew that there had been a cluster; without it three empty disks were taken for a new one."""
    kube = started()
    lose(kube, 0, 1, 2)
    for _ in range(15):
        kube.objects[CLUSTER]["status"] = {}
        Operator(kube).once()
        kube.step()
    assert {disk["cluster"] for disk in kube.disks.values()} == {""}
    Operator(kube).once()
    assert "cluster-1" in condition(kube, "Available")["message"]

"""The secret that brokers share: it is there before they are, is made once, and all of them have it or none."""

import logging
from base64 import b64decode

import pytest
from crashing import crash_at_each_write
from driving import Operator, condition, converge, status
from examples import POOLS, SMALLEST, changed
from simkube import SimKube
from walrus_operator.desired.names import RENDERED_FROM
from walrus_operator.kube.api import Denied
from walrus_operator.objects import SECRET, STATEFUL_SET, Ref
from walrus_operator.observe.snapshot import Snapshot

SHARED = Ref("Secret", "shop", "orders-shared-secret")


class Ordered(SimKube):
    """No pod is made before the Secret that it mounts."""

    async def apply(self, manifest):
        if manifest["kind"] == STATEFUL_SET.name:
            assert is_mounted_by(manifest["spec"]["template"]) == (SHARED in self.objects)
        return await super().apply(manifest)


def is_mounted_by(pod):
    return any("secret" in one for one in pod["spec"]["volumes"])


def content(kube):
    return b64decode(kube.objects[SHARED]["data"]["secret"])


def started(spec=SMALLEST, kube=None):
    kube = kube or Ordered()
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    return kube


def without_secret(spec=SMALLEST):
    """A cluster as an operator left it that knew no Secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshot, "shares_secret", lambda _: False)
        kube = started(spec, SimKube())
    assert SHARED not in kube.objects
    return kube


def test_all_pools_of_a_new_cluster_share_one_secret_of_random_bytes():
    kube = started(POOLS)
    assert len(kube.pods()) == 7
    assert all(map(is_mounted_by, kube.pods().values()))
    assert len(content(kube).strip()) == 64
    assert content(started(POOLS)) != content(kube)


def test_what_brokers_ask_for_before_they_change_something_is_sent():
    kube = started()
    kube.put("orders", changed(SMALLEST, segments={"maxEntries": 7}, replication={"factor": 1}, version="2.0.0"))
    converge(kube)
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert kube.replication["cluster-1"].factor == 1
    assert condition(kube, "Ready")["status"] == "True"


def test_the_secret_goes_with_the_cluster_and_a_new_one_on_the_same_claims_shares_another():
    kube = started()
    before = content(kube)
    kube.remove("WalrusCluster", "orders")
    while kube.step():
        pass
    assert SHARED not in kube.objects
    started(kube=kube)
    assert status(kube)["clusterId"] == "cluster-1"
    assert content(kube) != before


def test_a_secret_that_users_changed_is_never_rewritten():
    kube = started()
    kube.objects[SHARED]["data"]["secret"] = "dGhlIG5leHQgc2VjcmV0Cg=="
    kube.objects[SHARED]["metadata"]["labels"]["theirs"] = "1"
    kube.put("orders", changed(SMALLEST, segments={"maxEntries": 7}))
    converge(kube)
    assert content(kube) == b"the next secret\n"
    assert kube.config["cluster-1"][1]["segments.max_entries"] == 7
    assert kube.calls["create", "Secret"] == 1


def test_a_secret_that_is_gone_is_made_anew_and_restarts_nobody():
    """Pods that restart could not mount it; those that run follow the new one, as they do when it is changed."""
    kube = started()
    before, pods = content(kube), {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    kube.remove("Secret", SHARED.name)
    converge(kube)
    assert content(kube) != before
    assert {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()} == pods
    assert condition(kube, "Ready")["status"] == "True"


def test_a_crash_at_any_write_of_the_founding_leaves_no_broker_without_the_secret():
    def settle(kube):
        converge(
            kube,
            each=lambda: kube.made.update({kube.objects[SHARED]["data"]["secret"]} if SHARED in kube.objects else ()),
        )

    def check(kube):
        assert len(kube.made) == 1
        assert all(map(is_mounted_by, kube.pods().values()))
        assert condition(kube, "Ready")["status"] == "True"

    kube = Ordered()
    kube.made = set()
    crash_at_each_write(kube, [lambda kube: kube.put("orders", POOLS)], check, settle)


def test_brokers_that_share_none_are_not_rolled_onto_one_and_new_pools_share_none_either():
    """Those with and those without never agree: one after the other they would lose the quorum."""
    kube = without_secret()
    pods = {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}
    more = {"name": "more", "replicas": 1, "storage": {"claim": {"size": "1Gi"}}}
    kube.put("orders", changed(SMALLEST, pools=[*SMALLEST["pools"], more]))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert pods.items() <= {name: pod["metadata"]["uid"] for name, pod in kube.pods().items()}.items()
    kube.put("orders", changed(SMALLEST, version="2.0.0", pools=[*SMALLEST["pools"], more]))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert not any(map(is_mounted_by, kube.pods().values()))
    assert SHARED not in kube.objects
    assert kube.calls["get", "Secret"] == 0


def test_brokers_that_are_all_made_anew_begin_to_share_a_secret():
    """The way of the guide: every StatefulSet of the cluster is deleted, and with them all pods."""
    kube = without_secret()
    kube.put("orders", SMALLEST, annotations={"walrus.dev/pause": "it takes the shared secret"})
    kube.remove("StatefulSet", "orders-general")
    converge(kube)
    assert kube.pods() == {}
    kube.put("orders", changed(SMALLEST, version="2.0.0"))
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert status(kube)["clusterId"] == "cluster-1"
    assert all(map(is_mounted_by, kube.pods().values()))
    assert SHARED in kube.objects


def test_pods_that_a_statefulset_left_behind_decide_as_it_did():
    """Its successor takes them over as they are: with a secret it would roll them onto it, one by one."""
    kube = without_secret()
    kube.orphan("StatefulSet", "orders-general")
    kube.step()
    assert len(kube.pods()) == 3
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True"
    assert not any(map(is_mounted_by, kube.pods().values()))


def test_a_pool_that_an_older_operator_added_without_the_secret_gets_it():
    """Its brokers could join nobody."""
    kube = started()
    more = {"name": "more", "replicas": 1, "storage": {"claim": {"size": "1Gi"}}}
    kube.put("orders", changed(SMALLEST, pools=[*SMALLEST["pools"], more]))
    added = Ref("StatefulSet", "shop", "orders-more")
    Operator(kube).once()
    found = kube.objects[added]
    found["metadata"]["annotations"][RENDERED_FROM] = found["metadata"]["annotations"][RENDERED_FROM].replace(
        '"secret":"orders-shared-secret",', ""
    )
    template = found["spec"]["template"]
    template["spec"]["volumes"] = [one for one in template["spec"]["volumes"] if "secret" not in one]
    template["metadata"]["annotations"]["walrus.dev/revision"] = "older"
    kube.step()
    assert not is_mounted_by(kube.pods()["orders-more-0"])
    converge(kube)
    assert is_mounted_by(kube.pods()["orders-more-0"])
    assert condition(kube, "Ready")["status"] == "True"


def test_a_secret_of_someone_else_is_not_shared():
    kube = Ordered()
    kube.make(SECRET, SHARED.name, data={"secret": "dGhlaXJz"})
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.pods() == {}
    assert status(kube)["plan"]["blockedBy"] == "NameTaken"
    assert "Secret orders-shared-secret is there and belongs to something else" in status(kube)["plan"]["detail"]
    kube.objects[SHARED]["metadata"]["labels"]["walrus.dev/cluster"] = "orders"
    started(kube=kube)
    assert content(kube) == b"theirs"


def test_a_secret_that_may_not_be_made_holds_up_the_brokers_and_is_named():
    kube = Ordered()
    kube.refused[SHARED] = Denied("secrets is forbidden: exceeded quota")
    kube.put("orders", SMALLEST)
    converge(kube)
    assert kube.pods() == {}
    assert status(kube)["plan"]["blockedBy"] == "Forbidden"
    assert "exceeded quota" in status(kube)["plan"]["detail"]
    kube.refused.clear()
    started(kube=kube)


def test_nobody_is_told_the_secret(caplog):
    """Neither logs nor Events nor the status name it, nor what is printed of what the operator has seen."""
    caplog.set_level(logging.DEBUG)
    kube = started()
    secret = content(kube).decode().strip()
    told = [str(found) for ref, found in kube.objects.items() if ref.kind != SECRET.name]
    assert secret not in caplog.text + "".join(told)
    assert "Create Secret orders-shared-secret" in caplog.text
    snapshot = Operator(kube).look()
    assert snapshot.credentials() == secret.encode()
    assert secret not in repr(snapshot)

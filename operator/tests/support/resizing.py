"""What the tests of growing claims share: clusters whose claims can grow, and what claims ask for and have."""

from driving import Operator, condition, converge, status
from examples import SMALLEST, with_pool
from simkube import SimKube
from walrus_operator.api.units import amount_of
from walrus_operator.objects import CLAIM, CONFIG_MAP, STATEFUL_SET, Ref, uid_of

SET = Ref(STATEFUL_SET.name, "shop", "orders-general")
REMADE = Ref(CONFIG_MAP.name, "shop", "orders-remade")
PODS = [f"orders-general-{ordinal}" for ordinal in range(3)]


def sized(size, storage_class="expandable", spec=SMALLEST, **fields):
    return with_pool(spec, storage={"claim": {"size": size, "storageClassName": storage_class}}, **fields)


TEN, TWENTY = sized("10Gi"), sized("20Gi")


class Watched(SimKube):
    """No claim is deleted, none becomes smaller, and a StatefulSet goes only noted, and leaves its pods."""

    async def apply(self, manifest):
        if manifest["kind"] == CLAIM.name:
            found = self.objects[Ref(CLAIM.name, "shop", manifest["metadata"]["name"])]
            wanted = amount_of(manifest["spec"]["resources"]["requests"]["storage"])
            assert wanted > amount_of(found["status"]["capacity"]["storage"])
        return await super().apply(manifest)

    async def delete(self, ref, uid, *, orphan=False):
        assert ref.kind != CLAIM.name
        if ref.kind == STATEFUL_SET.name:
            assert orphan
            assert REMADE in self.objects
        await super().delete(ref, uid, orphan=orphan)


def started(spec=TEN):
    kube = Watched()
    kube.put("orders", spec)
    converge(kube)
    assert condition(kube, "Ready")["status"] == "True", status(kube)
    return kube


def claim(kube, pod):
    return kube.objects[Ref(CLAIM.name, "shop", f"data-{pod}")]


def asked(kube):
    return [claim(kube, pod)["spec"]["resources"]["requests"]["storage"] for pod in sorted(kube.pods())]


def has(kube):
    return [claim(kube, pod)["status"]["capacity"]["storage"] for pod in sorted(kube.pods())]


def template(kube):
    (found,) = kube.objects[SET]["spec"]["volumeClaimTemplates"]
    return found["spec"]["resources"]["requests"]["storage"]


def fill(kube, pod, percent):
    """Let the disk of the pod hold so many percent of 10 GiB."""
    kube.volumes.used[pod] = percent * 2**30 // 10


def uids(kube):
    return {name: uid_of(pod) for name, pod in kube.pods().items()}


def rows(kube):
    return {row["pod"]: (row.get("claimSize"), row.get("claimState")) for row in status(kube)["brokers"]}


def told(kube):
    return [found["message"] for ref, found in kube.objects.items() if ref.kind == "Event"]


def is_quiet(kube):
    writes = kube.writes
    return Operator(kube).once().plan.is_idle and kube.writes == writes

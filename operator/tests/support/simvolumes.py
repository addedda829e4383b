"""Volumes with a size: classes that can grow them or not, a quota, a driver, and kubelets that grow file systems."""

from __future__ import annotations

from walrus_operator.api.units import amount_of
from walrus_operator.kube.api import Denied, Refused
from walrus_operator.objects import CLAIM, POD, Ref

EXPANDABLE = "expandable"
"""The class whose volumes can grow; no other one's can."""


class SimVolumes:
    """The volumes of a `SimKube`."""

    def __init__(self, kube):
        self.kube = kube
        self.default = "standard"  # the class of claims that name none
        self.quota = None  # the most that all claims together may ask for
        self.infeasible = set()  # claims whose driver does not make them larger
        self.is_away = False  # the driver does nothing
        self.offline = set()  # pods whose file systems grow only when they start
        self.used = {}  # pod -> bytes on its disk; once one is told, disks are as large as their claims
        self._mounted = {}  # claim -> uid of the pod that mounts it

    def admit(self, before, after):
        """What the API server says to a change of a claim's size."""
        had, wanted = _asked(before), _asked(after)
        if amount_of(wanted) == amount_of(had):
            return
        name = after["metadata"]["name"]
        if after["status"]["phase"] != "Bound":
            raise Refused(f"{name}: spec is immutable after creation except resources.requests for bound claims")
        if amount_of(wanted) < amount_of(had) and amount_of(wanted) <= amount_of(_capacity(after)):
            raise Refused(f"{name}: field can not be less than status.capacity")
        if after["spec"].get("storageClassName", self.default) != EXPANDABLE:
            raise Denied(f"{name} is forbidden: the storageclass that provisions the pvc must support resize")
        others = sum(
            amount_of(_asked(found))
            for ref, found in self.kube.objects.items()
            if ref.kind == CLAIM.name and ref.name != name
        )
        if self.quota is not None and others + amount_of(wanted) > amount_of(self.quota):
            raise Denied(f"{name} is forbidden: exceeded quota: storage, limited: requests.storage={self.quota}")

    def room(self, pod):
        """Bytes of a pod's disk, and those of them that are free: half of a hundred, while no test fills any."""
        claim = self.kube.objects.get(Ref(CLAIM.name, pod.namespace, f"data-{pod.name}"))
        if not self.used or claim is None:
            return 100, 50
        total = int(amount_of(_capacity(claim)))
        return total, max(total - self.used.get(pod.name, 0), 0)

    def heal(self):
        """There is room for everything, and the driver is at work."""
        self.used.clear()
        self.quota, self.is_away = None, False
        self.infeasible.clear()
        self.offline.clear()

    def step(self):
        """The driver makes a volume larger, then the kubelet its file system."""
        for ref, found in list(self.kube.objects.items()):
            if ref.kind == CLAIM.name and found["status"].get("phase") == "Bound" and "capacity" in found["status"]:
                self._go_on(ref, found["status"], _asked(found))

    def _go_on(self, ref, status, asked):
        told = {one["type"] for one in status.get("conditions", ())}
        pod = Ref(POD.name, ref.namespace, ref.name.removeprefix("data-"))
        runs = self.kube.runs(pod) and self.kube.objects[pod]["metadata"]["uid"]
        if amount_of(asked) <= amount_of(status["capacity"]["storage"]):
            status.pop("conditions", None)
            status.pop("allocatedResourceStatuses", None)
        elif ref.name in self.infeasible and "ControllerResizeError" in told:
            pass
        elif ref.name in self.infeasible:
            status["allocatedResourceStatuses"] = {"storage": "ControllerResizeInfeasible"}
            status["conditions"] = [self._condition("ControllerResizeError", f"no volume of {asked} can be made")]
        elif "FileSystemResizePending" in told:
            if runs and (pod.name not in self.offline or runs != self._mounted[ref]):
                status["capacity"] = {"storage": asked}
                status.pop("conditions")
        elif "Resizing" in told:
            status["conditions"] = [self._condition("FileSystemResizePending", "waits for its pod")]
            status.pop("allocatedResourceStatuses", None)
            self._mounted[ref] = runs
        elif not self.is_away:
            status["conditions"] = [self._condition("Resizing", "")]

    def _condition(self, type_, message):
        return {"type": type_, "status": "True", "message": message, "lastTransitionTime": self.kube._now()}


def _asked(claim):
    return claim["spec"]["resources"]["requests"]["storage"]


def _capacity(claim):
    return claim["status"]["capacity"]["storage"]

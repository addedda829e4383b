"""A small Kubernetes in memory: enough of the API server and its controllers to drive the real reconcile loop.

Over the API server (`simapi`) it has garbage collection, StatefulSets (`Parallel`, `OnDelete`) with claims that are in
use, nodes with their scheduler (`simnodes`), kubelets, pods that wait for the Secret that they mount, and brokers
(`simbrokers`). Nothing happens by itself: `step` lets controllers, kubelets and brokers do what they would do in a
moment.
"""

from __future__ import annotations

import pickle
from base64 import b64decode
from datetime import timedelta
from itertools import count

from simapi import SimApi, deepcopy
from simbrokers import SimBrokers, SimRelease
from simnodes import SELECTED, SimNodes
from simtopics import SimTopics
from simvolumes import SimVolumes
from walrus_operator.api.releases import RELEASES
from walrus_operator.kube.api import Refused
from walrus_operator.objects import CLAIM, NODE, POD, SECRET, SERVICE, STATEFUL_SET, VOLUME, Ref, uid_of
from walrus_operator.observe.machines import ZONE
from walrus_operator.observe.snapshot import Replication


class SimKube(SimApi):
    """The API server, its controllers, the nodes and the brokers."""

    def __init__(self):
        super().__init__()
        self.nodes = SimNodes(self)
        self.down = set()  # pods whose broker does not answer
        self.stuck = set()  # pods that never run
        self.broken = set()  # images that do not run
        self.sick = set()  # images whose brokers run, speak with nobody and are never ready
        self.unready = set()  # pods whose broker takes part and is not ready
        self.behind = set()  # pods whose broker has not caught up
        self.keep = []  # why no broker may stop
        self.balances = True  # whether someone makes the load balancers of Services
        self.leader = None  # the pod that leads the metadata, if it is there
        self.refuses_config = False
        self.refuses_drains = None  # what brokers say to who lets one of them go
        self.copies_needed = 3  # the most copies that any topic keeps
        self.in_one_zone = 0  # segments that one zone would take along
        self.draining = {}  # disk of a broker that hands over -> segments that it still has
        self.brokers = SimBrokers(self)
        self.topics = SimTopics(self)
        self.disks = {}  # claim or folder of a node -> identity on its disk
        self.files = {}  # uid of a pod -> what its file holds that mounts the Secret
        self.levels = {}  # uid of a pod -> what its broker logs, where that was told
        self.config = {}  # cluster id -> (version, entries)
        self.replication = {}  # cluster id -> Replication
        self.table = RELEASES  # releases that the operator knows
        self.releases = {}  # image -> SimRelease, where it is another one than most are
        self.zones = {}  # identity of a disk -> zone that its broker told last
        self.known = {}  # identity of a disk -> level that the broker knows which registered with it last
        self.used = {}  # cluster id -> level of commands in use
        self.members = {}  # cluster id -> {identity of a disk: name of its broker}; who is in once, stays
        self.former = {}  # cluster id -> the ids that it had before
        self.volumes = SimVolumes(self)
        self._clusters = count(1)
        self._disks = count()

    def recover_metadata(self, gone):
        """The brokers go on as another cluster, without these disks."""
        (before,), after = self.members, f"cluster-{next(self._clusters)}"
        self.former[after] = (before,)
        for facts in (self.config, self.replication, self.used, self.members):
            facts[after] = facts[before]
        self.members[after] = {disk: name for disk, name in self.members.pop(before).items() if disk not in gone}
        for disk in self.disks.values():
            if disk["disk"] in self.members[after]:
                disk["cluster"] = after

    # What happens by itself, when it is asked to

    def step(self):
        """Controllers and brokers do their next thing. Returns whether anything changed."""
        before = self._state()
        self.time += timedelta(seconds=2)
        for ref in list(self.objects):
            self._let_go(ref)
        self._collect_garbage()
        self.nodes.step()
        for ref in [ref for ref in self.objects if ref.kind == SERVICE.name]:
            self._balance(ref)
        for ref in [ref for ref in self.objects if ref.kind == STATEFUL_SET.name]:
            self._stateful_set(ref)
        for ref in [ref for ref in self.objects if ref.kind == POD.name]:
            self._pod(ref)
        for ref in [ref for ref in self.objects if ref.kind == POD.name]:
            self._end_pod(ref)
        self.volumes.step()
        self.draining = {disk: max(left - 1, 0) for disk, left in self.draining.items()}
        for ref in list(self.objects):
            self._end_deletion(ref)
        return before != self._state()

    def runs(self, ref):
        """Whether the pod is there and its broker runs, on a machine that does."""
        pod = self.objects.get(ref)
        return pod is not None and "podIP" in pod["status"] and self.nodes.is_up(pod)

    def collect(self, ref):
        """The pod goes without its kubelet."""
        self._erase(ref)

    def start_anew(self, ref):
        """The machine of the pod was off: its containers start again."""
        pod = self.objects[ref]
        if "podIP" in pod["status"]:
            self._not_ready(pod["status"])
            creating = {"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": _restarts(pod) + 1}
            pod["status"] = {"containerStatuses": [creating], "conditions": pod["status"]["conditions"]}
            self.files.pop(uid_of(pod), None)

    def identity(self, ref):
        """What is on the broker's disk."""
        return self.disks[self._disk(ref)]

    def admit(self, before, after):
        """Kubernetes changes no template of claims, and volumes only where their class and the quota allow it."""
        if after["kind"] == STATEFUL_SET.name and "spec" in before:
            templates = [found["spec"].get("volumeClaimTemplates") for found in (before, after)]
            if templates[0] != templates[1]:
                raise Refused("spec: Forbidden: updates to statefulset spec for other fields than 'replicas'")
        if after["kind"] == CLAIM.name:
            self.volumes.admit(before, after)

    async def get(self, ref):
        if ref.kind not in (NODE.name, VOLUME.name):
            return await super().get(ref)
        self.calls["get", ref.kind] += 1
        return self.nodes.manifest(ref.name) if ref.kind == NODE.name else self.nodes.volume(ref.name)

    async def list(self, kind, namespace, selector=""):
        if kind.name != NODE.name:
            return await super().list(kind, namespace, selector)
        self.calls["list", kind.name] += 1
        return self.nodes.manifests()

    def remove_lost(self, disk):
        """A disk leaves the cluster with what it stored; tests that look at that have their own."""

    # Controllers

    def _balance(self, ref):
        """A load balancer is made for a Service that asks for one, and goes with it."""
        found = self.objects[ref]
        if found["spec"].get("type") != "LoadBalancer":
            found.pop("status", None)
        elif self.balances:
            found["status"] = {"loadBalancer": {"ingress": [{"hostname": f"{ref.name}.lb.example.com"}]}}

    def _state(self):
        """All that a step may change. Of a spec that is the node of a pod, and what a claim asks for."""
        told = {ref: {**found, "spec": _settled(found)} for ref, found in self.objects.items()}
        return pickle.dumps(
            (
                *(told, self.disks, self.config, self.replication, self.members, self.leader, self.draining),
                *(self.known, self.zones, self.used),
            )
        )

    def _let_go(self, ref):
        """What belongs to it loses its owner, then the finalizer goes that held it for that."""
        metadata = self.objects[ref]["metadata"]
        if "deletionTimestamp" not in metadata or "orphan" not in metadata.get("finalizers", ()):
            return
        for found in self.objects.values():
            owners = found["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == metadata["uid"] for owner in owners):
                found["metadata"].pop("ownerReferences")
        metadata["finalizers"].remove("orphan")
        self._end_deletion(ref)

    def _collect_garbage(self):
        uids = {uid_of(found) for found in self.objects.values()}
        for ref, found in list(self.objects.items()):
            owners = found["metadata"].get("ownerReferences", ())
            there = [owner for owner in owners if owner["uid"] in uids]
            if owners and not there:
                self._delete(ref)
            elif len(there) < len(owners):
                found["metadata"]["ownerReferences"] = there
                self._touch(ref)

    def _stateful_set(self, ref):
        found = self.objects[ref]
        spec = found["spec"]
        owner = [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": ref.name, "uid": uid_of(found), "controller": True}
        ]
        for ordinal in range(spec["replicas"]):
            name = f"{ref.name}-{ordinal}"
            for template in spec.get("volumeClaimTemplates", ()):
                claim = Ref(CLAIM.name, ref.namespace, f"{template['metadata']['name']}-{name}")
                if claim not in self.objects:
                    self._add(
                        {
                            "apiVersion": "v1",
                            "kind": CLAIM.name,
                            "metadata": {
                                "name": claim.name,
                                "namespace": ref.namespace,
                                "labels": template["metadata"]["labels"],
                            },
                            "spec": deepcopy(template["spec"]),
                            "status": {"phase": "Pending"},
                        }
                    )
                if spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete":
                    self.objects[claim]["metadata"]["ownerReferences"] = owner
                else:
                    self.objects[claim]["metadata"].pop("ownerReferences", None)
            pod = Ref(POD.name, ref.namespace, name)
            if pod in self.objects and self._is_orphan(pod, spec["selector"]["matchLabels"]):
                self.objects[pod]["metadata"]["ownerReferences"] = owner
            if pod not in self.objects:
                template = deepcopy(spec["template"])
                self._add(
                    {
                        "apiVersion": "v1",
                        "kind": POD.name,
                        "metadata": {
                            "name": name,
                            "namespace": ref.namespace,
                            "labels": template["metadata"]["labels"] | {"statefulset.kubernetes.io/pod-name": name},
                            "annotations": template["metadata"]["annotations"],
                            "ownerReferences": owner,
                        },
                        "spec": template["spec"],
                        "status": {},
                    }
                )
        for pod in [other for other in self.objects if other.kind == POD.name]:
            metadata = self.objects[pod]["metadata"]
            if metadata.get("ownerReferences") == owner and int(pod.name.rpartition("-")[2]) >= spec["replicas"]:
                self._delete(pod)
        found["status"] = {"replicas": spec["replicas"], "observedGeneration": found["metadata"]["generation"]}

    def _is_orphan(self, ref, selected):
        metadata = self.objects[ref]["metadata"]
        return not metadata.get("ownerReferences") and selected.items() <= metadata.get("labels", {}).items()

    def _end_deletion(self, ref):
        """A pod goes once its kubelet has ended it, a claim once its pod is gone."""
        mounted = (
            ref.kind == CLAIM.name and Ref(POD.name, ref.namespace, ref.name.removeprefix("data-")) in self.objects
        )
        if ref.kind != POD.name and not mounted:
            super()._end_deletion(ref)

    def _erase(self, ref):
        super()._erase(ref)
        if ref.kind == CLAIM.name:
            self.disks.pop((ref.namespace, "claim", ref.name.removeprefix("data-")), None)

    # Kubelets and brokers

    def _delete(self, ref):
        """A kubelet that hears of it stops the broker at once."""
        super()._delete(ref)
        if ref.kind == POD.name and ref in self.objects and self.nodes.is_up(self.objects[ref]):
            self.objects[ref]["status"] = {}

    def _end_pod(self, ref):
        """It goes once it has stopped, and someone is there to say so."""
        pod = self.objects[ref]
        if "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers") and self.nodes.is_up(pod):
            self._erase(ref)

    def _pod(self, ref):
        """The next that happens to it; who does not hear from its node takes it for not ready."""
        pod = self.objects[ref]
        if not self.nodes.is_up(pod):
            self._not_ready(pod["status"])
        elif "deletionTimestamp" not in pod["metadata"] and self.nodes.place(ref):
            self._bind(ref)
            if ref.name not in self.stuck and ("podIP" in pod["status"] or self._secret(ref) is not None):
                self._go_on(ref)

    def _bind(self, ref):
        """A volume for its claim is made on the node of the pod."""
        claim = self.objects.get(Ref(CLAIM.name, ref.namespace, f"data-{ref.name}"))
        if claim is not None and claim["status"]["phase"] == "Pending":
            claim["metadata"].setdefault("annotations", {})[SELECTED] = self.objects[ref]["spec"]["nodeName"]
            claim["spec"]["volumeName"] = f"volume-of-{ref.name}"
            claim["status"] = {"phase": "Bound", "capacity": deepcopy(claim["spec"]["resources"]["requests"])}

    def _start(self, ref):
        """The containers start, with what the cluster's founder is told at this moment."""
        pod = self.objects[ref]
        told = self.objects.get(Ref("ConfigMap", ref.namespace, f"{self._cluster(pod)}-bootstrap"))
        pod["founds"] = dict(told["data"]) if told is not None and told["data"]["name"] == ref.name else None
        pod["status"] = {
            "podIP": f"ip-{ref.namespace}-{ref.name}",
            "hostIP": self.nodes.addresses[pod["spec"]["nodeName"]]["InternalIP"],
            "containerStatuses": [{"state": {"running": {"startedAt": self._now()}}, "restartCount": _restarts(pod)}],
            "conditions": pod["status"].get("conditions", []),
        }
        disk = self.disks.setdefault(self._disk(ref), {"disk": f"disk-{next(self._disks)}", "cluster": ""})
        if disk["disk"] in self.members.get(disk["cluster"], {}):
            self.members[disk["cluster"]][disk["disk"]] = ref.name
            self._register(ref)

    def release(self, pod):
        """What the broker of the pod can do."""
        return self.releases.get(pod["spec"]["containers"][0]["image"], SimRelease())

    def _register(self, ref):
        disk = self.identity(ref)["disk"]
        self.known[disk] = self.release(self.objects[ref]).level
        self.zones[disk] = self._zone(self.objects[ref])

    def _go_on(self, ref):
        """It runs, then it is part of a cluster, then ready: one of them in each step."""
        pod = self.objects[ref]
        status = pod["status"]
        if pod["spec"]["containers"][0]["image"] in self.broken:
            waiting = {"reason": "ErrImagePull", "message": "no such image"}
            status["containerStatuses"] = [{"state": {"waiting": waiting}, "restartCount": 0}]
            status["conditions"] = []
        elif self._is_too_old(ref):
            ended = {"reason": "CrashLoopBackOff", "message": "exit code 3: the cluster uses commands of a newer level"}
            status.pop("podIP", None)
            status["containerStatuses"] = [{"state": {"waiting": ended}, "restartCount": 1}]
            self._not_ready(status)
        elif "podIP" not in status:
            self._start(ref)
        elif self._is_sick(pod) or self._is_out(ref):
            self._not_ready(status)
        elif not self.identity(ref)["cluster"]:
            peers = {self.identity(other)["cluster"] for other in self._peers(ref)} - {""}
            joinable = sorted(peer for peer in peers if self._trusts(ref, self.brokers.leader(ref.namespace, peer)))
            if pod["founds"] and not peers and self._most_are_empty(ref, int(pod["founds"].get("nodes", 1))):
                self.identity(ref)["cluster"] = f"cluster-{next(self._clusters)}"
                self.config[self.identity(ref)["cluster"]] = (0, {})
                told = Replication(int(pod["founds"]["factor"]), int(pod["founds"]["writeQuorum"]))
                self.replication[self.identity(ref)["cluster"]] = told
            elif joinable:
                self.identity(ref)["cluster"] = joinable[0]
            if self.identity(ref)["cluster"]:
                self.members.setdefault(self.identity(ref)["cluster"], {})[self.identity(ref)["disk"]] = ref.name
                self.used.setdefault(self.identity(ref)["cluster"], self.release(pod).level)
                self._register(ref)
        else:
            leader = self.brokers.leader(ref.namespace, self.identity(ref)["cluster"])
            ready = self._trusts(ref, leader) and self._understands(ref, leader) and ref.name not in self.unready
            if ready:
                status["conditions"] = [{"type": "Ready", "status": "True"}]
            else:
                self._not_ready(status)

    def _understands(self, ref, leader):
        """Whether its broker speaks with the one that leads: it is registered by that one, and not ready before."""
        return self.release(self.objects[ref]).wire.meets(self.release(self.objects[leader]).wire)

    def _is_too_old(self, ref):
        """Whether its cluster uses commands that its broker does not know: it ends at once."""
        used = self.used.get(self.disks.get(self._disk(ref), {}).get("cluster"), 0)
        return self.release(self.objects[ref]).level < used

    def _is_out(self, ref):
        """Whether its disk left the cluster: such a one is let in nowhere."""
        identity = self.identity(ref)
        return bool(identity["cluster"]) and identity["disk"] not in self.members[identity["cluster"]]

    def _not_ready(self, status):
        others = [one for one in status.get("conditions", ()) if one != {"type": "Ready", "status": "True"}]
        if others != status.get("conditions", []):
            status["conditions"] = [*others, {"type": "Ready", "status": "False", "lastTransitionTime": self._now()}]

    def _disk(self, ref):
        """What holds the broker's files: its claim, or the folder of its pool on its node."""
        if Ref(CLAIM.name, ref.namespace, f"data-{ref.name}") in self.objects:
            return (ref.namespace, "claim", ref.name)
        return (ref.namespace, self.objects[ref]["spec"]["nodeName"], ref.name.rpartition("-")[0])

    def _most_are_empty(self, ref, nodes):
        """A founder counts itself, and asks the others: none of them is in a cluster."""
        return 2 * (1 + len(self._peers(ref))) > nodes

    def _peers(self, ref):
        mine = self._cluster(self.objects[ref])
        return [
            other
            for other, found in self.objects.items()
            if other.kind == POD.name
            and other.namespace == ref.namespace
            and other != ref
            and self._cluster(found) == mine
            and self.runs(other)
        ]

    def _cluster(self, pod):
        return pod["metadata"]["labels"]["walrus.dev/cluster"]

    def _secret(self, ref):
        """What the broker's file holds: b"" without one; None where nobody made the Secret, so that no pod can start.

        A file follows the Secret, and stays as it was when that is gone.
        """
        pod = self.objects[ref]
        named = [one["secret"]["secretName"] for one in pod["spec"].get("volumes", ()) if "secret" in one]
        found = self.objects.get(Ref(SECRET.name, ref.namespace, named[0])) if named else None
        if not named:
            return b""
        if found is not None:
            self.files[uid_of(pod)] = b64decode(found["data"]["secret"])
        return self.files.get(uid_of(pod))

    def _trusts(self, ref, other):
        return other is not None and self._secret(ref) == self._secret(other)

    def _zone(self, pod):
        """What its broker tells: as it was told, or as the label says that Kubernetes copies from the node."""
        told = next((one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "WALRUS_ZONE"), None)
        if told is None:
            return ""
        return told.get("value") or self.nodes.manifest(pod["spec"]["nodeName"])["metadata"]["labels"].get(ZONE, "")

    def _is_sick(self, pod):
        return pod["spec"]["containers"][0]["image"] in self.sick


def _settled(found):
    """What controllers put into the spec of an object."""
    if found["kind"] == POD.name:
        return found["spec"].get("nodeName")
    return found["spec"] if found["kind"] == CLAIM.name else None


def _restarts(pod):
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))

"""A small Kubernetes in memory: enough of the API server and its controllers to drive the real reconcile loop.

It has resource versions, generations, server-side apply that takes back what its manager no longer says, the status
subresource, uid preconditions, evictions against budgets, finalizers, owner references with garbage collection,
StatefulSets (`Parallel`, `OnDelete`) with claims that are in use, nodes without room, objects that are refused, pods
that wait for the Secret that they mount, and brokers that keep their identity on the claim, need a majority of each
other and speak with none of another secret. Nothing happens by itself: `step` lets the controllers and brokers do what
they would do in a moment. It records every call, and can crash at any write.
"""

from __future__ import annotations

import pickle
from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

from walrus_operator.kube.api import Conflict, Disrupting, Missing, Refused
from walrus_operator.objects import BUDGET, CLAIM, CLUSTER, KINDS, POD, SECRET, STATEFUL_SET, Ref, ref_of, uid_of
from walrus_operator.observe.brokers import BrokerError, ConfigMoved, ConfigRefused
from walrus_operator.observe.snapshot import Broker, Config, Member, Replication

KEYS = ("segments.max_entries", "segments.max_bytes", "segments.max_age_ms", "segments.check_interval_ms")


def deepcopy(value):
    """A copy; of plain data, this is the fast way."""
    return pickle.loads(pickle.dumps(value))


class Crash(BaseException):
    """The operator died; nothing of it may catch this."""


class SimKube:
    """The API server, its controllers and the brokers."""

    def __init__(self):
        self.objects = {}
        self.applied = {}
        self.theirs = {}  # Ref -> uids of owners that another manager wrote there
        self.calls = Counter()
        self.writes = 0
        self.crash_at = None
        self.crash_before = False
        self.down = set()  # pods whose broker does not answer
        self.stuck = set()  # pods that never run
        self.no_room = set()  # pods that fit on no node
        self.broken = set()  # images that do not run
        self.sick = set()  # images whose brokers run, speak with nobody and are never ready
        self.unready = set()  # pods whose broker takes part and is not ready
        self.refused = {}  # Ref -> what Kubernetes answers to every write of it
        self.behind = set()  # pods whose broker has not caught up
        self.keep = []  # why no broker may stop
        self.leader = None  # the pod that leads the metadata, if it is there
        self.refuses_config = False
        self.brokers = SimBrokers(self)
        self.disks = {}  # claim or pod -> identity on its disk
        self.files = {}  # uid of a pod -> what its file holds that mounts the Secret
        self.config = {}  # cluster id -> (version, entries)
        self.replication = {}  # cluster id -> Replication
        self.members = {}  # cluster id -> {identity of a disk: name of its broker}; who is in once, stays
        self._uids = count(1)
        self._versions = count(1)
        self._clusters = count(1)
        self._disks = count()
        self._time = datetime(2026, 1, 1, tzinfo=UTC)

    # What a user does

    def put(self, name, spec, namespace="shop", annotations=None):
        """kubectl apply of a WalrusCluster."""
        ref = Ref(CLUSTER.name, namespace, name)
        found = self.objects.get(ref)
        if found is None:
            self._add(
                {
                    "apiVersion": CLUSTER.api_version,
                    "kind": CLUSTER.name,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": spec,
                }
            )
        else:
            found["metadata"]["generation"] += found["spec"] != spec
            found["spec"] = deepcopy(spec)
        self.objects[ref]["metadata"]["annotations"] = annotations or {}
        self._touch(ref)

    def remove(self, kind, name, namespace="shop"):
        """kubectl delete, background propagation."""
        self._delete(Ref(kind, namespace, name))

    def orphan(self, kind, name, namespace="shop"):
        """kubectl delete --cascade=orphan: what it owned stays, without an owner, once the next step is done."""
        ref = Ref(kind, namespace, name)
        self.objects[ref]["metadata"].setdefault("finalizers", []).append("orphan")
        self._delete(ref)

    def scale(self, name, replicas, namespace="shop"):
        """kubectl scale statefulset."""
        ref = Ref(STATEFUL_SET.name, namespace, name)
        self.objects[ref]["spec"]["replicas"] = replicas
        self.objects[ref]["metadata"]["generation"] += 1
        self._touch(ref)

    def drain(self, name, namespace="shop"):
        """kubectl drain, of one pod. Returns whether its budget allowed it."""
        ref = Ref(POD.name, namespace, name)
        if ref not in self.objects:
            return False
        allowed = self._may_evict(ref)
        if allowed:
            self._delete(ref)
        return allowed

    def make(self, kind, name, labels=None, namespace="shop", **rest):
        """kubectl create, of something that is not ours."""
        metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
        return self.put_object({"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **rest})

    def put_object(self, manifest):
        """kubectl create, of a whole object."""
        return self._add(deepcopy(manifest))

    # KubeApi

    async def get(self, ref):
        self.calls["get", ref.kind] += 1
        found = self.objects.get(ref)
        return deepcopy(found) if found is not None else None

    async def list(self, kind, namespace, selector=""):
        self.calls["list", kind.name] += 1
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        return [
            deepcopy(found)
            for ref, found in sorted(self.objects.items())
            if ref.kind == kind.name
            and namespace in (None, ref.namespace)
            and wanted.items() <= found["metadata"].get("labels", {}).items()
        ]

    async def create(self, manifest):
        with self._write("create", manifest["kind"], ref_of(manifest)):
            if ref_of(manifest) in self.objects:
                raise Conflict(f"{ref_of(manifest)} exists")
            return deepcopy(self._add(deepcopy(manifest)))

    async def replace(self, manifest):
        with self._write("update", manifest["kind"]):
            found = self.objects.get(ref_of(manifest))
            if found is None:
                raise Missing(str(ref_of(manifest)))
            if found["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
                raise Conflict(str(ref_of(manifest)))
            found["spec"] = deepcopy(manifest["spec"])
            self._touch(ref_of(manifest))
            return deepcopy(found)

    async def apply(self, manifest):
        ref = ref_of(manifest)
        verbs = ("patch",) if ref in self.objects else ("patch", "create")
        owners = self._owners(ref, manifest)
        with self._write(verbs, ref.kind, ref):
            found = self.objects.get(ref)
            if manifest["metadata"].get("uid", uid_of(found or {"metadata": {}})) != uid_of(found or manifest):
                raise Conflict(str(ref))
            if found is None and "uid" in manifest["metadata"]:
                raise Conflict(f"{ref} is gone")
            if found is None:
                found = self._add(
                    {
                        "apiVersion": manifest["apiVersion"],
                        "kind": ref.kind,
                        "metadata": {"name": ref.name, "namespace": ref.namespace},
                    }
                )
            before = deepcopy(found)
            _take_back(found, self.applied.get(ref, {}), manifest)
            _merge(found, deepcopy(manifest))
            if owners:
                found["metadata"]["ownerReferences"] = owners
            self.applied[ref] = deepcopy(manifest)
            if found != before:
                found["metadata"]["generation"] += found.get("spec") != before.get("spec")
                self._touch(ref)
            made = deepcopy(found)
            self._end_deletion(ref)
            return made

    async def apply_status(self, manifest):
        ref = ref_of(manifest)
        with self._write("patch", f"{ref.kind}/status"):
            found = self.objects.get(ref)
            if found is None:
                raise Missing(str(ref))
            if uid_of(found) != manifest["metadata"]["uid"]:
                raise Conflict(str(ref))
            if found.get("status") != manifest["status"]:
                found["status"] = deepcopy(manifest["status"])
                self._touch(ref)
            return deepcopy(found)

    async def delete(self, ref, uid):
        with self._write("delete", ref.kind, ref):
            found = self.objects.get(ref)
            if found is None:
                return
            if uid_of(found) != uid:
                raise Conflict(str(ref))
            self._delete(ref)

    async def evict(self, ref, uid):
        with self._write("create", "Pod/eviction", ref):
            found = self.objects.get(ref)
            if found is None:
                return
            if uid_of(found) != uid:
                raise Conflict(str(ref))
            if not self._may_evict(ref):
                raise Disrupting(f"{ref.name} would violate the pod's disruption budget")
            self._delete(ref)

    # What happens by itself, when it is asked to

    def step(self):
        """Controllers and brokers do their next thing. Returns whether anything changed."""
        before = self._state()
        self._time += timedelta(seconds=2)
        for ref in list(self.objects):
            self._let_go(ref)
        self._collect_garbage()
        for ref in [ref for ref in self.objects if ref.kind == STATEFUL_SET.name]:
            self._stateful_set(ref)
        for ref in [ref for ref in self.objects if ref.kind == POD.name]:
            self._pod(ref)
        for ref in sorted(self.objects, key=lambda ref: ref.kind != POD.name):  # claims are held by pods
            self._end_deletion(ref, stopped=True)
        return before != self._state()

    def pods(self, namespace="shop"):
        return {
            ref.name: found
            for ref, found in self.objects.items()
            if ref.kind == POD.name and ref.namespace == namespace
        }

    def _state(self):
        return pickle.dumps((self.objects, self.disks, self.config, self.replication, self.members, self.leader))

    def _may_evict(self, ref):
        """As the budgets of the pod say; one that is not ready may go where its budget does not mind."""
        pod = self.objects[ref]
        for found in [found for other, found in self.objects.items() if other.kind == BUDGET.name]:
            wanted = found["spec"]["selector"]["matchLabels"].items()
            there = {one["key"] for one in found["spec"]["selector"].get("matchExpressions", ())}
            if found["metadata"]["namespace"] != ref.namespace or not wanted <= pod["metadata"]["labels"].items():
                continue
            covered = [
                other
                for other in self.objects.values()
                if other["kind"] in (POD.name, STATEFUL_SET.name)
                and other["metadata"]["namespace"] == ref.namespace
                and wanted <= other["metadata"].get("labels", {}).items()
            ]
            covered = [
                other
                for other in covered
                if other["kind"] != POD.name or there <= other["metadata"].get("labels", {}).keys()
            ]
            if any(other["kind"] == POD.name and "ownerReferences" not in other["metadata"] for other in covered):
                return False  # nobody says how many of it there shall be
            expected = sum(other["spec"]["replicas"] for other in covered if other["kind"] == STATEFUL_SET.name)
            if not is_ready(pod) and found["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            healthy = sum(other["kind"] == POD.name and is_ready(other) for other in covered)
            if expected - healthy >= found["spec"]["maxUnavailable"]:
                return False
        return True

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
                self._erase(ref)
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
                self._erase(pod)
        found["status"] = {"replicas": spec["replicas"], "observedGeneration": found["metadata"]["generation"]}

    def _pod(self, ref):
        """Pending, then running, then part of a cluster, then ready: one of them in each step."""
        pod = self.objects[ref]
        status = pod["status"]
        if "deletionTimestamp" in pod["metadata"]:
            return
        if "podIP" not in status and ref.name in self.no_room:
            full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
            status["conditions"] = [full]
            return
        claim = self.objects.get(Ref(CLAIM.name, ref.namespace, f"data-{ref.name}"))
        if claim is not None and claim["status"]["phase"] == "Pending":
            claim["spec"]["volumeName"] = f"volume-of-{ref.name}"
            claim["status"] = {"phase": "Bound"}
        if ref.name in self.stuck or ("podIP" not in status and self._secret(ref) is None):
            return
        if pod["spec"]["containers"][0]["image"] in self.broken:
            waiting = {"reason": "ErrImagePull", "message": "no such image"}
            status["containerStatuses"] = [{"state": {"waiting": waiting}, "restartCount": 0}]
            status["conditions"] = []
        elif "podIP" not in status:
            told = self.objects.get(Ref("ConfigMap", ref.namespace, f"{self._cluster(pod)}-bootstrap"))
            pod["founds"] = dict(told["data"]) if told is not None and told["data"]["name"] == ref.name else None
            status.update(
                {
                    "podIP": f"ip-{ref.namespace}-{ref.name}",
                    "containerStatuses": [{"state": {"running": {"startedAt": self._now()}}, "restartCount": 0}],
                    "conditions": [],
                }
            )
            self.disks.setdefault(self._disk(ref), {"disk": f"disk-{next(self._disks)}", "cluster": ""})
        elif self._is_sick(pod):
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
        else:
            leads = self._trusts(ref, self.brokers.leader(ref.namespace, self.identity(ref)["cluster"]))
            ready = leads and ref.name not in self.unready
            if ready:
                status["conditions"] = [{"type": "Ready", "status": "True"}]
            else:
                self._not_ready(status)

    def _not_ready(self, status):
        if {"type": "Ready", "status": "True"} in status["conditions"]:
            status["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": self._now()}]

    def _now(self):
        return self._time.strftime("%Y-%m-%dT%H:%M:%SZ")

    def identity(self, ref):
        return self.disks[self._disk(ref)]

    def _disk(self, ref):
        """The claim's name, or the folder's: brokers on folders of nodes come back to theirs here."""
        claim = Ref(CLAIM.name, ref.namespace, f"data-{ref.name}")
        return (ref.namespace, "claim" if claim in self.objects else "folder", ref.name)

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
            and "podIP" in found["status"]
        ]

    def _cluster(self, pod):
        return pod["metadata"]["labels"]["walrus.dev/cluster"]

    # Parts

    def _is_orphan(self, ref, selected):
        metadata = self.objects[ref]["metadata"]
        return not metadata.get("ownerReferences") and selected.items() <= metadata.get("labels", {}).items()

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

    def _is_sick(self, pod):
        return pod["spec"]["containers"][0]["image"] in self.sick

    def _owners(self, ref, manifest):
        """Owner references as server-side apply merges them, by uid: what another manager wrote stays, and may become
        one of whom less is said. An object has one controller.
        """
        said = {one["uid"] for one in self.applied.get(ref, {"metadata": {}})["metadata"].get("ownerReferences", ())}
        found = self.objects.get(ref, {"metadata": {}})
        there = {one["uid"]: dict(one) for one in found["metadata"].get("ownerReferences", ())}
        theirs = self.theirs.setdefault(ref, set())
        theirs |= there.keys() - said
        wanted = {one["uid"]: one for one in manifest["metadata"].get("ownerReferences", ())}
        for uid in there.keys() & said - wanted.keys():
            there[uid].pop("controller", None)
        merged = {uid: one for uid, one in there.items() if uid in theirs | wanted.keys()}
        merged |= {uid: merged.get(uid, {}) | one for uid, one in wanted.items()}
        if sum(one.get("controller", False) for one in merged.values()) > 1:
            raise Refused(f"{ref}: Only one reference can have Controller set to true")
        return list(merged.values())

    def _write(self, verbs, kind, ref=None):
        for verb in (verbs,) if isinstance(verbs, str) else verbs:
            self.calls[verb, kind] += 1
        return _Write(self, self.refused.get(ref))

    def _add(self, manifest):
        ref = ref_of(manifest)
        manifest["metadata"] |= {
            "uid": f"uid-{next(self._uids)}",
            "generation": 1,
            "creationTimestamp": self._now(),
        }
        assert ref.kind in KINDS
        self.objects[ref] = manifest
        self._touch(ref)
        return manifest

    def _touch(self, ref):
        self.objects[ref]["metadata"]["resourceVersion"] = str(next(self._versions))

    def _delete(self, ref):
        """Mark it, and let it go unless something holds it."""
        if ref in self.objects:
            self.objects[ref]["metadata"].setdefault("deletionTimestamp", self._now())
            self._touch(ref)
            self._end_deletion(ref)

    def _end_deletion(self, ref, *, stopped=False):
        """What is deleted goes once no finalizer and, if it is a claim, no pod holds it; a pod once it has stopped."""
        found = self.objects.get(ref)
        if found is None or "deletionTimestamp" not in found["metadata"] or found["metadata"].get("finalizers"):
            return
        if ref.kind == POD.name and not stopped:
            found["status"] = {}
            return
        if ref.kind == CLAIM.name and Ref(POD.name, ref.namespace, ref.name.removeprefix("data-")) in self.objects:
            return
        self._erase(ref)

    def _erase(self, ref):
        found = self.objects.pop(ref, None)
        self.applied.pop(ref, None)
        self.theirs.pop(ref, None)
        if found is not None and ref.kind == CLAIM.name:
            self.disks.pop((ref.namespace, "claim", ref.name.removeprefix("data-")), None)


def is_ready(pod):
    return {"type": "Ready", "status": "True"} in pod["status"].get("conditions", ())


class _Write:
    """Counts a write, and dies before or after the chosen one; one that is refused changes nothing and is none."""

    def __init__(self, kube, refused):
        self.kube = kube
        self.refused = refused

    def __enter__(self):
        if self.refused is not None:
            raise self.refused
        self.kube.writes += 1
        self.last = self.kube.crash_at is not None and self.kube.writes == self.kube.crash_at
        if self.last and self.kube.crash_before:
            raise Crash

    def __exit__(self, kind, error, trace):
        if self.last and kind is None:
            raise Crash


class SimBrokers:
    """The Admin API of the brokers of a `SimKube`."""

    def __init__(self, kube):
        self.kube = kube

    def _find(self, host):
        for ref, pod in self.kube.objects.items():
            if ref.kind == POD.name and pod["status"].get("podIP") == host:
                if ref.name in self.kube.down:
                    break
                return ref, self.kube.identity(ref)
        raise BrokerError(f"{host} does not answer")

    async def look(self, host):
        ref, identity = self._find(host)
        pod, cluster = self.kube.objects[ref], identity["cluster"]
        sick = self.kube._is_sick(pod)
        leader = self.leader(ref.namespace, cluster) if cluster and not sick else None
        leader = leader if self.kube._trusts(ref, leader) else None
        leads = leader == ref
        members = self.kube.members.get(cluster, {})
        alive = (
            {self.kube.identity(other)["disk"] for other in self._alive(ref.namespace, cluster)} if cluster else set()
        )
        backend = next(one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "WALRUS_BACKEND")
        missing = () if cluster and leader else ("metadata",) if cluster else ("admission",)
        return Broker(
            cluster_id=cluster,
            node_id=list(members).index(identity["disk"]) + 1 if cluster else 0,
            disk=identity["disk"],
            version=pod["spec"]["containers"][0]["image"].rpartition(":")[2],
            missing=missing,
            role="Leader" if leads else "Follower" if leader else "Candidate" if cluster else "",
            term=1 if cluster else 0,
            segments_led=0,
            under_replicated=0 if not cluster or len(alive) >= self.kube.replication[cluster].factor else 1,
            replication=self.kube.replication[cluster] if cluster else None,
            spare_brokers=self._spare(cluster, len(alive), len(members)) if leads else None,
            config_version=self.kube.config[cluster][0] if cluster else 0,
            members=tuple(Member(disk, name, disk in alive) for disk, name in members.items()) if not sick else (),
            backend_asked=backend,
            backend_in_use="mmap" if backend == "auto" else backend,
            backend_reason="",
            bytes_free=50,
            bytes_total=100,
        )

    def leader(self, namespace, cluster):
        """The pod that leads the metadata, while a majority of the members is there: the wanted one, or the first."""
        alive = self._alive(namespace, cluster)
        if 2 * len(alive) <= len(self.kube.members[cluster]):
            return None
        return next((ref for ref in alive if ref.name == self.kube.leader), alive[0])

    def _alive(self, namespace, cluster):
        """Pods of members that run and speak with each other; whether they answer the operator is another matter.

        Of those who share different secrets, the most.
        """
        running = sorted(
            ref
            for ref, pod in self.kube.objects.items()
            if ref.kind == POD.name
            and ref.namespace == namespace
            and "podIP" in pod["status"]
            and not self.kube._is_sick(pod)
            and self.kube.identity(ref)["cluster"] == cluster
        )
        most = Counter(map(self.kube._secret, running)).most_common(1)
        return [ref for ref in running if self.kube._secret(ref) == most[0][0]]

    def _permits(self, ref, secrets):
        if self.kube._secret(ref).strip() not in (b"", secrets):
            raise BrokerError("it needs the cluster's secret")

    def _needs_leader(self, ref, identity):
        if self.kube._is_sick(self.kube.objects[ref]) or self.leader(ref.namespace, identity["cluster"]) is None:
            raise BrokerError("no broker leads the metadata")

    async def caught_up(self, host):
        ref, _ = self._find(host)
        return ("copies: 1 sealed segments are not whole here yet",) if ref.name in self.kube.behind else ()

    async def can_stop(self, host, disk):
        """What would be lacking without it; the majority is counted, the rest as a test says."""
        ref, identity = self._find(host)
        self._needs_leader(ref, identity)
        members = self.kube.members[identity["cluster"]]
        if disk not in members:
            raise BrokerError(f"no node has the disk {disk!r}")
        left = [other for other in self._alive(ref.namespace, identity["cluster"]) if self._disk(other) != disk]
        lacking = ["the metadata would have no majority of its voters"] if 2 * len(left) <= len(members) else []
        return (*self.kube.keep, *lacking)

    def _disk(self, ref):
        return self.kube.identity(ref)["disk"]

    async def transfer_leadership(self, host, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        assert self.leader(ref.namespace, identity["cluster"]) == ref
        with self.kube._write("transfer", "leadership"):
            others = [other for other in self._alive(ref.namespace, identity["cluster"]) if other != ref]
            answering = [other for other in others if other.name not in self.kube.down]
            if not answering:
                raise BrokerError("nobody else votes")
            self.kube.leader = answering[0].name

    def _spare(self, cluster, alive, members):
        replication = self.kube.replication[cluster]
        needed = max(replication.write_quorum, replication.factor + 1 - replication.write_quorum)
        return max(min(alive - members // 2 - 1, min(replication.factor, alive) - needed), 0)

    async def set_replication(self, host, replication, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        with self.kube._write("set", "replication"):
            self.kube.replication[identity["cluster"]] = replication

    async def config(self, host):
        _, identity = self._find(host)
        if not identity["cluster"]:
            raise BrokerError("in no cluster")
        version, entries = self.kube.config[identity["cluster"]]
        return Config(version, dict(entries))

    async def set_config(self, host, entries, expect_version, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        version, had = self.kube.config[identity["cluster"]]
        if self.kube.refuses_config:
            raise ConfigRefused("config segments.max_entries: too small")
        with self.kube._write("set", "config"):
            if version != expect_version:
                raise ConfigMoved(f"at {version}, not {expect_version}")
            assert set(entries) <= set(KEYS)
            if {**had, **entries} != had:
                self.kube.config[identity["cluster"]] = (version + 1, {**had, **entries})
        return self.kube.config[identity["cluster"]][0]


def _merge(into, manifest):
    """Fields of the manifest, as server-side apply sets them; lists are whole here, but finalizers are a set."""
    for key, value in manifest.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key == "finalizers":
            into[key] = [*dict.fromkeys([*into.get(key, ()), *value])]
        else:
            into[key] = value


def _take_back(into, before, manifest):
    """Fields that the manager said before and does not say any more."""
    for key, value in before.items():
        if key == "finalizers":
            into[key] = [one for one in into.get(key, ()) if one not in value or one in manifest.get(key, ())]
        elif key not in manifest:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict) and isinstance(manifest[key], dict):
            _take_back(into[key], value, manifest[key])

"""An API server in memory: objects and the rules that it keeps about them, for the operator and for users.

It has resource versions, generations, server-side apply that takes back what its manager no longer says, the status
subresource, uid preconditions, evictions against budgets, finalizers and owners; objects can be refused. It records
every call, and can crash at any write. What acts on the objects by itself is in `simkube`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import UTC, datetime
from itertools import count

from walrus_operator.kube.api import Conflict, Disrupting, Missing, Refused
from walrus_operator.objects import BUDGET, CLUSTER, KINDS, POD, SERVICE, STATEFUL_SET, TOPIC, Ref, ref_of, uid_of


def deepcopy(value):
    """A copy; of plain data, this is the fast way."""
    return pickle.loads(pickle.dumps(value))


class Crash(BaseException):
    """The operator died; nothing of it may catch this."""


class SimApi:
    """The objects, the calls of the operator (`KubeApi`), and what users do."""

    def __init__(self):
        self.objects = {}
        self.applied = {}
        self.theirs = {}  # Ref -> uids of owners that another manager wrote there
        self.calls = Counter()
        self.writes = 0
        self.crash_at = None
        self.crash_before = False
        self.at_write = None  # called before and after each write
        self.refused = {}  # Ref -> what Kubernetes answers to every write of it
        self._uids = count(1)
        self._versions = count(1)
        self._node_ports = count(30_000)
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

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

    def put_topic(self, name, spec, namespace="shop"):
        """kubectl apply of a WalrusTopic."""
        ref = Ref(TOPIC.name, namespace, name)
        found = self.objects.get(ref)
        if found is None:
            return self.make(TOPIC, name, namespace=namespace, spec=spec)
        found["metadata"]["generation"] += found["spec"] != spec
        found["spec"] = deepcopy(spec)
        self._touch(ref)
        return found

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

    def ask_to_evict(self, name, namespace="shop"):
        """What kubectl drain asks for each pod. Returns whether its budget allowed it."""
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
        listed = [
            ref
            for ref, found in self.objects.items()
            if ref.kind == kind.name
            and namespace in (None, ref.namespace)
            and wanted.items() <= found["metadata"].get("labels", {}).items()
        ]
        return [deepcopy(self.objects[ref]) for ref in sorted(listed)]

    async def create(self, manifest):
        with self._write("create", manifest["kind"], ref_of(manifest)):
            if ref_of(manifest) in self.objects:
                raise Conflict(f"{ref_of(manifest)} exists")
            return deepcopy(self._add(deepcopy(manifest)))

    async def replace(self, manifest):
        with self._write("update", manifest["kind"], ref_of(manifest)):
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
        verbs = ("patch",) if ref in self.objects or "uid" in manifest["metadata"] else ("patch", "create")
        owners = self._owners(ref, manifest)
        self._admit(ref, manifest)
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
            if ref.kind == SERVICE.name:
                self._give_node_ports(found["spec"], before.get("spec", {}))
            if owners:
                found["metadata"]["ownerReferences"] = owners
            self.applied[ref] = deepcopy(manifest)
            if found != before:
                found["metadata"]["generation"] += found.get("spec") != before.get("spec")
                self._touch(ref)
            made = deepcopy(found)
            self._end_deletion(ref)
            return made

    async def try_apply(self, manifest):
        self.calls["patch", manifest["kind"]] += 1
        ref = ref_of(manifest)
        if ref in self.refused:
            raise self.refused[ref]
        if uid_of(self.objects.get(ref, manifest)) != manifest["metadata"]["uid"] or ref not in self.objects:
            raise Conflict(str(ref))
        self._admit(ref, manifest)

    def _admit(self, ref, manifest):
        found = self.objects.get(ref)
        if found is not None:
            wanted = deepcopy(found)
            _merge(wanted, deepcopy(manifest))
            self.admit(found, wanted)

    def admit(self, before, after):
        """Raises what admission and validation say to a change of an object."""

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

    async def delete(self, ref, uid, *, orphan=False):
        with self._write("delete", ref.kind, ref):
            found = self.objects.get(ref)
            if found is None:
                return
            if uid_of(found) != uid:
                raise Conflict(str(ref))
            if orphan:
                found["metadata"].setdefault("finalizers", []).append("orphan")
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

    def pods(self, namespace="shop"):
        return {
            ref.name: found
            for ref, found in self.objects.items()
            if ref.kind == POD.name and ref.namespace == namespace
        }

    # Rules

    def _may_evict(self, ref):
        """Whether its budgets allow the eviction of a pod; one that is not ready may go where it does not count."""
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

    def _give_node_ports(self, spec, before):
        """Each port of a Service for the outside has one of the nodes; one that it was given stays its own."""
        had = {port["name"]: port.get("nodePort") for port in before.get("ports", ())}
        for port in spec["ports"] if spec.get("type") in ("NodePort", "LoadBalancer") else ():
            port["nodePort"] = port.get("nodePort") or had.get(port["name"]) or next(self._node_ports)

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
        """Mark it, if it is not marked, and let it go unless something holds it."""
        if ref in self.objects:
            metadata = self.objects[ref]["metadata"]
            if "deletionTimestamp" not in metadata:
                metadata["deletionTimestamp"] = self._now()
                self._touch(ref)
            self._end_deletion(ref)

    def _end_deletion(self, ref):
        """What is deleted goes once no finalizer holds it."""
        found = self.objects.get(ref)
        if found is None or "deletionTimestamp" not in found["metadata"] or found["metadata"].get("finalizers"):
            return
        self._erase(ref)

    def _erase(self, ref):
        self.objects.pop(ref, None)
        self.applied.pop(ref, None)
        self.theirs.pop(ref, None)

    def _now(self):
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")


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
        self._tell()
        self.kube.writes += 1
        self.last = self.kube.crash_at is not None and self.kube.writes == self.kube.crash_at
        if self.last and self.kube.crash_before:
            raise Crash

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._tell()
        if self.last and kind is None:
            raise Crash

    def _tell(self):
        if self.kube.at_write is not None:
            self.kube.at_write()


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

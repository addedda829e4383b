"""Nodes of a `SimKube`: machines that fail and come back, a scheduler, and people who cordon and drain them.

A pod is placed once, on the node with the fewest pods of its cluster among those that may take it, or on its former one
as long as that may. A volume is made where its first pod is placed, and stays there unless `volumes_move`. Labels and
taints of nodes are not looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from walrus_operator.objects import CLAIM, NODE, POD, VOLUME, Ref
from walrus_operator.observe.machines import Machine, Volume

SELECTED = "volume.kubernetes.io/selected-node"
"""The annotation by which Kubernetes remembers for which node the volume of a claim was made."""


@dataclass
class Node:
    """A machine, and what is known of it."""

    name: str
    pods_max: float = inf
    disks: float = inf
    """How many volumes can be made on it."""
    cordoned: bool = False
    """Whether it takes no new pods."""
    drained: bool = False
    """Whether someone asks for its pods to be evicted, until all are gone."""
    up: bool = True
    """Whether the machine runs. While it does not, nobody ends its pods: those that are deleted stay."""
    known: bool = True
    """Whether Kubernetes has an object of it. The pods of a node without one are collected."""


class SimNodes:
    """The nodes; three to begin with, with room for everything."""

    def __init__(self, kube):
        self._kube = kube
        self._nodes = {}
        self.addresses = {}  # name -> type -> address
        self.labels = {}  # name -> labels, besides its own name
        self.zones_of_volumes = {}  # name of a volume -> labels
        self._former = {}  # Ref of a pod -> the node on which it was last
        self.volumes_move = False  # as those of a network do
        self.pods_move = False  # another node takes a pod rather than its former one
        for number in range(3):
            self.add(f"node-{number}")

    def manifest(self, name):
        """What the API server has of the node."""
        node = self._nodes[name]
        listed = [{"type": type_, "address": address} for type_, address in self.addresses[name].items()]
        ready = {"type": "Ready", "status": "True" if node.up else "Unknown"}
        made = {
            "kind": NODE.name,
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | self.labels.get(name, {})},
            "spec": {"unschedulable": True} if node.cordoned else {},
            "status": {"addresses": listed, "conditions": [ready]},
        }
        return made if node.known else None

    def manifests(self):
        """All nodes that the API server has."""
        return [made for name in self._nodes if (made := self.manifest(name)) is not None]

    def volume(self, name):
        """What the API server has of a volume: a disk of the node for which it was made, unless volumes move."""
        claim = next(
            (
                found
                for ref, found in self._kube.objects.items()
                if ref.kind == CLAIM.name and found["spec"].get("volumeName") == name
            ),
            None,
        )
        if claim is None:
            return None
        host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [_made_on(claim)]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}
        tied = not self.volumes_move and _made_on(claim) is not None
        return {
            "kind": VOLUME.name,
            "metadata": {"name": name, "labels": self.zones_of_volumes.get(name, {})},
            "spec": {"nodeAffinity": affinity} if tied else {},
        }

    # What people and machines do

    def add(self, name):
        self._nodes[name] = Node(name)
        self.addresses[name] = {"InternalIP": f"10.0.0.{len(self._nodes)}", "Hostname": name}

    def limit_pods(self, name, pods_max=inf):
        """The node has room for so many pods."""
        self._nodes[name].pods_max = pods_max

    def limit_disks(self, number=inf):
        """All nodes together have disks for so many volumes."""
        for position, node in enumerate(self._nodes.values()):
            node.disks = inf if number == inf else len(range(position, number, len(self._nodes)))

    def cordon(self, name):
        self._nodes[name].cordoned = True

    def uncordon(self, name):
        """It takes new pods; who drained it has given up."""
        self._nodes[name].cordoned = self._nodes[name].drained = False

    def drain(self, name):
        """kubectl drain: no new pods, and each that is there is asked for in each step until it may go."""
        self._nodes[name].cordoned = self._nodes[name].drained = True

    def fail(self, name):
        """The machine goes off, and its brokers with it. Their pods stay as they were, but for being ready."""
        self._nodes[name].up = False

    def give_up(self, name):
        """What Kubernetes does about a machine that has been off for five minutes: it deletes its pods."""
        node = self._nodes[name]
        for ref in [] if node.up else self._on(node):
            told = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
            status = self._kube.objects[ref]["status"]
            status["conditions"] = [*(one for one in status.get("conditions", ()) if one != told), told]
            self._kube.remove(ref.kind, ref.name, ref.namespace)

    def forget(self, name):
        """The machine is off, and someone deletes its object: its pods are collected, its volumes stay where it is."""
        self._nodes[name].up = self._nodes[name].known = False

    def back(self, name):
        """The machine is on again, and what ran on it starts anew. One that was forgotten takes new pods."""
        node = self._nodes[name]
        if not node.known:
            self.uncordon(name)
        if not node.up:
            node.up = node.known = True
            for ref in self._on(node):
                self._kube.start_anew(ref)

    def heal(self):
        """All machines are on, and all take pods and volumes."""
        self.limit_disks()
        for name in self._nodes:
            self.back(name)
            self.uncordon(name)
            self.limit_pods(name)

    # What happens by itself

    def step(self):
        """Pods of forgotten nodes are collected, those of drained ones asked for."""
        for node in self._nodes.values():
            for ref in self._on(node):
                if not node.known:
                    self._kube.collect(ref)
                elif node.drained and "deletionTimestamp" not in self._kube.objects[ref]["metadata"]:
                    self._kube.ask_to_evict(ref.name, ref.namespace)
            node.drained = node.drained and bool(self._on(node))

    def place(self, ref):
        """Schedule the pod, if it is not yet. Returns whether it is."""
        pod = self._kube.objects[ref]
        if pod["spec"].get("schedulingGates"):
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "it is held"}
            pod["status"] = {"conditions": [gated]}
            return False
        if "nodeName" not in pod["spec"]:
            fitting = self._fitting(ref)
            if not fitting:
                message = f"0/{len(self._nodes)} nodes are available"
                full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
                pod["status"] = {"conditions": [full]}
                return False
            former = [node for node in fitting if node.name == self._former.get(ref)]
            others = [node for node in fitting if node not in former] if self.pods_move else []
            chosen = (others or former or [min(fitting, key=lambda node: self._share(ref, node))])[0]
            pod["spec"]["nodeName"] = self._former[ref] = chosen.name
            pod["status"] = {}
        return True

    def is_up(self, pod):
        """Whether the machine runs on which the pod was placed, if it was."""
        return "nodeName" not in pod["spec"] or self._nodes[pod["spec"]["nodeName"]].up

    def hold(self, ref):
        """Whether it is for its node, or for want of one, that the pod does not run; it need not be there yet."""
        pod = self._kube.objects.get(ref, {"spec": {}})
        return not (self.is_up(pod) if "nodeName" in pod["spec"] else self._fitting(ref))

    # Parts

    def _on(self, node):
        return [
            ref
            for ref, found in self._kube.objects.items()
            if ref.kind == POD.name and found["spec"].get("nodeName") == node.name
        ]

    def _share(self, ref, node):
        """How many pods of the same cluster it has."""
        pods = self._kube.objects
        cluster = pods[ref]["metadata"]["labels"]["walrus.dev/cluster"]
        return sum(pods[other]["metadata"]["labels"].get("walrus.dev/cluster") == cluster for other in self._on(node))

    def _fitting(self, ref):
        """The nodes that may take the pod."""
        return [
            node
            for node in self._nodes.values()
            if node.up
            and node.known
            and not node.cordoned
            and len(self._on(node)) < node.pods_max
            and self._reaches_volume(ref, node)
            and not self._is_repelled(ref, node)
            and self._is_wanted(ref, node)
            and self._is_spread(ref, node)
        ]

    def _reaches_volume(self, ref, node):
        """Whether the volume of the pod, if it needs one, is there or can be made there."""
        claim = self._kube.objects.get(Ref(CLAIM.name, ref.namespace, f"data-{ref.name}"))
        if claim is None:
            return True
        if "volumeName" in claim["spec"]:
            return self.volumes_move or _made_on(claim) in (None, node.name)
        claims = [found for other, found in self._kube.objects.items() if other.kind == CLAIM.name]
        return sum(_made_on(found) == node.name for found in claims) < node.disks

    def _is_repelled(self, ref, node):
        """Whether the pod shall not lie beside one that is there, by its required anti-affinity to pods of a host."""
        affinity = self._kube.objects.get(ref, {"spec": {}})["spec"].get("affinity", {}).get("podAntiAffinity", {})
        avoided = [
            term["labelSelector"]["matchLabels"].items()
            for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        ]
        there = [self._kube.objects[other]["metadata"]["labels"].items() for other in self._on(node)]
        return any(labels <= told for labels in avoided for told in there)

    def _is_wanted(self, ref, node):
        """Whether the pod may lie there by the names of nodes in its required node affinity."""
        affinity = self._kube.objects.get(ref, {"spec": {}})["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
        fields = [{"matchFields": term["matchFields"]} for term in terms if "matchFields" in term]
        wanted = Volume.parse(
            {"metadata": {"name": ""}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": fields}}}}
        )
        return bool(wanted.reached_from([Machine.parse(self.manifest(node.name))]))

    def _is_spread(self, ref, node):
        """Whether the pod may lie there by how evenly it must be spread over zones or hosts."""
        spec = self._kube.objects.get(ref, {"spec": {}})["spec"]
        told = [one for one in spec.get("topologySpreadConstraints", ()) if one["whenUnsatisfiable"] == "DoNotSchedule"]
        return all(self._has_room(one, node) for one in told)

    def _has_room(self, constraint, node):
        key, selector = constraint["topologyKey"], constraint["labelSelector"]["matchLabels"].items()
        counts = Counter()
        for other in self._nodes.values():
            domain = self.manifest(other.name)["metadata"]["labels"].get(key) if other.known else None
            if domain is not None and other.up and not other.cordoned:
                labels = [self._kube.objects[ref]["metadata"]["labels"].items() for ref in self._on(other)]
                counts[domain] += sum(selector <= told for told in labels)
        mine = self.manifest(node.name)["metadata"]["labels"].get(key)
        least = min(counts.values()) if len(counts) >= constraint.get("minDomains", 1) else 0
        return mine is not None and counts[mine] + 1 - least <= constraint["maxSkew"]


def _made_on(claim):
    """The node on which its volume was made; None where it has none, or got it in another way."""
    return claim["metadata"].get("annotations", {}).get(SELECTED)

"""The Admin API of the brokers of a `SimKube`, and who of them makes up a cluster.

Brokers keep their identity on the disk, need a majority of each other, and speak with none of another secret.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simtopics import SimTopicCalls
from walrus_operator.api.config import DYNAMIC, LOG_LEVEL, LOG_LEVEL_DEFAULT
from walrus_operator.api.releases import RELEASES, Wire
from walrus_operator.objects import POD, uid_of
from walrus_operator.observe.brokers import BrokerError, ConfigMoved, ConfigRefused, DepartureRefused, LevelRefused
from walrus_operator.observe.snapshot import Broker, Config, Drain, Member

KEYS = {
    *("segments.max_entries", "segments.max_bytes", "segments.max_age_ms", "segments.check_interval_ms"),
    *DYNAMIC,
} - {LOG_LEVEL}


FIRST_LEVEL = RELEASES[0].level
SEGMENTS = 3
"""Segments that every broker stores, and hands over one by one."""


@dataclass(frozen=True)
class SimRelease:
    """What brokers of an image can do."""

    level: int = FIRST_LEVEL
    wire: Wire = RELEASES[0].wire


class SimBrokers(SimTopicCalls):
    """The Admin API of the brokers of a `SimKube`."""

    def __init__(self, kube):
        self.kube = kube

    def _find(self, host):
        for ref, pod in self.kube.objects.items():
            if ref.kind == POD.name and pod["status"].get("podIP") == host:
                if ref.name in self.kube.down or not self.kube.runs(ref):
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
        total, free = self.kube.volumes.room(ref)
        missing = () if cluster and leader else ("metadata",) if cluster else ("admission",)
        return Broker(
            cluster_id=cluster,
            node_id=list(members).index(identity["disk"]) + 1 if identity["disk"] in members else 0,
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
            members=tuple(self._member(disk, name, alive) for disk, name in members.items()) if not sick else (),
            segments_held=self.kube.draining.get(identity["disk"], SEGMENTS),
            copies_needed=self.kube.copies_needed,
            in_one_zone=self.kube.in_one_zone,
            level=self.kube.used.get(cluster, 0),
            level_known=self.kube.release(pod).level,
            wire=self.kube.release(pod).wire,
            former_cluster_ids=self.kube.former.get(cluster, ()),
            backend_asked=backend,
            backend_in_use="mmap" if backend == "auto" else backend,
            backend_reason="",
            synced_writes="direct",
            cached_reason="",
            log_level=self.kube.levels.get(uid_of(pod), LOG_LEVEL_DEFAULT),
            bytes_free=free,
            bytes_total=total,
        )

    def _member(self, disk, name, alive):
        known, zone = self.kube.known.get(disk, FIRST_LEVEL), self.kube.zones.get(disk, "")
        return Member(disk, name, disk in alive, disk in self.kube.draining, known, zone, voter=True)

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
            and self.kube.runs(ref)
            and not self.kube._is_sick(pod)
            and self._is_member(ref, cluster)
        )
        secrets = {ref: self.kube._secret(ref) for ref in running}
        most = Counter(secrets.values()).most_common(1)
        return [ref for ref, secret in secrets.items() if secret == most[0][0]]

    def _is_member(self, ref, cluster):
        identity = self.kube.identity(ref)
        return identity["cluster"] == cluster and identity["disk"] in self.kube.members[cluster]

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

    async def finalize_level(self, host, level, secrets):
        """Refused while a member that may come back does not know it."""
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        older = [
            name
            for disk, name in self.kube.members[identity["cluster"]].items()
            if self.kube.known.get(disk, FIRST_LEVEL) < level
        ]
        if older:
            raise LevelRefused(f"{older[0]} does not know commands of level {level}")
        with self.kube._write("finalize", "level"):
            self.kube.used[identity["cluster"]] = max(self.kube.used[identity["cluster"]], level)

    async def start_drain(self, host, disk, secrets):
        self._may_go(host, disk, secrets)
        with self.kube._write("drain", "member"):
            self.kube.draining.setdefault(disk, SEGMENTS)

    async def cancel_drain(self, host, disk, secrets):
        self._may_go(host, disk, secrets)
        with self.kube._write("drain", "member"):
            self.kube.draining.pop(disk, None)

    async def drain(self, host, disk):
        ref, identity = self._find(host)
        self._needs_leader(ref, identity)
        if disk not in self.kube.members[identity["cluster"]]:
            raise BrokerError(f"no node has the disk {disk!r}")
        left = self.kube.draining.get(disk, SEGMENTS)
        return Drain(led=left // 2, held=left, done=disk in self.kube.draining and left == 0)

    async def remove_member(self, host, disk, lost, secrets):
        """A disk that is out already is fine; one that stores something is only if it is lost."""
        ref, identity = self._find(host)
        members = self.kube.members[identity["cluster"]]
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        if lost is None and disk in members and self.kube.draining.get(disk) != 0:
            raise DepartureRefused(f"disk {disk} still stores segments")
        assert lost is None or not lost.replaced_by or lost.replaced_by in members
        with self.kube._write("remove", "member"):
            if lost is not None:
                self.kube.remove_lost(disk)
            members.pop(disk, None)
            self.kube.draining.pop(disk, None)

    def _may_go(self, host, disk, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        if disk not in self.kube.members[identity["cluster"]]:
            raise DepartureRefused(f"no node has the disk {disk!r}")
        if self.kube.refuses_drains:
            raise DepartureRefused(self.kube.refuses_drains)

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

    async def set_log_level(self, host, level, secrets):
        ref, _ = self._find(host)
        self._permits(ref, secrets)
        if self.kube.refuses_config:
            raise ConfigRefused(f"{level!r} is no log level")
        with self.kube._write("set", "level"):
            self.kube.levels[uid_of(self.kube.objects[ref])] = level

    async def set_config(self, host, entries, unset, expect_version, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        version, had = self.kube.config[identity["cluster"]]
        if self.kube.refuses_config:
            raise ConfigRefused("config segments.max_entries: too small")
        with self.kube._write("set", "config"):
            if version != expect_version:
                raise ConfigMoved(f"at {version}, not {expect_version}")
            assert {*entries, *unset} <= set(KEYS)
            assert not {*entries} & {*unset}
            wanted = {name: value for name, value in {**had, **entries}.items() if name not in unset}
            if wanted != had:
                self.kube.config[identity["cluster"]] = (version + 1, wanted)
        return self.kube.config[identity["cluster"]][0]

"""What the operator can do, and what can keep it from doing it. Both lists are closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.config import LOG_LEVEL
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.manifest import Owner
from walrus_operator.objects import SECRET, Manifest, Ref, ref_of
from walrus_operator.observe.machines import Volume
from walrus_operator.observe.snapshot import Replication


@dataclass(frozen=True)
class Apply:
    """Make an object, or bring it back to what it shall be."""

    manifest: Manifest
    new: bool

    def __str__(self) -> str:
        return f"{'Create' if self.new else 'Update'} {ref_of(self.manifest)}"


@dataclass(frozen=True)
class MakeSecret:
    """Make the Secret that the brokers share, of random bytes that nobody but the executor and Kubernetes sees."""

    owner: Owner

    def __str__(self) -> str:
        return f"Create {SECRET.name} {self.owner.names.secret}"


@dataclass(frozen=True)
class Prune:
    """Delete an object that shall not be there any more."""

    ref: Ref
    uid: str

    def __str__(self) -> str:
        return f"Delete {self.ref}"


@dataclass(frozen=True)
class Grow:
    """Give a pool one broker more."""

    manifest: Manifest
    pool: str
    replicas: int
    """Brokers of the pool afterwards."""

    def __str__(self) -> str:
        return f"Grow pool {self.pool} to {self.replicas} brokers"


@dataclass(frozen=True)
class Dismiss:
    """Take away the last broker of a pool, which never became part of the cluster. Checked again before it is done."""

    manifest: Manifest
    pod: str

    def __str__(self) -> str:
        return f"Dismiss {self.pod}, which never joined"


@dataclass(frozen=True)
class StartDrain:
    """Note that a broker goes, and let it hand over what it has. Writes go on; it can be taken back."""

    pod: str
    departure: Departure
    noted: Manifest
    """The ConfigMap with this departure among the others, which is applied before."""

    def __str__(self) -> str:
        return f"Drain {self.pod} (disk {self.departure.disk})"


@dataclass(frozen=True)
class CancelDrain:
    """Give a broker segments again that began to go and shall stay."""

    pod: str
    disk: str

    def __str__(self) -> str:
        return f"Keep {self.pod} (disk {self.disk}), and drain it no longer"


@dataclass(frozen=True)
class RemoveMember:
    """Take a disk out of the cluster for good, which stores nothing any more. Checked again before it is done."""

    pod: str
    disk: str

    def __str__(self) -> str:
        return f"Take disk {self.disk} of {self.pod} out of the cluster"


@dataclass(frozen=True)
class GiveUpDisk:
    """Take a disk out of the cluster that never comes back, with what it stored. Checked again before it is done."""

    pod: str
    disk: str
    by: str
    """The disk of a member that came in its place; "" where none did yet."""
    noted: Manifest
    """The ConfigMap with this departure among the others, which is applied before."""
    volume: Volume | None = None
    """The volume that no node reaches any more, where nobody named the disk: that is looked at again, too."""

    def __str__(self) -> str:
        why = ", whose node is gone" if self.volume else f", replaced by {self.by}" if self.by else ""
        return f"Give up disk {self.disk} of {self.pod}{why}"


@dataclass(frozen=True)
class Shrink:
    """Take away the last broker of a pool, whose disk left the cluster. Checked again before it is done."""

    manifest: Manifest
    pod: str
    disk: str

    def __str__(self) -> str:
        return f"Shrink {ref_of(self.manifest)} by {self.pod}, whose disk {self.disk} left the cluster"


@dataclass(frozen=True)
class EnlargeClaim:
    """Let a claim ask for another size than it has. Its broker goes on."""

    ref: Ref
    uid: str
    size: str
    had: str

    def __str__(self) -> str:
        return f"Grow {self.ref} from {self.had} to {self.size}"


@dataclass(frozen=True)
class RemakeSet:
    """Delete a StatefulSet and leave its pods, so that the next one can make claims of another size: Kubernetes changes
    none that is there. Looked at again before it is done.
    """

    ref: Ref
    uid: str
    size: str
    noted: Manifest
    """The ConfigMap with the StatefulSet as it is, which is applied before."""

    def __str__(self) -> str:
        return f"Make {self.ref} anew over its pods, for claims of {self.size}"


@dataclass(frozen=True)
class RemoveClaim:
    """Delete a claim, and with it what is on its volume. Looked at again before it is done."""

    ref: Ref
    uid: str
    unbound: bool = False
    """Only if it still never had a volume."""

    def __str__(self) -> str:
        return f"Delete {self.ref}"


@dataclass(frozen=True)
class HoldDeletion:
    """Let the deletion of the cluster wait for the operator, or not any more."""

    held: bool

    def __str__(self) -> str:
        return "Hold the deletion until the claims are gone" if self.held else "Hold the deletion no longer"


@dataclass(frozen=True)
class SetConfig:
    """Change the brokers' dynamic configuration."""

    entries: Mapping[str, int]
    expect_version: int
    unset: tuple[str, ...] = ()
    """Settings that go back to each broker's own option."""

    def __str__(self) -> str:
        changes = [f"{key}={value}" for key, value in sorted(self.entries.items())]
        return "Set " + ", ".join([*changes, *(f"{key} as it is by default" for key in self.unset)])


@dataclass(frozen=True)
class FinalizeLevel:
    """Let the cluster use what its release brought to the metadata. No broker goes back to the release before then."""

    level: int

    def __str__(self) -> str:
        return f"Use commands of level {self.level}: brokers that know less do not start any more"


@dataclass(frozen=True)
class SetLogLevel:
    """Let a broker log more or less. It is that broker's own, and lasts until it is started again."""

    pod: str
    level: str

    def __str__(self) -> str:
        return f"Set {LOG_LEVEL} of {self.pod} to {self.level}"


@dataclass(frozen=True)
class SetReplication:
    """Change how segments that are opened from now on are replicated."""

    replication: Replication

    def __str__(self) -> str:
        return f"Set replication to {self.replication}"


@dataclass(frozen=True)
class RestartPod:
    """Evict a pod, which its StatefulSet makes anew. Disruptive: checked again with fresh eyes before it is done."""

    pod: str
    uid: str
    reason: str

    def __str__(self) -> str:
        return f"Restart {self.pod} ({self.reason})"


@dataclass(frozen=True)
class Advertise:
    """Tell a broker what it shall tell clients outside. It hears of it while it runs."""

    pod: str
    uid: str
    addresses: str

    def __str__(self) -> str:
        return f"Advertise {self.pod} at {', '.join(self.addresses.split()) or 'no address outside'}"


@dataclass(frozen=True)
class Place:
    """Say on which node a pod comes up that is held: on the one that has its data, or on one that has nobody's."""

    pod: str
    uid: str
    node: str
    """The node; "" where its broker has no data yet."""
    taken: tuple[str, ...] = ()
    """Nodes with data of other brokers of its pool, where it has none yet."""

    def __str__(self) -> str:
        return f"Place {self.pod} on node {self.node}" if self.node else f"Let {self.pod} be placed on a free node"


@dataclass(frozen=True)
class TransferLeadership:
    """Let another broker lead the metadata, before the one that does is restarted."""

    pod: str
    """Who leads now."""

    def __str__(self) -> str:
        return f"Transfer the metadata's leadership away from {self.pod}"


@dataclass(frozen=True)
class RollPod:
    """Evict the pod of a broker, so that it comes back made from the present spec. Disruptive: whether the others can
    do without it is asked of them before, and Kubernetes counts it against the budget, as it does with every drain.
    """

    pod: str
    uid: str
    spared: bool
    """Replication can do without a broker; otherwise what is stored there waits meanwhile."""
    broken: bool = False
    """It does not serve: nobody waits until all others do."""
    asked: bool = False
    """It is made from the present spec already, and someone asked that it restarts."""
    replaced: bool = False
    """Its disk was given up, and its claim goes: the next pod of its name starts on another one."""
    tries: str = ""
    """The image that nobody knows, and that this one runs before all others; "" where they are known to fit."""
    unsized: bool = False
    """Its file system does not become as large as its volume as long as it runs."""

    def __str__(self) -> str:
        why = "as someone asked" if self.asked else "the spec of its pool changed"
        why = f"before the others, to try image {self.tries}" if self.tries else why
        why = "its disk was given up" if self.replaced else why
        why = "its file system does not grow while it runs" if self.unsized else why
        return f"Restart {self.pod} ({why})"


Action = (
    Apply
    | MakeSecret
    | Prune
    | Grow
    | Dismiss
    | StartDrain
    | CancelDrain
    | RemoveMember
    | GiveUpDisk
    | Shrink
    | EnlargeClaim
    | RemakeSet
    | RemoveClaim
    | HoldDeletion
    | SetConfig
    | SetReplication
    | SetLogLevel
    | FinalizeLevel
    | RestartPod
    | Advertise
    | Place
    | TransferLeadership
    | RollPod
)


class Gate(StrEnum):
    """What holds something up."""

    INVALID = "Invalid"
    PAUSED = "Paused"
    AMBIGUOUS_IDENTITY = "AmbiguousIdentity"
    NAME_TAKEN = "NameTaken"
    OBJECT_REFUSED = "ObjectRefused"
    FORBIDDEN = "Forbidden"
    UNANSWERED = "Unanswered"
    CHANGED_MEANWHILE = "ChangedMeanwhile"
    EVICTION_REFUSED = "EvictionRefused"
    CONTESTED = "Contested"
    CONFIG_REFUSED = "ConfigRefused"
    NOT_FOUNDED = "NotFounded"
    POD_PENDING = "PodPending"
    UNKNOWN_BROKER = "UnknownBroker"
    NOT_CAUGHT_UP = "NotCaughtUp"
    QUORUM_TIGHT = "QuorumTight"
    ADDRESS_PENDING = "AddressPending"
    MAINTENANCE_WINDOW = "MaintenanceWindow"
    DISK_PRESSURE = "DiskPressure"
    DRAINING = "Draining"
    REMOVED_DISK = "RemovedDisk"
    HIBERNATED = "Hibernated"
    REPLACE_REFUSED = "ReplaceRefused"
    DRAIN_REFUSED = "DrainRefused"
    NODE_LOST = "NodeLost"
    NODE_AWAY = "NodeAway"
    TOO_FEW_ZONES = "TooFewZones"
    SHRINK_REFUSED = "ShrinkRefused"
    RELEASE_REFUSED = "ReleaseRefused"
    RESIZE_REFUSED = "ResizeRefused"
    RESIZING = "Resizing"
    RESIZE_FAILED = "ResizeFailed"


REFUSED = frozenset(
    {
        Gate.INVALID,
        Gate.OBJECT_REFUSED,
        Gate.CONFIG_REFUSED,
        Gate.SHRINK_REFUSED,
        Gate.RELEASE_REFUSED,
        Gate.RESIZE_REFUSED,
    }
)
"""Gates that only another spec opens: the cluster stays as it is. The others open by themselves, or by hand."""


@dataclass(frozen=True)
class Wait:
    """A gate that is closed, and who can open it."""

    gate: Gate
    detail: str
    about: str = ""
    """The pod that it is about; "" where it is about no single one."""
    opens: datetime | None = None
    """When it opens by itself, where that is known."""


@dataclass(frozen=True)
class Plan:
    """What comes next, and what is held up: repairs, then one of the steps, then settings."""

    actions: tuple[Action, ...] = ()
    """Repairs: all of them, in this order."""
    steps: tuple[Action, ...] = ()
    """What happens to brokers: one of these, the first that nothing stops."""
    settings: tuple[Action, ...] = ()
    """What the brokers are told: all of it."""
    waits: tuple[Wait, ...] = ()
    outdated: tuple[str, ...] = ()
    """Pods that are made from something else than the spec says now."""
    spec: ClusterSpec | None = None
    """The spec in force: the one that is there, or while that is refused the last one that was accepted; None: none."""

    @property
    def is_idle(self) -> bool:
        """Nothing to do and nothing to wait for."""
        return not self.wanted and not self.waits

    @property
    def wanted(self) -> tuple[Action, ...]:
        """Everything that there is to do, in order, with all steps that it could begin with."""
        return (*self.actions, *self.steps, *self.settings)

    def left(self, done: Done) -> list[Action]:
        """What is still to be done; after one step the next ones are only known by another look."""
        over = {*map(id, self.steps)} if any(step in done.actions for step in self.steps) else set()
        return [action for action in self.wanted if action not in done.actions and id(action) not in over]


@dataclass(frozen=True)
class Done:
    """What of a plan was done, and what stopped the rest."""

    actions: tuple[Action, ...] = ()
    waits: tuple[Wait, ...] = ()

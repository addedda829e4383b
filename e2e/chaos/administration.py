"""What whoever runs a cluster does after a loss that it does not mend by itself. It decides nothing."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.waiting import wait_until
from walrus_client import WalrusError, errors
from walrus_client.admin import AdminClient
from walrus_client.admin.model import Status

TIMEOUT_S = 120.0
LOOK_S = 0.2
LISTED_MAX = 10_000  # a node lists no more


class Administration:
    """Speaks with the nodes whose admin addresses it is given."""

    def __init__(self, addresses: dict[int, str], secret_file: Path) -> None:
        self._addresses = addresses
        self._secret_file = secret_file

    def of(self, node: int) -> AdminClient:
        """A connection to one node."""
        return AdminClient(self._addresses[node], secret_file=self._secret_file)

    def disk(self, node: int) -> str:
        """The disk that a node says that it has."""
        with self.of(node) as admin:
            return admin.identity().disk

    def replace(self, lost: str, node: int, *, through: int) -> None:
        """The disk that a node has now takes the place of a lost one, as another node is told."""

        def is_replaced() -> bool:
            try:
                new = self.disk(node)
                with self.of(through) as admin:
                    admin.remove_member(lost, lost=True, replaced_by=new)
            except WalrusError:
                return False  # it is not admitted yet, or the metadata has no leader
            return True

        wait_until(f"the new disk of node-{node} to take the place of the old one", is_replaced, timeout_s=TIMEOUT_S)

    def has_caught_up(self, node: int) -> bool:
        """Whether a node has all that was acknowledged in the segments of which it has copies."""
        try:
            with self.of(node) as admin:
                return not admin.caught_up()
        except WalrusError:
            return False  # it does not answer

    def is_without(self, disks: Iterable[str], *, node: int) -> bool:
        """Whether these disks are out, and nothing lacks copies, as a node sees it."""
        status = self._status(node)
        if status is None:
            return False
        return status.under_replicated == 0 and not {known.disk for known in status.nodes} & set(disks)

    def listed(self, *, node: int) -> set[str]:
        """The segments of all topics, also of those that Walrus keeps for itself, as a node knows them."""
        with self.of(node) as admin:
            return {segment.uuid for segment in admin.segments(limit=LISTED_MAX)}

    def wait_until_it_has_all(self, node: int) -> None:
        """Returns when a disk has every record that was acknowledged before, and no segment lacks a copy.

        What is acknowledged lies on two disks, maybe not on this one; nobody may write meanwhile.
        """
        missing: Sequence[str] = ()

        def has_all() -> bool:
            nonlocal missing
            status = self._status(node)
            lacking = 1 if status is None else status.under_replicated
            try:
                with self.of(node) as admin:
                    missing = admin.caught_up()
            except WalrusError as refusal:
                missing = (str(refusal),)
            if lacking:
                missing = (*missing, f"{lacking} segments lack copies")
            return not missing

        try:
            wait_until(f"node-{node} to have everything", has_all, timeout_s=TIMEOUT_S, every_s=LOOK_S)
        except TimeoutError as late:
            raise TimeoutError(f"{late}: {'; '.join(missing)}") from None

    def recover_metadata(self, survivor: int, gone: Sequence[str]) -> None:
        """The metadata go on from what one node has, as those of another cluster; returns once it serves there."""
        with self.of(survivor) as admin:
            before = admin.identity().cluster_id
        is_asked = False

        def ask() -> bool:
            try:
                with self.of(survivor) as admin:
                    _, left_behind = admin.recover_metadata(gone)
                    assert not left_behind, f"nobody else is left, and {left_behind} are to follow"
            except errors.OutcomeUnknown:
                return True
            except WalrusError:
                return False  # connections of those that are gone still stand
            return True

        def goes_on() -> bool:
            nonlocal is_asked
            is_asked = is_asked or ask()
            status = self._status(survivor) if is_asked else None
            return status is not None and status.ready and status.identity.cluster_id != before

        wait_until(f"node-{survivor} to go on as another cluster", goes_on, timeout_s=TIMEOUT_S, every_s=LOOK_S)

    def take_back(self, name: str, *, through: int) -> None:
        """The topic of this name, which no metadata know, is named again with all that is left of it."""

        def is_back() -> bool:
            try:
                with self.of(through) as admin:
                    lost = admin.lost_topics()
                    (topic,) = (found.topic for found in lost.topics if found.name == name)
                    return admin.recover_topic(topic) == name
            except (WalrusError, ValueError):
                return False  # a node does not answer, or has not looked at its disk yet

        wait_until(f"the topic {name} to be taken back", is_back, timeout_s=TIMEOUT_S, every_s=LOOK_S)

    def _status(self, node: int) -> Status | None:
        try:
            with self.of(node) as admin:
                return admin.status()
        except WalrusError:
            return None

"""A small state machine: an append-only list of commands, so that a lost or repeated one is seen at once."""

import json
from uuid import UUID

from walrus_node.metadata.store import Applied, Rejected


def entry(name: str) -> bytes:
    """The command that writes a name into the ledger."""
    return json.dumps({"write": name}).encode()


def address(disk: UUID, at: str) -> bytes:
    """The command that says where a disk's Raft transport listens."""
    return json.dumps({"disk": str(disk), "at": at}).encode()


class Ledger:
    """Implements `store.StateMachine[tuple[str, ...]]`."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.addresses: dict[UUID, str] = {}
        self.applied = 0

    def check(self, command: bytes) -> Rejected | None:
        """Refuses what `apply` would not understand, as the metadata's own machine does."""
        try:
            facts = json.loads(command)
        except ValueError:
            return Rejected("NotUnderstood", "the command is no JSON")
        if not isinstance(facts, dict) or not ("disk" in facts or "write" in facts):
            return Rejected("NotUnderstood", "the command writes nothing")
        return None

    def apply(self, command: bytes) -> Applied | Rejected:
        facts = json.loads(command)
        if facts.get("write") == "":
            return Rejected("Empty", "a name is needed")
        self.applied += 1
        if "disk" in facts:
            self.addresses[UUID(facts["disk"])] = facts["at"]
            return Applied(self.applied, None)
        self.written.append(facts["write"])
        return Applied(self.applied, len(self.written))

    def snapshot(self) -> bytes:
        addresses = {str(disk): at for disk, at in self.addresses.items()}
        return json.dumps({"written": self.written, "addresses": addresses, "applied": self.applied}).encode()

    def restore(self, snapshot: bytes) -> None:
        facts = json.loads(snapshot)
        self.written, self.applied = facts["written"], facts["applied"]
        self.addresses = {UUID(disk): at for disk, at in facts["addresses"].items()}

    def view(self) -> tuple[str, ...]:
        return tuple(self.written)

    def version(self) -> int:
        return self.applied

    def raft_addresses(self) -> dict[UUID, str]:
        return dict(self.addresses)


class RememberingLedger(Ledger):
    """Knows a command that comes twice, as the metadata does by its id: it acts once and is answered alike."""

    def apply(self, command: bytes) -> Applied | Rejected:
        name = json.loads(command).get("write")
        if name in self.written:
            return Applied(self.applied, self.written.index(name) + 1)
        return super().apply(command)

"""Raft by PySyncObj, hardened: one pinned subclass, private methods included, in one file for each of its roles.

PySyncObj's election, commit rule, applying and stepping down are kept. Replaced, because they lose acknowledged entries
or trust what arrives: the log and the votes on disk, snapshots, the handling of messages, the sending of entries,
membership, the transport, every use of pickle. Added: who would stand for election first asks whether others miss the
leader too, and a closed connection to the leader makes it ask at once.

The roles inherit in this order: pinned (the only import of pysyncobj) > voters > proposals > election > snapshots >
replication > member.
"""

from walrus_node.metadata.raft.member import Raft
from walrus_node.metadata.raft.parts import Compaction, Disk, DivergedError, Hooks, Parts
from walrus_node.metadata.raft.pinned import MEMBERSHIP, NO_OP, REGULAR
from walrus_node.metadata.raft.proposals import COMMAND_BYTES_MAX
from walrus_node.metadata.raft.voters import encode_voters

__all__ = [
    "COMMAND_BYTES_MAX",
    "MEMBERSHIP",
    "NO_OP",
    "REGULAR",
    "Compaction",
    "Disk",
    "DivergedError",
    "Hooks",
    "Parts",
    "Raft",
    "encode_voters",
]

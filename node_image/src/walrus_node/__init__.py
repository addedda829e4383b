"""The broker node's control plane: membership, metadata over Raft, leases, HTTP. Records never pass through here."""

__version__ = "0.1.0"

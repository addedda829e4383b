"""The addresses at which the nodes of one cluster are reached, which of them is in use, and which cluster it is.

No lock, no network. `transport.py` asks nodes for the addresses of all, and leaves a node that cannot serve.
"""

import logging
from collections.abc import Collection, Iterable

_log = logging.getLogger(__name__)


class Addresses:
    """Those that the program was given, for as long as it runs, and those that a node named last."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = tuple(dict.fromkeys(given))
        assert self._given, "parse_addresses never answers an empty tuple"
        self._all = list(self._given)
        self._position = 0
        # The id that the first node told which told one, or that of the cluster which continues that one.
        self.cluster_id = ""

    def are_of(self, cluster_id: str, former_ids: Collection[str]) -> bool:
        """Whether a node is of the cluster of the first one that told its id, or of the one that continues it.

        Metadata that lost their majority go on as another cluster, which tells whom it continues; there is no way back.
        """
        if self.cluster_id in former_ids:
            _log.warning(
                "cluster %s goes on as %s, since its metadata were recovered: what was acknowledged last may be lost",
                self.cluster_id,
                cluster_id,
            )
            self.cluster_id = cluster_id
        self.cluster_id = self.cluster_id or cluster_id
        return cluster_id == self.cluster_id

    @property
    def in_use(self) -> str:
        """The one that is asked next."""
        return self._all[self._position]

    def __len__(self) -> int:
        return len(self._all)

    def is_given(self, address: str) -> bool:
        """Whether the program named it, and not only a node."""
        return address in self._given

    def besides(self, left: str) -> tuple[str, ...]:
        """Those to ask in the place of *left*, the next one first: all others, or *left* where it is alone."""
        turned = (*self._all[self._position :], *self._all[: self._position])
        return tuple(address for address in turned if address != left) or (left,)

    def leave(self, address: str) -> None:
        """Goes on to the next one, unless *address* is not in use any more."""
        if self.in_use == address:
            self._position = (self._position + 1) % len(self._all)

    def prefer(self, address: str) -> None:
        """Goes on to *address*, which need not be one of them yet."""
        if address not in self._all:
            self._all.append(address)
        self._position = self._all.index(address)

    def replace(self, named: Iterable[str]) -> None:
        """Takes in what a node says are the addresses of all: those that were named before and are not now are gone.

        The one in use stays in use, since it has just answered; those that were given come last, as they may be old.
        """
        self._all = list(dict.fromkeys((self.in_use, *(address for address in named if address), *self._given)))
        self._position = 0

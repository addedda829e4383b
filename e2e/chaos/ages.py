"""How old a record is by the clocks that decide what a topic still keeps. Pure.

Whoever makes records stamps them by this program's clock, which is right. Brokers go by the time that a majority of
their clocks has reached, so faults that put a majority of them ahead make everything old that was there meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

MARGIN_S = 0.05  # for stamps of whole milliseconds
TOLD_S = 30.0  # a clock that is right again has been told to the metadata by then


@dataclass
class Clocks:
    """When the clocks of which of the brokers were ahead, as (node, from, until)."""

    brokers: int
    ahead: list[tuple[int, float, float]] = field(default_factory=list)

    def go_ahead(self, nodes: Iterable[int], now_s: float) -> None:
        """From now on these are ahead."""
        self.ahead += [(node, now_s, float("inf")) for node in nodes]

    def are_right(self, now_s: float) -> None:
        """All clocks are right again, and are told soon."""
        self.ahead = [(node, since_s, min(until_s, now_s + TOLD_S)) for node, since_s, until_s in self.ahead]

    def may_have_passed(self, kept_s: float, since_s: float, now_s: float) -> bool:
        """Whether something of that time may be older than *kept_s* to the brokers."""
        return now_s >= since_s + kept_s - MARGIN_S or self._were_ahead(since_s, now_s)

    def _were_ahead(self, since_s: float, until_s: float) -> bool:
        """Whether a majority was ahead at some time between the two."""
        moments = [max(since_s, first_s) for _, first_s, _ in self.ahead if first_s <= until_s]
        return any(2 * len(self._ahead_at(moment_s)) > self.brokers for moment_s in moments)

    def _ahead_at(self, moment_s: float) -> set[int]:
        return {node for node, first_s, last_s in self.ahead if first_s <= moment_s <= last_s}

"""What brokers are told when one of them goes. Everything is asked once more right before it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from walrus_operator.act.stopped import Stopped
from walrus_operator.desired.names import REPLACE
from walrus_operator.observe.brokers import BrokerError, Brokers, DepartureRefused, Lost
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Wait


class Departing:
    """Tells the metadata leader, who knows what everyone has. Calls raise `Stopped` where it cannot be done now."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def check(self, pod: str, disk: str, snapshot: Snapshot) -> None:
        """The pod, if it answered at the last look, is still on this disk."""
        if snapshot.brokers.get(pod) is None:
            return
        try:
            told = await self._brokers.look(snapshot.pods[pod].ip or "")
        except BrokerError as error:
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{pod} does not answer any more: {error}")) from error
        if told.disk != disk:
            raise Stopped(Wait(Gate.CHANGED_MEANWHILE, f"{pod} is on another disk since: {told.disk}"))

    async def start(self, disk: str, snapshot: Snapshot) -> None:
        """The broker of this disk hands over what it has."""
        await self._tell(snapshot, lambda host: self._brokers.start_drain(host, disk, snapshot.credentials()))

    async def cancel(self, disk: str, snapshot: Snapshot) -> None:
        """It is given segments again."""
        await self._tell(snapshot, lambda host: self._brokers.cancel_drain(host, disk, snapshot.credentials()))

    async def remove(self, pod: str, disk: str, snapshot: Snapshot) -> None:
        """The disk leaves the cluster, if it is still empty."""

        async def remove(host: str) -> None:
            drain = await self._brokers.drain(host, disk)
            if not drain.done:
                detail = f"{pod} leads {drain.led} segments and stores {drain.held} since the last look"
                raise Stopped(Wait(Gate.DRAINING, detail))
            await self._brokers.remove_member(host, disk, None, snapshot.credentials())

        await self._tell(snapshot, remove)

    async def check_silent(self, disk: str, snapshot: Snapshot) -> None:
        """Nobody hears from the disk, as whoever leads the metadata says now."""

        async def check(host: str) -> None:
            told = await self._brokers.look(host)
            if told.role != "Leader" or any(member.disk == disk and member.alive for member in told.members):
                raise Stopped(Wait(Gate.CHANGED_MEANWHILE, f"disk {disk} is back, and is not given up"))

        await self._tell(snapshot, check)

    async def check_spared(self, pod: str, disk: str, snapshot: Snapshot) -> None:
        """The others can do without what the disk stores, as whoever leads the metadata says now."""

        async def check(host: str) -> None:
            reasons = await self._brokers.can_stop(host, disk)
            if reasons:
                detail = (
                    f"{pod} is lost, and the others cannot do without its disk: {'; '.join(reasons)}. Bring its node"
                    f" back; or accept that this is gone, with {REPLACE}={disk}"
                )
                raise Stopped(Wait(Gate.QUORUM_TIGHT, detail))

        await self._tell(snapshot, check)

    async def give_up(self, disk: str, by: str, snapshot: Snapshot) -> None:
        """The disk leaves the cluster with what it stored; *by* is the disk of a member that came in its place."""
        await self._tell(
            snapshot, lambda host: self._brokers.remove_member(host, disk, Lost(by), snapshot.credentials())
        )

    async def check_out(self, disk: str, snapshot: Snapshot) -> None:
        """The disk has left the cluster, as whoever leads the metadata says now."""

        async def check(host: str) -> None:
            told = await self._brokers.look(host)
            if told.role != "Leader" or any(member.disk == disk for member in told.members):
                raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"whether disk {disk} left the cluster is looked at again"))

        await self._tell(snapshot, check)

    async def _tell(self, snapshot: Snapshot, tell: Callable[[str], Awaitable[None]]) -> None:
        leading = snapshot.leader()
        if leading is None:
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, "no broker leads the metadata"))
        try:
            await tell(snapshot.pods[leading[0]].ip or "")
        except DepartureRefused as refused:
            raise Stopped(Wait(Gate.QUORUM_TIGHT, f"the brokers do not let one go now: {refused}")) from refused
        except BrokerError as error:
            raise Stopped(Wait(Gate.UNKNOWN_BROKER, f"{leading[0]} does not answer: {error}")) from error

"""What brokers tell through the Admin API. The only place that knows its client; it blocks, so it runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from walrus_operator.desired.topics import Wanted
from walrus_operator.observe.snapshot import Broker, Config, Drain, Replication
from walrus_operator.observe.topics import Compared


@dataclass(frozen=True)
class Lost:
    """A disk is gone with what it stored."""

    replaced_by: str = ""
    """The disk of a member that came in its place; "" where none did yet."""


class BrokerError(Exception):
    """A broker did not answer, or not in time."""


class ConfigRefused(Exception):  # noqa: N818 - called by what happened
    """The brokers do not take the configuration. Says why."""


class ConfigMoved(Exception):  # noqa: N818 - called by what happened
    """Another one changed the configuration first: look again."""


class LevelRefused(Exception):  # noqa: N818 - called by what happened
    """A member of the cluster does not know the level. Says which."""


class DepartureRefused(Exception):  # noqa: N818 - called by what happened
    """The brokers do not let one of them go now. Says why."""


class TopicRefused(Exception):  # noqa: N818 - called by what happened
    """The brokers do not take what a topic shall be. Says why."""


class TopicMoved(Exception):  # noqa: N818 - called by what happened
    """Another one changed or deleted the topic first: look again."""


class Brokers(Protocol):
    """Brokers, by host. Every call ends within a few seconds.

    Calls that change something take `secrets`, the file that the brokers share, where they share one; a broker that
    does not take it raises `BrokerError`.
    """

    async def look(self, host: str) -> Broker:
        """What the broker tells about itself. Raises `BrokerError`."""

    async def config(self, host: str) -> Config:
        """The cluster's configuration, as the broker knows it. Raises `BrokerError`."""

    async def set_config(
        self,
        host: str,
        entries: Mapping[str, int],
        unset: Iterable[str],
        expect_version: int,
        secrets: bytes | None,
    ) -> int:
        """Change the cluster's configuration, and take settings back to each broker's own; returns its version.

        Raises `ConfigMoved` where it is not at `expect_version`, `ConfigRefused`, `BrokerError`.
        """

    async def caught_up(self, host: str) -> tuple[str, ...]:
        """What the broker still lacks; empty: nothing. Raises `BrokerError`."""

    async def can_stop(self, host: str, disk: str) -> tuple[str, ...]:
        """Why the broker of this disk should not stop now, as another one sees it. Raises `BrokerError`."""

    async def transfer_leadership(self, host: str, secrets: bytes | None) -> None:
        """Let another broker lead the metadata; returns once it does. Raises `BrokerError`."""

    async def finalize_level(self, host: str, level: int, secrets: bytes | None) -> None:
        """Let the cluster use commands up to this level; again changes nothing.

        Raises `LevelRefused`, `BrokerError`.
        """

    async def start_drain(self, host: str, disk: str, secrets: bytes | None) -> None:
        """Let the broker of this disk hand over what it has; again changes nothing.

        Raises `DepartureRefused`, `BrokerError`.
        """

    async def cancel_drain(self, host: str, disk: str, secrets: bytes | None) -> None:
        """Give the broker of this disk segments again. Raises `DepartureRefused`, `BrokerError`."""

    async def drain(self, host: str, disk: str) -> Drain:
        """How far the broker of this disk is with handing over, as whoever is asked knows. Raises `BrokerError`."""

    async def remove_member(self, host: str, disk: str, lost: Lost | None, secrets: bytes | None) -> None:
        """Take the disk out of the cluster for good; one that is out is fine. With what it stores only if it is lost.

        Raises `DepartureRefused`, `BrokerError`.
        """

    async def set_replication(self, host: str, replication: Replication, secrets: bytes | None) -> None:
        """Change how segments are replicated; again changes nothing. Raises `ConfigRefused`, `BrokerError`."""

    async def compare_topics(self, host: str, wanted: Sequence[Wanted]) -> list[Compared]:
        """What there is of wanted topics, in their order, as of now. Raises `BrokerError`."""

    async def make_topic(self, host: str, wanted: Wanted, secrets: bytes | None) -> None:
        """Make a topic; one that has the name is left as it is. Raises `TopicRefused`, `BrokerError`."""

    async def set_topic_config(
        self,
        host: str,
        topic: str,
        entries: Mapping[str, str],
        unset: Sequence[str],
        expect_version: int,
        secrets: bytes | None,
    ) -> None:
        """Change settings of a topic. Raises `TopicMoved`, `TopicRefused`, `BrokerError`."""

    async def set_topic_partitions(self, host: str, topic: str, partitions: int, secrets: bytes | None) -> None:
        """Give a topic more partitions. Raises `TopicMoved`, `TopicRefused`, `BrokerError`."""

    async def remove_topic(self, host: str, topic: str, secrets: bytes | None) -> None:
        """Delete a topic with its records; one that is gone is fine. Raises `TopicRefused`, `BrokerError`."""

    async def set_log_level(self, host: str, level: str, secrets: bytes | None) -> None:
        """Let this broker log more or less, until it is started again. Raises `ConfigRefused`, `BrokerError`."""


async def look_all(brokers: Brokers, hosts: Mapping[str, str]) -> dict[str, Broker | None]:
    """Ask all at once; None for each that does not answer."""

    async def ask(host: str) -> Broker | None:
        try:
            return await brokers.look(host)
        except BrokerError:
            return None

    answers = await asyncio.gather(*(ask(host) for host in hosts.values()))
    return dict(zip(hosts, answers, strict=True))

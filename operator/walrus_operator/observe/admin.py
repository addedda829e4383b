"""`Brokers` over the Admin API's client. It blocks, so every call runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from walrus_client import admin, errors
from walrus_client.admin import AdminClient, Status

from walrus_operator.api.releases import Wire
from walrus_operator.clock import monotonic
from walrus_operator.desired.names import ADMIN_PORT
from walrus_operator.desired.topics import Wanted
from walrus_operator.kube.api import WRITE_MAX_S
from walrus_operator.observe.brokers import (
    BrokerError,
    ConfigMoved,
    ConfigRefused,
    DepartureRefused,
    LevelRefused,
    Lost,
    TopicMoved,
    TopicRefused,
)
from walrus_operator.observe.connections import Connections
from walrus_operator.observe.snapshot import Broker, Config, Drain, Member, Replication
from walrus_operator.observe.topics import Compared, Difference, FoundTopic

T = TypeVar("T")

_TIMEOUT_S = 3.0
_TOGETHER_S = 15.0
_LATER = "LevelNotReached"
"""The refusal of a cluster that was just founded, or whose brokers are being upgraded: it knows such commands later."""


class AdminBrokers:
    """Brokers by the addresses of their pods."""

    def __init__(self, threads: int = 16, port: int = ADMIN_PORT, fence: Callable[[], None] = lambda: None) -> None:
        """`fence` is asked when a call that changes something is sent; the call raises what it raises."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="admin")
        self._port = port
        self._fence = fence
        self._connections = Connections(_TIMEOUT_S, monotonic)

    async def close(self) -> None:
        """End the threads; calls under way are waited for, as whoever was cancelled did not."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._connections.close()

    async def look(self, host: str) -> Broker:
        """What the broker tells about itself."""
        return _broker(await self._look(host, AdminClient.status))

    async def config(self, host: str) -> Config:
        """The cluster's configuration, as the broker knows it."""
        told = await self._look(host, AdminClient.config)
        return Config(told.version, dict(told.entries))

    async def set_config(
        self,
        host: str,
        entries: Mapping[str, int],
        unset: Iterable[str],
        expect_version: int,
        secrets: bytes | None,
    ) -> int:
        """Change the cluster's configuration."""
        try:
            return await self._change(
                host, lambda client: client.set_config(entries, unset=unset, expect_version=expect_version), secrets
            )
        except errors.VersionMismatch as moved:
            raise ConfigMoved(str(moved)) from moved
        except errors.RejectedError as refused:
            raise ConfigRefused(str(refused)) from refused

    async def caught_up(self, host: str) -> tuple[str, ...]:
        """What the broker still lacks."""
        return await self._ask(host, AdminClient.caught_up)

    async def can_stop(self, host: str, disk: str) -> tuple[str, ...]:
        """Why the broker of this disk should not stop now."""
        found = await self._ask(host, lambda client: client.can_stop(disk))
        return () if found.can_stop else found.reasons

    async def transfer_leadership(self, host: str, secrets: bytes | None) -> None:
        """Let another broker lead the metadata."""
        try:
            await self._change(host, AdminClient.transfer_leadership, secrets, WRITE_MAX_S)
        except errors.RejectedError as refused:
            raise BrokerError(f"{host}: {refused}") from refused

    async def finalize_level(self, host: str, level: int, secrets: bytes | None) -> None:
        """Let the cluster use commands up to this level."""
        try:
            await self._change(host, lambda client: client.finalize_level(level), secrets, WRITE_MAX_S)
        except errors.RejectedError as refused:
            raise LevelRefused(str(refused)) from refused

    async def start_drain(self, host: str, disk: str, secrets: bytes | None) -> None:
        """Let the broker of this disk hand over what it has."""
        await self._let_go(host, lambda client: client.start_drain(disk), secrets)

    async def cancel_drain(self, host: str, disk: str, secrets: bytes | None) -> None:
        """Give the broker of this disk segments again."""
        await self._let_go(host, lambda client: client.cancel_drain(disk), secrets)

    async def drain(self, host: str, disk: str) -> Drain:
        """How far the broker of this disk is with handing over."""
        told = await self._ask(host, lambda client: client.drain(disk))
        return Drain(told.segments_led, told.segments_held, told.done)

    async def remove_member(self, host: str, disk: str, lost: Lost | None, secrets: bytes | None) -> None:
        """Take the disk out of the cluster for good."""
        by = lost.replaced_by if lost is not None else ""
        await self._let_go(
            host, lambda client: client.remove_member(disk, lost=lost is not None, replaced_by=by), secrets
        )

    async def _let_go(self, host: str, change: Callable[[AdminClient], object], secrets: bytes | None) -> None:
        try:
            await self._change(host, change, secrets, WRITE_MAX_S)
        except errors.RejectedError as refused:
            raise DepartureRefused(str(refused)) from refused

    async def set_replication(self, host: str, replication: Replication, secrets: bytes | None) -> None:
        """Change how segments are replicated."""
        wanted = admin.Replication(replication.factor, replication.write_quorum)
        try:
            await self._change(host, lambda client: client.set_replication(wanted), secrets)
        except errors.RejectedError as refused:
            raise ConfigRefused(str(refused)) from refused

    async def compare_topics(self, host: str, wanted: Sequence[Wanted]) -> list[Compared]:
        """What there is of wanted topics."""
        asked = [admin.WantedTopic(topic.org, topic.name, topic.config) for topic in wanted]
        return [_compared(one) for one in await self._ask(host, lambda client: client.compare_topics(asked))]

    async def make_topic(self, host: str, wanted: Wanted, secrets: bytes | None) -> None:
        """Make a topic."""

        def make(client: AdminClient) -> None:
            client.make_topic(wanted.org, wanted.name, partitions=wanted.partitions, config=wanted.config)

        await self._change_topic(host, make, secrets)

    async def set_topic_config(
        self,
        host: str,
        topic: str,
        entries: Mapping[str, str],
        unset: Sequence[str],
        expect_version: int,
        secrets: bytes | None,
    ) -> None:
        """Change settings of a topic."""

        def change(client: AdminClient) -> None:
            client.set_topic_config(topic, entries, unset=unset, expect_version=expect_version)

        await self._change_topic(host, change, secrets)

    async def set_topic_partitions(self, host: str, topic: str, partitions: int, secrets: bytes | None) -> None:
        """Give a topic more partitions."""
        await self._change_topic(host, lambda client: client.set_topic_partitions(topic, partitions), secrets)

    async def remove_topic(self, host: str, topic: str, secrets: bytes | None) -> None:
        """Delete a topic."""
        with suppress(TopicMoved):
            await self._change_topic(host, lambda client: client.remove_topic(topic), secrets)

    async def _change_topic(self, host: str, change: Callable[[AdminClient], None], secrets: bytes | None) -> None:
        try:
            await self._change(host, change, secrets)
        except (errors.VersionMismatch, errors.UnknownTopic) as moved:
            raise TopicMoved(str(moved)) from moved
        except errors.RejectedError as refused:
            if refused.reason == _LATER:
                raise BrokerError(f"{host}: {refused}") from refused
            raise TopicRefused(str(refused)) from refused

    async def set_log_level(self, host: str, level: str, secrets: bytes | None) -> None:
        """Let this broker log more or less."""
        try:
            await self._change(host, lambda client: client.set_log_level(level), secrets)
        except errors.RejectedError as refused:
            raise ConfigRefused(str(refused)) from refused

    async def _ask(self, host: str, ask: Callable[[AdminClient], T]) -> T:
        """A question that brokers ask each other first, before they answer; a refusal is as good as no answer."""
        try:
            return await self._call(host, ask, _TOGETHER_S)
        except errors.RejectedError as refused:
            raise BrokerError(f"{host}: {refused}") from refused

    async def _change(
        self,
        host: str,
        change: Callable[[AdminClient], T],
        secrets: bytes | None,
        timeout_s: float = _TIMEOUT_S,
    ) -> T:
        """A call that changes something: only while this operator may write, and with what the brokers share."""

        def fenced(client: AdminClient) -> T:
            self._fence()
            return change(client)

        try:
            return await self._call(host, fenced, timeout_s, secrets)
        except errors.Unauthenticated as refused:
            raise BrokerError(f"{host}: {refused}") from refused

    async def _look(self, host: str, ask: Callable[[AdminClient], T]) -> T:
        """A question that a broker answers by itself, over a connection that is kept for the next one."""
        address = self._address(host)
        return await self._run(address, lambda: self._connections.ask(address, ask))

    async def _call(
        self,
        host: str,
        ask: Callable[[AdminClient], T],
        timeout_s: float = _TIMEOUT_S,
        secrets: bytes | None = None,
    ) -> T:
        address = self._address(host)

        def call() -> T:
            with AdminClient(address, timeout=timeout_s, secrets=secrets) as client:
                return ask(client)

        return await self._run(address, call)

    def _address(self, host: str) -> str:
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    async def _run(self, address: str, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except errors.RejectedError:
            raise
        except errors.WalrusError as error:
            raise BrokerError(f"{address}: {error}") from error


def _broker(told: Status) -> Broker:
    metadata, storage, replication, wire = told.metadata, told.storage, told.replication, told.wire_versions
    return Broker(
        cluster_id=told.identity.cluster_id or "",
        node_id=told.identity.node_id or 0,
        disk=told.identity.disk,
        version=told.identity.version,
        missing=told.missing,
        role=metadata.role.title() if metadata else "",
        term=metadata.term if metadata else 0,
        segments_led=told.segments_led,
        under_replicated=told.under_replicated,
        replication=Replication(replication.factor, replication.write_quorum) if replication else None,
        spare_brokers=told.spare_nodes,
        config_version=told.config_version,
        backend_asked=storage.backend_asked,
        backend_in_use=storage.backend_in_use or "",
        backend_reason=storage.reason or "",
        synced_writes=storage.synced_writes or "",
        cached_reason=storage.cached_reason or "",
        bytes_free=storage.bytes_free,
        bytes_total=storage.bytes_total,
        log_level=told.log_level,
        members=tuple(
            Member(
                *(node.disk, node.name, node.alive, node.state == "draining"),
                level_known=node.level_known,
                zone=node.zone,
                voter=node.voter,
            )
            for node in told.nodes
        ),
        segments_held=told.segments_held,
        bytes_held=told.bytes_held,
        in_one_zone=told.copies.in_one_zone if told.copies is not None else 0,
        copies_needed=told.copies_needed,
        level=metadata.level if metadata else 0,
        level_known=told.level_known,
        wire=Wire(wire.oldest, wire.newest) if wire else None,
        former_cluster_ids=told.identity.former_cluster_ids,
    )


def _compared(told: admin.ComparedTopic) -> Compared:
    found = told.found
    return Compared(
        refused=told.refused or "",
        found=None
        if found is None
        else FoundTopic(
            id=found.topic,
            partitions=found.partitions,
            version=found.version,
            factor=found.replication.factor,
            differences=tuple(Difference(one.name, one.wanted, one.found) for one in found.differences),
            settings=tuple((one.name, one.value, one.source) for one in found.settings),
            leaders=found.leaders,
            sealed_bytes=found.sealed_bytes,
        ),
    )

"""Brokers by port-forward to their pods, with the rights of whoever asks. Nothing is changed through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TypeVar

from walrus_operator.cli.user import UserApi
from walrus_operator.desired.names import ADMIN_PORT
from walrus_operator.kube.api import KubeError
from walrus_operator.kube.tunnel import local_port
from walrus_operator.observe.admin import AdminBrokers
from walrus_operator.observe.brokers import BrokerError
from walrus_operator.observe.snapshot import Broker, Config, Drain

T = TypeVar("T")


class ReachedBrokers:
    """The reads of `Brokers` by the addresses of their pods, each over a port of this machine that leads there."""

    def __init__(self, kube: UserApi, namespace: str, pods: Mapping[str, str]) -> None:
        """*pods* are their names by address."""
        self._kube = kube
        self._namespace = namespace
        self._pods = pods
        self.troubles: dict[str, str] = {}
        """Why a pod could not be asked, by its name."""

    async def look(self, host: str) -> Broker:
        """What the broker tells about itself. Raises `BrokerError`."""
        pod = self._pods[host]
        try:
            return await self._ask(pod, lambda brokers: brokers.look("127.0.0.1"))
        except BrokerError as error:
            self.troubles[pod] = str(error)
            raise

    async def config(self, host: str) -> Config:
        """The cluster's configuration, as the broker knows it. Raises `BrokerError`."""
        return await self._ask(self._pods[host], lambda brokers: brokers.config("127.0.0.1"))

    async def drain(self, host: str, disk: str) -> Drain:
        """How far the broker of this disk is with handing over. Raises `BrokerError`."""
        return await self._ask(self._pods[host], lambda brokers: brokers.drain("127.0.0.1", disk))

    async def _ask(self, pod: str, ask: Callable[[AdminBrokers], Awaitable[T]]) -> T:
        refusals: list[str] = []
        with ExitStack() as stack:
            port = stack.enter_context(
                local_port(self._kube.connecting(self._namespace, pod, ADMIN_PORT, refusals.append))
            )
            brokers = AdminBrokers(threads=1, port=port)
            try:
                return await ask(brokers)
            except (BrokerError, KubeError) as error:
                raise BrokerError(refusals[0] if refusals else str(error)) from error
            finally:
                await brokers.close()

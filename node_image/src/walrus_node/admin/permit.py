"""Who may change something through the admin service: whoever has the token of the cluster's secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
from walrus_client.v1 import admin_pb2

from walrus_node.admin.refusals import refuse
from walrus_node.secret import Secrets

_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
_HEADER, _SCHEME = "authorization", "Bearer "
# Calls that only read; what is not listed changes something. Health and reflection are services of their own.
_READS = frozenset(
    f"/{_ADMIN}/{name}"
    for name in (
        "Identity",
        "Status",
        "GetConfig",
        "ListOrganisations",
        "CompareTopics",
        "ListMembers",
        "CanStop",
        "DescribeSegments",
        "CaughtUp",
        "ListRemains",
        "ListLostTopics",
        "GetDrain",
    )
)

# A string: grpcio's class takes parameters in its stubs only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


def authorization(secrets: Secrets) -> tuple[str, str]:
    """What a node sends along when it passes a call on."""
    return _HEADER, _SCHEME + secrets.token()


class Permit(grpc.aio.ServerInterceptor):
    """Asks for the token where nodes share a secret; where they do not, only this machine reaches the service."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], call: grpc.HandlerCallDetails
    ) -> Handler:
        """The handler of the call, or one that refuses it."""
        method = call.method
        if not self._secrets.are_shared or method in _READS or not method.startswith(f"/{_ADMIN}/"):
            return await continuation(call)
        given = next((value for name, value in call.invocation_metadata or () if name == _HEADER), "")
        given = given if isinstance(given, str) else ""
        if given.startswith(_SCHEME) and self._secrets.admits(given.removeprefix(_SCHEME)):
            return await continuation(call)
        why = "the token is of no secret of this node" if given else "it needs the cluster's secret"

        async def refuse_call(_request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            message = f"{method.rpartition('/')[2]} changes something: {why}; give the nodes' --secret-file"
            await refuse(context, "Unauthenticated", message)

        return grpc.unary_unary_rpc_method_handler(refuse_call)

"""The forced recovery of the metadata, as the admin service takes it: who must answer, who knows most, who follows.

What is done then is in `recovery.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio
from walrus_client.v1 import admin_pb2, admin_pb2_grpc

from walrus_node.admin.permit import authorization
from walrus_node.metadata.reports import Node
from walrus_node.secret import Secrets

_PATIENCE_S = 5.0


async def why_not_from_here(own: admin_pb2.MetadataStatus, others: Sequence[Node]) -> str | None:
    """Why another member must be asked, or brought back; `None`: this node knows as much as each of the others."""
    statuses = await asyncio.gather(*map(_status_of, others), return_exceptions=True)
    silent = [
        str(node.disk) for node, status in zip(others, statuses, strict=True) if isinstance(status, BaseException)
    ]
    if silent:
        return f"neither there nor named as gone: disk {', '.join(silent)}"
    for node, status in zip(others, statuses, strict=True):
        assert not isinstance(status, BaseException), "looked at above"
        if (status.last_term, status.last_index) > (own.last_term, own.last_index):
            where = node.admin_address
            return f"node {node.node_id} knows more of the metadata than this one: ask it, at --admin {where}"
    return None


async def lead_over(cluster_id: str, seed: str, others: Sequence[Node], secrets: Secrets) -> list[str]:
    """Have the others follow into the new cluster; answers the disks of those that did not hear of it."""
    request = admin_pb2.RecoverMetadataRequest(follow=cluster_id, seeds=[seed])

    async def tell(node: Node) -> str | None:
        async with _channel(node) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call] # generated
            try:
                await stub.RecoverMetadata(request, timeout=_PATIENCE_S, metadata=(authorization(secrets),))
            except grpc.aio.AioRpcError:
                return str(node.disk)
            return None

    return [disk for disk in await asyncio.gather(*map(tell, others)) if disk is not None]


async def _status_of(node: Node) -> admin_pb2.MetadataStatus:
    async with _channel(node) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)  # type: ignore[no-untyped-call] # generated
        answer: admin_pb2.StatusResponse = await stub.Status(admin_pb2.StatusRequest(), timeout=_PATIENCE_S)
        return answer.metadata


def _channel(node: Node) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(node.admin_address, options=[("grpc.enable_http_proxy", 0)])

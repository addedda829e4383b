"""The gRPC server of the admin service, with the standard health and reflection services."""

from __future__ import annotations

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from walrus_client.v1 import admin_pb2, admin_pb2_grpc

from walrus_node.admin.calls import View
from walrus_node.admin.permit import Permit
from walrus_node.admin.service import Actions, AdminService
from walrus_node.secret import Secrets

_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
_STOP_S = 0.2


class AdminServer:
    """Listens from `start` on, also while the node waits for admission: health is that of the listener."""

    def __init__(self, view: View, actions: Actions, secrets: Secrets) -> None:
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=[Permit(secrets)])
        admin_pb2_grpc.add_AdminServicer_to_server(AdminService(view, actions, secrets), self._server)  # type: ignore[no-untyped-call] # generated
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, path: str) -> None:
        """Listen on a UNIX socket; raises `RuntimeError`."""
        for name in ("", _SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Close the listener; calls under way have a moment."""
        await self._server.stop(_STOP_S)
